#include "ruda/types.cuh"
// Tensors one after the other: out [outer, total], row y of the grid copies x_y [outer, inner_y] to
// the columns from start_y on. All are row-major and counted in units.
//
// NAME; UNIT: what is moved at once, 1 to 16 bytes; MOST: operands of a launch; I, U: integers that
// hold every offset. Grid: x any, y operands; 256 threads, 4 units a thread and step.

struct alignas(16) Sixteen { u64 a, b; };
struct Operands { const UNIT* at[MOST]; };
struct Geometry { I outer, total, inner[MOST], start[MOST]; };

extern "C" __global__ void __launch_bounds__(256)
NAME(UNIT* __restrict__ out, const Operands x, const Geometry at) {
    const UNIT* __restrict__ from = x.at[blockIdx.y];
    const I inner = at.inner[blockIdx.y], start = at.start[blockIdx.y], n = at.outer * inner;
    const I step = (I)gridDim.x * 1024;
    for (I first = (I)blockIdx.x * 1024 + threadIdx.x; first < n; first += step) {
        UNIT moved[4];
#pragma unroll
        for (int k = 0; k < 4; ++k)
            if (first + k * 256 < n) moved[k] = from[first + k * 256];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const I i = first + k * 256;
            if (i >= n) continue;
            const I row = (I)((U)i / (U)inner);
            out[row * at.total + start + (i - row * inner)] = moved[k];
        }
    }
}
