#include "ruda/earlier.cuh"
#include "ruda/math.cuh"
#include "ruda/faults.cuh"
// Writing where tensors of integers point, one thread for each value; out is row-major.
//
// NAME; T, C: what out holds and what is computed in; V: what value holds (BYVALUE: one number of
// type C); INDEX: an index; RANK: dimensions of the values; COUNT: index tensors; WRAPS: whether
// negative indices count from the end; I, U: integers that hold every offset.
// FORM 0: a few places. The threads of a line (the places that share all other coordinates) look
//   at all of its m indices: the last of equal ones writes (PUT), or the first combines them all
//   by COMBINE(a, b) in their order, and with what is there.
// FORM 1: claim[slot] becomes the last place that points at a slot. The values are not looked at.
// FORM 2: those that own their slot's claim write.
// Grid: any, 256 threads. No shared memory.

struct alignas(16) Sixteen { u64 a, b; };
struct Geometry {
    I n, m, place, line, size[RANK], value[RANK], spot[RANK], out[RANK], slot[RANK], which[RANK],
        length[COUNT], step[COUNT], slots[COUNT], apart, dropped;
};
struct Entry { I value, spot, out, slot, place; };

__device__ __forceinline__ Entry entry_of(I i, const Geometry& at) {
    U rest = (U)i;
    Entry e = {0, 0, 0, 0, 0};
#pragma unroll
    for (int d = RANK - 1; d >= 0; --d) {
        const U whole = d ? rest / (U)at.size[d] : 0;
        const I k = (I)(d ? rest - whole * (U)at.size[d] : rest);
        e.value += k * at.value[d];
        e.spot += k * at.spot[d];
        e.out += k * at.out[d];
        e.slot += k * at.slot[d];
        e.place += k * at.which[d];
        rest = whole;
    }
    return e;
}

// How far from the start of a line (steps) the indices at `spot` point.
__device__ __forceinline__ I target(const INDEX* __restrict__ index, I spot, const I* steps,
                                    const Geometry& at) {
    I to = 0;
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
        const i64 place = place_of<WRAPS>(index[spot + k * at.apart], (i64)at.length[k]);
        to += (I)clamped(place, (i64)at.length[k]) * steps[k];
    }
    return to;
}
__device__ __forceinline__ void check(const INDEX* __restrict__ index, I spot,
                                      const Faults& faults, const Geometry& at) {
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
        const INDEX value = index[spot + k * at.apart];
        const i64 place = place_of<WRAPS>(value, (i64)at.length[k]);
        if (place < 0 || place >= (i64)at.length[k])
            report(faults, (i64)value, (i64)(spot + k * at.apart), k);
    }
}

#if BYVALUE
#define VALUE const C value
#define LOAD(D, PLACE) to<D>(value)
#else
#define VALUE const V* __restrict__ value
#define LOAD(D, PLACE) to<D>(value[PLACE])
#endif

extern "C" __global__ void __launch_bounds__(256)
NAME(T* __restrict__ out, VALUE, const INDEX* __restrict__ index, int* __restrict__ claim,
     const Faults faults, const Geometry at) {
    wait_for_earlier();
    const I step = (I)gridDim.x * 256;
    for (I i = (I)blockIdx.x * 256 + threadIdx.x; i < at.n; i += step) {
        const Entry e = entry_of(i, at);
#if FORM == 1
        check(index, e.spot, faults, at);
        atomicMax(&claim[e.slot + target(index, e.spot, at.slots, at)], (int)e.place);
#elif FORM == 2
        if (claim[e.slot + target(index, e.spot, at.slots, at)] == (int)e.place)
            out[e.out + target(index, e.spot, at.step, at)] = LOAD(T, e.value);
#else
#if DROPS
        if ((i64)index[e.spot] == (i64)at.dropped) continue;
#endif
        check(index, e.spot, faults, at);
        const I own = target(index, e.spot, at.step, at);
        const I spots = e.spot - e.place * at.place, values = e.value - e.place * at.line;
#if PUT
        bool wins = true;
        for (I q = e.place + 1; q < at.m && wins; ++q)
            wins = target(index, spots + q * at.place, at.step, at) != own;
        if (wins) out[e.out + own] = LOAD(T, e.value);
#else
        bool first = true;
        for (I q = 0; q < e.place && first; ++q)
            first = target(index, spots + q * at.place, at.step, at) != own;
        if (!first) continue;
        C sum = LOAD(C, e.value);
        for (I q = e.place + 1; q < at.m; ++q)
            if (target(index, spots + q * at.place, at.step, at) == own)
                sum = C(COMBINE(sum, LOAD(C, values + q * at.line)));
        T* to_ = &out[e.out + own];
        *to_ = to<T>(C(COMBINE(to<C>(*to_), sum)));
#endif
#endif
    }
}
