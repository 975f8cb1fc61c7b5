// What the threads of a warp and of a block do together: values of any size handed from lane to
// lane, sums in order, small prefix sums.
#pragma once
#include "ruda/types.cuh"

template <class V> union Words { V value; u32 word[(sizeof(V) + 3) / 4]; };
#define EACH_WORD for (int w = 0; w < int((sizeof(V) + 3) / 4); ++w)

template <class V> __device__ __forceinline__ V lane_below(V v, int far, int width) {
    Words<V> given, got;
    given.value = v;
#pragma unroll
    EACH_WORD got.word[w] = __shfl_up_sync(0xffffffffu, given.word[w], far, width);
    return got.value;
}
template <class V> __device__ __forceinline__ V lane_above(V v, int far) {
    Words<V> given, got;
    given.value = v;
#pragma unroll
    EACH_WORD got.word[w] = __shfl_down_sync(0xffffffffu, given.word[w], far);
    return got.value;
}
template <class V> __device__ __forceinline__ V of_lane(V v, int lane, int width) {
    Words<V> given, got;
    given.value = v;
#pragma unroll
    EACH_WORD got.word[w] = __shfl_sync(0xffffffffu, given.word[w], lane, width);
    return got.value;
}
template <class V> __device__ __forceinline__ V read_fresh(const V* at) {
    Words<V> got;
#pragma unroll
    EACH_WORD got.word[w] = reinterpret_cast<const volatile u32*>(at)[w];
    return got.value;
}
#undef EACH_WORD

// The sum of v over the threads before this one, and in `total` over all; THREADS a multiple of 32,
// up to 1024. Ends with a barrier, so `room` (THREADS / 32 sums) may be used again at once.
template <int THREADS, class S>
__device__ __forceinline__ S sum_before(S v, S* room, S& total) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    S sum = v;
#pragma unroll
    for (int far = 1; far < 32; far <<= 1) {
        const S other = lane_below(sum, far, 32);
        if (lane >= far) sum += other;
    }
    if (lane == 31) room[warp] = sum;
    __syncthreads();
    S before = 0, all = 0;
#pragma unroll
    for (int w = 0; w < THREADS / 32; ++w) {
        if (w == warp) before = all;
        all += room[w];
    }
    total = all;
    __syncthreads();
    return before + sum - v;
}
