// partial [2, parts, channels] of channels.cu to two values of each channel.
//
// MOMENTS 1: means and sums of squares about them to mean and biased variance. Part p has
// `chunk * (turns + (p < rest))` elements, the first one `missing` fewer. MOMENTS 0: sums of dy and
// of dy * (x - mean) to dw = rstd * the latter, and db. Blocks of 32 channels x 32: thread (x, y)
// joins parts y, y + 32, ... in order, and 32 results are joined in a tree. 12 KiB of static shared
// memory (float).
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

extern "C" __global__ void __launch_bounds__(1024)
NAME(T* __restrict__ one_out, T* __restrict__ two_out, const T* __restrict__ partial,
     const T* __restrict__ var, const Geometry g) {
    __shared__ T ones[32][32], twos[32][32];
    const u32 x = threadIdx.x, y = threadIdx.y;
    const i64 channel = (i64)blockIdx.x * 32 + x;
    const bool present = channel < g.channels;
    const T* const from = partial + channel;
    T one = T(0), two = T(0);
#if MOMENTS
    __shared__ T counts[32][32];
    T n = T(0);
#endif
#pragma unroll 4
    for (i64 p = y; present && p < g.parts; p += 32) {
        const T a = from[p * g.channels], b = from[(g.parts + p) * g.channels];
#if MOMENTS
        join(n, one, two, T(g.chunk * (g.turns + (p < g.rest)) - (p ? 0 : g.missing)), a, b);
#else
        one += a;
        two += b;
#endif
    }
    for (u32 half = 16; half > 0; half >>= 1) {
        __syncthreads();
        ones[y][x] = one;
        twos[y][x] = two;
#if MOMENTS
        counts[y][x] = n;
#endif
        __syncthreads();
        if (y >= half) continue;
#if MOMENTS
        join(n, one, two, counts[y + half][x], ones[y + half][x], twos[y + half][x]);
#else
        one += ones[y + half][x];
        two += twos[y + half][x];
#endif
    }
    if (!present || y != 0) return;
#if MOMENTS
    one_out[channel] = one;
    two_out[channel] = two / T(g.count);
#else
    one_out[channel] = two * rsqrt(var[channel] + T(g.eps));
    two_out[channel] = one;
#endif
}
