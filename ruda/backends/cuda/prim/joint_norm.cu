// The root of the sum of squares of many tensors of type X, or with FINITE whether all of them are
// finite: zero times such a number is zero. table: their addresses and sizes;
// chunks: which tensor a block has, and which part of CHUNK elements. One launch of 256 threads a
// part writes a sum each, a second one of a single block of 1024 adds them up in order.
#include "ruda/earlier.cuh"
#include "ruda/rows.cuh"

static const int VEC = 16 / sizeof(X);
__device__ __forceinline__ T term(T v) { return v * (FINITE ? T(0) : v); }

extern "C" __global__ void __launch_bounds__(256)
PARTS(double* __restrict__ partial, const u64* __restrict__ table,
           const u32* __restrict__ chunks) {
    __shared__ T scratch[64];
    int turn = 0;
    wait_for_earlier();
    const u64* word = table + 2 * (u64)chunks[2 * blockIdx.x];
    const X* x = (const X*)word[0];
    const i64 n = (i64)word[1], from = (i64)chunks[2 * blockIdx.x + 1] * CHUNK;
    const i64 end = from + CHUNK < n ? from + CHUNK : n;
    const i64 packed_end = (word[0] & 15) == 0 ? from + (end - from) / VEC * VEC : from;
    T sum[1] = {T(0)};
#pragma unroll 4
    for (i64 i = from + threadIdx.x * VEC; i < packed_end; i += 256 * VEC) {
        T v[VEC];
        widened(v, fetch<VEC>(x + i));
        EACH sum[0] += term(v[k]);
    }
    for (i64 i = packed_end + threadIdx.x; i < end; i += 256) {
        sum[0] += term(to<T>(x[i]));
    }
    fold_group<256, 32, Sum>(sum, scratch, turn);
    if (threadIdx.x == 0) partial[blockIdx.x] = double(sum[0]);
}

extern "C" __global__ void __launch_bounds__(1024)
WHOLE(R* __restrict__ out, const double* __restrict__ partial, i64 parts) {
    __shared__ double scratch[64];
    int turn = 0;
    double sum[1] = {0.0};
    wait_for_earlier();
    for (i64 i = threadIdx.x; i < parts; i += 1024) sum[0] += partial[i];
    fold_group<1024, 32, Sum>(sum, scratch, turn);
    if (threadIdx.x == 0) *out = FINITE ? R(sum[0] == 0.0) : R(sqrt(sum[0]));
}
