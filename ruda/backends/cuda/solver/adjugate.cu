// out [count, N, N] = adjugate of x [count, N, N], dense, N up to 3: determinants of what is left
// without a row and a column. One thread a matrix, 256 a block, no shared memory.
// Settings: NAME, T, the type in memory and to compute in, N.
#include "ruda/math.cuh"

extern "C" __global__ void __launch_bounds__(256)
NAME(T* __restrict__ out, const T* __restrict__ x, const i64 count) {
    const i64 at = (i64)blockIdx.x * 256 + threadIdx.x;
    if (at >= count) return;
    T a[N * N];
#pragma unroll
    for (int i = 0; i < N * N; ++i) a[i] = x[at * N * N + i];
    T* made = out + at * N * N;
#if N == 1
    made[0] = to<T>(1);
#elif N == 2
    made[0] = a[3], made[1] = -a[1], made[2] = -a[2], made[3] = a[0];
#else
    // The minors of a matrix of three, its rows and columns taken in turn, have their sign.
#pragma unroll
    for (int i = 0; i < 3; ++i)
#pragma unroll
        for (int j = 0; j < 3; ++j) {
            const int p = (j + 1) % 3 * 3, q = (j + 2) % 3 * 3, r = (i + 1) % 3, s = (i + 2) % 3;
            made[i * 3 + j] = a[p + r] * a[q + s] - a[p + s] * a[q + r];
        }
#endif
}
