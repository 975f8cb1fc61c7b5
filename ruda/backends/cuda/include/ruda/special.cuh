// Neighbours among halves, and derivatives of digamma of any order.
#pragma once
#include "ruda/math.cuh"

// The half next to x in the direction of y; `equal` where there is none to go to.
template <class H> __device__ __forceinline__ H neighbour(H x, H y, H equal, H nan) {
    const float from = widen(x), goal = widen(y);
    if (from != from || goal != goal) return nan;
    if (from == goal) return equal;
    if (from == 0.0f) return H{(u16)((goal < 0.0f ? 0x8000 : 0) | 1)};
    return H{(u16)((from < goal) == (from > 0.0f) ? x.bits + 1 : x.bits - 1)};
}
__device__ __forceinline__ half ruda_nextafter(half x, half y) {
    return neighbour(x, y, x, half{0x7e00});
}
__device__ __forceinline__ bhalf ruda_nextafter(bhalf x, bhalf y) {
    return neighbour(x, y, y, bhalf{0x7fc0});
}

// Hurwitz's zeta function for q >= 0: ten terms, then the Euler-Maclaurin formula with the first
// eight Bernoulli numbers over (2 k)!.
__device__ __forceinline__ double hurwitz_zeta(double s, double q) {
    const double share[8] = {8.333333333333333e-2, -1.388888888888889e-3, 3.3068783068783064e-5,
                             -8.267195767195768e-7, 2.08767569878681e-8, -5.284190138687493e-10,
                             1.338253653068468e-11, -3.3896802963225827e-13};
    double out = 0.0;
    for (int i = 0; i < 10; ++i, q += 1.0) out += pow(q, -s);
    const double last = pow(q, -s), square = 1.0 / (q * q);
    out += last * q / (s - 1.0) + 0.5 * last;
    double rising = s * last / q;
    for (int k = 0; k < 8; ++k) {
        out += share[k] * rising;
        rising *= (s + 2 * k + 1) * (s + 2 * k + 2) * square;
    }
    return out;
}

// Order 1 is reflected for x < 1/2; above that x < 0 gives NaN.
__device__ __forceinline__ double polygamma_of(double x, i64 order) {
    if (order > 1) {
        double factor = order % 2 ? 1.0 : -1.0;
        for (i64 k = 2; k <= order; ++k) factor *= (double)k;
        return x < 0.0 ? quiet_nan<double>() : factor * hurwitz_zeta((double)(order + 1), x);
    }
    if (x >= 0.5 || x != x) return hurwitz_zeta(2.0, x);
    const double pi = 3.141592653589793, ratio = pi / sin(pi * (x - rint(x)));
    return ratio * ratio - hurwitz_zeta(2.0, 1.0 - x);
}
template <class T> __device__ __forceinline__ T ruda_polygamma(T x, i64 order) {
    return T(polygamma_of((double)x, order));
}
