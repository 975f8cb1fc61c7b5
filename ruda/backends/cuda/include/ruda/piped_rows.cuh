// Folds whose results are wanted a row later: what threads and blocks hand in travels while they work
// on other rows. One barrier of the block a row is between all that a half of `scratch` is used for.
#pragma once
#include "ruda/rows.cuh"

// The sums of warps into a half of scratch; behind a barrier, their sums in all threads.
template <int HALF, int K, class T>
__device__ __forceinline__ void hand_in(T (&v)[K], T* scratch, int turn) {
#pragma unroll
    for (int far = 16; far > 0; far >>= 1)
#pragma unroll
        for (int k = 0; k < K; ++k) v[k] += __shfl_xor_sync(~0u, v[k], far);
    if ((threadIdx.x & 31) == 0)
#pragma unroll
        for (int k = 0; k < K; ++k)
            scratch[(turn & 1) * HALF + k * 32 + (threadIdx.x >> 5)] = v[k];
}
template <int WARPS, int HALF, int K, class T>
__device__ __forceinline__ void take_out(T (&v)[K], const T* scratch, int turn) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
        v[k] = scratch[(turn & 1) * HALF + k * 32 + (threadIdx.x & (WARPS - 1))];
#pragma unroll
        for (int far = WARPS / 2; far > 0; far >>= 1) v[k] += __shfl_xor_sync(~0u, v[k], far);
    }
}
