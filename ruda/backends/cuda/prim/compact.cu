// What is kept of n elements in a row, in order: three launches, a tile of TILE elements to a block.
//
// KIND 0  MASK: where a bool is true. KIND 1  STEPS: where a sorted element differs from the one
// before it (every NaN does). KIND 2  COUNTS: no flags but counts, added up.
// MODE 1  sums [tiles] of the tiles; COUNTS also puts the least count, if below 0, in sums[tiles + 1].
// MODE 2  one block: sums become what lies before each tile, sums[tiles] the whole.
// MODE 3  writes: places [rank, total] of MASK, the distinct values and more of STEPS, running sums
//         of COUNTS.
// MODE 4  counts of distinct values from where they start. MODE 5  which running sum covers each i.
// MODE 6  one part of complex elements through an order. MODE 7  a[b[i]].
// 256 threads; shared memory below 1 KiB.
#include "ruda/complex.cuh"
#include "ruda/math.cuh"
#include "ruda/together.cuh"

#define THREADS 256
#define EACH 4
#define STEP (THREADS * EACH)
#define TILE (16 * STEP)
#define MASK 0
#define STEPS 1
#define COUNTS 2
#define MOST_AXES 16

#if MODE == 1 || MODE == 3
template <class T> __device__ __forceinline__ bool differs(T a, T b) { return a != b; }
__device__ __forceinline__ bool differs(half a, half b) { return widen(a) != widen(b); }
__device__ __forceinline__ bool differs(bhalf a, bhalf b) { return widen(a) != widen(b); }

__device__ __forceinline__ i64 value_at(const X* x, i64 i) {
#if KIND == MASK
    return x[i];
#elif KIND == STEPS
    return i == 0 || differs(x[i], x[i - 1]);
#else
    return (i64)x[i];
#endif
}
#endif

#if MODE == 1
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(i64* __restrict__ sums, const X* __restrict__ x, const i64 n) {
    __shared__ i64 room[THREADS / 32];
    const i64 start = (i64)blockIdx.x * TILE, end = start + TILE < n ? start + TILE : n;
    i64 sum = 0, total;
    for (i64 i = start + threadIdx.x; i < end; i += THREADS) {
        const i64 v = value_at(x, i);
#if KIND == COUNTS
        if (v < 0) atomicMin(sums + gridDim.x + 1, v);
#endif
        sum += v;
    }
    sum_before<THREADS>(sum, room, total);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}
#endif

#if MODE == 2
extern "C" __global__ void __launch_bounds__(THREADS) NAME(i64* __restrict__ sums, const i64 n) {
    __shared__ i64 room[THREADS / 32];
    const i64 each = (n + THREADS - 1) / THREADS;
    const i64 start = threadIdx.x * each, end = start + each < n ? start + each : n;
    i64 sum = 0, total;
    for (i64 i = start; i < end; ++i) sum += sums[i];
    i64 before = sum_before<THREADS>(sum, room, total);
    for (i64 i = start; i < end; ++i) {
        const i64 here = sums[i];
        sums[i] = before;
        before += here;
    }
    if (threadIdx.x == 0) sums[n] = total;
}
#endif

#if MODE == 3
struct Axes { i64 n, total, size[MOST_AXES], rank; };

// MASK: out is places, the others idle. STEPS: `order` says where each sorted element was; out the
// values, first and inverse and starts as in unique_all, or null. COUNTS: first is the running sum.
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(X* __restrict__ out, i64* __restrict__ first, i64* __restrict__ inverse,
     i64* __restrict__ starts, const i64* __restrict__ sums, const X* __restrict__ x,
     const i64* __restrict__ order, const X* __restrict__ unsorted, const Axes at) {
    __shared__ i64 room[THREADS / 32];
    const i64 start = (i64)blockIdx.x * TILE, end = start + TILE < at.n ? start + TILE : at.n;
    i64 met = sums[blockIdx.x];
    for (i64 base = start; base < end; base += STEP) {
        i64 v[EACH], sum = 0, all;
#pragma unroll
        for (int k = 0; k < EACH; ++k) {
            const i64 i = base + threadIdx.x * EACH + k;
            v[k] = i < end ? value_at(x, i) : 0;
            sum += v[k];
        }
        i64 rank = met + sum_before<THREADS>(sum, room, all);
        met += all;
#pragma unroll
        for (int k = 0; k < EACH; ++k) {
            const i64 i = base + threadIdx.x * EACH + k;
            if (i >= end) continue;
#if KIND == MASK
            if (v[k]) {
                i64 rest = i;
                for (i64 d = at.rank - 1; d > 0; --d) {
                    const i64 whole = rest / at.size[d];
                    first[d * at.total + rank] = rest - whole * at.size[d];
                    rest = whole;
                }
                first[rank] = rest;
            }
            rank += v[k];
#elif KIND == STEPS
            rank += v[k];
            const i64 place = order ? order[i] : i;
            if (inverse) inverse[place] = rank - 1;
            if (!v[k]) continue;
            out[rank - 1] = unsorted ? unsorted[place] : x[i];
            if (first) first[rank - 1] = place;
            if (starts) starts[rank - 1] = i;
#else
            rank += v[k];
            first[i] = rank;
#endif
        }
    }
}
#endif

#if MODE == 4
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(i64* __restrict__ counts, const i64* __restrict__ starts, const i64 total, const i64 n) {
    for (i64 i = (i64)blockIdx.x * THREADS + threadIdx.x; i < total; i += (i64)gridDim.x * THREADS)
        counts[i] = (i + 1 < total ? starts[i + 1] : n) - starts[i];
}
#endif

#if MODE == 5
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(i64* __restrict__ out, const i64* __restrict__ running, const i64 total, const i64 n) {
    for (i64 i = (i64)blockIdx.x * THREADS + threadIdx.x; i < total;
         i += (i64)gridDim.x * THREADS) {
        i64 low = 0, high = n;
        while (low < high) {
            const i64 middle = low + (high - low) / 2;
            if (running[middle] <= i) low = middle + 1;
            else high = middle;
        }
        out[i] = low;
    }
}
#endif

#if MODE == 6
// PART 0 real, 1 imaginary, 2 which parts are NaN: R + Rj, R + NaN j, NaN + R j, NaN + NaN j.
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(OUT* __restrict__ out, const X* __restrict__ x, const i64* __restrict__ order, const i64 n) {
    for (i64 i = (i64)blockIdx.x * THREADS + threadIdx.x; i < n; i += (i64)gridDim.x * THREADS) {
        const X v = x[order ? order[i] : i];
#if PART == 2
        out[i] = (OUT)(2 * (v.re != v.re) + (v.im != v.im));
#else
        out[i] = PART ? v.im : v.re;
#endif
    }
}
#endif

#if MODE == 7
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(X* __restrict__ out, const X* __restrict__ a, const i64* __restrict__ b, const i64 n) {
    for (i64 i = (i64)blockIdx.x * THREADS + threadIdx.x; i < n; i += (i64)gridDim.x * THREADS)
        out[i] = a[b[i]];
}
#endif
