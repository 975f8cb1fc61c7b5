#include "ruda/types.cuh"
// x inside of a larger tensor of one value: out [n], row-major; x by any strides.
//
// NAME; UNIT: what is moved at once, 1 to 16 bytes, and sizes and strides count units; RANK; I, U:
// integers that hold every offset. Grid: any, 256 threads.

struct alignas(16) Sixteen { u64 a, b; };
struct Geometry { I n, size[RANK], low[RANK], own[RANK], from[RANK]; };

extern "C" __global__ void __launch_bounds__(256)
NAME(UNIT* __restrict__ out, const UNIT* __restrict__ x, const UNIT value, const Geometry at) {
    const I step = (I)gridDim.x * 256;
    for (I i = (I)blockIdx.x * 256 + threadIdx.x; i < at.n; i += step) {
        U rest = (U)i;
        I from = 0;
        bool inside = true;
#pragma unroll
        for (int d = RANK - 1; d >= 0; --d) {
            const U whole = d ? rest / (U)at.size[d] : 0;
            const I k = (I)(rest - whole * (U)at.size[d]) - at.low[d];
            inside = inside && (U)k < (U)at.own[d];
            from += k * at.from[d];
            rest = whole;
        }
        out[i] = inside ? x[from] : value;
    }
}
