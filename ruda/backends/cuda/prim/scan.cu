// Scans along one axis: sum, prod, logaddexp, running extremes, linear recurrences.
//
// x (and y): rows x n x inner through strides; out (and places): the same, row-major. 256 threads.
// MODE 1  LANES threads to a row, inner = 1; grid-stride over rows; no shared memory.
// MODE 2  a block to a row, inner = 1; grid-stride over rows; tiles of 256 R V elements.
// MODE 3  a block to a tile, inner = 1, one pass: tiles take numbers in order, show their totals,
//         and fold the totals before them in an order fixed by the tile's number alone.
// MODE 4  a thread to a column and segment of it (grid columns / 256 x segments), after
// MODE 5  has stored the total of each segment; with one segment MODE 4 comes alone.
// Static shared memory: less than 4 KiB for items of up to 32 bytes. n is below 2^31 for i32 places.
#include "ruda/limits.cuh"
#include "ruda/math.cuh"
#include "ruda/together.cuh"

#define SUM 1
#define PROD 2
#define LOGSUM 3
#define LINEAR 4
#define MAX 5
#define MIN 6

struct Geometry { i64 rows, n, inner, x[3], y[3], tiles, segment; };

#if OP == SUM
typedef T Item;
__device__ __forceinline__ Item neutral() { return -to<T>(0); }
__device__ __forceinline__ Item join(Item a, Item b) { return a + b; }
__device__ __forceinline__ OUT shown(Item a) { return to<OUT>(a); }
__device__ __forceinline__ OUT nothing() { return to<OUT>(to<T>(0)); }
#elif OP == PROD
typedef T Item;
__device__ __forceinline__ Item neutral() { return to<T>(1); }
__device__ __forceinline__ Item join(Item a, Item b) { return a * b; }
__device__ __forceinline__ OUT shown(Item a) { return to<OUT>(a); }
__device__ __forceinline__ OUT nothing() { return to<OUT>(to<T>(1)); }
#elif OP == LOGSUM
typedef T Item;
__device__ __forceinline__ Item neutral() { return lowest<T>(); }
__device__ __forceinline__ Item join(Item a, Item b) { return ruda_logaddexp(a, b); }
__device__ __forceinline__ OUT shown(Item a) { return to<OUT>(a); }
__device__ __forceinline__ OUT nothing() { return to<OUT>(lowest<T>()); }
#elif OP == LINEAR
struct Item { T a, b; };
__device__ __forceinline__ Item neutral() { return {to<T>(1), to<T>(0)}; }
__device__ __forceinline__ Item join(Item p, Item q) { return {q.a * p.a, q.a * p.b + q.b}; }
__device__ __forceinline__ OUT shown(Item a) { return to<OUT>(a.b); }
__device__ __forceinline__ OUT nothing() { return to<OUT>(to<T>(0)); }
#else
struct Item { T v; PLACE i; };
__device__ __forceinline__ bool beats(T a, T b) { return OP == MAX ? a > b : a < b; }
__device__ __forceinline__ T bound() { return OP == MAX ? lowest<T>() : highest<T>(); }
__device__ __forceinline__ Item neutral() { return {bound(), -1}; }
// a comes before b; of a tie the lower index stays: the earlier forwards, the later in reverse.
__device__ __forceinline__ Item join(Item a, Item b) {
    if (a.i < 0 || b.i < 0) return a.i < 0 ? b : a;
    const bool same = a.v == b.v || (a.v != a.v && b.v != b.v);
    const bool later = same ? REVERSE : a.v == a.v && (b.v != b.v || beats(b.v, a.v));
    return later ? b : a;
}
__device__ __forceinline__ OUT shown(Item a) { return to<OUT>(a.v); }
__device__ __forceinline__ OUT nothing() { return to<OUT>(bound()); }
#define PLACES 1
#endif

__device__ __forceinline__ Item item_of(X x, Y y, i64 index) {
#if OP == LINEAR
    return {to<T>(x), to<T>(y)};
#elif defined(PLACES)
    return {to<T>(x), (PLACE)index};
#else
    return to<T>(x);
#endif
}

#define THREADS 256
#define WARPS 8
template <class E> struct alignas(sizeof(E) * V < 16 ? sizeof(E) * V : 16) Pack { E at[V]; };

#ifdef PLACES
#define PLACES_PARAMETER , i64* __restrict__ places
#define PLACES_ARGUMENT , places
#else
#define PLACES_PARAMETER
#define PLACES_ARGUMENT
#endif
#define INPUTS const X* __restrict__ x, const Y* __restrict__ y

// Where position p of a row lies: scans in reverse go from the end.
__device__ __forceinline__ i64 index_of(i64 p, i64 n) { return REVERSE ? n - 1 - p : p; }

__device__ __forceinline__ void load(Item (&v)[V], INPUTS, i64 p, const Geometry& at, bool packed) {
    if (packed && p + V <= at.n) {
        const i64 from = REVERSE ? at.n - p - V : p;
        const Pack<X> a = *reinterpret_cast<const Pack<X>*>(x + from);
#if OP == LINEAR
        const Pack<Y> b = *reinterpret_cast<const Pack<Y>*>(y + from);
#else
        const Pack<X>& b = a;
#endif
#pragma unroll
        for (int k = 0; k < V; ++k) {
            const int j = REVERSE ? V - 1 - k : k;
            v[k] = item_of(a.at[j], b.at[j], index_of(p + k, at.n));
        }
        return;
    }
#pragma unroll
    for (int k = 0; k < V; ++k) {
        const i64 i = index_of(p + k, at.n);
        v[k] = p + k < at.n ? item_of(x[i * at.x[1]], y[i * at.y[1]], i) : neutral();
    }
}

// v: inclusive; `before` folds everything earlier in the row, if there is anything (`some`).
__device__ __forceinline__ void store(OUT* __restrict__ out PLACES_PARAMETER, const Item (&v)[V],
                                      Item before, bool some, i64 p, i64 n, bool packed) {
    Pack<OUT> pack;
    Pack<i64> where;
#pragma unroll
    for (int k = 0; k < V; ++k) {
        const int j = REVERSE ? V - 1 - k : k;
        const bool any = some || !EXCLUSIVE || k > 0;
        const int own = EXCLUSIVE ? (k > 0 ? k - 1 : 0) : k;
        Item a = v[own];
        if (EXCLUSIVE && k == 0) a = before;
        else if (some) a = join(before, a);
        pack.at[j] = any ? shown(a) : nothing();
#ifdef PLACES
        where.at[j] = any ? (i64)a.i : -1;
#endif
    }
    if (packed && p + V <= n) {
        const i64 to = REVERSE ? n - p - V : p;
        *reinterpret_cast<Pack<OUT>*>(out + to) = pack;
#ifdef PLACES
        *reinterpret_cast<Pack<i64>*>(places + to) = where;
#endif
        return;
    }
#pragma unroll
    for (int k = 0; k < V; ++k) {
        const int j = REVERSE ? V - 1 - k : k;
        if (p + k >= n) continue;
        out[index_of(p + k, n)] = pack.at[j];
#ifdef PLACES
        places[index_of(p + k, n)] = where.at[j];
#endif
    }
}

__device__ __forceinline__ void fold_in_order(Item (&v)[V]) {
#pragma unroll
    for (int k = 1; k < V; ++k) v[k] = join(v[k - 1], v[k]);
}

// Inclusive over the first `width` lanes of each group of that many.
__device__ __forceinline__ Item over_lanes(Item v, int lane, int width) {
#pragma unroll
    for (int far = 1; far < width; far <<= 1) {
        const Item other = lane_below(v, far, width);
        if (lane >= far) v = join(other, v);
    }
    return v;
}

#if MODE == 1
extern "C" __global__ void __launch_bounds__(THREADS, 2)
NAME(OUT* __restrict__ out PLACES_PARAMETER, INPUTS, const u32 packed, const Geometry at) {
    const int lane = threadIdx.x % LANES;
    const i64 step = (i64)gridDim.x * (THREADS / LANES);
    const i64 head = (i64)blockIdx.x * (THREADS / LANES);
    // All lanes of a warp stay together: rows past the end are read from the last one.
    for (i64 first = head; first < at.rows; first += step) {
        const i64 own = first + threadIdx.x / LANES;
        const i64 row = own < at.rows ? own : at.rows - 1;
        Item carry = neutral();
#pragma unroll 1
        for (i64 p0 = 0; p0 < at.n; p0 += LANES * V) {
            const i64 p = p0 + lane * V;
            Item v[V];
            load(v, x + row * at.x[0], y + row * at.y[0], p, at, packed);
            fold_in_order(v);
            const Item sum = over_lanes(v[V - 1], lane, LANES);
            Item before = lane_below(sum, 1, LANES);
            if (lane == 0) before = carry;
            else if (p0 > 0) before = join(carry, before);
            const Item last = of_lane(sum, LANES - 1, LANES);
            carry = p0 > 0 ? join(carry, last) : last;
            const bool some = lane > 0 || p0 > 0;
            OUT* target = out + row * at.n;
#ifdef PLACES
            i64* targets = places + row * at.n;
            if (own < at.rows) store(target, targets, v, before, some, p, at.n, packed);
#else
            if (own < at.rows) store(target, v, before, some, p, at.n, packed);
#endif
        }
    }
}
#endif

#if MODE == 2 || MODE == 3
#define TILE (THREADS * R * V)

// One tile: v becomes inclusive within each pack, before[r] what the tile holds ahead of pack r.
// Returns the total. `sums` holds WARPS R items.
__device__ __forceinline__ Item over_tile(Item (&v)[R][V], Item (&before)[R], Item* sums) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    Item own[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {
        fold_in_order(v[r]);
        own[r] = over_lanes(v[r][V - 1], lane, 32);
        if (lane == 31) sums[r * WARPS + warp] = own[r];
    }
    __syncthreads();
    if (warp == 0) {
        const Item a = sums[lane < R * WARPS ? lane : R * WARPS - 1];
        const Item b = over_lanes(a, lane, 32);
        if (lane < R * WARPS) sums[lane] = b;
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < R; ++r) {
        const int j = r * WARPS + warp;
        before[r] = lane_below(own[r], 1, 32);
        if (lane == 0) before[r] = j > 0 ? sums[j - 1] : neutral();
        else if (j > 0) before[r] = join(sums[j - 1], before[r]);
    }
    return sums[R * WARPS - 1];
}

__device__ __forceinline__ void load_tile(Item (&v)[R][V], INPUTS, i64 p0, const Geometry& at,
                                          bool packed) {
#pragma unroll
    for (int r = 0; r < R; ++r) load(v[r], x, y, p0 + (r * THREADS + threadIdx.x) * V, at, packed);
}

__device__ __forceinline__ void store_tile(OUT* __restrict__ out PLACES_PARAMETER,
                                           Item (&v)[R][V], Item (&before)[R], Item carry,
                                           bool carried, i64 p0, i64 n, bool packed) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
        const bool some = r > 0 || threadIdx.x > 0;
        Item ahead = carry;
        if (some) ahead = carried ? join(carry, before[r]) : before[r];
        const i64 p = p0 + (r * THREADS + threadIdx.x) * V;
        if (p < n) store(out PLACES_ARGUMENT, v[r], ahead, some || carried, p, n, packed);
    }
}
#endif

#if MODE == 2
extern "C" __global__ void __launch_bounds__(THREADS, 2)
NAME(OUT* __restrict__ out PLACES_PARAMETER, INPUTS, const u32 packed, const Geometry at) {
    __shared__ Item sums[R * WARPS];
    for (i64 row = blockIdx.x; row < at.rows; row += gridDim.x) {
        Item carry = neutral();
#pragma unroll 1
        for (i64 p0 = 0; p0 < at.n; p0 += TILE) {
            Item v[R][V], before[R];
            load_tile(v, x + row * at.x[0], y + row * at.y[0], p0, at, packed);
            const Item total = over_tile(v, before, sums);
            OUT* target = out + row * at.n;
#ifdef PLACES
            store_tile(target, places + row * at.n, v, before, carry, p0 > 0, p0, at.n, packed);
#else
            store_tile(target, v, before, carry, p0 > 0, p0, at.n, packed);
#endif
            carry = p0 > 0 ? join(carry, total) : total;
            __syncthreads();
        }
    }
}
#endif

#if MODE == 3
#define GROUP THREADS
// A total that other blocks wait for. One of up to 4 bytes travels with its flag in one word; a
// larger one is stored first and flagged behind a fence.
struct Shelf { u64* flags; Item* items; };

__device__ __forceinline__ void show(Shelf shelf, i64 at, Item v) {
    Words<Item> out;
    out.value = v;
    if (sizeof(Item) <= 4) {
        *reinterpret_cast<volatile u64*>(shelf.flags + at) = (1ull << 32) | out.word[0];
        return;
    }
#pragma unroll
    for (int w = 0; w < int((sizeof(Item) + 3) / 4); ++w)
        reinterpret_cast<volatile u32*>(shelf.items + at)[w] = out.word[w];
    __threadfence();
    *reinterpret_cast<volatile u64*>(shelf.flags + at) = 1ull << 32;
}
__device__ __forceinline__ Item awaited(Shelf shelf, i64 at) {
    u64 seen;
    do seen = *reinterpret_cast<volatile u64*>(shelf.flags + at);
    while (!(seen >> 32));
    if (sizeof(Item) <= 4) {
        Words<Item> got;
        got.word[0] = (u32)seen;
        return got.value;
    }
    __threadfence();
    return read_fresh(shelf.items + at);
}

// The items of the first `count` threads, in order; `sums` holds WARPS items, seen after a barrier.
__device__ __forceinline__ void to_warps(Item v, int count, Item* sums) {
    const int lane = threadIdx.x & 31;
    const int here = count - (int)(threadIdx.x & ~31u);
#pragma unroll
    for (int far = 1; far < 32; far <<= 1) {
        const Item other = lane_above(v, far);
        if ((lane & (2 * far - 1)) == 0 && lane + far < here) v = join(v, other);
    }
    if (lane == 0) sums[threadIdx.x >> 5] = v;
}
__device__ __forceinline__ Item from_warps(const Item* sums, int count) {
    Item v = sums[0];
    for (int w = 1; w * 32 < count; ++w) v = join(v, sums[w]);
    return v;
}

extern "C" __global__ void __launch_bounds__(THREADS)
NAME(OUT* __restrict__ out PLACES_PARAMETER, INPUTS, u64* __restrict__ work, const u32 packed,
     const Geometry at) {
    __shared__ Item sums[R * WARPS], near[WARPS], distant[WARPS];
    __shared__ u64 number;
    if (threadIdx.x == 0) number = atomicAdd(work, 1ull);
    __syncthreads();
    const i64 row = number / at.tiles, t = number - row * at.tiles, p0 = t * TILE;
    const i64 groups = (at.tiles + GROUP - 1) / GROUP, all = at.rows * (at.tiles + groups);
    Shelf shelf = {work + 1, reinterpret_cast<Item*>(work + 1 + (all + 1) / 2 * 2 + 1)};
    shelf.flags += row * (at.tiles + groups);
    shelf.items += row * (at.tiles + groups);

    Item v[R][V], before[R];
    load_tile(v, x + row * at.x[0], y + row * at.y[0], p0, at, packed);
    const Item total = over_tile(v, before, sums);
    if (threadIdx.x == 0) show(shelf, t, total);
    Item carry = neutral();
    if (t > 0) {
        // Totals of whole groups of tiles first, then of the tiles of the own group.
        const i64 g = t / GROUP, each = (g + THREADS - 1) / THREADS;
        const int tiles = (int)(t - g * GROUP);
        Item a = neutral(), b = neutral();
        if ((int)threadIdx.x < tiles) b = awaited(shelf, g * GROUP + threadIdx.x);
        const i64 from = threadIdx.x * each, end = from + each < g ? from + each : g;
        for (i64 i = from; i < end; ++i) {
            const Item one = awaited(shelf, at.tiles + i);
            a = i == from ? one : join(a, one);
        }
        const int chunks = each ? (int)((g + each - 1) / each) : 0;
        to_warps(a, chunks, distant);
        to_warps(b, tiles, near);
        __syncthreads();
        const Item group = tiles ? from_warps(near, tiles) : neutral();
        if (threadIdx.x == 0 && tiles == GROUP - 1) show(shelf, at.tiles + g, join(group, total));
        carry = group;
        if (chunks) carry = from_warps(distant, chunks);
        if (chunks && tiles) carry = join(carry, group);
    }
    OUT* target = out + row * at.n;
#ifdef PLACES
    store_tile(target, places + row * at.n, v, before, carry, t > 0, p0, at.n, packed);
#else
    store_tile(target, v, before, carry, t > 0, p0, at.n, packed);
#endif
}
#endif

#if MODE == 4 || MODE == 5
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(OUT* __restrict__ out PLACES_PARAMETER, INPUTS, Item* __restrict__ totals, const Geometry at) {
    const i64 columns = at.rows * at.inner;
    const i64 c = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (c >= columns) return;
    const i64 row = c / at.inner, inner = c - row * at.inner;
    const i64 first = blockIdx.y * at.segment;
    const i64 end = first + at.segment < at.n ? first + at.segment : at.n;
    x += row * at.x[0] + inner * at.x[2];
    y += row * at.y[0] + inner * at.y[2];
    Item a = neutral();
    bool some = false;
#if MODE == 4
    const i64 base = row * at.n * at.inner + inner;
    for (int s = 0; s < (int)blockIdx.y; ++s) {
        const Item one = totals[s * columns + c];
        a = some ? join(a, one) : one;
        some = true;
    }
#endif
    for (i64 p = first; p < end; ++p) {
        const i64 i = index_of(p, at.n);
        const Item one = item_of(x[i * at.x[1]], y[i * at.y[1]], i);
#if MODE == 4
        const Item was = a;
#endif
        a = some ? join(a, one) : one;
#if MODE == 4
        const i64 to = base + i * at.inner;
        out[to] = EXCLUSIVE ? (some ? shown(was) : nothing()) : shown(a);
#ifdef PLACES
        places[to] = EXCLUSIVE ? (some ? (i64)was.i : -1) : (i64)a.i;
#endif
#endif
        some = true;
    }
#if MODE == 5
    totals[blockIdx.y * columns + c] = a;
#endif
}
#endif
