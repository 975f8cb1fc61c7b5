// Images read between their pixels: out [N, C, L] from x [N, C, *S] at grid [N, L, RANK], row-
// major, whose last coordinate belongs to the first axis. MODE 0 nearest, 1 linear, 2 cubic.
//
// x through strides, none of them negative, RANK 2 or 3 positions. 256 threads (points along x;
// batch and a run of channels along y): a thread finds the pixels and weights of its point once
// and goes through the channels. No shared memory. Outside lie zeros, whatever the memory there
// holds; NaN counts as outside.
#include "ruda/math.cuh"

typedef REAL T;
static const int TAPS = MODE == 0 ? 1 : (MODE == 1 ? 2 : 4);
static const int ZEROS = 0, BORDER = 1, REFLECTION = 2;

struct Geometry {
    i64 stride[3], batch, channel;
    i32 size[3], padding, corners;
    u32 points, channels, run;
};
// Pixels of one axis as offsets in memory, and their weights; an offset below 0 is outside.
struct Taps { i64 at[TAPS]; T weight[TAPS]; };

__device__ __forceinline__ T held(T p, T low, T high, T other) {
    return p != p ? other : (p < low ? low : (p > high ? high : p));
}
__device__ __forceinline__ T bounded(T p, i32 n) { return held(p, T(-4), T(n + 3), T(-4)); }
__device__ __forceinline__ T padded(T p, i32 n, i32 padding, bool corners) {
    if (padding == ZEROS) return bounded(p, n);
    if (padding == REFLECTION) {
        const T low = corners ? T(0) : T(-0.5), span = corners ? T(n - 1) : T(n);
        const T folded = span > T(0) ? float_remainder(p - low, T(2) * span) : T(0);
        p = low + (span - fabs(span - folded));
    }
    return held(p, T(0), T(n - 1), T(0));
}
__device__ __forceinline__ T near(T u) { return ((T(1.25) * u - T(2.25)) * u) * u + T(1); }
__device__ __forceinline__ T far(T u) {
    return ((T(-0.75) * u + T(3.75)) * u - T(6)) * u + T(3);
}

__device__ __forceinline__ void tap(Taps& t, int k, T place, T weight, i32 n, i64 stride) {
    const bool inside = place >= T(0) && place < T(n);
    t.at[k] = inside ? (i64)(i32)place * stride : -1;
    t.weight[k] = weight;
}

__device__ __forceinline__ Taps taps_of(T p, const Geometry& g, int d) {
    const i32 n = g.size[d];
    const i64 s = g.stride[d];
    Taps t;
    p = g.corners ? (p + T(1)) * (T(n - 1) / T(2)) : ((p + T(1)) * T(n) - T(1)) / T(2);
#if MODE == 0
    tap(t, 0, rint(padded(p, n, g.padding, g.corners)), T(1), n, s);
#elif MODE == 1
    p = bounded(padded(p, n, g.padding, g.corners), n);
    const T low = floor(p), part = p - low;
    tap(t, 0, low, T(1) - part, n, s);
    tap(t, 1, low + T(1), part, n, s);
#else
    if (g.padding == REFLECTION) p = p - p == T(0) ? p : T(0);
    else p = bounded(p, n);
    const T low = floor(p), part = p - low;
    tap(t, 0, padded(low - T(1), n, g.padding, g.corners), far(part + T(1)), n, s);
    tap(t, 1, padded(low, n, g.padding, g.corners), near(part), n, s);
    tap(t, 2, padded(low + T(1), n, g.padding, g.corners), near(T(1) - part), n, s);
    tap(t, 3, padded(low + T(2), n, g.padding, g.corners), far(T(2) - part), n, s);
#endif
    return t;
}

// One plane at the taps of two axes.
__device__ __forceinline__ T flat(const STORED* x, const Taps& a, const Taps& b) {
    T sum = T(0);
#pragma unroll
    for (int i = 0; i < TAPS; ++i) {
        T line = T(0);
#pragma unroll
        for (int k = 0; k < TAPS; ++k)
            if (a.at[i] >= 0 && b.at[k] >= 0) line += b.weight[k] * to<T>(x[a.at[i] + b.at[k]]);
        sum += a.weight[i] * line;
    }
    return sum;
}

extern "C" __global__ void __launch_bounds__(256, 2)
NAME(STORED* __restrict__ out, const STORED* __restrict__ x, const STORED* __restrict__ grid,
     const Geometry g) {
    const u32 i = blockIdx.x * 256 + threadIdx.x, runs = (g.channels + g.run - 1) / g.run;
    if (i >= g.points) return;
    const u32 batch = blockIdx.y / runs, first = (blockIdx.y - batch * runs) * g.run;
    const STORED* point = grid + ((i64)batch * g.points + i) * RANK;
    Taps taps[RANK];
#pragma unroll
    for (int d = 0; d < RANK; ++d) taps[d] = taps_of(to<T>(point[RANK - 1 - d]), g, d);
    const u32 last = first + g.run < g.channels ? first + g.run : g.channels;
    for (u32 c = first; c < last; ++c) {
        const STORED* plane = x + batch * g.batch + (i64)c * g.channel;
        T sum = T(0);
#if RANK == 2
        sum = flat(plane, taps[0], taps[1]);
#else
#pragma unroll
        for (int k = 0; k < TAPS; ++k)
            if (taps[0].at[k] >= 0)
                sum += taps[0].weight[k] * flat(plane + taps[0].at[k], taps[1], taps[2]);
#endif
        out[((i64)batch * g.channels + c) * g.points + i] = to<STORED>(sum);
    }
}
