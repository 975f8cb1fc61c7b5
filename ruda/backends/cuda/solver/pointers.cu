// out [count]: the addresses start + i step, for libraries that take a batch as a list of pointers.
// One thread an element, 256 a block.
#include "ruda/types.cuh"

extern "C" __global__ void __launch_bounds__(256)
pointers(u64* __restrict__ out, u64 start, u64 step, u64 count) {
    const u64 i = (u64)blockIdx.x * 256 + threadIdx.x;
    if (i < count) out[i] = start + i * step;
}
