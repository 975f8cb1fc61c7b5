// Tensor cores that multiply and add doubles: fast from sm_90 on, and on some devices alone.
#pragma once
#include "ruda/types.cuh"

// d [16, 8] += a [16, 16] b [16, 8], by all lanes of a warp. With g = lane / 4 and t = lane % 4 a lane
// holds of a the places (g, t + 4 i) and (g + 8, t + 4 i) for i = 0 .. 3 in turn, of b (t + 4 i, g), of
// d (g, 2 t), (g, 2 t + 1), (g + 8, 2 t), (g + 8, 2 t + 1).
__device__ __forceinline__ void multiply_add(double (&d)[4], const double (&a)[8], const double (&b)[4]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
        : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]),
          "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
}
