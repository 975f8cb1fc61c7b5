// out [m, n] = a [m, k] times b [k, n], plus a bias along n, batched, in float32: products for which the
// tiles of the libraries are too large. Sums are doubles, on tensor cores, in a fixed order; each part of
// the depth that has threads or a block of its own is rounded once, and the parts are added as floats.
//
// Settings: NAME; TM x TN, the outputs of a block; UM x UN, squares of 32 x 32 of a warp; SLICES (1, 2),
// groups of warps that share every piece of 32 places of the depth; STAGES, pieces in shared memory;
// CLUSTER, blocks that share the depth of a tile (1, 2, 4, 8);
// A_DEEP, B_DEEP, whether neighbours in memory are neighbours along the depth, else along m or n;
// A_UNIT, B_UNIT, elements that are copied at once (4 or 1); SUMS, whether `sums` [m] gets the sums of
// the rows of a; RELU, what is below 0 becomes 0. END_... say what is done to the result and where that
// goes: parameters, what is read for four neighbours, what is done to each, what is written.
// Geometry: grid (tiles of n, tiles of m, batch * CLUSTER). The blocks of a cluster read each other's sums
// and each end a part of the tile.
// Shared memory: STAGES pieces of both operands, or SLICES tiles of sums if those are larger; with SUMS
// SLICES * TM floats behind it.
// Limits: with units of 4, steps, addresses and the extent without gaps in multiples of 16 bytes.
#include "ruda/clusters.cuh"
#include "ruda/doubles.cuh"
#include "ruda/earlier.cuh"

#define GROUP (TM / (32 * UM) * (TN / (32 * UN)) * 32)
#define THREADS (GROUP * SLICES)
#define DEPTH 32
#define STAGE (DEPTH * (TM + TN))
#define HALVES (2 / SLICES)
// Quads of outputs of a thread: of its own sums, and of those of all slices.
#define HELD (8 * UM * UN)
#define QUADS (HELD / SLICES)
// Quads of a tile that a block of a cluster ends, and a thread of it.
#define SHARE (TM * TN / 4 / CLUSTER)
#define ENDS ((SHARE + THREADS - 1) / THREADS)
#define IS_FLAT (SLICES > 1 || CLUSTER > 1)
#define PARTS (SLICES > 1 ? SLICES * TM * TN : CLUSTER > 1 ? TM * TN : 0)
#define ROOM (STAGES * STAGE > PARTS ? STAGES * STAGE : PARTS)
#if CLUSTER > 1
#define BOUNDS __cluster_dims__(1, 1, CLUSTER) __launch_bounds__(THREADS)
#else
#define BOUNDS __launch_bounds__(THREADS)
#endif

struct Shape {
    i64 a_batch, b_batch;
    // `pieces` of the depth for a block; `packs`: whether quads of outputs lie at multiples of 16 bytes.
    i32 m, n, k, a_step, b_step, pieces, packs, unused;
};

// A piece of an operand, of which `wide` places along the output and `deep` along the depth are there.
// Four neighbours keep together; which of the fours of a line lies where follows from the line, so that
// the threads of `take`, which read two fours of four lines or four of two at a time, meet in no bank.
template <int WIDE, bool DEEP, int UNIT>
__device__ __forceinline__ void fetch(float* room, const float* from, i32 step, i32 wide, i32 deep) {
    constexpr int PER = (DEEP ? DEPTH : WIDE) / UNIT, LINES = DEEP ? WIDE : DEPTH;
    const int unit = threadIdx.x % PER * UNIT, first = threadIdx.x / PER;
    const i32 along = DEEP ? deep : wide, lines = DEEP ? wide : deep;
    from += first * step + unit;
#pragma unroll
    for (int r = 0; r < PER * LINES / THREADS; ++r) {
        const int line = first + r * (THREADS / PER);
        const bool real = unit < along && line < lines;
        const int four = (unit / 4) ^ (DEEP ? line / 4 % 2 * 4 : line / 4 % 4 * 2);
        float* into = room + line * PER * UNIT + 4 * four + unit % 4;
        if (UNIT == 4)
            fetch_ahead(into, from, real);
        else if (real)
            copy_async<4>(into, from);
        else
            *into = 0.0f;
        from += THREADS / PER * step;
    }
}

// v[r][i]: the place 4 g + r of 32 along the output from `first` on, the place 4 t + i of half a piece.
template <int WIDE, bool DEEP>
__device__ __forceinline__ void take(double (&v)[4][4], const float* room, int first, int half) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, four = first / 4 + g;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float* at = DEEP ? room + (4 * four + i) * DEPTH + ((4 * half + t) ^ (four % 2 * 4)) * 4
                               : room + (16 * half + 4 * t + i) * WIDE + (four ^ (t * 2)) * 4;
        const float4 q = *reinterpret_cast<const float4*>(at);
        const float f[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) v[DEEP ? i : j][DEEP ? j : i] = f[j];
    }
}

typedef double Sums[UM][UN][2][4][4];

__device__ __forceinline__ void add_piece(Sums& sum, double (&total)[UM][4], const float* room, int top,
                                          int left, int slice) {
#pragma unroll
    for (int h = 0; h < HALVES; ++h) {
        const int half = SLICES > 1 ? slice : h;
        double a[UM][4][4];
#pragma unroll
        for (int u = 0; u < UM; ++u) take<TM, A_DEEP>(a[u], room, top + 32 * u, half);
        if (SUMS && left == 0 && blockIdx.x == 0) {
#pragma unroll
            for (int u = 0; u < UM; ++u)
#pragma unroll
                for (int r = 0; r < 4; ++r) total[u][r] += (a[u][r][0] + a[u][r][1]) + (a[u][r][2] + a[u][r][3]);
        }
#pragma unroll
        for (int v = 0; v < UN; ++v) {
            double b[4][4];
            take<TN, B_DEEP>(b, room + DEPTH * TM, left + 32 * v, half);
#pragma unroll
            for (int u = 0; u < UM; ++u)
#pragma unroll
                for (int m = 0; m < 2; ++m) {
                    const double (&low)[4] = a[u][2 * m], (&high)[4] = a[u][2 * m + 1];
                    const double p[8] = {low[0], high[0], low[1], high[1], low[2], high[2], low[3], high[3]};
#pragma unroll
                    for (int n = 0; n < 4; ++n) multiply_add(sum[u][v][m][n], p, b[n]);
                }
        }
    }
}

// Of quad number q of a lane: its row, and its column in fours, in the tile.
__device__ __forceinline__ int row_of(int q, int top) {
    return top + q / 8 / UN * 32 + threadIdx.x % 32 / 4 * 4 + q / 2 % 4;
}
__device__ __forceinline__ int column_of(int q, int left) {
    return left / 4 + q / 8 % UN * 8 + threadIdx.x % 4 * 2 + q % 2;
}

__device__ __forceinline__ float4 operator+(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// The sums of the slices together; where they are two, a thread has other quads afterwards.
__device__ __forceinline__ void join_slices(float4 (&quad)[QUADS], const Sums& sum, float* room, int top,
                                            int left, int slice) {
    float4* shown = reinterpret_cast<float4*>(room);
    if (SLICES > 1) __syncthreads();
#pragma unroll
    for (int q = 0; q < HELD; ++q) {
        const double (&s)[4][4] = sum[q / 8 / UN][q / 8 % UN][q / 4 % 2];
        const int e = q % 4;
        const float4 f = make_float4(s[0][e], s[1][e], s[2][e], s[3][e]);
        if (SLICES > 1)
            shown[(slice * TM + row_of(q, top)) * (TN / 4) + column_of(q, left)] = f;
        else
            quad[q % QUADS] = f;
    }
    if (SLICES == 1) return;
    __syncthreads();
#pragma unroll
    for (int r = 0; r < QUADS; ++r) {
        const float4* from = shown + threadIdx.x + r * THREADS;
        quad[r] = from[0] + from[TM * TN / 4];
    }
}

// The sums of the rows of a: of each slice, of the block, and of all blocks of the cluster.
__device__ __forceinline__ void show_rows(double (&total)[UM][4], float* shown, int top, int left, int slice) {
    if (blockIdx.x != 0) return;
    if (left == 0) {
#pragma unroll
        for (int u = 0; u < UM; ++u)
#pragma unroll
            for (int r = 0; r < 4; ++r) {
                double all = total[u][r];
                all += __shfl_xor_sync(0xffffffffu, all, 1);
                all += __shfl_xor_sync(0xffffffffu, all, 2);
                const int row = top + 32 * u + threadIdx.x % 32 / 4 * 4 + r;
                if (threadIdx.x % 4 == 0) shown[slice * TM + row] = all;
            }
    }
    __syncthreads();
    if (SLICES > 1)
        for (int row = threadIdx.x; row < TM; row += THREADS) shown[row] += shown[TM + row];
}
__device__ __forceinline__ void write_rows(float* sums, float* shown, i32 rows) {
    if (blockIdx.x != 0 || blockIdx.z % CLUSTER != 0) return;
    for (int four = threadIdx.x; four < TM / 4; four += THREADS) {
        const float4* own = reinterpret_cast<const float4*>(shown) + four;
        float4 all = *own;
#if CLUSTER > 1
#pragma unroll
        for (int s = 1; s < CLUSTER; ++s) all = all + of_block(own, s);
#endif
        const float v[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
        for (int c = 0; c < 4; ++c)
            if (4 * four + c < rows) sums[4 * four + c] = v[c];
    }
}

// Every block's sums in their order, of the part of the tile that this one ends.
__device__ __forceinline__ void join_blocks(float4 (&ended)[ENDS], const float4 (&quad)[QUADS], float* room,
                                            int top, int left) {
#if CLUSTER > 1
    float4* own = reinterpret_cast<float4*>(room);
    if (SLICES == 1) __syncthreads();
#pragma unroll
    for (int r = 0; r < QUADS; ++r) {
        const int flat = threadIdx.x + r * THREADS;
        own[SLICES > 1 ? flat : row_of(r, top) * (TN / 4) + column_of(r, left)] = quad[r];
    }
    cluster_barrier();
#pragma unroll
    for (int r = 0; r < ENDS; ++r) {
        const int flat = threadIdx.x + r * THREADS;
        if (flat >= SHARE) continue;
        const float4* from = own + blockIdx.z % CLUSTER * SHARE + flat;
        ended[r] = of_block(from, 0);
#pragma unroll
        for (int s = 1; s < CLUSTER; ++s) ended[r] = ended[r] + of_block(from, s);
    }
#else
#pragma unroll
    for (int r = 0; r < QUADS; ++r) ended[r] = quad[r];
#endif
}

// Four neighbours of a row, of which `left` are there.
template <class E>
__device__ __forceinline__ void read_quad(float (&v)[4], const E* from, bool whole, i32 left) {
    if (whole && sizeof(E) == 4) {
        const float4 q = *reinterpret_cast<const float4*>(from);
        v[0] = q.x, v[1] = q.y, v[2] = q.z, v[3] = q.w;
        return;
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) v[c] = c < left ? to<float>(from[c]) : 0.0f;
}
__device__ __forceinline__ void write_quad(float* to, const float (&v)[4], bool whole, i32 left) {
    if (whole) {
        *reinterpret_cast<float4*>(to) = make_float4(v[0], v[1], v[2], v[3]);
        return;
    }
#pragma unroll
    for (int c = 0; c < 4; ++c)
        if (c < left) to[c] = v[c];
}

extern "C" __global__ void BOUNDS
NAME(END_PARAMETERS, const float* __restrict__ a, const float* __restrict__ b,
     const float* __restrict__ bias, float* __restrict__ sums, const Shape at) {
    DYNAMIC_SHARED(float, room);
    const int slice = threadIdx.x / GROUP, warp = threadIdx.x % GROUP / 32;
    const int left = warp % (TN / (32 * UN)) * (32 * UN), top = warp / (TN / (32 * UN)) * (32 * UM);
    const i32 row = blockIdx.y * TM, column = blockIdx.x * TN, begin = blockIdx.z % CLUSTER * at.pieces;
    const i32 batch = blockIdx.z / CLUSTER;
    const i32 count = min(at.pieces, (at.k + DEPTH - 1) / DEPTH - begin);
    a += batch * at.a_batch + (A_DEEP ? row * at.a_step : row);
    b += batch * at.b_batch + (B_DEEP ? column * at.b_step : column);
    const auto bring = [&](i32 piece) {
        float* into = room + piece % STAGES * STAGE;
        const i32 k = (begin + piece) * DEPTH;
        fetch<TM, A_DEEP, A_UNIT>(into, a + (A_DEEP ? k : k * at.a_step), at.a_step, at.m - row, at.k - k);
        fetch<TN, B_DEEP, B_UNIT>(into + DEPTH * TM, b + (B_DEEP ? k : k * at.b_step), at.b_step,
                                  at.n - column, at.k - k);
    };
    Sums sum = {};
    double total[UM][4] = {};
    wait_for_earlier();
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < count) bring(s);
        fetches_end();
    }
    for (i32 piece = 0; piece < count; ++piece) {
        fetches_arrive<STAGES - 2>();
        __syncthreads();
        if (piece + STAGES - 1 < count) bring(piece + STAGES - 1);
        fetches_end();
        add_piece(sum, total, room + piece % STAGES * STAGE, top, left, slice);
    }
    if (SUMS) show_rows(total, room + ROOM, top, left, slice);
    float4 quad[QUADS], ended[ENDS];
    join_slices(quad, sum, room, top, left, slice);
    join_blocks(ended, quad, room, top, left);
    if (SUMS && CLUSTER == 1) __syncthreads();
    if (SUMS) write_rows(sums + row, room + ROOM, at.m - row);
#if CLUSTER > 1
    // Nobody leaves before all have read.
    cluster_barrier();
#endif
#pragma unroll
    for (int r = 0; r < ENDS; ++r) {
        const int part = threadIdx.x + r * THREADS;
        const int flat = blockIdx.z % CLUSTER * SHARE + part;
        const i32 y = row + (IS_FLAT ? flat / (TN / 4) : row_of(r, top));
        const i32 x = column + 4 * (IS_FLAT ? flat % (TN / 4) : column_of(r, left)), rest = at.n - x;
        if (y >= at.m || rest <= 0 || (CLUSTER > 1 && part >= SHARE)) continue;
        const bool whole = at.packs;
        const i64 place = ((i64)batch * at.m + y) * at.n + x;
        const float v[4] = {ended[r].x, ended[r].y, ended[r].z, ended[r].w};
        END_READ
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const float biased = bias && c < rest ? v[c] + bias[x + c] : v[c];
            const float t = RELU && biased < 0.0f ? 0.0f : biased;
            END_EACH
        }
        END_WRITE
    }
}
