// out [m, n] = a [m, k] times b [k, n], plus a bias along n, batched, in float32: products for which the
// tiles of the libraries are too large. Each output is one chain of fused multiply-adds in a fixed order.
//
// Settings: NAME; TM x TN, the outputs of a block; RM x RN, those of a thread (multiples of 4); SLICES,
// groups of threads that share every piece of 32 places of the depth; STAGES, pieces in shared memory;
// CLUSTER, blocks that share the depth of a tile (1, 2, 4, 8; more than 1 from sm_90 on);
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

#define ACROSS (TN / RN)
#define DOWN (TM / RM)
#define GROUP (ACROSS * DOWN)
#define THREADS (GROUP * SLICES)
#define DEPTH 32
#define STAGE (DEPTH * (TM + TN))
#define FOURS (DEPTH / 4 / SLICES)
// Quads of outputs of a thread, and how a warp lies on the tile.
#define QUADS (TM * TN / 4 / THREADS)
#define WARP_ACROSS (ACROSS < 8 ? ACROSS : 8)
#define WARP_DOWN (32 / WARP_ACROSS)
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
// Along the depth four neighbours keep together; which of the eight fours of a line lies where follows
// from the line, so that eight threads with lines 4 apart meet in no bank.
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
        float* into = room + line * PER * UNIT + (DEEP ? ((unit / 4) ^ (line / 4 % 8)) * 4 + unit % 4 : unit);
        if (UNIT == 4)
            fetch_ahead(into, from, real);
        else if (real)
            copy_async<4>(into, from);
        else
            *into = 0.0f;
        from += THREADS / PER * step;
    }
}

// R places along the output of four along the depth: fours that lie SIDE threads apart.
template <int WIDE, int R, int SIDE, bool DEEP>
__device__ __forceinline__ void take(float (&v)[R][4], const float* room, int thread, int quad) {
#pragma unroll
    for (int i = 0; i < R; ++i) {
        const int four = thread + SIDE * (i / 4);
        const float* at = DEEP ? room + (4 * four + i % 4) * DEPTH + ((quad ^ (four % 8)) * 4)
                               : room + (4 * quad + i % 4) * WIDE + 4 * four;
        const float4 q = *reinterpret_cast<const float4*>(at);
        const float f[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
        for (int j = 0; j < 4; ++j)
            if (DEEP)
                v[i][j] = f[j];
            else
                v[i / 4 * 4 + j][i % 4] = f[j];
    }
}

__device__ __forceinline__ void add_piece(float (&sum)[RM][RN], float (&total)[RM], const float* room,
                                          int down, int across, int slice) {
#pragma unroll(FOURS < 2 ? FOURS : 2)
    for (int q = 0; q < FOURS; ++q) {
        const int quad = slice * FOURS + q;
        float a[RM][4], b[RN][4];
        take<TM, RM, DOWN, A_DEEP>(a, room, down, quad);
        take<TN, RN, ACROSS, B_DEEP>(b, room + DEPTH * TM, across, quad);
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
            for (int i = 0; i < RM; ++i)
#pragma unroll
                for (int j = 0; j < RN; ++j) sum[i][j] = fmaf(a[i][k], b[j][k], sum[i][j]);
        if (SUMS && blockIdx.x == 0) {
#pragma unroll
            for (int i = 0; i < RM; ++i)
#pragma unroll
                for (int k = 0; k < 4; ++k) total[i] += a[i][k];
        }
    }
}

__device__ __forceinline__ float4 operator+(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// The sums of the slices together; where they are several, a thread has other quads afterwards.
__device__ __forceinline__ void join_slices(float4 (&quad)[QUADS], const float (&sum)[RM][RN], float* room,
                                            int down, int across, int slice) {
    if (SLICES > 1) __syncthreads();
#pragma unroll
    for (int i = 0; i < RM; ++i)
#pragma unroll
        for (int j = 0; j < RN / 4; ++j) {
            const float* s = sum[i] + 4 * j;
            const float4 q = make_float4(s[0], s[1], s[2], s[3]);
            const int row = 4 * (down + DOWN * (i / 4)) + i % 4, column = across + ACROSS * j;
            if (SLICES > 1)
                reinterpret_cast<float4*>(room)[(slice * TM + row) * (TN / 4) + column] = q;
            else
                quad[(i * (RN / 4) + j) % QUADS] = q;
        }
    if (SLICES == 1) return;
    __syncthreads();
#pragma unroll
    for (int r = 0; r < QUADS; ++r) {
        const float4* from = reinterpret_cast<const float4*>(room) + threadIdx.x + r * THREADS;
        quad[r] = from[0];
#pragma unroll
        for (int s = 1; s < SLICES; ++s) quad[r] = quad[r] + from[s * (TM * TN / 4)];
    }
}

// The sums of the rows of a: of each slice, of the block, and of all blocks of the cluster.
__device__ __forceinline__ void show_rows(const float (&total)[RM], float* shown, int down, int across, int slice) {
    if (blockIdx.x != 0) return;
    if (across == 0) {
#pragma unroll
        for (int i = 0; i < RM; ++i) shown[slice * TM + 4 * (down + DOWN * (i / 4)) + i % 4] = total[i];
    }
    __syncthreads();
    for (int row = threadIdx.x; row < TM; row += THREADS) {
        float all = shown[row];
#pragma unroll
        for (int s = 1; s < SLICES; ++s) all += shown[s * TM + row];
        shown[row] = all;
    }
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
                                            int down, int across) {
#if CLUSTER > 1
    float4* own = reinterpret_cast<float4*>(room);
    if (SLICES == 1) __syncthreads();
#pragma unroll
    for (int r = 0; r < QUADS; ++r) {
        const int row = 4 * (down + DOWN * (r / (RN / 4) / 4)) + r / (RN / 4) % 4;
        own[SLICES > 1 ? threadIdx.x + r * THREADS : row * (TN / 4) + across + ACROSS * (r % (RN / 4))] = quad[r];
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
    const int slice = threadIdx.x / GROUP, mine = threadIdx.x % GROUP, warp = mine / 32;
    const int across = mine % WARP_ACROSS + warp % (ACROSS / WARP_ACROSS) * WARP_ACROSS;
    const int down = mine / WARP_ACROSS % WARP_DOWN + warp / (ACROSS / WARP_ACROSS) * WARP_DOWN;
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
    float sum[RM][RN] = {}, total[RM] = {};
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
        add_piece(sum, total, room + piece % STAGES * STAGE, down, across, slice);
    }
    if (SUMS) show_rows(total, room + ROOM, down, across, slice);
    float4 quad[QUADS], ended[ENDS];
    join_slices(quad, sum, room, down, across, slice);
    join_blocks(ended, quad, room, down, across);
    if (SUMS && CLUSTER == 1) __syncthreads();
    if (SUMS) write_rows(sums + row, room + ROOM, at.m - row);
#if CLUSTER > 1
    // Nobody leaves before all have read.
    cluster_barrier();
#endif
#pragma unroll
    for (int r = 0; r < ENDS; ++r) {
        const int i = r / (RN / 4), j = r % (RN / 4), part = threadIdx.x + r * THREADS;
        const int flat = blockIdx.z % CLUSTER * SHARE + part;
        const i32 y = row + (IS_FLAT ? flat / (TN / 4) : 4 * (down + DOWN * (i / 4)) + i % 4);
        const i32 x = column + 4 * (IS_FLAT ? flat % (TN / 4) : across + ACROSS * j), left = at.n - x;
        if (y >= at.m || left <= 0 || (CLUSTER > 1 && part >= SHARE)) continue;
        const bool whole = at.packs;
        const i64 place = ((i64)batch * at.m + y) * at.n + x;
        const float v[4] = {ended[r].x, ended[r].y, ended[r].z, ended[r].w};
        END_READ
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const float biased = bias && c < left ? v[c] + bias[x + c] : v[c];
            const float t = RELU && biased < 0.0f ? 0.0f : biased;
            END_EACH
        }
        END_WRITE
    }
}
