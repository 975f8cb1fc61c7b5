// Values from a rule: out[i] for n elements in row-major order. Grid-stride loop, 256 threads.
// Settings: OUT, NAME, VALUE (an expression of u64 i and of the struct Rule).
//
// Products and sums are rounded one by one, as on the CPU: no fused multiply-add here.
#include "ruda/math.cuh"

struct Rule { i64 n, start, step, width; double from, by, last, delta, imag[4]; };

__device__ __forceinline__ double add(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ double times(double a, double b) { return __dmul_rn(a, b); }

// start + i * step, wrapped; the same in float64; the same where only the steps are integers.
__device__ __forceinline__ i64 counted(u64 i, const Rule& at) {
    return (i64)((u64)at.start + i * (u64)at.step);
}
__device__ __forceinline__ double spaced(u64 i, const Rule& at) {
    return add(at.from, times((double)i, at.by));
}
__device__ __forceinline__ double mixed(u64 i, const Rule& at) {
    return add(at.from, (double)(i64)(i * (u64)at.step));
}
// Between two ends, the last of them exact; a step that underflows to zero is taken later.
__device__ __forceinline__ double between(
    u64 i, double from, double by, double last, double delta, const Rule& at
) {
    if (i + 1 == (u64)at.step) return last;
    const double way = at.width ? times((double)i / (double)at.width, delta) : times((double)i, by);
    return add(way, from);
}
__device__ __forceinline__ double line(u64 i, const Rule& at) {
    return between(i, at.from, at.by, at.last, at.delta, at);
}
__device__ __forceinline__ c128 line_of_complex(u64 i, const Rule& at) {
    return {line(i, at), between(i, at.imag[0], at.imag[1], at.imag[2], at.imag[3], at)};
}
__device__ __forceinline__ bool diagonal(u64 i, const Rule& at) {
    const i64 row = (i64)(i / (u64)at.width);
    return (i64)(i - (u64)row * (u64)at.width) - row == at.start;
}

extern "C" __global__ void __launch_bounds__(256) NAME(OUT* __restrict__ out, const Rule at) {
    const u64 step = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < (u64)at.n; i += step)
        out[i] = to<OUT>(VALUE);
}
