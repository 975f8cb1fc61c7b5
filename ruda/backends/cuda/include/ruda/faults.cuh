// Indices out of range: clamped, and the first of them told to the host.
//
// The record lies in memory of the host that the device sees: site, value, offset of the value in
// its tensor, number of the index tensor. Who sets the word `claimed` (on the device, so that a
// million bad threads do not meet on the bus) writes it; the host clears both.
#pragma once
#include "ruda/types.cuh"

struct Faults { u64 record, claimed, site; };

// For kernels with registers to spare; the call below takes none of those without.
__device__ __forceinline__ void tell(const Faults& faults, i64 value, i64 offset, int which) {
    u32* claimed = reinterpret_cast<u32*>(faults.claimed);
    if (*(volatile u32*)claimed != 0u || atomicCAS(claimed, 0u, 1u) != 0u) return;
    volatile u64* record = reinterpret_cast<volatile u64*>(faults.record);
    record[1] = (u64)value;
    record[2] = (u64)offset;
    record[3] = (u64)which;
    __threadfence_system();
    record[0] = faults.site;
}
__device__ __noinline__ void report(const Faults& faults, i64 value, i64 offset, int which) {
    tell(faults, value, offset, which);
}

// The place that an index means on an axis of `length`, which is not 0; `wraps` counts a negative
// one from the end.
template <bool wraps, class T> __device__ __forceinline__ i64 place_of(T index, i64 length) {
    const i64 value = (i64)index;
    return wraps && T(-1) < T(0) && value < 0 ? value + length : value;
}
__device__ __forceinline__ i64 clamped(i64 place, i64 length) {
    return place < 0 ? 0 : place < length ? place : length - 1;
}
