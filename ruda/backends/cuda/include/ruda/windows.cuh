// Sliding windows along one axis, and back: which elements a window covers, which windows cover an
// element.
//
// Window i starts at i * step - low and holds elements gap apart; an axis that divides into windows
// (adaptive) has step 0: window i is then [floor(i * size / count), ceil((i + 1) * size / count)).
#pragma once
#include "ruda/types.cuh"

struct Axis { i32 size, count, kernel, step, low, high, gap; };
// Positions begin, begin + gap and so on, before end.
struct Range { i32 begin, end; };

__device__ __forceinline__ Range adaptive_window(const Axis& a, i32 i) {
    const i64 whole = (i64)i * a.size;
    return {(i32)(whole / a.count), (i32)((whole + a.size + a.count - 1) / a.count)};
}
// The elements that window i covers inside of the axis.
__device__ __forceinline__ Range window(const Axis& a, i32 i) {
    if (a.step == 0) return adaptive_window(a, i);
    i32 begin = i * a.step - a.low;
    const i32 end = begin + (a.kernel - 1) * a.gap + 1;
    if (begin < 0) begin += (-begin + a.gap - 1) / a.gap * a.gap;
    return {begin, end < a.size ? end : a.size};
}
// The windows between the first and the last (excluded) that can cover element x; with a gap some
// of those between step over it.
__device__ __forceinline__ Range covering(const Axis& a, i32 x) {
    if (a.step == 0) {
        const i64 whole = (i64)x * a.count;
        return {(i32)(whole / a.size), (i32)((whole + a.count - 1) / a.size + 1)};
    }
    const i32 near = x + a.low, far = near - (a.kernel - 1) * a.gap;
    const i32 end = near / a.step + 1;
    return {far > 0 ? (far + a.step - 1) / a.step : 0, end < a.count ? end : a.count};
}
// How many elements an average over window i divides by; with padding as far as it reaches.
__device__ __forceinline__ i32 extent(const Axis& a, i32 i, bool padded) {
    if (a.step == 0) {
        const Range r = adaptive_window(a, i);
        return r.end - r.begin;
    }
    i32 begin = i * a.step - a.low, end = begin + a.kernel;
    const i32 edge = padded ? a.size + a.high : a.size;
    if (!padded && begin < 0) begin = 0;
    return (end < edge ? end : edge) - begin;
}
