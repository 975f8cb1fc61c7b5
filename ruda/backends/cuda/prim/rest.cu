#include "ruda/types.cuh"
// The rows of out [rows, units] that nothing else writes: those of base, or zeros.
//
// NAME; BASE: whether there is a base; U: an integer that holds rows * units. 16 bytes a unit;
// touched [rows] says which rows to leave alone. Grid: any, 256 threads.

struct alignas(16) Sixteen { u64 a, b; };

extern "C" __global__ void __launch_bounds__(256)
NAME(Sixteen* __restrict__ out, const Sixteen* __restrict__ base, const u8* __restrict__ touched,
     const U n, const U units) {
    const U step = (U)gridDim.x * 1024;
    for (U first = (U)blockIdx.x * 1024 + threadIdx.x; first < n; first += step) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const U i = first + k * 256;
            if (i >= n || touched[i / units]) continue;
#if BASE
            out[i] = base[i];
#else
            out[i] = Sixteen{0, 0};
#endif
        }
    }
}
