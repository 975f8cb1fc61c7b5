// The first k of each row of n elements, by the digits of order-preserving keys from the highest.
//
// Rows lie side by side; `parts` blocks of THREADS to a row, each with `chunk` elements of it.
// MODE 1  one digit: counts the keys that share what is known of the k-th; the last block of a row
//         extends it. 4 BINS bytes of shared memory. Launched once for each digit.
// MODE 2  writes the winners in the order of their places: all before the k-th key, and the first
//         that equal it. Blocks take numbers in order and wait for the counts of those before.
// MODE 3  a thread to an output: the elements at the first k places of a sorted row.
// MODE 4  few winners, all in one launch: each block keeps a list of the keys that may win, from a
//         bound that at least k of those it has met do not exceed; the last block of a row makes
//         one list of all and sorts it. 12 KiB of shared memory. k is at most 96, n below 2^31.
// Settings: X an element, LARGEST, BINS (a power of two). k is at most n, n below 2^31 (MODE 1, 2).
#include "ruda/keys.cuh"
#include "ruda/together.cuh"

typedef Key<X>::U U;
#define EACH 4
template <class E> struct alignas(sizeof(E) * EACH < 16 ? sizeof(E) * EACH : 16) Pack { E at[EACH]; };

// What is known of the k-th key of a row: its highest bits, and how many keys with these bits win.
struct Known { u64 bits; u64 wanted; };

// The keys of EACH elements from i on, of which those up to `end` exist.
__device__ __forceinline__ void load(U (&key)[EACH], const X* x, i64 i, i64 end, bool packed) {
    if (packed && i + EACH <= end) {
        const Pack<X> pack = *reinterpret_cast<const Pack<X>*>(x + i);
#pragma unroll
        for (int k = 0; k < EACH; ++k) key[k] = ordered(pack.at[k], true, LARGEST);
        return;
    }
#pragma unroll
    for (int k = 0; k < EACH; ++k)
        key[k] = i + k < end ? ordered(x[i + k], true, LARGEST) : (U)~(U)0;
}

#if MODE == 1
// counts [rows, BINS] and arrived [rows] are zero before; both idle where parts is 1.
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(Known* __restrict__ known, u32* __restrict__ counts, u32* __restrict__ arrived,
     const X* __restrict__ x, const u32 packed, const i64 n, const i64 chunk, const i64 parts,
     const i64 wanted, const i64 shift, const i64 above) {
    __shared__ u32 own[BINS], room[THREADS / 32 + 1];
    __shared__ bool last;
    const i64 row = blockIdx.x / parts, part = blockIdx.x - row * parts;
    const i64 start = part * chunk, end = start + chunk < n ? start + chunk : n;
    const bool first = above >= 8 * (i64)sizeof(U);
    const U bits = first ? (U)0 : (U)known[row].bits;
    const u64 left = first ? (u64)wanted : known[row].wanted;
    for (int b = threadIdx.x; b < BINS; b += THREADS) own[b] = 0;
    __syncthreads();
    x += row * n;
    for (i64 base = start + threadIdx.x * EACH; base < end; base += THREADS * EACH * DEEP) {
        U key[DEEP][EACH];
#pragma unroll
        for (int d = 0; d < DEEP; ++d) load(key[d], x, base + d * THREADS * EACH, end, packed);
#pragma unroll
        for (int d = 0; d < DEEP; ++d)
#pragma unroll
            for (int k = 0; k < EACH; ++k)
                if (base + d * THREADS * EACH + k < end &&
                    (first || (U)(key[d][k] >> above) == bits))
                    atomicAdd(own + ((u32)(key[d][k] >> shift) & (BINS - 1)), 1u);
    }
    __syncthreads();
    if (parts > 1) {
        u32* shared_counts = counts + row * BINS;
        for (int b = threadIdx.x; b < BINS; b += THREADS)
            if (own[b]) atomicAdd(shared_counts + b, own[b]);
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) last = atomicAdd(arrived + row, 1u) == (u32)parts - 1;
        __syncthreads();
        if (!last) return;
        __threadfence();
        for (int b = threadIdx.x; b < BINS; b += THREADS) own[b] = read_fresh(shared_counts + b);
        __syncthreads();
    }
    // The digit in whose bin the wanted key lies.
    const int each = BINS / THREADS;
    u32 sum = 0, all;
    for (int b = 0; b < each; ++b) sum += own[threadIdx.x * each + b];
    u64 before = sum_before<THREADS>(sum, room, all);
    if (left <= before || left > before + sum) return;
    for (int b = threadIdx.x * each;; ++b) {
        if (left <= before + own[b]) {
            const i64 width = above - shift;
            known[row].bits = first ? (u64)b : ((u64)bits << width) | (u64)b;
            known[row].wanted = left - before;
            return;
        }
        before += own[b];
    }
}
#endif

#if MODE == 2
// shelf [1 + rows parts], zero before: a number for each block, then the counts that a part shows,
// 31 bits of better keys and 31 of equal ones under a flag.
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(X* __restrict__ values, i64* __restrict__ places, const Known* __restrict__ known,
     u64* __restrict__ shelf, const X* __restrict__ x, const u32 packed, const i64 n,
     const i64 chunk, const i64 parts, const i64 wanted) {
    __shared__ u32 room[THREADS / 32 + 1];
    __shared__ u64 number, ahead[THREADS / 32];
    if (threadIdx.x == 0) number = atomicAdd(shelf, 1ull);
    __syncthreads();
    const i64 row = number / parts, part = number - row * parts;
    const i64 start = part * chunk, end = start + chunk < n ? start + chunk : n;
    const U bound = (U)known[row].bits;
    const u32 room_for_equal = (u32)known[row].wanted;
    volatile u64* shown = shelf + 1 + row * parts;
    x += row * n;
    // Counts of this part; not needed where there is no other.
    u32 better = 0, equal = 0;
    for (i64 base = start + threadIdx.x * EACH; parts > 1 && base < end;
         base += THREADS * EACH * DEEP) {
        U key[DEEP][EACH];
#pragma unroll
        for (int d = 0; d < DEEP; ++d) load(key[d], x, base + d * THREADS * EACH, end, packed);
#pragma unroll
        for (int d = 0; d < DEEP; ++d)
#pragma unroll
            for (int k = 0; k < EACH; ++k) {
                better += key[d][k] < bound;
                equal += key[d][k] == bound && base + d * THREADS * EACH + k < end;
            }
    }
    if (parts > 1) {
        u32 all_better, all_equal;
        sum_before<THREADS>(better, room, all_better);
        sum_before<THREADS>(equal, room, all_equal);
        if (threadIdx.x == 0)
            shown[part] = 1ull << 63 | (u64)all_better << 31 | (u64)all_equal;
    }
    u64 seen = 0;
    for (i64 p = threadIdx.x; p < part; p += THREADS) {
        u64 one;
        do one = shown[p];
        while (!(one >> 63));
        seen += one & ~(1ull << 63);
    }
#pragma unroll
    for (int far = 16; far > 0; far >>= 1) seen += lane_above(seen, far);
    if ((threadIdx.x & 31) == 0) ahead[threadIdx.x >> 5] = seen;
    __syncthreads();
    u64 before = 0;
#pragma unroll
    for (int w = 0; w < THREADS / 32; ++w) before += ahead[w];
    u32 met_better = (u32)(before >> 31), met_equal = (u32)before & 0x7fffffffu;

    for (i64 base = start; base < end; base += THREADS * EACH * DEEP) {
        // Of this sweep a thread has neighbouring packs: ranks follow the order of the places.
        const i64 i = base + threadIdx.x * EACH * DEEP;
        U key[DEEP][EACH];
#pragma unroll
        for (int d = 0; d < DEEP; ++d) load(key[d], x, i + d * EACH, end, packed);
        u32 mine = 0, all;
#pragma unroll
        for (int j = 0; j < DEEP * EACH; ++j) {
            const U one = key[j / EACH][j % EACH];
            mine += i + j >= end ? 0u : one < bound ? 1u << 16 : one == bound ? 1u : 0u;
        }
        const u32 early = sum_before<THREADS>(mine, room, all);
        u32 b = met_better + (early >> 16), e = met_equal + (early & 0xffffu);
        met_better += all >> 16;
        met_equal += all & 0xffffu;
        if (!mine) continue;
#pragma unroll
        for (int j = 0; j < DEEP * EACH; ++j) {
            if (i + j >= end) continue;
            const U one = key[j / EACH][j % EACH];
            const bool wins = one < bound || (one == bound && e < room_for_equal);
            const i64 to = row * wanted + b + (e < room_for_equal ? e : room_for_equal);
            b += one < bound;
            e += one == bound;
            if (!wins) continue;
            values[to] = x[i + j];
            places[to] = i + j;
        }
    }
}
#endif

#if MODE == 3
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(X* __restrict__ values, i64* __restrict__ places, const X* __restrict__ x,
     const i64* __restrict__ order, const i64 rows, const i64 n, const i64 k) {
    for (i64 i = (i64)blockIdx.x * THREADS + threadIdx.x; i < rows * k;
         i += (i64)gridDim.x * THREADS) {
        const i64 row = i / k, place = order[row * n + (i - row * k)];
        values[i] = x[row * n + place];
        places[i] = place;
    }
}
#endif

#if MODE == 4
// Keys that a thread looks at in one sweep, besides one of the list; CAP is what the list holds.
#define ITEMS (DEEP * EACH)
#define MEMBERS (ITEMS + 1)
#define CAP THREADS
#define WARPS (THREADS / 32)
// The place of a key that is none.
#define NONE 0xffffffffu

// Where the keys of a thread are: in packs of the row, or as listed; the last one is of the list.
struct Straight {
    u32 first, end, listed;
    __device__ __forceinline__ u32 operator[](int j) const {
        const u32 i = first + j / EACH * (THREADS * EACH) + j % EACH;
        return j == ITEMS ? listed : i < end ? i : NONE;
    }
};
struct Given {
    u32 at[MEMBERS];
    __device__ __forceinline__ u32 operator[](int j) const { return at[j]; }
};

struct Room {
    U key[CAP], bounds[WARPS];
    u32 place[CAP], bins[BINS], sums[WARPS], digit, before;
};

// The digit, of those counted in the bins, of the key number `left`, which becomes its number among
// the keys with that digit.
__device__ __forceinline__ u32 digit_with(Room& room, u32& left) {
    const int each = BINS / THREADS, first = threadIdx.x * each;
    __syncthreads();
    u32 sum = 0, all;
    for (int b = 0; b < each; ++b) sum += room.bins[first + b];
    u32 before = sum_before<THREADS>(sum, room.sums, all);
    if (left > before && left <= before + sum) {
        int b = first;
        for (; left > before + room.bins[b]; ++b) before += room.bins[b];
        room.digit = b;
        room.before = before;
    }
    __syncthreads();
    left -= room.before;
    return room.digit;
}

// The key and place of number `left` in the order of keys and, of equal ones, of places.
template <class P> __device__ __forceinline__
void find(const U (&key)[MEMBERS], const P& place, u32 left, Room& room, U& bound, u32& last) {
    const int bits = 8 * sizeof(U);
    u64 known = 0;
    for (int above = bits + 32; above > 0;) {
        // First the bits of the key, then, of those equal to it, the bits of the place.
        const bool of_key = above > 32;
        const int top = of_key ? above - 32 : above, low = top > 11 ? top - 11 : 0;
        for (int b = threadIdx.x; b < BINS; b += THREADS) room.bins[b] = 0;
        __syncthreads();
#pragma unroll
        for (int j = 0; j < MEMBERS; ++j) {
            const u64 value = of_key ? (u64)key[j] : (u64)place[j];
            const bool fits = top >= (of_key ? bits : 32) || value >> top == known;
            if (place[j] != NONE && (of_key || key[j] == bound) && fits)
                atomicAdd(room.bins + ((u32)(value >> low) & ((1u << (top - low)) - 1)), 1u);
        }
        known = known << (top - low) | digit_with(room, left);
        above = of_key ? low + 32 : low;
        if (of_key && low == 0) {
            bound = (U)known;
            known = 0;
        }
    }
    last = (u32)known;
}

// The list becomes those of all threads' keys that may be among the first k; returns how many.
template <class P> __device__ __forceinline__
u32 listed(const U (&key)[MEMBERS], const P& place, u32 k, U& bound, Room& room) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    U best = (U)~(U)0;
#pragma unroll
    for (int j = 0; j < MEMBERS; ++j)
        if (place[j] != NONE && key[j] < best) best = key[j];
    // k best keys of threads, as many of each warp, are k keys up to the greatest of them.
    int rank = 0;
#pragma unroll
    for (int far = 0; far < 32; ++far) {
        const U other = of_lane(best, far, 32);
        rank += other < best || (other == best && far < lane);
    }
    if (rank == ((int)k + WARPS - 1) / WARPS - 1) room.bounds[warp] = best;
    __syncthreads();
    U greatest = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w)
        if (room.bounds[w] > greatest) greatest = room.bounds[w];
    if (greatest < bound) bound = greatest;
    u32 last = NONE, all, at = 0;
    for (int again = 0; again < 2; ++again) {
        u32 mine = 0;
#pragma unroll
        for (int j = 0; j < MEMBERS; ++j)
            mine += place[j] != NONE && (key[j] < bound || (key[j] == bound && place[j] <= last));
        at = sum_before<THREADS>(mine, room.sums, all);
        if (all <= CAP) break;
        find(key, place, k, room, bound, last);
    }
#pragma unroll
    for (int j = 0; j < MEMBERS; ++j) {
        if (place[j] == NONE || key[j] > bound || (key[j] == bound && place[j] > last)) continue;
        room.key[at] = key[j];
        room.place[at++] = place[j];
    }
    __syncthreads();
    return all;
}

// keys and spots [rows, parts, CAP], counts [rows, parts]; arrived [rows] is zero before. All idle
// where parts is 1.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
NAME(X* __restrict__ values, i64* __restrict__ places, U* __restrict__ keys,
     u32* __restrict__ spots, u32* __restrict__ counts, u32* __restrict__ arrived,
     const X* __restrict__ x, const u32 packed, const i64 n, const i64 chunk, const i64 parts,
     const i64 wanted) {
    __shared__ Room room;
    __shared__ bool last;
    const i64 row = blockIdx.x / parts, part = blockIdx.x - row * parts;
    const i64 start = part * chunk, end = start + chunk < n ? start + chunk : n;
    // The list is shared out among the warps: what all have met makes the bound of each close.
    const u32 t = threadIdx.x, own_entry = (t & 31) * WARPS + (t >> 5);
    x += row * n;
    U key[MEMBERS], bound = (U)~(U)0;
    u32 held = 0;
    for (i64 base = start; base < end; base += THREADS * ITEMS) {
#pragma unroll
        for (int d = 0; d < DEEP; ++d) {
            U pack[EACH];
            load(pack, x, base + (d * THREADS + t) * EACH, end, packed);
#pragma unroll
            for (int k = 0; k < EACH; ++k) key[d * EACH + k] = pack[k];
        }
        key[ITEMS] = room.key[own_entry];
        const u32 first = (u32)base + t * EACH;
        const Straight place = {first, (u32)end, own_entry < held ? room.place[own_entry] : NONE};
        held = listed(key, place, (u32)wanted, bound, room);
    }
    if (parts > 1) {
        const i64 own = row * parts + part;
        if (t < held) {
            keys[own * CAP + t] = room.key[t];
            spots[own * CAP + t] = room.place[t];
        }
        if (t == 0) counts[own] = held;
        __threadfence();
        __syncthreads();
        if (t == 0) last = atomicAdd(arrived + row, 1u) == (u32)parts - 1;
        __syncthreads();
        if (!last) return;
        __threadfence();
        held = 0;
        bound = (U)~(U)0;
        for (i64 first = 0; first < parts; first += ITEMS) {
            Given place;
#pragma unroll
            for (int j = 0; j < ITEMS; ++j) {
                // Lists are rarely full: each begins at another thread, so that all get some keys.
                const i64 other = row * parts + first + j;
                const u32 i = (t + (u32)(first + j) * 97) % CAP;
                const bool real = first + j < parts && i < read_fresh(counts + other);
                key[j] = real ? read_fresh(keys + other * CAP + i) : (U)0;
                place.at[j] = real ? read_fresh(spots + other * CAP + i) : NONE;
            }
            key[ITEMS] = room.key[own_entry];
            place.at[ITEMS] = own_entry < held ? room.place[own_entry] : NONE;
            held = listed(key, place, (u32)wanted, bound, room);
        }
    }
    if (t >= held) return;
    const U own = room.key[t];
    const u32 at = room.place[t];
    u32 rank = 0;
    for (u32 i = 0; i < held; ++i)
        rank += room.key[i] < own || (room.key[i] == own && room.place[i] < at);
    if (rank >= wanted) return;
    values[row * wanted + rank] = x[at];
    places[row * wanted + rank] = at;
}
#endif
