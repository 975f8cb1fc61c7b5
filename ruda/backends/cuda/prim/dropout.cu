// Dropout in one pass: out = x * scale where the word of an element is not below a limit, else 0.
//
// x, out [n] of type STORED, row-major, computed in REAL. 256 threads, grid-stride, no shared
// memory; COUNT elements a step, 16 bytes where ALIGNED is 1. The words are those of the row
// dropout_mask.
#include "ruda/math.cuh"
#include "ruda/philox.cuh"

static const int COUNT = 16 / sizeof(STORED) < 4 ? 4 : 16 / sizeof(STORED);
struct alignas(16) Pack { STORED at[COUNT]; };

extern "C" __global__ void __launch_bounds__(256)
NAME(STORED* __restrict__ out, const STORED* __restrict__ x, u64 seed, u64 draw, u64 limit,
     REAL scale, u64 n) {
    const Key key = key_of(seed, draw);
    const u64 packs = (n + COUNT - 1) / COUNT, step = (u64)gridDim.x * 256;
    for (u64 p = (u64)blockIdx.x * 256 + threadIdx.x; p < packs; p += step) {
        const bool whole = ALIGNED && (p + 1) * COUNT <= n;
        Pack pack;
        if (whole) {
            pack = reinterpret_cast<const Pack*>(x)[p];
        } else {
#pragma unroll
            for (int k = 0; k < COUNT; ++k)
                pack.at[k] = x[p * COUNT + k < n ? p * COUNT + k : n - 1];
        }
#pragma unroll
        for (int b = 0; b < COUNT / 4; ++b) {
            u32 w[4];
            philox(key, p * (COUNT / 4) + b, 0, w);
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const REAL v = to<REAL>(pack.at[4 * b + k]) * scale;
                pack.at[4 * b + k] = to<STORED>(w[k] < limit ? REAL(0) : v);
            }
        }
        if (whole) {
            reinterpret_cast<Pack*>(out)[p] = pack;
            continue;
        }
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            if (p * COUNT + k < n) out[p * COUNT + k] = pack.at[k];
    }
}
