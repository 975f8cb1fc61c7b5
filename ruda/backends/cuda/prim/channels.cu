// Standardisation of each channel of dense x [outer, channels, inner], and its gradients.
//
// A thread has VEC elements side by side. LAST 1: inner is 1, and they belong to VEC channels;
// blocks are at.across x at.down threads (powers of two, 256 in all), at.across packs of channels
// by at.down rows. LAST 0: they belong to one channel, whose packs 256 threads share. Grid (tiles of
// channels, parts): part p has every gridDim.y-th chunk of STEPS * at.down rows (LAST 0: packs),
// and all packs of a chunk are on their way before one is used. 2 * 256 * VEC values of static
// shared memory. OP says what is made:
//
// 0 partial [2, parts, channels]: mean and sum of squares about it of a part, last chunk first.
// 2 y = (x - mean) * rstd * weight + bias; weight and bias may be null.
// 3 partial [2, parts, channels]: sums of dy and of dy * (x - mean), last chunk first.
// 5 dx = rstd * weight * (dy - db / n - (x - mean) * rstd * dw / n).
//
// Steps around a pass are text: OPERANDS are their parameters, SETUP is done once a thread, AHEAD
// reads their packs of a chunk, STORE writes results of one pack (OP 2), BESIDE makes the packs of
// dy (OP 3 and 5).
//
// What one pass reads last the next one reads first, while it is in the L2 cache. Parts are joined
// by channels_join.cu in a fixed order. Up to 2^31 rows or packs a channel.
#include "ruda/rows.cuh"

typedef REAL T;
typedef Pack<STORED, VEC> Packed;
#ifndef OPERANDS
#define OPERANDS
#endif
#ifndef SETUP
#define SETUP
#endif
#ifndef AHEAD
#define AHEAD
#endif
#ifndef STORE
#define STORE put(out + w.at, v);
#endif
#ifndef BESIDE
#define BESIDE read_chunk(beside, dy, w, i, g);
#endif
const int OWN = LAST ? VEC : 1;
#define OF(k) (LAST ? (k) : 0)

struct Geometry {
    i64 channels, inner, jump, wrap;
    u32 total, chunks, across, down, run, skip;
    double eps, count;
};
// Where a thread is: its element, and the pack in the run of its channel.
struct Walk {
    i64 at;
    u32 pack;
    __device__ __forceinline__ void step(const Geometry& g) {
        at += g.jump;
#if !LAST
        pack += g.skip;
        if (pack >= g.run) {
            pack -= g.run;
            at += g.wrap;
        }
#endif
    }
};
__device__ __forceinline__ Walk walk_from(u32 i, i64 channel, const Geometry& g) {
#if LAST
    return {(i64)i * g.channels + channel, 0};
#else
    const u32 whole = i / g.run, pack = i - whole * g.run;
    return {((i64)whole * g.channels + channel) * g.inner + (i64)pack * VEC, pack};
#endif
}
// The packs of one chunk from i on, at.down apart; those beyond the end stay as they are.
template <class E>
__device__ __forceinline__ void read_chunk(
    Pack<E, VEC> (&raw)[STEPS], const E* x, Walk w, u32 i, const Geometry& g
) {
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
        if (i + s * g.down < g.total) raw[s] = fetch<VEC>(x + w.at);
        w.step(g);
    }
}
__device__ __forceinline__ int valid_in(u32 i, const Geometry& g) {
    if (i >= g.total) return 0;
    const u32 left = (g.total - i + g.down - 1) / g.down;
    return left < STEPS ? (int)left : STEPS;
}

#if OP == 0
struct State { T n, mean[VEC], squares[VEC]; };
__device__ __forceinline__ void merge(T& mean, T& squares, T other, T more, T share, T weight) {
    const T apart = other - mean;
    mean += apart * share;
    squares += more + apart * apart * weight;
}
__device__ __forceinline__ void take(State& s, const Packed (&raw)[STEPS], int valid) {
    if (valid == STEPS) {
        const T share = T(STEPS) / (s.n + T(STEPS)), weight = s.n * share;
#pragma unroll
        for (int k = 0; k < VEC; ++k) {
            T v[STEPS], mean = T(0), squares = T(0);
#pragma unroll
            for (int j = 0; j < STEPS; ++j) mean += v[j] = to<T>(raw[j].at[k]);
            mean *= T(1) / T(STEPS);
#pragma unroll
            for (int j = 0; j < STEPS; ++j) squares += (v[j] - mean) * (v[j] - mean);
            merge(s.mean[k], s.squares[k], mean, squares, share, weight);
        }
        s.n += T(STEPS);
        return;
    }
#pragma unroll
    for (int j = 0; j < STEPS; ++j) {
        if (j >= valid) break;
        const T share = T(1) / (s.n + T(1)), weight = s.n * share;
#pragma unroll
        for (int k = 0; k < VEC; ++k)
            merge(s.mean[k], s.squares[k], to<T>(raw[j].at[k]), T(0), share, weight);
        s.n += T(1);
    }
}
#elif OP == 3
__device__ __forceinline__ void take(
    T (&a)[VEC], T (&b)[VEC], const Packed (&dy)[STEPS], const Packed (&x)[STEPS], int valid,
    const T (&mean)[OWN]
) {
#pragma unroll
    for (int j = 0; j < STEPS; ++j) {
        if (j >= valid) break;
#pragma unroll
        for (int k = 0; k < VEC; ++k) {
            const T g = to<T>(dy[j].at[k]);
            a[k] += g;
            b[k] += g * (to<T>(x[j].at[k]) - mean[OF(k)]);
        }
    }
}
#endif

#if OP == 0 || OP == 3
extern "C" __global__ void __launch_bounds__(256, BLOCKS)
NAME(T* __restrict__ partial, const STORED* __restrict__ x, const STORED* __restrict__ dy,
     const T* __restrict__ mean_data OPERANDS, const Geometry g) {
    __shared__ T first[256 * OWN], second[256 * OWN];
    const u32 t = threadIdx.x, tx = t & (g.across - 1), ty = t / g.across;
    const i64 channel = ((i64)blockIdx.x * g.across + tx) * OWN;
    const bool present = channel < g.channels;
#if OP == 0
    State s = {};
#else
    T a[VEC] = {}, b[VEC] = {}, mean[OWN] = {};
#pragma unroll
    for (int k = 0; k < OWN; ++k)
        if (present) mean[k] = mean_data[channel + k];
#endif
    SETUP
    for (u32 c = blockIdx.y; present && c < g.chunks; c += gridDim.y) {
        const u32 i = (g.chunks - 1 - c) * STEPS * g.down + ty;
        const Walk w = walk_from(i, channel, g);
        Packed read[STEPS];
        read_chunk(read, x, w, i, g);
#if OP == 0
        take(s, read, valid_in(i, g));
#else
        Packed beside[STEPS];
        AHEAD
        BESIDE
        take(a, b, beside, read, valid_in(i, g), mean);
#endif
    }
#if OP == 0
    __shared__ T counts[256];
    T n = s.n, one[OWN], two[OWN];
#pragma unroll
    for (int k = 0; k < OWN; ++k) one[k] = s.mean[k], two[k] = s.squares[k];
#pragma unroll
    for (int k = OWN; k < VEC; ++k)
        merge(one[0], two[0], s.mean[k], s.squares[k], T(1) / T(k + 1), s.n * T(k) / T(k + 1));
    n *= T(VEC / OWN);
#else
    T one[OWN], two[OWN];
#pragma unroll
    for (int k = 0; k < OWN; ++k) one[k] = a[k], two[k] = b[k];
#pragma unroll
    for (int k = OWN; k < VEC; ++k) one[0] += a[k], two[0] += b[k];
#endif
    for (u32 half = g.down / 2; half > 0; half >>= 1) {
        __syncthreads();
#pragma unroll
        for (int k = 0; k < OWN; ++k) first[k * 256 + t] = one[k], second[k * 256 + t] = two[k];
#if OP == 0
        counts[t] = n;
#endif
        __syncthreads();
        if (ty >= half) continue;
        const u32 from = t + half * g.across;
#if OP == 0
        const T more = counts[from], share = more > T(0) ? more / (n + more) : T(0);
#pragma unroll
        for (int k = 0; k < OWN; ++k)
            merge(one[k], two[k], first[k * 256 + from], second[k * 256 + from], share, n * share);
        n += more;
#else
#pragma unroll
        for (int k = 0; k < OWN; ++k) one[k] += first[k * 256 + from], two[k] += second[k * 256 + from];
#endif
    }
    if (!present || ty != 0) return;
    T* const out = partial + (i64)blockIdx.y * g.channels + channel;
#pragma unroll
    for (int k = 0; k < OWN; ++k) out[k] = one[k], out[gridDim.y * g.channels + k] = two[k];
}
#else
extern "C" __global__ void __launch_bounds__(256, BLOCKS)
NAME(STORED* __restrict__ out, const STORED* __restrict__ x, const STORED* __restrict__ dy,
     const T* __restrict__ mean_data, const T* __restrict__ var_data,
     const WEIGHT* __restrict__ weight, const BIAS* __restrict__ bias,
     const T* __restrict__ dw, const T* __restrict__ db OPERANDS, const Geometry g) {
    const u32 t = threadIdx.x, tx = t & (g.across - 1), ty = t / g.across;
    const i64 channel = ((i64)blockIdx.x * g.across + tx) * OWN;
    if (channel >= g.channels) return;
    T mean[OWN], scale[OWN], shift[OWN];
#if OP == 5
    T slope[OWN];
#endif
#pragma unroll
    for (int k = 0; k < OWN; ++k) {
        const T rstd = rsqrt(var_data[channel + k] + T(g.eps));
        mean[k] = mean_data[channel + k];
        scale[k] = weight ? rstd * to<T>(weight[channel + k]) : rstd;
#if OP == 2
        shift[k] = bias ? to<T>(bias[channel + k]) : T(0);
#else
        shift[k] = db[channel + k] / T(g.count);
        slope[k] = rstd * (dw[channel + k] / T(g.count));
#endif
    }
    SETUP
    for (u32 c = blockIdx.y; c < g.chunks; c += gridDim.y) {
        const u32 i = c * STEPS * g.down + ty;
        Walk w = walk_from(i, channel, g);
        Packed read[STEPS];
        read_chunk(read, x, w, i, g);
        AHEAD
#if OP == 5
        Packed beside[STEPS];
        BESIDE
#endif
#pragma unroll
        for (int j = 0; j < STEPS; ++j) {
            if (i + j * g.down >= g.total) break;
            T v[VEC];
#pragma unroll
            for (int k = 0; k < VEC; ++k) {
                const T centred = to<T>(read[j].at[k]) - mean[OF(k)];
#if OP == 2
                v[k] = centred * scale[OF(k)] + shift[OF(k)];
#else
                v[k] = scale[OF(k)] * (to<T>(beside[j].at[k]) - shift[OF(k)] - centred * slope[OF(k)]);
#endif
            }
            STORE
            w.step(g);
        }
    }
}
#endif
