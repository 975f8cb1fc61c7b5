#include "ruda/faults.cuh"
// The number of the slot that each entry of index tensors points at: keys [n].
//
// NAME; INDEX; RANK: dimensions of the entries; COUNT: index tensors (0: the geometry alone says);
// WRAPS; DROPS: entries equal to `dropped` get the key `limit`, which no slot has; TOUCHES: also
// set touched[key]; I, U: integers that hold every offset. Grid: any, 256 threads.

struct Geometry {
    I n, size[RANK], spot[RANK], line[RANK], length[COUNT + 1], slots[COUNT + 1], apart, dropped,
        limit;
};

extern "C" __global__ void __launch_bounds__(256)
NAME(u32* __restrict__ keys, u8* __restrict__ touched, const INDEX* __restrict__ index,
     const i64 start, const Faults faults, const Geometry at) {
    const I step = (I)gridDim.x * 256;
    for (I i = (I)blockIdx.x * 256 + threadIdx.x; i < at.n; i += step) {
        U rest = (U)i;
        I spot = 0, key = (I)start;
#pragma unroll
        for (int d = RANK - 1; d >= 0; --d) {
            const U whole = d ? rest / (U)at.size[d] : 0;
            const I k = (I)(d ? rest - whole * (U)at.size[d] : rest);
            spot += k * at.spot[d];
            key += k * at.line[d];
            rest = whole;
        }
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const I where = spot + k * at.apart;
            const INDEX value = index[where];
            const i64 length = (i64)at.length[k];
            i64 place = place_of<WRAPS>(value, length);
#if DROPS
            if ((i64)value == (i64)at.dropped) {
                key = at.limit;
                continue;
            }
#endif
            if (place < 0 || place >= length) {
                report(faults, (i64)value, (i64)where, k);
                place = clamped(place, length);
            }
            key += (I)place * at.slots[k];
        }
        keys[i] = (u32)key;
#if TOUCHES
        if (key < at.limit) touched[key] = 1;
#endif
    }
}
