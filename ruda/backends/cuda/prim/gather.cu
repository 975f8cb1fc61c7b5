#include "ruda/earlier.cuh"
#include "ruda/faults.cuh"
// Reading where tensors of integers point: out [n], row-major; x by any strides.
//
// NAME; UNIT: what is moved at once, 1 to 16 bytes, and sizes and strides count units; INDEX: the
// type of an index; RANK: dimensions of out; COUNT: index tensors, `apart` elements from each other;
// WRAPS: whether negative indices count from the end; I, U: integers that hold every offset.
// Grid: any, 256 threads, 4 units a thread and step. No shared memory.

struct alignas(16) Sixteen { u64 a, b; };
struct Geometry {
    I n, size[RANK], from[RANK], spot[RANK], length[COUNT], step[COUNT], apart;
};

__device__ __forceinline__ I source(I i, const INDEX* __restrict__ index, const Faults& faults,
                                    const Geometry& at) {
    U rest = (U)i;
    I from = 0, spot = 0;
#pragma unroll
    for (int d = RANK - 1; d > 0; --d) {
        const U whole = rest / (U)at.size[d];
        const I k = (I)(rest - whole * (U)at.size[d]);
        from += k * at.from[d];
        spot += k * at.spot[d];
        rest = whole;
    }
    from += (I)rest * at.from[0];
    spot += (I)rest * at.spot[0];
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
        const I where = spot + k * at.apart;
        const INDEX value = index[where];
        i64 place = place_of<WRAPS>(value, (i64)at.length[k]);
        if (place < 0 || place >= (i64)at.length[k]) {
            report(faults, (i64)value, (i64)where, k);
            place = clamped(place, (i64)at.length[k]);
        }
        from += (I)place * at.step[k];
    }
    return from;
}

extern "C" __global__ void __launch_bounds__(256)
NAME(UNIT* __restrict__ out, const UNIT* __restrict__ x, const INDEX* __restrict__ index,
     const Faults faults, const Geometry at) {
    wait_for_earlier();
    const I step = (I)gridDim.x * 1024;
    for (I first = (I)blockIdx.x * 1024 + threadIdx.x; first < at.n; first += step) {
        UNIT moved[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const I i = first + k * 256;
            if (i < at.n) moved[k] = x[source(i, index, faults, at)];
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const I i = first + k * 256;
            if (i < at.n) out[i] = moved[k];
        }
    }
}
