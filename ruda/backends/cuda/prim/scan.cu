// Scans along one axis: sum, prod, logaddexp, running extremes, linear recurrences.
//
// x (and y): rows x n x inner through strides; out (and places): the same, row-major.
// MODE 1  LANES threads to a row, inner = 1; grid-stride over rows; no shared memory.
// MODE 2  a block to a row, inner = 1; grid-stride over rows; tiles of THREADS R V elements.
// MODE 3  few long rows, inner = 1, one pass: as many blocks as the device holds take tiles by
//         ticket, show their totals, and fold those before them. A block has three tiles in shared
//         memory (SHARED bytes): one that waits for the totals before it, one whose own total is
//         shown meanwhile, one on its way.
// MODE 4  a thread to a column and segment of it (grid columns / THREADS x segments), after
// MODE 5  has stored the total of each segment; with one segment MODE 4 comes alone.
// Settings: THREADS (256; more in MODE 3), BLOCKS to a multiprocessor.
// Static shared memory: less than 4 KiB for items of up to 32 bytes. Places of i32: n below 2^31.
//
// Why MODE 3 rounds the same way in every run: no tile adds a prefix that another one happened to
// have ready. What lies before tile t is folded from totals of single tiles, which depend on the
// input alone: each 32 tiles by a fixed tree, these groups from left to right, last the tree of the
// tiles left over. A block goes on from the groups that it folded for its last tile, so it reads
// about as many totals as there are blocks, each thread one. Reducing first and scanning after, in
// chunks that stay in the second cache, was the other fixed order: it needs the whole device to
// stop twice for every chunk of some 20 MB.
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

#define WARPS (THREADS / 32)
template <int BYTES> struct Chosen { typedef uint4 Word; };
template <> struct Chosen<8> { typedef uint2 Word; };
template <> struct Chosen<4> { typedef u32 Word; };
template <> struct Chosen<2> { typedef u16 Word; };
template <> struct Chosen<1> { typedef u8 Word; };
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

__device__ __forceinline__ void unpack(Item (&v)[V], const Pack<X>& a, const Pack<Y>& b, i64 p,
                                       i64 n) {
#pragma unroll
    for (int k = 0; k < V; ++k) {
        const int j = REVERSE ? V - 1 - k : k;
        v[k] = item_of(a.at[j], b.at[j], index_of(p + k, n));
    }
}

__device__ __forceinline__ void load(Item (&v)[V], INPUTS, i64 p, const Geometry& at, bool packed) {
    if (packed && p + V <= at.n) {
        const i64 from = REVERSE ? at.n - p - V : p;
        const Pack<X> a = *reinterpret_cast<const Pack<X>*>(x + from);
#if OP == LINEAR
        unpack(v, a, *reinterpret_cast<const Pack<Y>*>(y + from), p, at.n);
#else
        unpack(v, a, a, p, at.n);
#endif
        return;
    }
#pragma unroll
    for (int k = 0; k < V; ++k) {
        const i64 i = index_of(p + k, at.n);
        v[k] = p + k < at.n ? item_of(x[i * at.x[1]], y[i * at.y[1]], i) : neutral();
    }
}

// Results are not read again here: they leave the second cache before the input does.
template <class E> __device__ __forceinline__ void put_once(E* to, const Pack<E>& pack) {
    const int size = sizeof(pack) < 16 ? sizeof(pack) : 16;
    typedef typename Chosen<size>::Word Word;
    const Word* words = reinterpret_cast<const Word*>(&pack);
    Word* target = reinterpret_cast<Word*>(to);
#pragma unroll
    for (int w = 0; w < (int)sizeof(pack) / size; ++w) __stcs(target + w, words[w]);
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
        put_once(out + to, pack);
#ifdef PLACES
        put_once(places + to, where);
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

// Where pack r of this thread starts in a tile: a warp has R packs a lane in a row.
__device__ __forceinline__ int spot(int r) {
    return (((threadIdx.x >> 5) * R + r) * 32 + (threadIdx.x & 31)) * V;
}

// From the totals of the warps: that of the tile, and in `ahead` what lies before this warp.
__device__ __forceinline__ Item over_warps(const Item* sums, Item& ahead) {
    const int warp = threadIdx.x >> 5;
    Item total = sums[0];
    ahead = neutral();
#pragma unroll
    for (int w = 1; w < WARPS; ++w) {
        if (w == warp) ahead = total;
        total = join(total, sums[w]);
    }
    return total;
}
#endif

#if MODE == 2
// One tile's packs become inclusive, before[r] what this warp holds ahead of pack r (nothing for
// the first pack of the first lane). Returns the warp's total.
__device__ __forceinline__ Item over_warp(Item (&v)[R][V], Item (&before)[R]) {
    const int lane = threadIdx.x & 31;
    Item met = neutral();
#pragma unroll
    for (int r = 0; r < R; ++r) {
        fold_in_order(v[r]);
        const Item sum = over_lanes(v[r][V - 1], lane, 32);
        const Item end = of_lane(sum, 31, 32);
        before[r] = lane_below(sum, 1, 32);
        if (r > 0) before[r] = lane == 0 ? met : join(met, before[r]);
        met = r > 0 ? join(met, end) : end;
    }
    return met;
}

__device__ __forceinline__ void load_tile(Item (&v)[R][V], INPUTS, i64 p0, const Geometry& at,
                                          bool packed) {
#pragma unroll
    for (int r = 0; r < R; ++r) load(v[r], x, y, p0 + spot(r), at, packed);
}

// carry: what lies before the tile, if anything does (`carried`).
__device__ __forceinline__ void store_tile(OUT* __restrict__ out PLACES_PARAMETER,
                                           Item (&v)[R][V], Item (&before)[R], Item ahead,
                                           Item carry, bool carried, i64 p0, i64 n, bool packed) {
    const bool later = threadIdx.x >= 32;
    const bool lead = carried || later;
    if (carried) ahead = later ? join(carry, ahead) : carry;
#pragma unroll
    for (int r = 0; r < R; ++r) {
        const bool within = r > 0 || (threadIdx.x & 31) > 0;
        const Item all = !within ? ahead : lead ? join(ahead, before[r]) : before[r];
        const i64 p = p0 + spot(r);
        if (p < n) store(out PLACES_ARGUMENT, v[r], all, lead || within, p, n, packed);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
NAME(OUT* __restrict__ out PLACES_PARAMETER, INPUTS, const u32 packed, const Geometry at) {
    __shared__ Item sums[WARPS];
    for (i64 row = blockIdx.x; row < at.rows; row += gridDim.x) {
        Item carry = neutral();
#pragma unroll 1
        for (i64 p0 = 0; p0 < at.n; p0 += TILE) {
            Item v[R][V], before[R], ahead;
            load_tile(v, x + row * at.x[0], y + row * at.y[0], p0, at, packed);
            const Item sum = over_warp(v, before);
            if ((threadIdx.x & 31) == 0) sums[threadIdx.x >> 5] = sum;
            __syncthreads();
            const Item total = over_warps(sums, ahead);
            OUT* target = out + row * at.n;
#ifdef PLACES
            i64* targets = places + row * at.n;
            store_tile(target, targets, v, before, ahead, carry, p0 > 0, p0, at.n, packed);
#else
            store_tile(target, v, before, ahead, carry, p0 > 0, p0, at.n, packed);
#endif
            carry = p0 > 0 ? join(carry, total) : total;
            __syncthreads();
        }
    }
}
#endif

#if MODE == 3
#define GROUP 32
#define WORDS int((sizeof(Item) + 3) / 4)

// A total that other blocks wait for: each 4 bytes travel with a flag in one word of 8, so that
// what is seen is whole and neither side needs a fence.
__device__ __forceinline__ void show(u64* cell, Item v) {
    Words<Item> out;
    out.value = v;
#pragma unroll
    for (int w = 0; w < WORDS; ++w)
        *reinterpret_cast<volatile u64*>(cell + w) = (1ull << 32) | out.word[w];
}
// What a cell shows now, if it is whole.
struct Glimpse {
    Words<Item> got;
    bool whole;
    __device__ __forceinline__ void look(const u64* cell) {
        whole = true;
#pragma unroll
        for (int w = 0; w < WORDS; ++w) {
            const u64 seen = *reinterpret_cast<const volatile u64*>(cell + w);
            got.word[w] = (u32)seen;
            whole = whole && seen >> 32;
        }
    }
};

// The items of the first `count` lanes in order, in lane 0.
__device__ __forceinline__ Item over_group(Item v, int count) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int far = 1; far < GROUP; far <<= 1) {
        const Item other = lane_above(v, far);
        if ((lane & (2 * far - 1)) == 0 && lane + far < count) v = join(v, other);
    }
    return v;
}

// Tiles of a group that lie before tile t.
__device__ __forceinline__ int members(i64 group, i64 t) {
    const i64 left = t - group * GROUP;
    return left >= GROUP ? GROUP : left > 0 ? (int)left : 0;
}

// Folds the groups from `done` on into carry, and returns that with the tiles left over before t.
// `first` is what this lane's cell of the first groups has shown. Ends behind a barrier that every
// thread has passed.
__device__ __forceinline__ Item looked_back(Item& carry, i64& done, const u64* cells, i64 t,
                                            Glimpse& first, Item* folds) {
    const i64 whole = t / GROUP;
    const int rest = (int)(t - whole * GROUP), lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (;; first.whole = false) {
        const i64 g = done + warp;
        const int count = members(g, t);
        if (count) {
            while (lane < count && !first.whole) first.look(cells + (g * GROUP + lane) * WORDS);
            const Item one = over_group(first.got.value, count);
            if (lane == 0) folds[warp] = one;
        }
        __syncthreads();
        const int here = whole - done < WARPS ? (int)(whole - done) : WARPS;
        for (int w = 0; w < here; ++w) carry = done + w > 0 ? join(carry, folds[w]) : folds[w];
        done += here;
        if (here < WARPS) return !rest ? carry : whole > 0 ? join(carry, folds[here]) : folds[here];
        __syncthreads();
    }
}

// Where the tile of a number lies.
struct Tile {
    u32 row, t;
    i64 p0;
    __device__ __forceinline__ Tile(u32 number, const Geometry& at) {
        row = number / (u32)at.tiles;
        t = number - row * (u32)at.tiles;
        p0 = (i64)t * TILE;
    }
};

// A tile begins its way to `stage`: packs of x, then those of y, each read by the thread that sent
// it. What cannot be read in packs is there at once.
template <class E> __device__ __forceinline__
void send(unsigned char* stage, const E* __restrict__ from, i64 step, const Tile& tile, i64 n,
          bool packed) {
    E* room = reinterpret_cast<E*>(stage);
#pragma unroll
    for (int r = 0; r < R; ++r) {
        const int i = spot(r);
        const i64 p = tile.p0 + i;
        if (packed && p + V <= n) {
            copy_async<sizeof(Pack<E>)>(room + i, from + (REVERSE ? n - p - V : p));
            continue;
        }
#pragma unroll
        for (int k = 0; k < V; ++k)
            if (p + k < n) room[i + (REVERSE ? V - 1 - k : k)] = from[index_of(p + k, n) * step];
    }
}
__device__ __forceinline__ void fetch(unsigned char* stage, INPUTS, const Tile& tile,
                                      const Geometry& at, bool packed) {
    send(stage, x + tile.row * at.x[0], at.x[1], tile, at.n, packed);
#if OP == LINEAR
    send(stage + TILE * sizeof(X), y + tile.row * at.y[0], at.y[1], tile, at.n, packed);
#endif
}

// Pack r of this thread, inclusive.
__device__ __forceinline__ void take(Item (&v)[V], const unsigned char* stage, int r, i64 p0,
                                     i64 n) {
    const int i = spot(r);
    const Pack<X> a = *reinterpret_cast<const Pack<X>*>(stage + i * sizeof(X));
#if OP == LINEAR
    const unsigned char* second = stage + TILE * sizeof(X) + i * sizeof(Y);
    const Pack<Y> b = *reinterpret_cast<const Pack<Y>*>(second);
#else
    const Pack<X>& b = a;
#endif
    unpack(v, a, b, p0 + i, n);
#pragma unroll
    for (int k = 0; k < V; ++k)
        if (p0 + i + k >= n) v[k] = neutral();
    fold_in_order(v);
}

// The total of a warp's part of a tile; before[r] becomes what that part holds ahead of pack r,
// nothing for the first pack of the first lane.
__device__ __forceinline__ Item total_of_warp(Item (&before)[R], const unsigned char* stage, i64 p0,
                                              i64 n) {
    const int lane = threadIdx.x & 31;
    Item met = neutral();
#pragma unroll
    for (int r = 0; r < R; ++r) {
        Item v[V];
        take(v, stage, r, p0, n);
        const Item sum = over_lanes(v[V - 1], lane, 32), end = of_lane(sum, 31, 32);
        before[r] = lane_below(sum, 1, 32);
        if (r > 0) before[r] = lane == 0 ? met : join(met, before[r]);
        met = r > 0 ? join(met, end) : end;
    }
    return met;
}

// Writes a warp's part of a tile; `ahead` lies before it, if anything does (`some`).
__device__ __forceinline__ void write_out(OUT* __restrict__ out PLACES_PARAMETER,
                                          const Item (&before)[R], const unsigned char* stage,
                                          Item ahead, bool some, i64 p0, i64 n, bool packed) {
    const bool leads = (threadIdx.x & 31) == 0;
#pragma unroll
    for (int r = 0; r < R; ++r) {
        Item v[V];
        take(v, stage, r, p0, n);
        const bool within = r > 0 || !leads;
        const Item all = !within ? ahead : some ? join(ahead, before[r]) : before[r];
        const i64 p = p0 + spot(r);
        if (p < n) store(out PLACES_ARGUMENT, v, all, some || within, p, n, packed);
    }
}

// work, zero before: the ticket, then the totals shown [rows, tiles, WORDS].
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
NAME(OUT* __restrict__ out PLACES_PARAMETER, INPUTS, u64* __restrict__ work, const u32 packed,
     const Geometry at) {
    DYNAMIC_SHARED(unsigned char, stage);
    __shared__ Item sums[2][WARPS], folds[WARPS];
    __shared__ u32 tickets[2];
    const int size = TILE * (sizeof(X) + (OP == LINEAR ? sizeof(Y) : 0)), warp = threadIdx.x >> 5;
    const u32 count = (u32)(at.rows * at.tiles);
    u64* cells = work + 1;
    if (threadIdx.x == 0) tickets[0] = (u32)atomicAdd(work, 1ull);
    __syncthreads();
    u32 number = tickets[0], coming = 0;
    if (number >= count) return;
    // The first tile's total; the tickets of a block are far apart if all take their first first.
    fetch(stage, x, y, Tile(number, at), at, packed);
    fetches_end();
    fetches_arrive<0>();
    if (threadIdx.x == 0) tickets[1] = (u32)atomicAdd(work, 1ull);
    Item before[R], coming_before[R];
    const Item first = total_of_warp(before, stage, Tile(number, at).p0, at.n);
    if ((threadIdx.x & 31) == 0) sums[0][warp] = first;
    __syncthreads();
    u32 next = tickets[1];
    Item unused;
    if (threadIdx.x == 0) show(cells + (i64)number * WORDS, over_warps(sums[0], unused));
    if (next < count) fetch(stage + size, x, y, Tile(next, at), at, packed);
    fetches_end();
    if (threadIdx.x == 0) tickets[0] = (u32)atomicAdd(work, 1ull);
    __syncthreads();

    Item carry = neutral();
    u32 row = 0;
    i64 done = 0;
    for (int turn = 0, at_stage = 0;; turn ^= 1) {
        const int second = at_stage == 2 ? 0 : at_stage + 1, third = 3 - at_stage - second;
        const Tile here(number, at);
        coming = tickets[turn];
        if (coming < count) fetch(stage + third * size, x, y, Tile(coming, at), at, packed);
        fetches_end();
        u32 later = 0;
        if (threadIdx.x == 0) later = (u32)atomicAdd(work, 1ull);
        if (row != here.row) done = 0;
        row = here.row;
        // What was shown a turn ago: it comes while the next total is made.
        const u64* shown = cells + (i64)(number - here.t) * WORDS;
        Glimpse first_look;
        first_look.whole = false;
        const i64 spied = (done + warp) * GROUP + (threadIdx.x & 31);
        if (spied < here.t) first_look.look(shown + spied * WORDS);
        fetches_arrive<1>();
        if (next < count) {
            const unsigned char* arrived = stage + second * size;
            const Item sum = total_of_warp(coming_before, arrived, Tile(next, at).p0, at.n);
            if ((threadIdx.x & 31) == 0) sums[turn ^ 1][warp] = sum;
        }
        if (threadIdx.x == 0) tickets[turn ^ 1] = later;
        __syncthreads();
        if (threadIdx.x == 0 && next < count)
            show(cells + (i64)next * WORDS, over_warps(sums[turn ^ 1], unused));
        Item ahead;
        over_warps(sums[turn], ahead);
        const Item lead = looked_back(carry, done, shown, here.t, first_look, folds);
        const bool some = here.t > 0 || warp > 0;
        if (here.t > 0) ahead = warp > 0 ? join(lead, ahead) : lead;
        const i64 from = here.row * at.n;
        const unsigned char* own = stage + at_stage * size;
#ifdef PLACES
        write_out(out + from, places + from, before, own, ahead, some, here.p0, at.n, packed);
#else
        write_out(out + from, before, own, ahead, some, here.p0, at.n, packed);
#endif
        if (next >= count) return;
#pragma unroll
        for (int r = 0; r < R; ++r) before[r] = coming_before[r];
        number = next;
        next = coming;
        at_stage = second;
    }
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
