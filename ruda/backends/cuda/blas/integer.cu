// out [batch, m, n] = x [batch, m, k] times y [batch, k, n] plus bias [n] of integers, modulo 2^bits.
//
// Settings: NAME; TX, TY, TB, TO, the types in memory; ACC, the unsigned type that sums are kept in.
// Geometry: a block of 256 threads makes 64 x 64 elements, 4 x 4 a thread, 16 of k at a time; grid
// (tiles of n, tiles of m, batches), tiles of m and batches also in strides of the grid.
// Shared memory: 16 x 65 values of ACC for each operand. Limits: 8 batch axes; any strides.
#include "ruda/types.cuh"

#define TILE 64
#define DEPTH 16

struct Shape {
    i64 m, n, k, batch, x_row, x_column, y_row, y_column, bias_step;
    i64 size[8], x_step[8], y_step[8];
};

extern "C" __global__ void __launch_bounds__(256)
NAME(TO* __restrict__ out, const TX* __restrict__ x, const TY* __restrict__ y,
     const TB* __restrict__ bias, const Shape at) {
    __shared__ ACC xs[DEPTH][TILE + 1];
    __shared__ ACC ys[DEPTH][TILE + 1];
    const int row = threadIdx.x / 16, column = threadIdx.x % 16;
    const i64 n0 = (i64)blockIdx.x * TILE;
    for (i64 b = blockIdx.z; b < at.batch; b += gridDim.z) {
        i64 left = b, from_x = 0, from_y = 0;
#pragma unroll
        for (int d = 7; d >= 0; --d) {
            const i64 whole = left / at.size[d], i = left - whole * at.size[d];
            from_x += i * at.x_step[d];
            from_y += i * at.y_step[d];
            left = whole;
        }
        for (i64 m0 = (i64)blockIdx.y * TILE; m0 < at.m; m0 += (i64)gridDim.y * TILE) {
            ACC sum[4][4] = {};
            for (i64 k0 = 0; k0 < at.k; k0 += DEPTH) {
                for (int i = threadIdx.x; i < TILE * DEPTH; i += 256) {
                    const i64 r = m0 + i / DEPTH, kx = k0 + i % DEPTH;
                    const i64 c = n0 + i % TILE, ky = k0 + i / TILE;
                    xs[i % DEPTH][i / DEPTH] = r < at.m && kx < at.k
                        ? (ACC)x[from_x + r * at.x_row + kx * at.x_column] : ACC(0);
                    ys[i / TILE][i % TILE] = c < at.n && ky < at.k
                        ? (ACC)y[from_y + ky * at.y_row + c * at.y_column] : ACC(0);
                }
                __syncthreads();
#pragma unroll
                for (int k = 0; k < DEPTH; ++k)
#pragma unroll
                    for (int i = 0; i < 4; ++i)
#pragma unroll
                        for (int j = 0; j < 4; ++j)
                            sum[i][j] += xs[k][row + 16 * i] * ys[k][column + 16 * j];
                __syncthreads();
            }
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const i64 r = m0 + row + 16 * i, c = n0 + column + 16 * j;
                    if (r >= at.m || c >= at.n) continue;
                    const ACC more = bias ? (ACC)bias[c * at.bias_step] : ACC(0);
                    out[(b * at.m + r) * at.n + c] = (TO)(sum[i][j] + more);
                }
        }
    }
}
