// out [count, 3] = x [count, 3] cross y [count, 3], dense. One thread a vector, 256 a block.
// Settings: NAME, S, the type in memory, T, the one to compute in.
#include "ruda/math.cuh"

extern "C" __global__ void __launch_bounds__(256)
NAME(S* __restrict__ out, const S* __restrict__ x, const S* __restrict__ y, const i64 count) {
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= count) return;
    T a[3], b[3];
#pragma unroll
    for (int d = 0; d < 3; ++d) {
        a[d] = to<T>(x[3 * i + d]);
        b[d] = to<T>(y[3 * i + d]);
    }
#pragma unroll
    for (int d = 0; d < 3; ++d) {
        const int p = (d + 1) % 3, q = (d + 2) % 3;
        out[3 * i + d] = to<S>(T(a[p] * b[q] - a[q] * b[p]));
    }
}
