// Reduction of columns: out[outer, column] = fold of x[outer, j, column] over j, columns adjacent.
//
// A block is at.across x at.down x at.deep threads, powers of two, 256 in all: VECTOR columns a
// thread side by side, at.down threads on every at.down-th j, at.deep outer places. Grid (tiles x
// outer groups, splits of j). STEPS packs are in flight in a thread; static shared memory: 256 x
// VECTOR states. Split s handles j from s * at.share on, at.share of them.
// Settings: FOLD, IN, OUT, INDEX, KEPT, REDUCED, VECTOR, STEPS, PARTS, NAME.
#include "ruda/earlier.cuh"
#include "ruda/fold.cuh"

typedef FOLD F;
typedef F::T T;
typedef F::State State;
typedef Pack<IN, VECTOR> Packed;

struct Geometry {
    i64 kept[KEPT], kept_step[KEPT], kept_out[KEPT], runs[REDUCED], runs_step[REDUCED];
    i64 outers, columns, column_step, column_out, tiles, count, share, across, down, outputs;
    Setting set;
};

__device__ __forceinline__ Packed pack_at(const IN* from, INDEX j, const Geometry& at) {
    const IN* here = from + place_of<REDUCED, INDEX>(j, at.runs, at.runs_step);
    if (VECTOR > 1) return *reinterpret_cast<const Packed*>(here);
    Packed one;
    one.at[0] = *here;
    return one;
}

// Adds the elements j, j + down, ... of each column, `valid` of them.
__device__ __forceinline__ void add_packs(
    State (&s)[VECTOR], const Packed (&read)[STEPS], int valid, INDEX j, i64 down,
    const Setting& set
) {
#pragma unroll
    for (int c = 0; c < VECTOR; ++c) {
        T v[STEPS];
#pragma unroll
        for (int k = 0; k < STEPS; ++k) v[k] = to<T>(read[k].at[c]);
        F::take<1>(s[c], v, valid, (i64)j, down, set);
    }
}

__device__ __forceinline__ void add_column(
    State (&s)[VECTOR], const IN* from, INDEX j, INDEX end, u32 down, const Geometry& at
) {
    Packed read[STEPS];
    for (; (i64)j + (STEPS - 1) * down < end; j += STEPS * down) {
#pragma unroll
        for (int k = 0; k < STEPS; ++k) read[k] = pack_at(from, j + k * down, at);
        add_packs(s, read, STEPS, j, down, at.set);
    }
    if (j >= end) return;
    const int valid = present<STEPS>(j, (INDEX)down, end);
#pragma unroll
    for (int k = 0; k < STEPS; ++k)
        if (k < valid) read[k] = pack_at(from, j + k * down, at);
    add_packs(s, read, valid, j, down, at.set);
}

__device__ __forceinline__ void store(
    TARGET* out, const State (&s)[VECTOR], i64 outer, i64 column, const Geometry& at
) {
#if PARTS
    out += (i64)blockIdx.y * at.outputs;
#endif
    out += place_of<KEPT, INDEX>((INDEX)outer, at.kept, at.kept_out) + column * at.column_out;
#if PARTS
#pragma unroll
    for (int c = 0; c < VECTOR; ++c) out[c * at.column_out] = s[c];
#else
    Pack<OUT, VECTOR> result;
#pragma unroll
    for (int c = 0; c < VECTOR; ++c) result.at[c] = to<OUT>(F::end(s[c], at.set));
    if (at.column_out == 1) {
        *reinterpret_cast<Pack<OUT, VECTOR>*>(out) = result;
        return;
    }
#pragma unroll
    for (int c = 0; c < VECTOR; ++c) out[c * at.column_out] = result.at[c];
#endif
}

extern "C" __global__ void __launch_bounds__(256, 2)
NAME(TARGET* __restrict__ out, const IN* __restrict__ x, const Geometry at) {
    __shared__ State shown[256 * VECTOR];
    const u32 across = (u32)at.across, down = (u32)at.down, t = threadIdx.x;
    const u32 cx = t & (across - 1), cy = t / across & (down - 1), cz = t / (across * down);
    const INDEX tiles = (INDEX)at.tiles, group = blockIdx.x / tiles;
    const INDEX tile = blockIdx.x - group * tiles;
    const i64 outer = (i64)group * (256 / (across * down)) + cz;
    const i64 column = ((i64)tile * across + cx) * VECTOR;
    wait_for_earlier();
    const bool present = outer < at.outers && column < at.columns;
    State s[VECTOR];
#pragma unroll
    for (int c = 0; c < VECTOR; ++c) s[c] = F::start();
    if (present) {
        const i64 begin = (i64)blockIdx.y * at.share, end = min(begin + at.share, at.count);
        const i64 base = place_of<KEPT, INDEX>((INDEX)outer, at.kept, at.kept_step);
        add_column(s, x + base + column * at.column_step, begin + cy, max(begin, end), down, at);
    }
    for (u32 half = down / 2; half > 0; half >>= 1) {
        __syncthreads();
#pragma unroll
        for (int c = 0; c < VECTOR; ++c) shown[c * 256 + t] = s[c];
        __syncthreads();
        if (cy >= half) continue;
#pragma unroll
        for (int c = 0; c < VECTOR; ++c)
            s[c] = F::join(s[c], shown[c * 256 + t + half * across]);
    }
    if (present && cy == 0) store(out, s, outer, column, at);
}
