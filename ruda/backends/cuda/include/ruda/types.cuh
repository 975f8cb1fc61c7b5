// Element types, and the types they are computed in. Needs no header of the toolkit.
//
// half and bhalf hold bits: arithmetic on them is done in float and rounded once, on the store.
// cx is a complex number. to<D>(v) converts between any two of the types.
#pragma once
#include "ruda/ptx.cuh"

template <class T> struct cx { T re, im; };
typedef cx<float> c64;
typedef cx<double> c128;

// Each pair of types in one place: a plain cast, unless a side is half, bhalf, cx or bool.
template <class D, class S> struct Convert {
    static __device__ __forceinline__ D of(S v) { return static_cast<D>(v); }
};
template <class D> struct Convert<D, half> {
    static __device__ __forceinline__ D of(half v) { return Convert<D, float>::of(widen(v)); }
};
template <class D> struct Convert<D, bhalf> {
    static __device__ __forceinline__ D of(bhalf v) { return Convert<D, float>::of(widen(v)); }
};
template <class S> struct Convert<half, S> {
    static __device__ __forceinline__ half of(S v) { return narrow_half(Convert<float, S>::of(v)); }
};
template <class S> struct Convert<bhalf, S> {
    static __device__ __forceinline__ bhalf of(S v) { return narrow_bhalf(Convert<float, S>::of(v)); }
};
// Through the float that rounds to odd, so that only the last rounding is to nearest.
template <> struct Convert<half, double> {
    static __device__ __forceinline__ half of(double v) {
        float f = static_cast<float>(v);
        if (v == v && (double)f != v) {
            const u32 bits = __float_as_uint(f) - (fabs((double)f) > fabs(v));
            f = __uint_as_float(bits | 1u);
        }
        return narrow_half(f);
    }
};
template <> struct Convert<half, half> {
    static __device__ __forceinline__ half of(half v) { return v; }
};
template <> struct Convert<bhalf, bhalf> {
    static __device__ __forceinline__ bhalf of(bhalf v) { return v; }
};
template <> struct Convert<half, bhalf> {
    static __device__ __forceinline__ half of(bhalf v) { return narrow_half(widen(v)); }
};
template <> struct Convert<bhalf, half> {
    static __device__ __forceinline__ bhalf of(half v) { return narrow_bhalf(widen(v)); }
};
template <class T, class S> struct Convert<cx<T>, S> {
    static __device__ __forceinline__ cx<T> of(S v) { return {Convert<T, S>::of(v), T(0)}; }
};
template <class T> struct Convert<cx<T>, half> {
    static __device__ __forceinline__ cx<T> of(half v) { return {T(widen(v)), T(0)}; }
};
template <class T> struct Convert<cx<T>, bhalf> {
    static __device__ __forceinline__ cx<T> of(bhalf v) { return {T(widen(v)), T(0)}; }
};
template <class T, class S> struct Convert<cx<T>, cx<S>> {
    static __device__ __forceinline__ cx<T> of(cx<S> v) { return {T(v.re), T(v.im)}; }
};
template <class T> struct Convert<bool, cx<T>> {
    static __device__ __forceinline__ bool of(cx<T> v) { return v.re != T(0) || v.im != T(0); }
};

template <class D, class S> __device__ __forceinline__ D to(S v) { return Convert<D, S>::of(v); }

template <class T> __device__ __forceinline__ T quiet_nan();
template <> __device__ __forceinline__ float quiet_nan<float>() { return __uint_as_float(0x7fc00000u); }
template <> __device__ __forceinline__ double quiet_nan<double>() {
    return __longlong_as_double(0x7ff8000000000000ll);
}
