// A number times x [n], into out or over x itself, computed in T: 256 threads, grid-stride, no
// shared memory; packs of 16 bytes where ALIGNED is 1. Over x itself 1 has nothing to do: memory is
// not touched then.
#include "ruda/math.cuh"

static const int COUNT = ALIGNED ? 16 / sizeof(X) : 1;
struct alignas(sizeof(X) * COUNT) Several { X at[COUNT]; };

extern "C" __global__ void __launch_bounds__(256)
NAME(X* out, const X* x, const F* factor, i64 n) {
    const T by = to<T>(*factor);
    if (out == x && by == T(1)) return;
    const i64 packs = n / COUNT, step = (i64)gridDim.x * 256;
    const i64 first = (i64)blockIdx.x * 256 + threadIdx.x;
    for (i64 p = first; p < packs; p += step) {
        Several pack = reinterpret_cast<const Several*>(x)[p];
#pragma unroll
        for (int k = 0; k < COUNT; ++k) pack.at[k] = to<X>(to<T>(pack.at[k]) * by);
        reinterpret_cast<Several*>(out)[p] = pack;
    }
    const i64 i = packs * COUNT + first;
    if (i < n) out[i] = to<X>(to<T>(x[i]) * by);
}
