// out [thin, wide] = thin [thin, depth] times wide, plus a bias: products of at most 16 rows, which
// cost the reading of the wide operand. WIDE is [wide, depth], or [depth, wide] with COLUMNS.
//
// Settings: NAME; T (half or bhalf) and TO, the types in memory; COLUMNS; EIGHTS, rows of thin in
// eights (1, 2); ROW_WARPS x DEPTH_WARPS, the warps of a block.
// Geometry: a warp makes 16 outputs of wide (64 with COLUMNS) for all of thin on the tensor cores, from
// every DEPTH_WARPS-th piece of the depth; the block adds the pieces in fixed order. Grid: tiles of wide.
// The order of the depth within a piece is as loads of 16 bytes find it: both operands alike.
// Limits: depth, steps and addresses in multiples of 16 bytes; with COLUMNS the width as well.
#include "ruda/types.cuh"

#define WARP_TILE (COLUMNS ? 64 : 16)
#define TILE (ROW_WARPS * WARP_TILE)
#define THIN (8 * EIGHTS)
#define WARPS (ROW_WARPS * DEPTH_WARPS)

struct Shape {
    i64 wide_step, thin_step, out_wide, out_thin, bias_wide, bias_thin;
    i32 wide, thin, depth, unused;
};

__device__ __forceinline__ void add_piece(float (&sum)[EIGHTS][4], const u32 (&a)[4],
                                          const u32 (&b)[EIGHTS][2]) {
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) multiply_add(sum[e], a, b[e], T{});
}

#if COLUMNS
#define SUMS 4
#define STEP 16
#define AHEAD 2
// A lane reads 4 places of depth of 8 neighbours of wide: pairs of depth come from two of its loads.
__device__ __forceinline__ void warp_sums(float (&sum)[SUMS][EIGHTS][4], const T* wide, const T* thin,
                                          const Shape& at, i32 first, int piece) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const i32 mine = first + 8 * g;
    const T* from = wide + (mine < at.wide ? mine : 0);
    for (i32 k0 = piece * STEP; k0 < at.depth; k0 += DEPTH_WARPS * STEP * AHEAD) {
        uint4 w[AHEAD][4];
        u32 b[AHEAD][EIGHTS][2];
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            const i32 k = k0 + u * DEPTH_WARPS * STEP + 4 * t;
            const bool within = k < at.depth;
#pragma unroll
            for (int i = 0; i < 4; ++i)
                w[u][i] = within ? read_once(from + (k + i) * at.wide_step) : make_uint4(0, 0, 0, 0);
#pragma unroll
            for (int e = 0; e < EIGHTS; ++e) {
                const bool here = within && g + 8 * e < at.thin;
                const u32* x = (const u32*)(thin + (here ? (g + 8 * e) * at.thin_step + k : 0));
                b[u][e][0] = here ? x[0] : 0;
                b[u][e][1] = here ? x[1] : 0;
            }
        }
#pragma unroll
        for (int u = 0; u < AHEAD; ++u)
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                u32 q[4];
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    q[i] = c == 0 ? w[u][i].x : c == 1 ? w[u][i].y : c == 2 ? w[u][i].z : w[u][i].w;
                const u32 a[4] = {(q[0] & 0xffff) | q[1] << 16, q[0] >> 16 | (q[1] & 0xffff0000),
                                  (q[2] & 0xffff) | q[3] << 16, q[2] >> 16 | (q[3] & 0xffff0000)};
                add_piece(sum[c], a, b[u]);
            }
    }
}
__device__ __forceinline__ int place_of(int c, int i) {
    return threadIdx.x % 32 / 4 * 8 + 2 * c + i / 2;
}
#else
#define SUMS 1
#define STEP 32
#define AHEAD 4
// A lane reads 8 places of depth of two rows of wide, for two products of 16 places each.
__device__ __forceinline__ void warp_sums(float (&sum)[SUMS][EIGHTS][4], const T* wide, const T* thin,
                                          const Shape& at, i32 first, int piece) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const i32 last = at.wide - 1, low = first + g, high = first + g + 8;
    const T* from0 = wide + (low < last ? low : last) * at.wide_step;
    const T* from1 = wide + (high < last ? high : last) * at.wide_step;
    const uint4 none = make_uint4(0, 0, 0, 0);
    for (i32 k0 = piece * STEP; k0 < at.depth; k0 += DEPTH_WARPS * STEP * AHEAD) {
        uint4 w[AHEAD][2], x[AHEAD][EIGHTS];
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            const i32 k = k0 + u * DEPTH_WARPS * STEP + 8 * t;
            const bool within = k < at.depth;
            w[u][0] = within ? read_once(from0 + k) : none;
            w[u][1] = within ? read_once(from1 + k) : none;
#pragma unroll
            for (int e = 0; e < EIGHTS; ++e) {
                const bool here = within && g + 8 * e < at.thin;
                x[u][e] = here ? *(const uint4*)(thin + (g + 8 * e) * at.thin_step + k) : none;
            }
        }
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            u32 b[EIGHTS][2];
#pragma unroll
            for (int e = 0; e < EIGHTS; ++e) b[e][0] = x[u][e].x, b[e][1] = x[u][e].y;
            const u32 a[4] = {w[u][0].x, w[u][1].x, w[u][0].y, w[u][1].y};
            add_piece(sum[0], a, b);
#pragma unroll
            for (int e = 0; e < EIGHTS; ++e) b[e][0] = x[u][e].z, b[e][1] = x[u][e].w;
            const u32 c[4] = {w[u][0].z, w[u][1].z, w[u][0].w, w[u][1].w};
            add_piece(sum[0], c, b);
        }
    }
}
__device__ __forceinline__ int place_of(int, int i) { return threadIdx.x % 32 / 4 + i / 2 * 8; }
#endif

extern "C" __global__ void __launch_bounds__(32 * WARPS, 16 / WARPS)
NAME(TO* __restrict__ out, const T* __restrict__ wide, const T* __restrict__ thin,
     const TO* __restrict__ bias, const Shape at) {
    __shared__ float parts[DEPTH_WARPS][THIN][TILE + 1];
    const int warp = threadIdx.x / 32, piece = warp % DEPTH_WARPS, group = warp / DEPTH_WARPS;
    const i32 base = blockIdx.x * TILE;
    float sum[SUMS][EIGHTS][4] = {};
    warp_sums(sum, wide, thin, at, base + group * WARP_TILE, piece);
#pragma unroll
    for (int c = 0; c < SUMS; ++c)
#pragma unroll
        for (int e = 0; e < EIGHTS; ++e)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                parts[piece][8 * e + 2 * (threadIdx.x % 4) + i % 2][group * WARP_TILE + place_of(c, i)] =
                    sum[c][e][i];
    __syncthreads();
    for (int i = threadIdx.x; i < TILE * at.thin; i += 32 * WARPS) {
        const int n = i % TILE, m = i / TILE;
        if (base + n >= at.wide) continue;
        float all = 0.0f;
#pragma unroll
        for (int p = 0; p < DEPTH_WARPS; ++p) all += parts[p][m][n];
        if (bias) all += to<float>(bias[(base + n) * at.bias_wide + m * at.bias_thin]);
        out[(base + n) * at.out_wide + m * at.out_thin] = to<TO>(all);
    }
}
