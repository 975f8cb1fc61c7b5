// Tensor cores of doubles on the CPU: every lane asks the others for what it multiplies.
#pragma once
#include "ruda/types.cuh"

inline void multiply_add(double (&d)[4], const double (&a)[8], const double (&b)[4]) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (int i = 0; i < 4; ++i)
        for (int other = 0; other < 4; ++other) {
            const double low = __shfl_sync(~0u, a[2 * i], 4 * g + other);
            const double high = __shfl_sync(~0u, a[2 * i + 1], 4 * g + other);
            const double left = __shfl_sync(~0u, b[i], 8 * t + other);
            const double right = __shfl_sync(~0u, b[i], 8 * t + 4 + other);
            d[0] += low * left, d[1] += low * right;
            d[2] += high * left, d[3] += high * right;
        }
}
