// The scores of attention: which keys a query sees, what a score is, what dropout keeps of it.
//
// q [B, Hq, Sq, D], k [B, Hkv, Sk, D], v [B, Hkv, Sk, DV], mask and bias as the scores
// [B, Hq, Sq, Sk], each with strides for every axis (0 where it repeats).
#pragma once
#include "ruda/limits.cuh"
#include "ruda/math.cuh"
#include "ruda/philox.cuh"

struct Scores {
    i64 sq, sk, d, dv, group, heads, left, right;
    i64 qs[4], ks[4], vs[4], gs[4], ms[4], bs[4];
    double scale, softcap, kept_scale;
    u64 seed, draw, limit;
};

template <class T> __device__ __forceinline__ T half_warp_max(T v) {
#pragma unroll
    for (int far = 8; far > 0; far >>= 1) {
        const T other = __shfl_xor_sync(0xffffffffu, v, far);
        v = other > v ? other : v;
    }
    return v;
}
template <class T> __device__ __forceinline__ T half_warp_sum(T v) {
#pragma unroll
    for (int far = 8; far > 0; far >>= 1) v += __shfl_xor_sync(0xffffffffu, v, far);
    return v;
}

// Whether query i sees key j by position alone.
__device__ __forceinline__ bool reaches(i64 i, i64 j, const Scores& g) {
    const i64 place = i + g.sk - g.sq;
    return i < g.sq && j < g.sk && j <= place + g.right && j >= place - g.left;
}

// The score of query i and key j from their product, -inf where hidden; slope is that of softcap.
template <bool SOFTCAP, bool BIAS, bool MASK, class T, class B>
__device__ __forceinline__ T score(T s, bool seen, i64 b, i64 h, i64 i, i64 j, const bool* mask,
                                   const B* bias, const Scores& g, T* slope) {
    s *= T(g.scale);
    *slope = T(1);
    if (!seen) return lowest<T>();
    if (SOFTCAP) {
        const T t = tanh(s / T(g.softcap));
        s = t * T(g.softcap);
        *slope = T(1) - t * t;
    }
    if (BIAS) s += to<T>(bias[b * g.bs[0] + h * g.bs[1] + i * g.bs[2] + j * g.bs[3]]);
    if (MASK && !mask[b * g.ms[0] + h * g.ms[1] + i * g.ms[2] + j * g.ms[3]]) return lowest<T>();
    return s;
}

// What dropout makes of the probability of (i, j): a factor.
template <bool DROPOUT, class T>
__device__ __forceinline__ T kept(i64 b, i64 h, i64 i, i64 j, const Scores& g) {
    if (!DROPOUT) return T(1);
    const u64 e = ((b * g.heads + h) * g.sq + i) * g.sk + j;
    u32 w[4];
    philox(key_of(g.seed, g.draw), e >> 2, 0, w);
    const u32 word = (e & 2) ? ((e & 1) ? w[3] : w[2]) : ((e & 1) ? w[1] : w[0]);
    return word < g.limit ? T(0) : T(g.kept_scale);
}
