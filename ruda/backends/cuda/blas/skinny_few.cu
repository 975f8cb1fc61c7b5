// out [thin, wide] = thin [thin, depth] times wide [wide, depth] transposed, plus a bias: products of at
// most two rows, by sums without tensor cores. They cost the reading of the wide operand.
//
// Settings: NAME; T (half or bhalf) and TO, the types in memory; THIN, rows of thin; ROWS of
// wide that a warp makes sums for; AHEAD, steps of 256 places of the depth that it reads at once.
// Geometry: a warp reads ROWS whole rows of wide, 512 bytes of each at a time, and adds up what its
// lanes have. Grid: tiles of WARPS * ROWS rows. No shared memory.
// Limits: depth, steps and addresses in multiples of 16 bytes.
#include "ruda/types.cuh"

#define WARPS 8

struct Shape {
    i64 wide_step, thin_step, out_wide, out_thin, bias_wide, bias_thin;
    i32 wide, unused, depth, also_unused;
};

__device__ __forceinline__ u32 word_of(const uint4& v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}
__device__ __forceinline__ float low_of(u32 word) { return widen(T{(u16)word}); }
__device__ __forceinline__ float high_of(u32 word) { return widen(T{(u16)(word >> 16)}); }

__device__ __forceinline__ void add_step(float (&sum)[ROWS][THIN], const uint4 (&w)[ROWS],
                                         const uint4 (&x)[THIN]) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const u32 a = word_of(w[r], i);
            const float low = low_of(a), high = high_of(a);
#pragma unroll
            for (int m = 0; m < THIN; ++m) {
                const u32 b = word_of(x[m], i);
                sum[r][m] = fmaf(high, high_of(b), fmaf(low, low_of(b), sum[r][m]));
            }
        }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 3)
NAME(TO* __restrict__ out, const T* __restrict__ wide, const T* __restrict__ thin,
     const TO* __restrict__ bias, const Shape at) {
    const int lane = threadIdx.x % 32;
    const i32 base = (blockIdx.x * WARPS + threadIdx.x / 32) * ROWS, last = at.wide - 1;
    if (base > last) return;
    const uint4 none = make_uint4(0, 0, 0, 0);
    const T* from[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) from[r] = wide + min(base + r, last) * at.wide_step;
    float sum[ROWS][THIN] = {};
    for (i32 first = 8 * lane; first < at.depth; first += 256 * AHEAD) {
        uint4 w[AHEAD][ROWS];
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            const i32 k = first + 256 * u;
#pragma unroll
            for (int r = 0; r < ROWS; ++r) w[u][r] = k < at.depth ? read_once(from[r] + k) : none;
        }
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            const i32 k = first + 256 * u;
            uint4 x[THIN];
#pragma unroll
            for (int m = 0; m < THIN; ++m)
                x[m] = k < at.depth ? *(const uint4*)(thin + m * at.thin_step + k) : none;
            add_step(sum, w[u], x);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int m = 0; m < THIN; ++m) {
#pragma unroll
            for (int far = 16; far > 0; far /= 2)
                sum[r][m] += __shfl_xor_sync(0xffffffffu, sum[r][m], far);
            if (lane != r * THIN + m || base + r > last) continue;
            float all = sum[r][m];
            if (bias) all += to<float>(bias[(base + r) * at.bias_wide + m * at.bias_thin]);
            out[(base + r) * at.out_wide + m * at.out_thin] = to<TO>(all);
        }
}
