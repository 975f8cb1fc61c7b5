// partial [2, parts, channels] of channels.cu to two values of each channel.
//
// MOMENTS 1: means and sums of squares about them to mean and biased variance. Part p has
// `chunk * (turns + (p < rest))` elements, the first one `missing` fewer. MOMENTS 0: sums of dy and
// of dy * (x - mean) to dw = rstd * the latter, and db. A warp has a channel, 8 a block, which share
// the sectors they read: lane l joins parts l, l + 32, ... in order, then the lanes join by halves.
// No shared memory.
#include "ruda/math.cuh"

typedef REAL T;
struct Geometry { i64 parts, channels, chunk, turns, rest, missing; double eps, count; };

#if MOMENTS
__device__ __forceinline__ void join(T& n, T& mean, T& squares, T more, T other, T add) {
    if (!(more > T(0))) return;
    const T all = n + more, share = more / all, apart = other - mean;
    mean += apart * share;
    squares += add + apart * apart * n * share;
    n = all;
}
#endif

extern "C" __global__ void __launch_bounds__(256)
NAME(T* __restrict__ one_out, T* __restrict__ two_out, const T* __restrict__ partial,
     const T* __restrict__ var, const Geometry g) {
    const u32 lane = threadIdx.x & 31;
    const i64 channel = (i64)blockIdx.x * 8 + threadIdx.x / 32;
    if (channel >= g.channels) return;
    const T* const from = partial + channel;
    T one = T(0), two = T(0);
#if MOMENTS
    T n = T(0);
    const T usual = T(g.chunk * g.turns), longer = T(g.chunk * (g.turns + 1));
#endif
#pragma unroll 8
    for (i64 p = lane; p < g.parts; p += 32) {
        const T a = from[p * g.channels], b = from[(g.parts + p) * g.channels];
#if MOMENTS
        const T count = p < g.rest ? longer : usual;
        join(n, one, two, p ? count : count - T(g.missing), a, b);
#else
        one += a;
        two += b;
#endif
    }
#pragma unroll
    for (int far = 16; far > 0; far >>= 1) {
        const T a = __shfl_xor_sync(~0u, one, far), b = __shfl_xor_sync(~0u, two, far);
#if MOMENTS
        join(n, one, two, __shfl_xor_sync(~0u, n, far), a, b);
#else
        one += a;
        two += b;
#endif
    }
    if (lane != 0) return;
#if MOMENTS
    one_out[channel] = one;
    two_out[channel] = two / T(g.count);
#else
    one_out[channel] = two * rsqrt(var[channel] + T(g.eps));
    two_out[channel] = one;
#endif
}
