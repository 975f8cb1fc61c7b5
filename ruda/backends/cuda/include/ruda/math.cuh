// What the expressions of the operator table call, for every type they are computed in.
//
// Integer rules are those of the references: x // 0 and x % 0 are 0, a shift by the width of the
// type or more, or by a negative count, leaves the sign alone.
#pragma once
#include "ruda/complex.cuh"
#include "ruda/types.cuh"

#define FN template <class T> __device__ __forceinline__

template <class T> struct is_float { static const bool value = false; };
template <> struct is_float<float> { static const bool value = true; };
template <> struct is_float<double> { static const bool value = true; };
template <class T> struct is_signed { static const bool value = T(-1) < T(0); };
template <> struct is_signed<bool> { static const bool value = false; };

FN T conj(T x) { return x; }
__device__ __forceinline__ c64 complex(float re, float im) { return {re, im}; }
__device__ __forceinline__ c128 complex(double re, double im) { return {re, im}; }

FN cx<T> complex(cx<T> x, int) { return x; }

FN bool ruda_isnan(T x) { return x != x; }
FN bool ruda_isinf(T x) { return is_float<T>::value && x == x && (x - x) != (x - x); }
FN bool ruda_isfinite(T x) { return !is_float<T>::value || (x - x) == (x - x); }
FN bool ruda_signbit(T x) { return x < T(0); }
template <> __device__ __forceinline__ bool ruda_signbit(float x) { return __float_as_int(x) < 0; }
template <> __device__ __forceinline__ bool ruda_signbit(double x) {
    return __double_as_longlong(x) < 0;
}

FN T ruda_abs(T x) { return x < T(0) ? T(-x) : x; }
template <> __device__ __forceinline__ float ruda_abs(float x) { return fabsf(x); }
template <> __device__ __forceinline__ double ruda_abs(double x) { return fabs(x); }
FN T ruda_sign(T x) { return x != x ? x : T(x > T(0)) - T(x < T(0)); }
FN T ruda_max(T x, T y) { return (x > y || x != x) ? x : y; }
FN T ruda_min(T x, T y) { return (x < y || x != x) ? x : y; }
template <> __device__ __forceinline__ float ruda_max(float x, float y) { return larger(x, y); }
template <> __device__ __forceinline__ float ruda_min(float x, float y) { return smaller(x, y); }

FN T ruda_floor(T x) { return x; }
FN T ruda_ceil(T x) { return x; }
FN T ruda_trunc(T x) { return x; }
FN T ruda_round(T x) { return x; }
template <> __device__ __forceinline__ float ruda_floor(float x) { return floorf(x); }
template <> __device__ __forceinline__ double ruda_floor(double x) { return floor(x); }
template <> __device__ __forceinline__ float ruda_ceil(float x) { return ceilf(x); }
template <> __device__ __forceinline__ double ruda_ceil(double x) { return ceil(x); }
template <> __device__ __forceinline__ float ruda_trunc(float x) { return truncf(x); }
template <> __device__ __forceinline__ double ruda_trunc(double x) { return trunc(x); }
template <> __device__ __forceinline__ float ruda_round(float x) { return rintf(x); }
template <> __device__ __forceinline__ double ruda_round(double x) { return rint(x); }
template <class T> __device__ __forceinline__ cx<T> ruda_round(cx<T> x) {
    return {rint(x.re), rint(x.im)};
}

// Integers; the least value divided by -1 wraps to itself.
FN T ruda_floor_divide(T x, T y) {
    if (y == T(0)) return T(0);
    if (is_signed<T>::value && y == T(-1)) return T(T(0) - x);
    T q = x / y;
    return (x % y != T(0) && (x < T(0)) != (y < T(0))) ? T(q - T(1)) : q;
}
FN T ruda_remainder(T x, T y) {
    if (y == T(0) || (is_signed<T>::value && y == T(-1))) return T(0);
    T r = x % y;
    return (r != T(0) && (r < T(0)) != (y < T(0))) ? T(r + y) : r;
}
// Floats as NumPy does it: the quotient follows from the remainder, so that x == q * y + r.
template <class F> __device__ __forceinline__ F float_remainder(F x, F y) {
    F r = fmod(x, y);
    if (y == F(0)) return r;
    if (r == F(0)) return copysign(F(0), y);
    return (r < F(0)) != (y < F(0)) ? r + y : r;
}
template <class F> __device__ __forceinline__ F float_floor_divide(F x, F y) {
    if (y == F(0)) return x / y;
    F r = fmod(x, y), q = (x - r) / y;
    if (r != F(0) && (r < F(0)) != (y < F(0))) q -= F(1);
    if (q == F(0)) return copysign(F(0), x / y);
    F f = floor(q);
    return q - f > F(0.5) ? f + F(1) : f;
}
template <> __device__ __forceinline__ float ruda_remainder(float x, float y) {
    return float_remainder(x, y);
}
template <> __device__ __forceinline__ double ruda_remainder(double x, double y) {
    return float_remainder(x, y);
}
template <> __device__ __forceinline__ float ruda_floor_divide(float x, float y) {
    return float_floor_divide(x, y);
}
template <> __device__ __forceinline__ double ruda_floor_divide(double x, double y) {
    return float_floor_divide(x, y);
}

FN T ruda_pow(T x, T y) {
    T out = T(1);
    if (is_signed<T>::value && y < T(0)) return T(x == T(1));
    for (; y != T(0); y = T(y >> 1), x = T(x * x))
        if (y & T(1)) out = T(out * x);
    return out;
}
template <> __device__ __forceinline__ float ruda_pow(float x, float y) { return powf(x, y); }
template <> __device__ __forceinline__ double ruda_pow(double x, double y) { return pow(x, y); }

FN T ruda_left_shift(T x, T y) {
    return (y < T(0) || y >= T(8 * sizeof(T))) ? T(0) : T((u64)x << y);
}
FN T ruda_right_shift(T x, T y) {
    bool far = y < T(0) || y >= T(8 * sizeof(T));
    return far ? (x < T(0) ? T(-1) : T(0)) : T(x >> y);
}
FN T ruda_invert(T x) { return T(~x); }
template <> __device__ __forceinline__ bool ruda_invert(bool x) { return !x; }

__device__ __forceinline__ float ruda_nextafter(float x, float y) { return nextafterf(x, y); }
__device__ __forceinline__ double ruda_nextafter(double x, double y) { return nextafter(x, y); }

FN T ruda_sigmoid(T x) {
    T e = exp(-fabs(x));
    return (x >= T(0) ? T(1) : e) / (T(1) + e);
}
FN cx<T> ruda_sigmoid(cx<T> x) {
    cx<T> one = {T(1), T(0)};
    return one / (one + exp(-x));
}
FN T ruda_softplus(T x) { return ruda_max(x, T(0)) + log1p(exp(-fabs(x))); }
FN T ruda_log_sigmoid(T x) { return -ruda_softplus(-x); }
FN T ruda_logaddexp(T x, T y) {
    if (x == y) return x + T(0.6931471805599453);
    T high = ruda_max(x, y), low = ruda_min(x, y);
    return high + log1p(exp(low - high));
}
FN T ruda_gelu(T x) { return T(0.5) * x * (T(1) + erf(x * T(0.7071067811865476))); }
FN T ruda_gelu_backward(T g, T x) {
    T cdf = T(0.5) * (T(1) + erf(x * T(0.7071067811865476)));
    return g * (cdf + x * exp(T(-0.5) * x * x) * T(0.3989422804014327));
}
FN T gelu_slope(T x) { return T(0.7978845608028654) * (x + T(0.044715) * x * x * x); }
FN T ruda_gelu_tanh(T x) { return T(0.5) * x * (T(1) + tanh(gelu_slope(x))); }
FN T ruda_gelu_tanh_backward(T g, T x) {
    T t = tanh(gelu_slope(x));
    T d = T(0.7978845608028654) * (T(1) + T(0.134145) * x * x);
    return g * (T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * d);
}
FN T ruda_silu_backward(T g, T x) {
    T s = ruda_sigmoid(x);
    return g * (s * (T(1) + x * (T(1) - s)));
}

FN T mean_of(T sum, i64 count) { return sum / T(count); }
FN cx<T> mean_of(cx<T> sum, i64 count) { return {sum.re / T(count), sum.im / T(count)}; }

// Digamma and its derivatives: recurrence up to 16, then the asymptotic series in Bernoulli
// numbers; below 1/2 by reflection (Abramowitz and Stegun 6.3, 6.4).
__device__ __forceinline__ double digamma_of(double x) {
    const double pi = 3.141592653589793;
    if (x == 0.0) return copysign(__longlong_as_double(0x7ff0000000000000ll), -x);
    double sum = 0.0;
    if (x < 0.5) {
        if (x == floor(x)) return quiet_nan<double>();
        sum = -pi / tan(pi * (x - floor(x)));
        x = 1.0 - x;
    }
    for (; x < 16.0; x += 1.0) sum -= 1.0 / x;
    double i = 1.0 / (x * x);
    double tail = i * (1.0 / 12 - i * (1.0 / 120 - i * (1.0 / 252 - i * (1.0 / 240 - i / 132))));
    return sum + log(x) - 0.5 / x - tail;
}
FN T ruda_digamma(T x) { return T(digamma_of(double(x))); }

#undef FN
