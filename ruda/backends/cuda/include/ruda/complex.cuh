// Arithmetic and elementary functions of complex numbers.
//
// Division is Smith's (1962). Elementary functions go by their real and imaginary parts; inverse
// functions by logarithms.
#pragma once
#include "ruda/types.cuh"

#define CX template <class T> __device__ __forceinline__

CX cx<T> operator+(cx<T> a, cx<T> b) { return {a.re + b.re, a.im + b.im}; }
CX cx<T> operator-(cx<T> a, cx<T> b) { return {a.re - b.re, a.im - b.im}; }
CX cx<T> operator-(cx<T> a) { return {-a.re, -a.im}; }
CX cx<T> operator*(cx<T> a, cx<T> b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
CX cx<T> operator*(T s, cx<T> a) { return {s * a.re, s * a.im}; }
CX cx<T> operator/(cx<T> a, cx<T> b) {
    if (fabs(b.re) >= fabs(b.im)) {
        if (b.re == T(0) && b.im == T(0)) return {a.re / fabs(b.re), a.im / fabs(b.re)};
        T r = b.im / b.re, d = b.re + b.im * r;
        return {(a.re + a.im * r) / d, (a.im - a.re * r) / d};
    }
    T r = b.re / b.im, d = b.re * r + b.im;
    return {(a.re * r + a.im) / d, (a.im * r - a.re) / d};
}
CX cx<T> operator-(int s, cx<T> a) { return {T(s) - a.re, -a.im}; }
CX cx<T> operator/(int s, cx<T> a) { return cx<T>{T(s), T(0)} / a; }
CX bool operator==(cx<T> a, cx<T> b) { return a.re == b.re && a.im == b.im; }
CX bool operator!=(cx<T> a, cx<T> b) { return !(a == b); }
CX bool operator&&(cx<T> a, cx<T> b) { return to<bool>(a) && to<bool>(b); }
CX bool operator||(cx<T> a, cx<T> b) { return to<bool>(a) || to<bool>(b); }
CX bool operator!(cx<T> a) { return !to<bool>(a); }

CX cx<T> conj(cx<T> a) { return {a.re, -a.im}; }
CX T real(cx<T> a) { return a.re; }
CX T imag(cx<T> a) { return a.im; }
CX T ruda_abs(cx<T> a) { return hypot(a.re, a.im); }
CX cx<T> ruda_sign(cx<T> a) {
    T r = ruda_abs(a);
    return r == T(0) ? cx<T>{T(0), T(0)} : cx<T>{a.re / r, a.im / r};
}
CX bool ruda_isnan(cx<T> a) { return isnan(a.re) || isnan(a.im); }
CX bool ruda_isinf(cx<T> a) { return isinf(a.re) || isinf(a.im); }
CX bool ruda_isfinite(cx<T> a) { return isfinite(a.re) && isfinite(a.im); }

CX cx<T> exp(cx<T> a) {
    T e = exp(a.re), s, c;
    sincos(a.im, &s, &c);
    return {e * c, a.im == T(0) ? a.im : e * s};
}
CX cx<T> expm1(cx<T> a) {
    T s, c, h = sin(a.im / T(2));
    sincos(a.im, &s, &c);
    return {expm1(a.re) * c - T(2) * h * h, exp(a.re) * s};
}
CX cx<T> log(cx<T> a) { return {log(ruda_abs(a)), atan2(a.im, a.re)}; }
CX cx<T> log1p(cx<T> a) {
    T b = a.re + T(1);
    return {T(0.5) * log1p(a.re * (a.re + T(2)) + a.im * a.im), atan2(a.im, b)};
}
CX cx<T> log2(cx<T> a) { return T(1.4426950408889634) * log(a); }
CX cx<T> log10(cx<T> a) { return T(0.4342944819032518) * log(a); }
CX cx<T> exp2(cx<T> a) { return exp(T(0.6931471805599453) * a); }
CX cx<T> sqrt(cx<T> a) {
    T r = ruda_abs(a);
    if (r == T(0)) return {T(0), a.im};
    T s = sqrt((r + fabs(a.re)) / T(2)), t = fabs(a.im) / (T(2) * s);
    return a.re >= T(0) ? cx<T>{s, copysign(t, a.im)} : cx<T>{t, copysign(s, a.im)};
}
CX cx<T> rsqrt(cx<T> a) { return cx<T>{T(1), T(0)} / sqrt(a); }
CX cx<T> ruda_pow(cx<T> a, cx<T> b) {
    if (b == cx<T>{T(0), T(0)}) return {T(1), T(0)};
    if (a == cx<T>{T(0), T(0)}) return {T(0), T(0)};
    return exp(b * log(a));
}
CX cx<T> sin(cx<T> a) { return {sin(a.re) * cosh(a.im), cos(a.re) * sinh(a.im)}; }
CX cx<T> cos(cx<T> a) { return {cos(a.re) * cosh(a.im), -sin(a.re) * sinh(a.im)}; }
CX cx<T> sinh(cx<T> a) { return {sinh(a.re) * cos(a.im), cosh(a.re) * sin(a.im)}; }
CX cx<T> cosh(cx<T> a) { return {cosh(a.re) * cos(a.im), sinh(a.re) * sin(a.im)}; }
CX cx<T> tanh(cx<T> a) {
    if (fabs(a.re) > T(20)) return {copysign(T(1), a.re), copysign(T(0), sin(T(2) * a.im))};
    T d = cosh(T(2) * a.re) + cos(T(2) * a.im);
    return {sinh(T(2) * a.re) / d, sin(T(2) * a.im) / d};
}
CX cx<T> tan(cx<T> a) {
    cx<T> t = tanh(cx<T>{-a.im, a.re});
    return {t.im, -t.re};
}
CX cx<T> asinh(cx<T> a) {
    cx<T> one = {T(1), T(0)}, r = sqrt(a * a + one);
    return a.re < T(0) ? -log(r - a) : log(a + r);
}
CX cx<T> acosh(cx<T> a) {
    cx<T> one = {T(1), T(0)};
    return log(a + sqrt(a + one) * sqrt(a - one));
}
CX cx<T> atanh(cx<T> a) {
    cx<T> one = {T(1), T(0)};
    return T(0.5) * (log1p(a) - log1p(-a));
}
CX cx<T> asin(cx<T> a) {
    cx<T> r = asinh(cx<T>{-a.im, a.re});
    return {r.im, -r.re};
}
CX cx<T> acos(cx<T> a) {
    cx<T> s = asin(a);
    return {T(1.5707963267948966) - s.re, -s.im};
}
CX cx<T> atan(cx<T> a) {
    cx<T> r = atanh(cx<T>{-a.im, a.re});
    return {r.im, -r.re};
}
#undef CX
