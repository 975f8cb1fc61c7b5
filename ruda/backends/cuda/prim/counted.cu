// The mean of losses x [n] over those whose target [n] is not ignored, and, if asked for, how many
// these are; with OVER_COUNTED x [1] over how many these are, with SHARE one over it. One block of
// 1024 threads, sums in double. whole: no target can be the ignored one.
#include "ruda/earlier.cuh"
#include "ruda/rows.cuh"

extern "C" __global__ void __launch_bounds__(1024)
NAME(OUT* __restrict__ out, X* __restrict__ count, const X* __restrict__ x,
     const I* __restrict__ target, i64 n, i64 ignored, u32 whole) {
    __shared__ double scratch[2 * 64];
    int turn = 0;
    double sums[2] = {0.0, 0.0};
    wait_for_earlier();
    for (i64 i = threadIdx.x; i < n; i += 1024) {
#if !defined(OVER_COUNTED) && !defined(SHARE)
        sums[0] += double(x[i]);
#endif
        sums[1] += whole || i64(target[i]) != ignored ? 1.0 : 0.0;
    }
    fold_group<1024, 64, Sum>(sums, scratch, turn);
    if (threadIdx.x == 0) {
#if defined(OVER_COUNTED)
        *out = *x / X(sums[1]);
#elif defined(SHARE)
        *out = X(1) / X(sums[1]);
#else
        *out = to<OUT>(X(sums[0] / sums[1]));
        if (count) *count = X(sums[1]);
#endif
    }
}
