// Pooling over up to three axes of planes, forward and backward; every thread gathers for
// positions of its own, in row-major order, and nothing is added up by timing.
//
// OP 0 maximum: out, found [planes, windows] from x. OP 1 average: out from x. OP 2 and 3: their
// transposes, out [planes, elements] from x (the gradient of the windows) and, for 2, found. OP 4:
// out [planes, windows], the elements of x that found names, 0 for -1. Planes are addressed by two
// strides (batch and channel), positions in them by three; out and found are row-major. 256
// threads (blockDim.x positions, blockDim.y planes): a thread keeps its position and goes through
// planes.
//
// LAST 1 (OP 0 and 1): channels have stride 1 and are read along a warp; 32 channels of 32
// positions are turned round in shared memory (at most 32 * 33 * 16 bytes) and stored along
// positions.
//
// Three blocks a multiprocessor: without that bound the compiler saves registers by spilling a few.
#include "ruda/limits.cuh"
#include "ruda/math.cuh"
#include "ruda/windows.cuh"

struct Geometry {
    Axis axis[3];
    i64 stride[3], batch, channel;
    u32 batches, channels;
    i32 divisor, padded;
};
struct Place { Range at[3]; };

typedef REAL T;

#if COMPLEX
__device__ __forceinline__ T scaled(T v, i32 count) { return {v.re / count, v.im / count}; }
#else
__device__ __forceinline__ T scaled(T v, i32 count) { return v / T(count); }
#endif

__device__ __forceinline__ void split(const Geometry& g, i32 i, bool windows, i32 (&at)[3]) {
    const i32 n2 = windows ? g.axis[2].count : g.axis[2].size;
    const i32 n1 = windows ? g.axis[1].count : g.axis[1].size;
    at[2] = i % n2;
    at[1] = i / n2 % n1;
    at[0] = i / n2 / n1;
}

#if OP == 0
struct State { T best; i32 at; };
// The first of the greatest elements, NaN before all; the lowest value and -1 where there is none.
__device__ __forceinline__ State pooled(const STORED* x, const Geometry& g, const Place& p) {
    State s = {lowest<T>(), -1};
#pragma unroll 1
    for (i32 z = p.at[0].begin; z < p.at[0].end; z += g.axis[0].gap)
#pragma unroll 1
        for (i32 y = p.at[1].begin; y < p.at[1].end; y += g.axis[1].gap) {
            const STORED* line = x + z * g.stride[0] + y * g.stride[1];
            const i32 first = (z * g.axis[1].size + y) * g.axis[2].size;
            for (i32 k = p.at[2].begin; k < p.at[2].end; k += g.axis[2].gap) {
                const T v = to<T>(line[k * g.stride[2]]);
                if (s.at < 0 || (!(v <= s.best) && s.best == s.best)) s = {v, first + k};
            }
        }
    return s;
}
#elif OP == 1
struct State { T best; };
__device__ __forceinline__ i32 divisor(const Geometry& g, const i32 (&at)[3]) {
    if (g.divisor) return g.divisor;
    return extent(g.axis[0], at[0], g.padded) * extent(g.axis[1], at[1], g.padded) *
           extent(g.axis[2], at[2], g.padded);
}
__device__ __forceinline__ State pooled(const STORED* x, const Geometry& g, const Place& p) {
    T sum = to<T>(0);
#pragma unroll 1
    for (i32 z = p.at[0].begin; z < p.at[0].end; ++z)
#pragma unroll 1
        for (i32 y = p.at[1].begin; y < p.at[1].end; ++y) {
            const STORED* line = x + z * g.stride[0] + y * g.stride[1];
            for (i32 k = p.at[2].begin; k < p.at[2].end; ++k)
                sum = sum + to<T>(line[k * g.stride[2]]);
        }
    return {sum};
}
#elif OP == 2
// What the windows that chose element i give it; indices of a plane fit their low words.
__device__ __forceinline__ T given(const STORED* x, const INDEX* found, i32 i, const Geometry& g,
                                   const Place& p) {
    T sum = to<T>(0);
#pragma unroll 1
    for (i32 z = p.at[0].begin; z < p.at[0].end; ++z)
#pragma unroll 1
        for (i32 y = p.at[1].begin; y < p.at[1].end; ++y) {
            const STORED* line = x + z * g.stride[0] + y * g.stride[1];
            const INDEX* chosen = found + ((i64)z * g.axis[1].count + y) * g.axis[2].count;
            for (i32 k = p.at[2].begin; k < p.at[2].end; ++k)
                if ((i32)chosen[k] == i) sum = sum + to<T>(line[k * g.stride[2]]);
        }
    return sum;
}
#elif OP == 3
__device__ __forceinline__ T given(const STORED* x, const Geometry& g, const Place& p) {
    T sum = to<T>(0);
#pragma unroll 1
    for (i32 z = p.at[0].begin; z < p.at[0].end; ++z) {
        const i32 depth = extent(g.axis[0], z, g.padded);
#pragma unroll 1
        for (i32 y = p.at[1].begin; y < p.at[1].end; ++y) {
            const STORED* line = x + z * g.stride[0] + y * g.stride[1];
            const i32 area = depth * extent(g.axis[1], y, g.padded);
            for (i32 k = p.at[2].begin; k < p.at[2].end; ++k) {
                const i32 all = g.divisor ? g.divisor : area * extent(g.axis[2], k, g.padded);
                sum = sum + scaled(to<T>(line[k * g.stride[2]]), all);
            }
        }
    }
    return sum;
}
#endif

#if OP < 2 && LAST
extern "C" __global__ void __launch_bounds__(256, 3)
NAME(STORED* __restrict__ out, i64* __restrict__ found, const STORED* __restrict__ x,
     const Geometry g) {
    __shared__ Place places[32];
    __shared__ i32 counts[32];
    __shared__ State tile[32][33];
    const i32 plane = g.axis[0].count * g.axis[1].count * g.axis[2].count;
    const i32 lane = threadIdx.x, row = threadIdx.y, start = blockIdx.x * 32;
    if (row == 0 && start + lane < plane) {
        i32 at[3];
        split(g, start + lane, true, at);
#pragma unroll
        for (int d = 0; d < 3; ++d) places[lane].at[d] = window(g.axis[d], at[d]);
#if OP == 1
        counts[lane] = divisor(g, at);
#endif
    }
    __syncthreads();
    const u32 strips = (g.channels + 31) / 32;
    for (u32 w = blockIdx.y; w < g.batches * strips; w += gridDim.y) {
        const u32 batch = w / strips, first = (w - batch * strips) * 32;
        const STORED* image = x + batch * g.batch + (i64)(first + lane) * g.channel;
        for (i32 j = row; j < 32; j += 8)
            if (start + j < plane && first + lane < g.channels)
                tile[j][lane] = pooled(image, g, places[j]);
        __syncthreads();
        for (i32 j = row; j < 32; j += 8) {
            if (start + lane >= plane || first + j >= g.channels) continue;
            const i64 to_at = ((i64)batch * g.channels + first + j) * plane + start + lane;
            const State s = tile[lane][j];
#if OP == 0
            out[to_at] = to<STORED>(s.best);
            found[to_at] = s.at;
#else
            out[to_at] = to<STORED>(scaled(s.best, counts[lane]));
#endif
        }
        __syncthreads();
    }
}
#else
extern "C" __global__ void __launch_bounds__(256, 3)
NAME(STORED* __restrict__ out, INDEX* __restrict__ found, const STORED* __restrict__ x,
     const Geometry g) {
    const bool windows = OP < 2 || OP == 4;
    const i32 many = g.axis[0].count * g.axis[1].count * g.axis[2].count;
    const i32 plane = windows ? many : g.axis[0].size * g.axis[1].size * g.axis[2].size;
    const i32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= plane) return;
    i32 at[3];
    Place p;
    split(g, i, windows, at);
#pragma unroll
    for (int d = 0; d < 3; ++d)
        p.at[d] = windows ? window(g.axis[d], at[d]) : covering(g.axis[d], at[d]);
#if OP == 1
    const i32 count = divisor(g, at);
#endif
    const u32 planes = g.batches * g.channels, step = gridDim.y * blockDim.y;
    for (u32 q = blockIdx.y * blockDim.y + threadIdx.y; q < planes; q += step) {
        const u32 batch = q / g.channels;
        const STORED* image = x + batch * g.batch + (i64)(q - batch * g.channels) * g.channel;
        const i64 to_at = (i64)q * plane + i;
#if OP == 0
        const State s = pooled(image, g, p);
        out[to_at] = to<STORED>(s.best);
        found[to_at] = s.at;
#elif OP == 1
        out[to_at] = to<STORED>(scaled(pooled(image, g, p).best, count));
#elif OP == 2
        out[to_at] = to<STORED>(given(image, found + (i64)q * many, i, g, p));
#elif OP == 3
        out[to_at] = to<STORED>(given(image, g, p));
#else
        i32 chosen = (i32)found[(i64)q * many + i];
        const i32 least = chosen < 0 ? 0 : chosen;
        const i32 end = g.axis[0].size * g.axis[1].size * g.axis[2].size;
        i32 there[3];
        split(g, least < end ? least : end - 1, false, there);
        const STORED v =
            image[there[0] * g.stride[0] + there[1] * g.stride[1] + there[2] * g.stride[2]];
        out[to_at] = chosen < 0 ? to<STORED>(to<T>(0)) : v;
#endif
    }
}
#endif
