// Rows of elements: a group of LANES threads shares a row and reads it in packs of N elements.
//
// LANES is a power of two: up to 32 a warp holds 32 / LANES groups, beyond that a block is a group.
#pragma once
#include "ruda/limits.cuh"
#include "ruda/math.cuh"

#define EACH _Pragma("unroll") for (int k = 0; k < VEC; ++k)

template <class E, int N> struct alignas(sizeof(E) * N < 16 ? sizeof(E) * N : 16) Pack { E at[N]; };

// N elements in a row of memory, at a multiple of the size of the pack or of 16 bytes.
template <int N, class E> __device__ __forceinline__ Pack<E, N> fetch(const E* p) {
    return *reinterpret_cast<const Pack<E, N>*>(p);
}
// One element N times.
template <int N, class E> __device__ __forceinline__ Pack<E, N> spread(const E* p) {
    Pack<E, N> out;
#pragma unroll
    for (int k = 0; k < N; ++k) out.at[k] = *p;
    return out;
}
template <int N, class T, class E>
__device__ __forceinline__ void widened(T (&v)[N], const Pack<E, N>& pack) {
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = to<T>(pack.at[k]);
}
// N bhalfs in words of two, each of which is one instruction away from a float.
template <int N> struct alignas(2 * N < 16 ? 2 * N : 16) Pairs { u32 at[N / 2]; };

template <int N> __device__ __forceinline__ Pairs<N> fetch_pairs(const bhalf* p) {
    return *reinterpret_cast<const Pairs<N>*>(p);
}
template <int N> __device__ __forceinline__ void widened(float (&v)[N], const Pairs<N>& pairs) {
#pragma unroll
    for (int j = 0; j < N / 2; ++j) {
        v[2 * j] = __uint_as_float(pairs.at[j] << 16);
        v[2 * j + 1] = __uint_as_float(pairs.at[j] & 0xffff0000u);
    }
}
template <int N, class T, class E> __device__ __forceinline__ void put(E* p, const T (&v)[N]) {
    Pack<E, N> pack;
#pragma unroll
    for (int k = 0; k < N; ++k) pack.at[k] = to<E>(v[k]);
    *reinterpret_cast<Pack<E, N>*>(p) = pack;
}

// Where element i of a row-major order of `size` lies.
template <int R> __device__ __forceinline__ i64 place(i64 i, const i64* size, const i64* stride) {
    i64 at = 0;
#pragma unroll
    for (int d = R - 1; d > 0; --d) {
        const i64 whole = i / size[d];
        at += (i - whole * size[d]) * stride[d];
        i = whole;
    }
    return at + i * stride[0];
}

struct Sum {
    template <class T> static __device__ __forceinline__ T of(T a, T b) { return a + b; }
};
struct Max {
    template <class T> static __device__ __forceinline__ T of(T a, T b) { return ruda_max(a, b); }
};

struct Min {
    template <class T> static __device__ __forceinline__ T of(T a, T b) { return ruda_min(a, b); }
};

// Folds K values over the group; every thread gets the results, the same bits in each.
// scratch: two halves of HALF values, 32 for each of the most that are folded together. They take
// turns, so one barrier a fold is enough.
template <int LANES, int HALF, class F, int K, class T>
__device__ __forceinline__ void fold_group(T (&v)[K], T* scratch, int& turn) {
    constexpr int WIDTH = LANES < 32 ? LANES : 32;
    constexpr int WARPS = LANES / 32;
#pragma unroll
    for (int far = WIDTH / 2; far > 0; far >>= 1)
#pragma unroll
        for (int k = 0; k < K; ++k) v[k] = F::of(v[k], __shfl_xor_sync(~0u, v[k], far));
    if constexpr (WARPS > 1) {
        const int lane = threadIdx.x & 31;
        T* mine = scratch + turn * HALF;
        turn ^= 1;
        if (lane == 0)
#pragma unroll
            for (int k = 0; k < K; ++k) mine[k * 32 + (threadIdx.x >> 5)] = v[k];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < K; ++k) {
            v[k] = mine[k * 32 + (lane & (WARPS - 1))];
#pragma unroll
            for (int far = WARPS / 2; far > 0; far >>= 1)
                v[k] = F::of(v[k], __shfl_xor_sync(~0u, v[k], far));
        }
    }
}
