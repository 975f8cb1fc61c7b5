// Sorting rows of n elements side by side, by 8 bits at a time from the lowest, stable.
//
// MODE 1  n up to 64: a warp to a row counts for each element how many come before it.
// MODE 2  n up to THREADS ITEMS: a block to a row, all passes in shared memory (SHARED bytes).
// MODE 3  counts of all digits of a row: grid rows parts, each part a chunk.
// MODE 4  counts to first places: a block of 256 threads to a row and pass.
// MODE 5  one pass over rows of any length below 2^32: as many blocks as the device holds take
//         tiles of THREADS ITEMS by ticket; where a tile's digits go follows from the counts shown
//         by the tiles before it. While a block waits for them and writes, the keys of its next
//         tile are on their way. FIRST reads elements, LAST writes what is wanted (SHARED bytes).
// Settings: X an element, PASSES (digits that count), DESCENDING, PAIRS (a place travels with each
// key), VALUES and PLACES (what is written), PLACE (type of a place written), STATUS (u32 for rows
// below 2^30, else u64), SHIFT (of a pass), BLOCKS to a multiprocessor. MODE 1 and 2 write only the
// first `kept`.
#include "ruda/keys.cuh"
#include "ruda/together.cuh"

typedef Key<X>::U U;
#define WARPS (THREADS / 32)
#define TILE (THREADS * ITEMS)
#define DIGITS 256

__device__ __forceinline__ U key_of(X v) { return ordered(v, PAIRS, DESCENDING); }
__device__ __forceinline__ int digit_of(U key, int shift) { return (int)(key >> shift) & 255; }

#if MODE == 2 || MODE == 5
// The lanes of the warp with another digit. Integer work bounds a pass, most of it this.
__device__ __forceinline__ u32 lanes_without(u32 digit) {
    return lanes_unlike<1>(digit) | lanes_unlike<2>(digit) | lanes_unlike<4>(digit) |
           lanes_unlike<8>(digit) | lanes_unlike<16>(digit) | lanes_unlike<32>(digit) |
           lanes_unlike<64>(digit) | lanes_unlike<128>(digit);
}

// rank[k]: how many equal digits lie before key k in this warp's part of the tile, which is 32
// ITEMS keys in a row, key k of a lane at 32 k + lane. counts [WARPS, 256] ends as totals of the
// warps.
__device__ __forceinline__ void rank_in_warps(const U (&key)[ITEMS], int shift, u32* counts,
                                              u16 (&rank)[ITEMS]) {
    for (int i = threadIdx.x; i < WARPS * DIGITS; i += THREADS) counts[i] = 0;
    __syncthreads();
    const u32 lane = threadIdx.x & 31, below = (1u << lane) - 1, above = ~below << 1;
    u32* own = counts + (threadIdx.x >> 5) * DIGITS;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const int digit = digit_of(key[k], shift);
        const u32 differ = lanes_without((u32)digit);
        const u32 before = __popc(~differ & below);
        u32* count = own + digit;
        const u32 end = *count + before;
        __syncwarp();
        if ((~differ & above) == 0) *count = end + 1;
        __syncwarp();
        rank[k] = (u16)end;
    }
    __syncthreads();
}

__device__ __forceinline__ u32 over_warps(const u32* counts, int digit) {
    u32 sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) sum += counts[w * DIGITS + digit];
    return sum;
}
// Of one digit: counts become where each warp's keys start, the first at `start`.
__device__ __forceinline__ void starts_of_warps(u32* counts, int digit, u32 start) {
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        const u32 here = counts[w * DIGITS + digit];
        counts[w * DIGITS + digit] = start;
        start += here;
    }
}
#endif

#if MODE == 1
extern "C" __global__ void __launch_bounds__(THREADS, 4)
NAME(X* __restrict__ values, PLACE* __restrict__ places, const X* __restrict__ x,
     const i64* __restrict__ given, const i64 rows, const int n, const int kept) {
    __shared__ U keys[WARPS][64];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (i64 row = (i64)blockIdx.x * WARPS + warp; row < rows; row += (i64)gridDim.x * WARPS) {
        for (int i = lane; i < n; i += 32) keys[warp][i] = key_of(x[row * n + i]);
        __syncwarp();
        for (int i = lane; i < n; i += 32) {
            const U key = keys[warp][i];
            int rank = 0;
            for (int j = 0; j < n; ++j) {
                const U other = keys[warp][j];
                rank += other < key || (other == key && j < i);
            }
            if (rank >= kept) continue;
            if (VALUES) values[row * kept + rank] = x[row * n + i];
            if (PLACES) places[row * kept + rank] = given ? (PLACE)given[row * n + i] : i;
        }
        __syncwarp();
    }
}
#endif

#if MODE == 2
extern "C" __global__ void __launch_bounds__(THREADS, 2)
NAME(X* __restrict__ values, PLACE* __restrict__ places, const X* __restrict__ x,
     const i64* __restrict__ given, const i64 rows, const int n, const int kept) {
    DYNAMIC_SHARED(u32, counts);
    u32* room = counts + WARPS * DIGITS;
    U* keys = reinterpret_cast<U*>(room + 64);
    u16* from = reinterpret_cast<u16*>(keys + TILE);
    const int first = (threadIdx.x >> 5) * 32 * ITEMS + (threadIdx.x & 31);
    const i64 row = blockIdx.x;
    x += row * n;
    U key[ITEMS];
    u16 place[ITEMS];
    u16 rank[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const int i = first + 32 * k;
        key[k] = i < n ? key_of(x[i]) : (U)~(U)0;
        place[k] = (u16)i;
    }
#pragma unroll 1
    for (int pass = 0; pass < PASSES; ++pass) {
        rank_in_warps(key, 8 * pass, counts, rank);
        const int digit = threadIdx.x;
        const u32 total = digit < DIGITS ? over_warps(counts, digit) : 0;
        u32 all;
        const u32 start = sum_before<THREADS>(total, room, all);
        if (digit < DIGITS) starts_of_warps(counts, digit, start);
        __syncthreads();
        const u32* own = counts + (threadIdx.x >> 5) * DIGITS;
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
            const int to = (int)own[digit_of(key[k], 8 * pass)] + rank[k];
            keys[to] = key[k];
            from[to] = place[k];
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
            key[k] = keys[first + 32 * k];
            place[k] = from[first + 32 * k];
        }
    }
    // Elements past the end have the greatest key and are the last of it.
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const int i = first + 32 * k;
        if (i >= kept || i >= n) continue;
        if (VALUES) values[row * kept + i] = x[place[k]];
        if (PLACES) places[row * kept + i] = given ? (PLACE)given[row * n + place[k]] : place[k];
    }
}
#endif

#if MODE == 3
// A counter for each digit and column of lanes, in a bank that another lane may share: whatever the
// keys are like, threads hardly wait for each other.
#define COLUMNS (PASSES > 4 ? 8 : 16)
#define EACH (16 / (int)sizeof(X))
#define DEEP 4
struct alignas(16) Pack { X at[EACH]; };

__device__ __forceinline__ void tally(u32* own, U key) {
#pragma unroll
    for (int p = 0; p < PASSES; ++p)
        atomicAdd(own + (p * DIGITS + digit_of(key, 8 * p)) * COLUMNS, 1u);
}

// counts [rows, PASSES, 256], zeroed before; chunk a multiple of EACH, below 2^31.
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(STATUS* __restrict__ counts, const X* __restrict__ x, const i64 n, const i64 chunk,
     const i64 parts) {
    DYNAMIC_SHARED(u32, all);
    for (int i = threadIdx.x; i < PASSES * DIGITS * COLUMNS; i += THREADS) all[i] = 0;
    __syncthreads();
    u32* own = all + (threadIdx.x & (COLUMNS - 1));
    const i64 row = blockIdx.x / parts, start = (blockIdx.x - row * parts) * chunk;
    const int count = (int)(n - start < chunk ? n - start : chunk);
    x += row * n + start;
    int done = 0;
    if ((reinterpret_cast<u64>(x) & 15) == 0) {
        const int packs = count / EACH;
        const Pack* from = reinterpret_cast<const Pack*>(x);
        for (int i = threadIdx.x; i < packs; i += THREADS * DEEP) {
            Pack got[DEEP];
#pragma unroll
            for (int d = 0; d < DEEP; ++d)
                if (i + d * THREADS < packs) got[d] = from[i + d * THREADS];
#pragma unroll
            for (int d = 0; d < DEEP; ++d) {
                if (i + d * THREADS >= packs) continue;
#pragma unroll
                for (int k = 0; k < EACH; ++k) tally(own, key_of(got[d].at[k]));
            }
        }
        done = packs * EACH;
    }
    for (int i = done + threadIdx.x; i < count; i += THREADS) tally(own, key_of(x[i]));
    __syncthreads();
    counts += row * PASSES * DIGITS;
    for (int i = threadIdx.x; i < PASSES * DIGITS; i += THREADS) {
        u32 sum = 0;
        for (int c = 0; c < COLUMNS; ++c) sum += all[i * COLUMNS + ((c + i) & (COLUMNS - 1))];
        if (sum) atomicAdd(counts + i, (STATUS)sum);
    }
}
#endif

#if MODE == 4
// counts of one row and pass become the place where each digit starts.
extern "C" __global__ void __launch_bounds__(DIGITS) NAME(STATUS* __restrict__ counts) {
    __shared__ STATUS sums[2][DIGITS];
    STATUS* own = counts + (i64)blockIdx.x * DIGITS + threadIdx.x;
    const STATUS here = *own;
    sums[0][threadIdx.x] = here;
    int side = 0;
    for (int far = 1; far < DIGITS; far <<= 1, side ^= 1) {
        __syncthreads();
        STATUS sum = sums[side][threadIdx.x];
        if (threadIdx.x >= far) sum += sums[side][threadIdx.x - far];
        sums[side ^ 1][threadIdx.x] = sum;
    }
    *own = sums[side][threadIdx.x] - here;
}
#endif

#if MODE == 5
// The two highest bits of a status: nothing yet, this tile's count, the count up to this tile.
#define COUNTED ((STATUS)1 << (8 * sizeof(STATUS) - 2))
#define SUMMED ((STATUS)2 << (8 * sizeof(STATUS) - 2))
#define AMOUNT (COUNTED - 1)

// Tiles whose counts a thread asks for at once: one after the other they would be waited for in
// turn, longer than a tile takes.
#define WINDOW 8

__device__ __forceinline__ STATUS fresh(const STATUS* at) {
    return *reinterpret_cast<const volatile STATUS*>(at);
}

// Keys of a digit in the tiles before t; shows the sum up to this tile's own count.
__device__ __forceinline__ STATUS looked_back(STATUS* status, i64 t, STATUS here) {
    STATUS before = 0;
    bool summed = t == 0;
    for (i64 q = t - 1; !summed; q -= WINDOW) {
        STATUS seen[WINDOW];
#pragma unroll
        for (int j = 0; j < WINDOW; ++j)
            seen[j] = q < j ? SUMMED : fresh(status + (q - j) * DIGITS);
#pragma unroll
        for (int j = 0; j < WINDOW; ++j) {
            if (summed) continue;
            while (!(seen[j] & ~AMOUNT)) seen[j] = fresh(status + (q - j) * DIGITS);
            before += seen[j] & AMOUNT;
            summed = seen[j] & SUMMED;
        }
    }
    if (t > 0) *reinterpret_cast<volatile STATUS*>(status + t * DIGITS) = SUMMED | (before + here);
    return before;
}

#if FIRST
typedef X IN;
#else
typedef U IN;
#endif
#if LAST
typedef X TO;
typedef PLACE TARGET;
#else
typedef U TO;
typedef u32 TARGET;
#endif

struct Tile {
    u32 row, t;
    i64 first;
    int valid;
    // Of `tiles` a row of n.
    __device__ __forceinline__ Tile(u32 number, i64 n, u32 tiles) {
        row = number / tiles;
        t = number - row * tiles;
        const i64 start = (i64)t * TILE;
        first = row * n + start;
        valid = n - start < TILE ? (int)(n - start) : TILE;
    }
};

// Where key k of this thread lies in a tile.
__device__ __forceinline__ int spot(int k) {
    return (threadIdx.x >> 5) * 32 * ITEMS + (threadIdx.x & 31) + 32 * k;
}
#if FIRST
__device__ __forceinline__ U taken(X v) { return key_of(v); }
#else
__device__ __forceinline__ U taken(U key) { return key; }
#endif
// This thread's keys of a tile; past the end all ones.
__device__ __forceinline__ void load(U (&key)[ITEMS], const IN* x, const Tile& at) {
    x += at.first;
    if (at.valid == TILE) {
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) key[k] = taken(x[spot(k)]);
        return;
    }
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) key[k] = spot(k) < at.valid ? taken(x[spot(k)]) : (U)~(U)0;
}
// The places that came with them.
__device__ __forceinline__ void load_places(u32 (&place)[ITEMS], const u32* given, const Tile& at) {
    given += at.first;
    if (at.valid == TILE) {
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) place[k] = given[spot(k)];
        return;
    }
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) place[k] = spot(k) < at.valid ? given[spot(k)] : 0;
}

// Key i of the sorted tile goes to its place in the row.
__device__ __forceinline__ void write_out(TO* values, TARGET* places, const U* keys,
                                          const u32* from, const u32* base, int i) {
    const U one = keys[i];
    const u32 to = base[digit_of(one, SHIFT)] + i;
#if LAST
    if (VALUES) values[to] = unordered<X>(one, DESCENDING);
    if (PLACES) places[to] = from[i];
#else
    values[to] = one;
    if (PAIRS) places[to] = from[i];
#endif
}

// work, zero before: a ticket, then status [rows tiles, 256].
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
NAME(TO* __restrict__ values, TARGET* __restrict__ places, const IN* __restrict__ x,
     const u32* __restrict__ given, const STATUS* __restrict__ starts, u64* __restrict__ work,
     const i64 n, const u32 tiles, const u32 all_tiles) {
    DYNAMIC_SHARED(u32, base);
    u32* counts = base + DIGITS;
    u32* room = counts + WARPS * DIGITS;
    U* keys = reinterpret_cast<U*>(room + 64);
    u32* from = reinterpret_cast<u32*>(keys + TILE);
    __shared__ u32 ticket;
    if (threadIdx.x == 0) ticket = (u32)atomicAdd(work, 1ull);
    __syncthreads();
    u32 number = ticket;
    U key[ITEMS];
    if (number < all_tiles) load(key, x, Tile(number, n, tiles));
    while (number < all_tiles) {
        u32 next = 0;
        if (threadIdx.x == 0) next = (u32)atomicAdd(work, 1ull);
        const Tile at(number, n, tiles);
#if PAIRS && !FIRST
        u32 carried[ITEMS];
        load_places(carried, given, at);
#endif
        u16 rank[ITEMS];
        rank_in_warps(key, SHIFT, counts, rank);
        const int digit = threadIdx.x;
        STATUS* status = reinterpret_cast<STATUS*>(work + 1);
        status += (i64)(number - at.t) * DIGITS + digit;
        u32 total = 0;
        if (digit < DIGITS) {
            total = over_warps(counts, digit);
            *reinterpret_cast<volatile STATUS*>(status + (i64)at.t * DIGITS) =
                (at.t ? COUNTED : SUMMED) | (STATUS)total;
        }
        if (threadIdx.x == 0) ticket = next;
        u32 all;
        const u32 local = sum_before<THREADS>(total, room, all);
        if (digit < DIGITS) starts_of_warps(counts, digit, local);
        __syncthreads();
        const u32* own = counts + (threadIdx.x >> 5) * DIGITS;
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
            const u32 to = own[digit_of(key[k], SHIFT)] + rank[k];
            keys[to] = key[k];
#if PAIRS && FIRST
            from[to] = at.t * TILE + spot(k);
#elif PAIRS
            from[to] = carried[k];
#endif
        }
        number = ticket;
        if (number < all_tiles) load(key, x, Tile(number, n, tiles));
        if (digit < DIGITS) {
            const STATUS before = looked_back(status, at.t, (STATUS)total);
            const STATUS begin = starts[((i64)at.row * PASSES + SHIFT / 8) * DIGITS + digit];
            // Places in a row are below 2^32; what is less than 0 here is so again with i added.
            base[digit] = (u32)begin + (u32)before - local;
        }
        __syncthreads();
        TO* row_values = values + at.row * n;
        TARGET* row_places = places + at.row * n;
        if (at.valid == TILE) {
#pragma unroll
            for (int k = 0; k < ITEMS; ++k)
                write_out(row_values, row_places, keys, from, base, k * THREADS + threadIdx.x);
        } else {
            for (int i = threadIdx.x; i < at.valid; i += THREADS)
                write_out(row_values, row_places, keys, from, base, i);
        }
    }
}
#endif
