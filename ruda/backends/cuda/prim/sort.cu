// Sorting rows of n elements side by side, by 8 bits at a time from the lowest, stable.
//
// MODE 1  n up to 64: a warp to a row counts for each element how many come before it.
// MODE 2  n up to THREADS ITEMS: a block to a row, all passes in shared memory (SHARED bytes).
// MODE 3  counts of all digits of a row: grid rows parts, 1 KiB of shared memory a pass.
// MODE 4  counts to first places: a block of 256 threads to a row and pass.
// MODE 5  one pass over rows of any length below 2^32: a block to a tile of THREADS ITEMS, tiles in
//         the order of a ticket; where a tile's digits go follows from the counts shown by the tiles
//         before it. FIRST reads elements, LAST writes what is wanted (SHARED bytes).
// Settings: X an element, DESCENDING, PAIRS (a place travels with each key), VALUES and PLACES (what
// is written), STATUS (u32 for rows below 2^30, else u64). MODE 1 and 2 write the first `kept`.
#include "ruda/keys.cuh"
#include "ruda/together.cuh"

typedef Key<X>::U U;
#define WARPS (THREADS / 32)
#define TILE (THREADS * ITEMS)
#define PASSES ((int)sizeof(U))
#define DIGITS 256

__device__ __forceinline__ U key_of(X v) { return ordered(v, PAIRS, DESCENDING); }
__device__ __forceinline__ int digit_of(U key, int shift) { return (int)(key >> shift) & 255; }

#if MODE == 2 || MODE == 5
// The lanes of the warp with the same digit.
__device__ __forceinline__ u32 lanes_with(int digit) {
    u32 peers = 0xffffffffu;
#pragma unroll
    for (int b = 0; b < 8; ++b) {
        const bool one = digit >> b & 1;
        const u32 vote = __ballot_sync(0xffffffffu, one);
        peers &= one ? vote : ~vote;
    }
    return peers;
}

// rank[k]: how many equal digits lie before key k in this warp's part of the tile, which is 32 ITEMS
// keys in a row, key k of a lane at 32 k + lane. counts [WARPS, 256] ends as totals of the warps.
__device__ __forceinline__ void rank_in_warps(const U (&key)[ITEMS], int shift, u32* counts,
                                              int (&rank)[ITEMS]) {
    for (int i = threadIdx.x; i < WARPS * DIGITS; i += THREADS) counts[i] = 0;
    __syncthreads();
    const u32 below = (1u << (threadIdx.x & 31)) - 1;
    u32* own = counts + (threadIdx.x >> 5) * DIGITS;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const int digit = digit_of(key[k], shift);
        const u32 peers = lanes_with(digit);
        const int before = __popc(peers & below);
        const u32 met = own[digit];
        __syncwarp();
        if (before == 0) own[digit] = met + __popc(peers);
        __syncwarp();
        rank[k] = (int)met + before;
    }
    __syncthreads();
}

// Of one digit: counts become what lies before each warp; returns the total.
__device__ __forceinline__ u32 before_warps(u32* counts, int digit) {
    u32 sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        const u32 here = counts[w * DIGITS + digit];
        counts[w * DIGITS + digit] = sum;
        sum += here;
    }
    return sum;
}
__device__ __forceinline__ void add_to_warps(u32* counts, int digit, u32 start) {
#pragma unroll
    for (int w = 0; w < WARPS; ++w) counts[w * DIGITS + digit] += start;
}
#endif

#if MODE == 1
extern "C" __global__ void __launch_bounds__(THREADS, 4)
NAME(X* __restrict__ values, i64* __restrict__ places, const X* __restrict__ x,
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
            if (PLACES) places[row * kept + rank] = given ? given[row * n + i] : i;
        }
        __syncwarp();
    }
}
#endif

#if MODE == 2
extern "C" __global__ void __launch_bounds__(THREADS, 2)
NAME(X* __restrict__ values, i64* __restrict__ places, const X* __restrict__ x,
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
    int rank[ITEMS];
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
        const u32 total = digit < DIGITS ? before_warps(counts, digit) : 0;
        u32 all;
        const u32 start = sum_before<THREADS>(total, room, all);
        if (digit < DIGITS) add_to_warps(counts, digit, start);
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
        if (PLACES) places[row * kept + i] = given ? given[row * n + place[k]] : place[k];
    }
}
#endif

#if MODE == 3
// counts [rows, PASSES, 256], zeroed before.
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(STATUS* __restrict__ counts, const X* __restrict__ x, const i64 n, const int parts) {
    __shared__ u32 own[PASSES * DIGITS];
    for (int i = threadIdx.x; i < PASSES * DIGITS; i += THREADS) own[i] = 0;
    __syncthreads();
    const i64 row = blockIdx.x / parts, step = (i64)parts * THREADS;
    i64 i = (i64)(blockIdx.x - row * parts) * THREADS + threadIdx.x;
    x += row * n;
    for (; i + 3 * step < n; i += 4 * step) {
        U key[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) key[k] = key_of(x[i + k * step]);
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
            for (int p = 0; p < PASSES; ++p)
                atomicAdd(own + p * DIGITS + digit_of(key[k], 8 * p), 1u);
    }
    for (; i < n; i += step) {
        const U key = key_of(x[i]);
#pragma unroll
        for (int p = 0; p < PASSES; ++p) atomicAdd(own + p * DIGITS + digit_of(key, 8 * p), 1u);
    }
    __syncthreads();
    counts += row * PASSES * DIGITS;
    for (int k = threadIdx.x; k < PASSES * DIGITS; k += THREADS)
        if (own[k]) atomicAdd(counts + k, (STATUS)own[k]);
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

// Keys of a digit in the tiles before t; shows this tile's own count, then the sum.
__device__ __forceinline__ STATUS looked_back(STATUS* status, i64 t, STATUS here) {
    STATUS before = 0;
    for (i64 q = t - 1; q >= 0; --q) {
        STATUS seen;
        do seen = *reinterpret_cast<volatile STATUS*>(status + q * DIGITS);
        while (!(seen & ~AMOUNT));
        before += seen & AMOUNT;
        if (seen & SUMMED) break;
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
typedef i64 PLACE;
#else
typedef U TO;
typedef u32 PLACE;
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 2)
NAME(TO* __restrict__ values, PLACE* __restrict__ places, const IN* __restrict__ x,
     const u32* __restrict__ given, const STATUS* __restrict__ starts, u64* __restrict__ ticket,
     const i64 n, const i64 tiles, const int shift) {
    DYNAMIC_SHARED(i64, base);
    u32* counts = reinterpret_cast<u32*>(base + DIGITS);
    u32* room = counts + WARPS * DIGITS;
    U* keys = reinterpret_cast<U*>(room + 64);
    u32* from = reinterpret_cast<u32*>(keys + TILE);
    __shared__ u64 number;
    if (threadIdx.x == 0) number = atomicAdd(ticket, 1ull);
    __syncthreads();
    const i64 row = number / tiles, t = number - row * tiles, start = t * TILE;
    STATUS* status = reinterpret_cast<STATUS*>(ticket + 1) + row * tiles * DIGITS;
    const int valid = n - start < TILE ? (int)(n - start) : TILE;
    const int first = (threadIdx.x >> 5) * 32 * ITEMS + (threadIdx.x & 31);
    x += row * n + start;

    U key[ITEMS];
    int rank[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const int i = first + 32 * k;
#if FIRST
        key[k] = i < valid ? key_of(x[i]) : (U)~(U)0;
#else
        key[k] = i < valid ? x[i] : (U)~(U)0;
#endif
    }
    rank_in_warps(key, shift, counts, rank);
    const int digit = threadIdx.x;
    u32 total = 0;
    if (digit < DIGITS) {
        total = before_warps(counts, digit);
        *reinterpret_cast<volatile STATUS*>(status + t * DIGITS + digit) =
            (t > 0 ? COUNTED : SUMMED) | (STATUS)total;
    }
    u32 all;
    const u32 local = sum_before<THREADS>(total, room, all);
    if (digit < DIGITS) add_to_warps(counts, digit, local);
    __syncthreads();
    const u32* own = counts + (threadIdx.x >> 5) * DIGITS;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const int to = (int)own[digit_of(key[k], shift)] + rank[k], i = first + 32 * k;
        keys[to] = key[k];
#if PAIRS && FIRST
        from[to] = (u32)(start + i);
#elif PAIRS
        if (i < valid) from[to] = given[row * n + start + i];
#endif
    }
    if (digit < DIGITS) {
        const STATUS before = looked_back(status + digit, t, (STATUS)total);
        const STATUS begin = starts[row * PASSES * DIGITS + (shift >> 3) * DIGITS + digit];
        base[digit] = row * n + (i64)begin + (i64)before - (i64)local;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const int i = k * THREADS + threadIdx.x;
        if (i >= valid) continue;
        const U one = keys[i];
        const i64 to = base[digit_of(one, shift)] + i;
#if LAST
        if (VALUES) values[to] = unordered<X>(one, DESCENDING);
        if (PLACES) places[to] = from[i];
#else
        values[to] = one;
        if (PAIRS) places[to] = from[i];
#endif
    }
}
#endif
