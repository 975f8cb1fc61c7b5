// out [thin, wide] = thin [thin, depth] times wide [wide, depth] transposed, plus a bias: products of at
// most 16 rows, which cost the reading of the wide operand.
//
// Settings: NAME; T (half or bhalf) and TO, the types in memory; EIGHTS, rows of thin in eights (1, 2);
// SIXTEENS, rows of wide that a block may have, in sixteens; WARPS of a block; LINES of 64 bytes of a
// row that a warp fetches at once (1, 2, 4); STAGES such pieces that it keeps on their way.
// Geometry: grid (tiles of at.tile rows of wide, splits of the depth). A warp multiplies every WARPS-th
// piece of its block's part of the depth on the tensor cores; the block adds the sums of its warps in
// order, and of several splits the block that arrives last adds those of all in order, and leaves
// `arrived` (a zero for each tile) as it was. parts: [tiles, splits, THIN, ROWS].
// Dynamic shared memory: WARPS * STAGES * (ROWS + THIN) * LINES * 64 bytes, or the sums of the warps.
// Limits: depth, steps and addresses in multiples of 16 bytes.
#include "ruda/types.cuh"

#define ROWS (16 * SIXTEENS)
#define THIN (8 * EIGHTS)
#define DEPTH (32 * LINES)
#define STAGE ((ROWS + THIN) * LINES * 4)
#define PITCH (ROWS + 4)
// Rows that a warp fetches with one instruction.
#define AT_ONCE (8 / LINES)

struct Shape {
    i64 wide_step, thin_step, out_wide, out_thin, bias_wide, bias_thin;
    i32 wide, thin, depth, tile, pieces, unused;
};

// Rows of a matrix for one piece of the depth. Memory is [line][row][4 units of 16 bytes], which both
// writing by these lanes and reading by those of a product meet without conflicts of banks.
template <int COUNT>
__device__ __forceinline__ void fetch(uint4* room, const T* from, i64 step, i32 rows, i32 left) {
    const int lane = threadIdx.x % 32, row = lane / 4 % AT_ONCE, line = lane / 4 / AT_ONCE;
    const i32 k = 32 * line + 8 * (lane % 4);
    const T* at = from + row * step + k;
    uint4* into = room + (line * COUNT + row) * 4 + lane % 4;
#pragma unroll
    for (int i = 0; i < COUNT; i += AT_ONCE) {
        const bool real = row + i < rows && k < left;
        fetch_ahead(into + i * 4, real ? at : from, real);
        at += AT_ONCE * step;
    }
}

__device__ __forceinline__ void add_piece(float (&sum)[SIXTEENS][EIGHTS][4], const uint4* room) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int line = 0; line < LINES; ++line) {
        uint4 x[EIGHTS];
#pragma unroll
        for (int e = 0; e < EIGHTS; ++e)
            x[e] = room[(LINES * ROWS + line * THIN + 8 * e) * 4 + lane];
#pragma unroll
        for (int s = 0; s < SIXTEENS; ++s) {
            const uint4 low = room[(line * ROWS + 16 * s) * 4 + lane];
            const uint4 high = room[(line * ROWS + 16 * s + 8) * 4 + lane];
            const u32 a[4] = {low.x, high.x, low.y, high.y}, c[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
            for (int e = 0; e < EIGHTS; ++e) {
                const u32 first[2] = {x[e].x, x[e].y}, second[2] = {x[e].z, x[e].w};
                multiply_add(sum[s][e], a, first, T{});
                multiply_add(sum[s][e], c, second, T{});
            }
        }
    }
}

// A lane's numbers of the sums, to places [thin, wide].
__device__ __forceinline__ void lay_out(float* to, const float (&sum)[SIXTEENS][EIGHTS][4]) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int s = 0; s < SIXTEENS; ++s)
#pragma unroll
        for (int e = 0; e < EIGHTS; ++e)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                to[(8 * e + 2 * t + i % 2) * PITCH + 16 * s + 8 * (i / 2) + g] = sum[s][e][i];
}

__device__ __forceinline__ void store(TO* out, const TO* bias, float sum, i32 n, i32 m, const Shape& at) {
    if (bias) sum += to<float>(bias[n * at.bias_wide + m * at.bias_thin]);
    out[n * at.out_wide + m * at.out_thin] = to<TO>(sum);
}

// Whether all other splits of this tile have left their parts.
__device__ __forceinline__ bool is_last(u32* arrived) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(arrived + blockIdx.x, 1u) == gridDim.y - 1;
        if (last) arrived[blockIdx.x] = 0;
        __threadfence();
    }
    __syncthreads();
    return last;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
NAME(TO* __restrict__ out, const T* __restrict__ wide, const T* __restrict__ thin,
     const TO* __restrict__ bias, float* parts, u32* arrived, const Shape at) {
    DYNAMIC_SHARED(uint4, room);
    const int warp = threadIdx.x / 32;
    const i32 base = blockIdx.x * at.tile, here = min(at.tile, at.wide - base);
    const i32 from = blockIdx.y * at.pieces + warp;
    const i32 to_ = min((i32)(blockIdx.y + 1) * at.pieces, (at.depth + DEPTH - 1) / DEPTH);
    uint4* own = room + warp * STAGES * STAGE;
    const T* rows = wide + base * at.wide_step;
    float sum[SIXTEENS][EIGHTS][4] = {};
    auto fetch_piece = [&](i32 piece, int stage) {
        const i32 k = piece * DEPTH;
        if (piece < to_) {
            fetch<ROWS>(own + stage * STAGE, rows + k, at.wide_step, here, at.depth - k);
            fetch<THIN>(own + stage * STAGE + LINES * ROWS * 4, thin + k, at.thin_step, at.thin,
                        at.depth - k);
        }
        fetches_end();
    };
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) fetch_piece(from + s * WARPS, s);
    int stage = 0;
    for (i32 piece = from; piece < to_; piece += WARPS) {
        fetches_arrive<STAGES - 2>();
        // Other lanes' units are there as well, and the stage before this one is done with.
        __syncwarp();
        fetch_piece(piece + (STAGES - 1) * WARPS, stage ? stage - 1 : STAGES - 1);
        add_piece(sum, own + stage * STAGE);
        stage = stage == STAGES - 1 ? 0 : stage + 1;
    }
    fetches_arrive<0>();
    __syncthreads();
    float* sums = reinterpret_cast<float*>(room);
    lay_out(sums + warp * THIN * PITCH, sum);
    __syncthreads();
    const i32 splits = gridDim.y;
    float* part = parts + (i64)(blockIdx.x * splits + blockIdx.y) * THIN * ROWS;
    for (int i = threadIdx.x; i < ROWS * at.thin; i += 32 * WARPS) {
        const int n = i % ROWS, m = i / ROWS;
        float all = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) all += sums[(w * THIN + m) * PITCH + n];
        if (splits > 1) __stcg(part + i, all);
        else if (n < here) store(out, bias, all, base + n, m, at);
    }
    if (splits == 1 || !is_last(arrived)) return;
    part = parts + (i64)blockIdx.x * splits * THIN * ROWS;
    for (int i = threadIdx.x; i < ROWS * at.thin; i += 32 * WARPS) {
        float all = 0.0f;
        for (int s = 0; s < splits; ++s) all += __ldcg(part + s * THIN * ROWS + i);
        if (i % ROWS < here) store(out, bias, all, base + i % ROWS, i / ROWS, at);
    }
}
