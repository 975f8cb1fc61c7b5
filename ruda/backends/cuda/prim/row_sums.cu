// partial: [gridDim.y, parts, n] of T, out0 (and out1): [n]; out y is the sum over its parts.
// Blocks of 32 columns x 8: thread (x, y) adds up parts y, y + 8, ... in order, then 8 sums in order.
// Shared memory: 256 values of T.
#include "ruda/earlier.cuh"
#include "ruda/types.cuh"

extern "C" __global__ void __launch_bounds__(256)
NAME(OUT* __restrict__ out0, OUT* __restrict__ out1, const T* __restrict__ partial, i64 parts,
     i64 n) {
    __shared__ T sums[8][32];
    const i64 j = (i64)blockIdx.x * 32 + threadIdx.x;
    const T* from = partial + (i64)blockIdx.y * parts * n;
    T total = T(0);
    wait_for_earlier();
    if (j < n)
        for (i64 part = threadIdx.y; part < parts; part += 8) total += from[part * n + j];
    sums[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y != 0 || j >= n) return;
    total = T(0);
#pragma unroll
    for (int y = 0; y < 8; ++y) total += sums[y][threadIdx.x];
    (blockIdx.y ? out1 : out0)[j] = to<OUT>(total);
}
