// The least and greatest value of each type that reductions start from.
#pragma once
#include "ruda/types.cuh"

template <class T> __device__ __forceinline__ T lowest() {
    return T(-1) < T(0) ? T(T(1) << (8 * sizeof(T) - 1)) : T(0);
}
template <class T> __device__ __forceinline__ T highest() { return T(~lowest<T>()); }
template <> __device__ __forceinline__ bool lowest<bool>() { return false; }
template <> __device__ __forceinline__ bool highest<bool>() { return true; }
template <> __device__ __forceinline__ float lowest<float>() { return __uint_as_float(0xff800000u); }
template <> __device__ __forceinline__ float highest<float>() { return __uint_as_float(0x7f800000u); }
template <> __device__ __forceinline__ double lowest<double>() {
    return __longlong_as_double(0xfff0000000000000ull);
}
template <> __device__ __forceinline__ double highest<double>() {
    return __longlong_as_double(0x7ff0000000000000ull);
}
