// Attention of few keys without tensor cores: q [B, Hq, Sq, D], k [B, Hkv, Sk, D], v [B, Hkv, Sk,
// DV] and all results have strides for every axis; Sk <= KEYS, D and DV <= DEPTH. S is the type in
// memory, float the one that is computed in. All keys and values of a head stay in shared memory,
// and so does everything that follows from a score: no sum is begun twice.
//
// MODE 0, forward: a block for each ROWS queries of a head; out, and lse [B, Hq, Sq] row-major.
// MODE 1, backward: a block for each head of keys, over all queries of all heads that read it, ROWS
// at a time: dq, dk and dv in one launch.
// 256 threads as 16 x 16, with PR rows in sequence and keys 16 apart each. Dynamic shared memory:
// (ROWS + 2 KEYS) * PITCH + ROWS * KP floats forward, 2 (ROWS + KEYS) * PITCH + 2 ROWS * KP
// backward.
// Sums have a fixed order; keys that no row of a warp sees are left out of it.
#include "ruda/earlier.cuh"
#include "ruda/rows.cuh"
#include "ruda/scores.cuh"

static const int PITCH = DEPTH + 4, KP = KEYS + 4;
static const int PR = ROWS / 16, PK = KEYS / 16, CW = DEPTH / 16, WIDE = 16 / sizeof(S);

// Strides of the results, and of out where it is read.
struct Results { i64 first[4], second[4], third[4], out[4]; };

// Of columns tx, CW of DEPTH: in sequence, beyond 4 in two halves, so that banks are not met twice.
__device__ __forceinline__ int column(int tx, int c) {
    return CW <= 4 ? CW * tx + c : c / 4 * (DEPTH / 2) + 4 * tx + c % 4;
}
__device__ __forceinline__ void columns(float (&y)[CW], const float* row, int tx) {
    constexpr int N = CW < 4 ? CW : 4;
#pragma unroll
    for (int c = 0; c < CW; c += N) {
        const Pack<float, N> pack = fetch<N>(row + column(tx, c));
#pragma unroll
        for (int k = 0; k < N; ++k) y[c + k] = pack.at[k];
    }
}
// N floats in sequence, at a multiple of 16 bytes or of all of them.
template <int N> __device__ __forceinline__ void sequence(float (&y)[N], const float* at) {
    constexpr int M = N < 4 ? N : 4;
#pragma unroll
    for (int c = 0; c < N; c += M) {
        const Pack<float, M> pack = fetch<M>(at + c);
#pragma unroll
        for (int k = 0; k < M; ++k) y[c + k] = pack.at[k];
    }
}
// A matrix [rows, depth] into a tile of COUNT rows; zeros beyond. It is there after fetches_arrive.
template <int COUNT>
__device__ __forceinline__ void stage(float* tile, const S* x, i64 rows, i64 depth, i64 row_step,
                                      i64 step) {
    const u64 all = (u64)x | (u64)(row_step * (i64)sizeof(S)) | (u64)(depth * (i64)sizeof(S));
    if (step != 1 || all % 16 != 0) {
        for (int e = threadIdx.x; e < COUNT * DEPTH; e += 256) {
            const int r = e / DEPTH, c = e % DEPTH;
            const bool inside = r < rows && c < depth;
            tile[r * PITCH + c] = inside ? to<float>(x[r * row_step + c * step]) : 0.0f;
        }
        return;
    }
#pragma unroll 4
    for (int e = threadIdx.x; e < COUNT * DEPTH / WIDE; e += 256) {
        const int r = e / (DEPTH / WIDE), c = e % (DEPTH / WIDE) * WIDE;
        const bool inside = r < rows && c < depth;
        const S* from = inside ? x + r * row_step + c : x;
        if constexpr (sizeof(S) == 4) {
            fetch_ahead(tile + r * PITCH + c, from, inside);
        } else {
            Pack<S, WIDE> pack = {};
            if (inside) pack = fetch<WIDE>(from);
            float v[WIDE];
            widened(v, pack);
#pragma unroll
            for (int k = 0; k < WIDE; ++k) tile[r * PITCH + c + k] = v[k];
        }
    }
}
// A thread's part of a row of a result.
__device__ __forceinline__ void deliver(S* row, const float (&v)[CW], int tx, i64 depth, i64 step) {
    constexpr int N = CW < 4 ? CW : 4;
    if (step == 1 && ((u64)row | (u64)(depth * (i64)sizeof(S))) % 16 == 0) {
#pragma unroll
        for (int c = 0; c < CW; c += N) {
            float part[N];
#pragma unroll
            for (int k = 0; k < N; ++k) part[k] = v[c + k];
            if (column(tx, c) < depth) put<N>(row + column(tx, c), part);
        }
        return;
    }
#pragma unroll
    for (int c = 0; c < CW; ++c)
        if (column(tx, c) < depth) row[column(tx, c) * step] = to<S>(v[c]);
}
// s[u][w] += the product of row PR * ty + u of a and row tx + 16 * w of b.
__device__ __forceinline__ void products(float (&s)[PR][PK], const float* a, const float* b, int ty,
                                         int tx) {
#pragma unroll 2
    for (int d = 0; d < DEPTH; d += 4) {
        float x[PR][4], y[PK][4];
#pragma unroll
        for (int u = 0; u < PR; ++u) sequence(x[u], a + (PR * ty + u) * PITCH + d);
#pragma unroll
        for (int w = 0; w < PK; ++w) sequence(y[w], b + (tx + 16 * w) * PITCH + d);
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
            for (int u = 0; u < PR; ++u)
#pragma unroll
                for (int w = 0; w < PK; ++w) s[u][w] += x[u][k] * y[w][k];
    }
}
// sums[u] += row PR * ty + u of weights [ROWS, KEYS] times the rows from.. to of tile.
__device__ __forceinline__ void gather(float (&sums)[PR][CW], const float* weights,
                                       const float* tile, int ty, int tx, int from, int to_) {
#pragma unroll 1
    for (int j = from & ~3; j < to_; j += 4) {
        float x[PR][4];
#pragma unroll
        for (int u = 0; u < PR; ++u) sequence(x[u], weights + (PR * ty + u) * KP + j);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            float y[CW];
            columns(y, tile + (j + k) * PITCH, tx);
#pragma unroll
            for (int u = 0; u < PR; ++u)
#pragma unroll
                for (int c = 0; c < CW; ++c) sums[u][c] += x[u][k] * y[c];
        }
    }
}
// sums[w] += column PK * ty + w of weights times the rows from.. to of tile [ROWS, DEPTH].
__device__ __forceinline__ void gather_down(float (&sums)[PK][CW], const float* weights,
                                            const float* tile, int ty, int tx, int from, int to_) {
#pragma unroll 4
    for (int i = from; i < to_; ++i) {
        float x[PK], y[CW];
        sequence(x, weights + i * KP + PK * ty);
        columns(y, tile + i * PITCH, tx);
#pragma unroll
        for (int w = 0; w < PK; ++w)
#pragma unroll
            for (int c = 0; c < CW; ++c) sums[w][c] += x[w] * y[c];
    }
}
__device__ __forceinline__ int within(i64 v, i64 end) {
    return (int)(v < 0 ? 0 : v < end ? v : end);
}
// The keys that query i sees by position: [from, to), none for a query that is not there.
__device__ __forceinline__ void seen(i64 i, const Scores& g, int* from, int* to_) {
    const i64 place = i + g.sk - g.sq;
    *from = within(place - g.left, g.sk);
    *to_ = i < g.sq ? within(place + g.right + 1, g.sk) : 0;
}
// Places in a block of threads: with few keys to see for early rows, each scheduler has both kinds.
__device__ __forceinline__ int line() {
    const int warp = threadIdx.x / 32;
    return 2 * (warp < 4 ? warp : 11 - warp) + threadIdx.x % 32 / 16;
}

#if MODE == 0
extern "C" __global__ void __launch_bounds__(256, 1)
NAME(S* __restrict__ out, float* __restrict__ lse, const S* __restrict__ q, const S* __restrict__ k,
     const S* __restrict__ v, const bool* __restrict__ mask, const BIAS_T* __restrict__ bias,
     const Scores g, const Results r) {
    DYNAMIC_SHARED(float, memory);
    float *qt = memory, *kt = qt + ROWS * PITCH, *vt = kt + KEYS * PITCH, *pt = vt + KEYS * PITCH;
    const int ty = line(), tx = threadIdx.x % 16;
    const i64 b = blockIdx.x / (u32)g.heads, h = blockIdx.x % (u32)g.heads, hk = h / g.group;
    const i64 first = (i64)blockIdx.y * ROWS;
    wait_for_earlier();
    stage<ROWS>(qt, q + b * g.qs[0] + h * g.qs[1] + first * g.qs[2], g.sq - first, g.d, g.qs[2],
                g.qs[3]);
    stage<KEYS>(kt, k + b * g.ks[0] + hk * g.ks[1], g.sk, g.d, g.ks[2], g.ks[3]);
    fetches_end();
    stage<KEYS>(vt, v + b * g.vs[0] + hk * g.vs[1], g.sk, g.dv, g.vs[2], g.vs[3]);
    fetches_end();
    fetches_arrive<1>();
    __syncthreads();
    float s[PR][PK] = {}, sums[PR][CW] = {}, top[PR], total[PR];
    products(s, qt, kt, ty, tx);
    int lowest_key = KEYS, end = 0;
#pragma unroll
    for (int u = 0; u < PR; ++u) {
        const i64 i = first + PR * ty + u;
        int from, to_;
        seen(i, g, &from, &to_);
        lowest_key = from < lowest_key ? from : lowest_key;
        end = to_ > end ? to_ : end;
        float high = lowest<float>(), part = 0.0f, slope;
#pragma unroll
        for (int w = 0; w < PK; ++w) {
            const int j = tx + 16 * w;
            s[u][w] = score<SOFTCAP, BIAS, MASK>(s[u][w], j >= from && j < to_, b, h, i, j, mask,
                                                 bias, g, &slope);
            high = ruda_max(high, s[u][w]);
        }
        top[u] = half_warp_max(high);
        const float level = top[u] == lowest<float>() ? 0.0f : top[u];
#pragma unroll
        for (int w = 0; w < PK; ++w) {
            const float p = exp(s[u][w] - level);
            part += p;
            pt[(PR * ty + u) * KP + tx + 16 * w] =
                p * kept<DROPOUT, float>(b, h, i, tx + 16 * w, g);
        }
        total[u] = half_warp_sum(part);
    }
    fetches_arrive<0>();
    __syncthreads();
    gather(sums, pt, vt, ty, tx, lowest_key, end);
#pragma unroll
    for (int u = 0; u < PR; ++u) {
        const i64 i = first + PR * ty + u;
        if (i >= g.sq) continue;
        const float share = top[u] == lowest<float>() ? 0.0f : 1.0f / total[u];
#pragma unroll
        for (int c = 0; c < CW; ++c) sums[u][c] *= share;
        deliver(out + b * r.first[0] + h * r.first[1] + i * r.first[2], sums[u], tx, g.dv,
                r.first[3]);
        if (tx == 0)
            lse[(b * g.heads + h) * g.sq + i] =
                top[u] == lowest<float>() ? top[u] : top[u] + log(total[u]);
    }
}
#else
// What each probability of a row loses: the sum of dy * out, less what its lse gains.
__device__ __forceinline__ void losses(float (&less)[PR], const float* gt, const S* out,
                                       const i64 (&steps)[4], const float* dlse, const Scores& g,
                                       i64 b, i64 h, i64 first, int ty, int tx) {
#pragma unroll
    for (int u = 0; u < PR; ++u) {
        const i64 i = first + PR * ty + u;
        const S* row = out + b * steps[0] + h * steps[1] + i * steps[2];
        less[u] = 0.0f;
#pragma unroll
        for (int c = 0; c < CW; ++c) {
            const int n = column(tx, c);
            if (i < g.sq && n < g.dv)
                less[u] += gt[(PR * ty + u) * PITCH + n] * to<float>(row[n * steps[3]]);
        }
        less[u] = half_warp_sum(less[u]);
        if (DLSE && i < g.sq) less[u] -= dlse[(b * g.heads + h) * g.sq + i];
    }
}

// Probabilities and the gradients of scores of queries first.., into pt and dt.
__device__ __forceinline__ void rates(float* pt, float* dt, float (&s)[PR][PK], float (&dp)[PR][PK],
                                      const float (&less)[PR], const float* lse, const bool* mask,
                                      const BIAS_T* bias, const Scores& g, i64 b, i64 h, i64 first,
                                      int ty, int tx, int* start, int* end) {
    *start = KEYS;
    *end = 0;
#pragma unroll
    for (int u = 0; u < PR; ++u) {
        const i64 i = first + PR * ty + u, row = (b * g.heads + h) * g.sq + i;
        int from, to_;
        seen(i, g, &from, &to_);
        *start = from < *start ? from : *start;
        *end = to_ > *end ? to_ : *end;
        const float found = i < g.sq ? lse[row] : 0.0f;
        const float level = found == lowest<float>() ? 0.0f : found;
        float slope[PK];
#pragma unroll
        for (int w = 0; w < PK; ++w) {
            const int j = tx + 16 * w, at = (PR * ty + u) * KP + j;
            const float share = kept<DROPOUT, float>(b, h, i, j, g);
            s[u][w] = score<SOFTCAP, BIAS, MASK>(s[u][w], j >= from && j < to_, b, h, i, j, mask,
                                                 bias, g, slope + w);
            s[u][w] = exp(s[u][w] - level);
            pt[at] = s[u][w] * share;
            dp[u][w] *= share;
        }
#pragma unroll
        for (int w = 0; w < PK; ++w)
            dt[(PR * ty + u) * KP + tx + 16 * w] =
                s[u][w] * (dp[u][w] - less[u]) * slope[w] * float(g.scale);
    }
}

extern "C" __global__ void __launch_bounds__(256, 1)
NAME(S* __restrict__ dq, S* __restrict__ dk, S* __restrict__ dv, const S* __restrict__ dy,
     const float* __restrict__ dlse, const S* __restrict__ q, const S* __restrict__ k,
     const S* __restrict__ v, const S* __restrict__ out, const float* __restrict__ lse,
     const bool* __restrict__ mask, const BIAS_T* __restrict__ bias, const Scores g,
     const Results r) {
    DYNAMIC_SHARED(float, memory);
    float *kt = memory, *vt = kt + KEYS * PITCH, *qt = vt + KEYS * PITCH, *gt = qt + ROWS * PITCH;
    float *pt = gt + ROWS * PITCH, *dt = pt + ROWS * KP;
    const int ty = line(), tx = threadIdx.x % 16;
    const u32 heads = (u32)(g.heads / g.group);
    const i64 b = blockIdx.x / heads, hk = blockIdx.x % heads;
    wait_for_earlier();
    stage<KEYS>(kt, k + b * g.ks[0] + hk * g.ks[1], g.sk, g.d, g.ks[2], g.ks[3]);
    stage<KEYS>(vt, v + b * g.vs[0] + hk * g.vs[1], g.sk, g.dv, g.vs[2], g.vs[3]);
    float keys[PK][CW] = {}, values[PK][CW] = {};
    // Of the keys of a warp, which are 2 PK in sequence, the first and the last.
    const i64 near = PK * (ty & ~1), far = near + 2 * PK - 1, shift = g.sk - g.sq;
    for (i64 h = hk * g.group; h < (hk + 1) * g.group; ++h)
        for (i64 first = 0; first < g.sq; first += ROWS) {
            __syncthreads();
            stage<ROWS>(qt, q + b * g.qs[0] + h * g.qs[1] + first * g.qs[2], g.sq - first, g.d,
                        g.qs[2], g.qs[3]);
            stage<ROWS>(gt, dy + b * g.gs[0] + h * g.gs[1] + first * g.gs[2], g.sq - first, g.dv,
                        g.gs[2], g.gs[3]);
            fetches_end();
            fetches_arrive<0>();
            __syncthreads();
            float s[PR][PK] = {}, dp[PR][PK] = {}, queries[PR][CW] = {}, less[PR];
            losses(less, gt, out, r.out, dlse, g, b, h, first, ty, tx);
            products(s, qt, kt, ty, tx);
            products(dp, gt, vt, ty, tx);
            int start, end;
            rates(pt, dt, s, dp, less, lse, mask, bias, g, b, h, first, ty, tx, &start, &end);
            __syncthreads();
            gather(queries, dt, kt, ty, tx, start, end);
#pragma unroll
            for (int u = 0; u < PR; ++u) {
                const i64 i = first + PR * ty + u;
                S* row = dq + b * r.first[0] + h * r.first[1] + i * r.first[2];
                if (i < g.sq) deliver(row, queries[u], tx, g.d, r.first[3]);
            }
            const i64 rows = g.sq - first < ROWS ? g.sq - first : ROWS;
            const int from = within(near - g.right - shift - first, rows);
            const int to_ = within(far + g.left - shift - first + 1, rows);
            gather_down(values, pt, gt, ty, tx, from, to_);
            gather_down(keys, dt, qt, ty, tx, from, to_);
        }
#pragma unroll
    for (int w = 0; w < PK; ++w) {
        const i64 j = PK * ty + w;
        if (j >= g.sk) continue;
        deliver(dk + b * r.second[0] + hk * r.second[1] + j * r.second[2], keys[w], tx, g.d,
                r.second[3]);
        deliver(dv + b * r.third[0] + hk * r.third[1] + j * r.third[2], values[w], tx, g.dv,
                r.third[3]);
    }
}
#endif
