// As skinny.cu, for float32: out [thin, wide] = thin [thin, depth] times wide, plus a bias.
//
// Settings: NAME; COLUMNS; THIN, rows of thin (1, 2, 4, 8), of which the last may be absent;
// ROW_WARPS x DEPTH_WARPS, the warps of a block.
// Geometry: a warp makes 4 outputs of wide, its lanes along the depth (128 with COLUMNS, 4 a lane, all of
// the depth in turn), from every DEPTH_WARPS-th piece of the depth. Grid: tiles of wide.
// Limits: depth, steps and addresses in multiples of 16 bytes; with COLUMNS the width as well.
#include "ruda/types.cuh"

#define WARP_TILE (COLUMNS ? 128 : 4)
#define TILE (ROW_WARPS * WARP_TILE)
#define WARPS (ROW_WARPS * DEPTH_WARPS)

struct Shape {
    i64 wide_step, thin_step, out_wide, out_thin, bias_wide, bias_thin;
    i32 wide, thin, depth, unused;
};

__device__ __forceinline__ void spread(float (&v)[4], uint4 q) {
    v[0] = __uint_as_float(q.x), v[1] = __uint_as_float(q.y);
    v[2] = __uint_as_float(q.z), v[3] = __uint_as_float(q.w);
}

#if COLUMNS
#define AHEAD 8
__device__ __forceinline__ void warp_sums(float (&sum)[4][THIN], const float* wide, const float* thin,
                                          const Shape& at, i32 first, int piece) {
    const i32 mine = first + 4 * (threadIdx.x % 32);
    const float* from = wide + (mine < at.wide ? mine : 0);
    for (i32 k0 = piece * AHEAD; k0 < at.depth; k0 += DEPTH_WARPS * AHEAD) {
        uint4 q[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; ++u)
            q[u] = k0 + u < at.depth ? read_once(from + (k0 + u) * at.wide_step) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            float w[4];
            spread(w, q[u]);
#pragma unroll
            for (int m = 0; m < THIN; ++m) {
                const bool here = k0 + u < at.depth && m < at.thin;
                const float x = here ? thin[m * at.thin_step + k0 + u] : 0.0f;
#pragma unroll
                for (int i = 0; i < 4; ++i) sum[i][m] += w[i] * x;
            }
        }
    }
}
#else
#define AHEAD 2
__device__ __forceinline__ void warp_sums(float (&sum)[4][THIN], const float* wide, const float* thin,
                                          const Shape& at, i32 first, int piece) {
    const uint4 none = make_uint4(0, 0, 0, 0);
    const i32 last = at.wide - 1;
    for (i32 k0 = piece * 128 + 4 * (threadIdx.x % 32); k0 < at.depth; k0 += DEPTH_WARPS * 128 * AHEAD) {
        uint4 q[AHEAD][4];
#pragma unroll
        for (int u = 0; u < AHEAD; ++u)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const i32 k = k0 + u * DEPTH_WARPS * 128, row = first + i < last ? first + i : last;
                q[u][i] = k < at.depth ? read_once(wide + row * at.wide_step + k) : none;
            }
#pragma unroll
        for (int u = 0; u < AHEAD; ++u)
#pragma unroll
            for (int m = 0; m < THIN; ++m) {
                const i32 k = k0 + u * DEPTH_WARPS * 128;
                const bool here = k < at.depth && m < at.thin;
                float x[4], w[4];
                spread(x, here ? *(const uint4*)(thin + m * at.thin_step + k) : none);
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    spread(w, q[u][i]);
                    sum[i][m] += w[0] * x[0] + w[1] * x[1] + (w[2] * x[2] + w[3] * x[3]);
                }
            }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int m = 0; m < THIN; ++m)
#pragma unroll
            for (int far = 16; far > 0; far >>= 1)
                sum[i][m] += __shfl_xor_sync(0xffffffffu, sum[i][m], far);
}
#endif

extern "C" __global__ void __launch_bounds__(32 * WARPS)
NAME(float* __restrict__ out, const float* __restrict__ wide, const float* __restrict__ thin,
     const float* __restrict__ bias, const Shape at) {
    __shared__ float parts[DEPTH_WARPS][THIN][TILE + 1];
    const int warp = threadIdx.x / 32, piece = warp % DEPTH_WARPS, group = warp / DEPTH_WARPS;
    const i32 base = blockIdx.x * TILE;
    float sum[4][THIN] = {};
    warp_sums(sum, wide, thin, at, base + group * WARP_TILE, piece);
    const int lane = threadIdx.x % 32;
    if (COLUMNS || lane == 0) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int m = 0; m < THIN; ++m)
                parts[piece][m][group * WARP_TILE + (COLUMNS ? 4 * lane : 0) + i] = sum[i][m];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < TILE * at.thin; i += 32 * WARPS) {
        const int n = i % TILE, m = i / TILE;
        if (base + n >= at.wide) continue;
        float all = 0.0f;
#pragma unroll
        for (int p = 0; p < DEPTH_WARPS; ++p) all += parts[p][m][n];
        if (bias) all += bias[(base + n) * at.bias_wide + m * at.bias_thin];
        out[(base + n) * at.out_wide + m * at.out_thin] = all;
    }
}
