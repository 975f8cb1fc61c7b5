// Running statistics of batch norm: mean, var [n] and a count, towards those of a batch.
// One block of 512 threads walks over the channels, so that nobody reads a count that is written
// already; targets may be the operands. Momentum below 0: 1 / count. No shared memory.
#include "ruda/math.cuh"

extern "C" __global__ void __launch_bounds__(512)
NAME(MEAN* new_mean, VAR* new_var, COUNT* new_count, const MEAN* mean, const VAR* var,
     const COUNT* count, const BATCH_MEAN* batch_mean, const BATCH_VAR* batch_var, i64 n,
     double factor, double momentum) {
    const COUNT next = COUNT(*count + 1);
    __syncthreads();
    if (threadIdx.x == 0) *new_count = next;
    const double part = momentum < 0 ? 1.0 / (double)next : momentum;
    for (i64 i = threadIdx.x; i < n; i += 512) {
        const OF_MEAN a = to<OF_MEAN>(mean[i]);
        const OF_VAR b = to<OF_VAR>(var[i]);
        new_mean[i] = to<MEAN>(a + (to<OF_MEAN>(batch_mean[i]) - a) * OF_MEAN(part));
        new_var[i] = to<VAR>(b + (to<OF_VAR>(batch_var[i]) * OF_VAR(factor) - b) * OF_VAR(part));
    }
}
