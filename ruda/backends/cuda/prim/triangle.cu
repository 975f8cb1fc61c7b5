#include "ruda/types.cuh"
// One side of a diagonal of matrices: out [..., rows, width * VEC], row-major; x by any strides.
//
// NAME; UNIT: an element as bits; VEC: elements of a pack, at most 16 bytes, dense in x as well;
// LOWER: what is above diagonal k becomes zero, else what is below; RANK: batch dimensions of x;
// I, U: integers that hold every offset. Grid: any, 256 threads. What is zero is not read.

struct alignas(16) Sixteen { u64 a, b; };
struct Geometry { I n, rows, width, k, down, across, size[RANK], from[RANK]; };
struct alignas(sizeof(UNIT) * VEC) Pack { UNIT at[VEC]; };

__device__ __forceinline__ bool kept(I row, I column, I k) {
    return LOWER ? column - row <= k : column - row >= k;
}

extern "C" __global__ void __launch_bounds__(256)
NAME(Pack* __restrict__ out, const UNIT* __restrict__ x, const Geometry at) {
    const I step = (I)gridDim.x * 256;
    for (I i = (I)blockIdx.x * 256 + threadIdx.x; i < at.n; i += step) {
        U rest = (U)i / (U)at.width;
        const I column = (I)((U)i - rest * (U)at.width) * VEC;
        const U batch = rest / (U)at.rows;
        const I row = (I)(rest - batch * (U)at.rows);
        I from = row * at.down + column * at.across;
        rest = batch;
#pragma unroll
        for (int d = RANK - 1; d >= 0; --d) {
            const U whole = d ? rest / (U)at.size[d] : 0;
            from += (I)(rest - whole * (U)at.size[d]) * at.from[d];
            rest = whole;
        }
        Pack result;
        if (kept(row, LOWER ? column : column + VEC - 1, at.k))
            result = *reinterpret_cast<const Pack*>(x + from);
#pragma unroll
        for (int v = 0; v < VEC; ++v)
            if (!kept(row, column + v, at.k)) result.at[v] = UNIT{};
        out[i] = result;
    }
}
