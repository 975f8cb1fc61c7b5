// Parts of a row as their largest element, the sum of exp(x - largest), and more sums: joined with
// one exchange, where a maximum that all know first would take two.
#pragma once
#include "ruda/rows.cuh"

template <class T, int CLUSTER, int HALF> struct Mail;

// v: largest element, sum of exp, other sums. Of WIDTH neighbours every lane gets the whole, the same
// bits in each. E is the exponential function; -inf alone, or NaN, stays what it is.
template <int WIDTH, class E, int K, class T> __device__ __forceinline__ void join_lanes(T (&v)[K]) {
    T top = v[0];
#pragma unroll
    for (int far = WIDTH / 2; far > 0; far >>= 1)
        top = ruda_max(top, __shfl_xor_sync(~0u, top, far));
    if (v[0] != top) v[1] *= E::of(v[0] - top);
    v[0] = top;
#pragma unroll
    for (int far = WIDTH / 2; far > 0; far >>= 1)
#pragma unroll
        for (int k = 1; k < K; ++k) v[k] += __shfl_xor_sync(~0u, v[k], far);
}
template <int THREADS, class E, int K, class T>
__device__ __forceinline__ void join_block(T (&v)[K], T* mine) {
    constexpr int WARPS = THREADS / 32;
    const int lane = threadIdx.x & 31;
    if (lane == 0)
#pragma unroll
        for (int k = 0; k < K; ++k) mine[k * 32 + (threadIdx.x >> 5)] = v[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < K; ++k) v[k] = mine[k * 32 + (lane & (WARPS - 1))];
    join_lanes<WARPS, E>(v);
}

// Over a group of LANES threads. K values are folded together: HALF is 32 for each.
template <int LANES, int HALF, class E, int K, class T>
__device__ __forceinline__ void join_levels(T (&v)[K], T* scratch, int& turn) {
    static_assert(LANES <= 32 || HALF >= 32 * K, "room for the values of each warp");
    join_lanes<LANES < 32 ? LANES : 32, E>(v);
    if constexpr (LANES > 32) {
        join_block<LANES, E>(v, scratch + turn * HALF);
        turn ^= 1;
    }
}
// Over a cluster: the blocks send each other what they have.
template <int LANES, int HALF, class E, int K, class T, int CLUSTER>
__device__ __forceinline__ void join_levels(T (&v)[K], Mail<T, CLUSTER, HALF>& mail, int& turn) {
    static_assert(HALF >= 32 * K, "room for the values of each warp");
    join_lanes<32, E>(v);
    join_block<LANES / CLUSTER, E>(v, mail.scratch + (turn & 1) * HALF);
    const T* all = exchanged(v, mail, turn);
    const int part = threadIdx.x & (CLUSTER - 1);
#pragma unroll
    for (int k = 0; k < K; ++k) v[k] = all[part * K + k];
    join_lanes<CLUSTER, E>(v);
}
