// Attention without tensor cores: q [B, Hq, Sq, D], k [B, Hkv, Sk, D], v [B, Hkv, Sk, DV], strides
// for every axis; scores never leave the chip (Dao et al., FlashAttention, 2022). S is the type in
// memory, T the one that is computed in. Depths are padded to DK and DV, multiples of 16.
//
// MODE 0, forward: a block for each TILE queries; out and lse, both row-major.
// MODE 1, dq: the same blocks; also delta, the sum of dy * out of each query less its dlse.
// MODE 2, dk and dv: a block for each TILE keys, over all queries of all heads that read them.
// 256 threads as 16 x 16, each with PER x PER scores, PER = TILE / 16. Dynamic shared memory: the
// tiles of two (forward) or four operands and one or two of scores. Sums have a fixed order.
#include "ruda/scores.cuh"

static const int PER = TILE / 16, QP = DK + 1, VP = DV + 1, SP = TILE + 1;

// Rows first.. of a matrix [rows, depth] into a tile of TILE rows with a pitch; zeros beyond.
__device__ __forceinline__ void stage(T* tile, int pitch, int wide, const S* x, i64 first, i64 rows,
                                      i64 depth, i64 row_step, i64 step) {
    for (int e = threadIdx.x; e < TILE * wide; e += 256) {
        const int r = e / wide, c = e % wide;
        const bool inside = first + r < rows && c < depth;
        tile[r * pitch + c] = inside ? to<T>(x[(first + r) * row_step + c * step]) : T(0);
    }
}
// The score from its product, and what dropout makes of it, with what acts in this class.
__device__ __forceinline__ T rated(T s, i64 b, i64 h, i64 i, i64 j, const bool* mask,
                                   const BIAS_T* bias, const Scores& g, T* slope) {
    return score<SOFTCAP, BIAS, MASK>(s, reaches(i, j, g), b, h, i, j, mask, bias, g, slope);
}
// c[u][v] += the product of row r + u * step of a and row of b, both with depth WIDE.
template <int WIDE>
__device__ __forceinline__ void products(T (&c)[PER][PER], const T* a, const T* b, int pitch, int ty,
                                         int tx) {
#pragma unroll 4
    for (int d = 0; d < WIDE; ++d) {
        T x[PER], y[PER];
#pragma unroll
        for (int u = 0; u < PER; ++u) x[u] = a[(ty + 16 * u) * pitch + d];
#pragma unroll
        for (int u = 0; u < PER; ++u) y[u] = b[(tx + 16 * u) * pitch + d];
#pragma unroll
        for (int u = 0; u < PER; ++u)
#pragma unroll
            for (int v = 0; v < PER; ++v) c[u][v] += x[u] * y[v];
    }
}
// sums[u][w] += row ty + 16 u of weights [TILE, TILE], or column of it, times tile[., tx + 16 w].
template <int WIDE, bool COLUMN>
__device__ __forceinline__ void gather(T (&sums)[PER][WIDE / 16], const T* weights, const T* tile,
                                       int pitch, int ty, int tx) {
#pragma unroll 2
    for (int j = 0; j < TILE; ++j) {
        T x[PER];
#pragma unroll
        for (int u = 0; u < PER; ++u)
            x[u] = COLUMN ? weights[j * SP + ty + 16 * u] : weights[(ty + 16 * u) * SP + j];
#pragma unroll
        for (int w = 0; w < WIDE / 16; ++w) {
            const T y = tile[j * pitch + tx + 16 * w];
#pragma unroll
            for (int u = 0; u < PER; ++u) sums[u][w] += x[u] * y;
        }
    }
}
// The tiles of keys that queries first .. first + TILE - 1 may see: [from, to).
__device__ __forceinline__ void seen(i64 first, const Scores& g, i64* from, i64* to_) {
    const i64 last = (first + TILE < g.sq ? first + TILE : g.sq) - 1, shift = g.sk - g.sq;
    i64 low = first + shift - g.left, high = last + shift + g.right + 1;
    if (low < 0) low = 0;
    if (high > g.sk) high = g.sk;
    *from = low / TILE * TILE;
    *to_ = high;
}

#if MODE == 0
extern "C" __global__ void __launch_bounds__(256, 1)
NAME(S* __restrict__ out, T* __restrict__ lse, const S* __restrict__ q, const S* __restrict__ k,
     const S* __restrict__ v, const bool* __restrict__ mask, const BIAS_T* __restrict__ bias,
     const Scores g) {
    DYNAMIC_SHARED(T, memory);
    T *qt = memory, *kt = qt + TILE * QP, *vt = kt + TILE * QP, *pt = vt + TILE * VP;
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    const i64 first = (i64)blockIdx.x * TILE, h = blockIdx.y, b = blockIdx.z, hk = h / g.group;
    stage(qt, QP, DK, q + b * g.qs[0] + h * g.qs[1], first, g.sq, g.d, g.qs[2], g.qs[3]);
    T sums[PER][DV / 16], top[PER], total[PER];
#pragma unroll
    for (int u = 0; u < PER; ++u) {
        top[u] = lowest<T>();
        total[u] = T(0);
#pragma unroll
        for (int w = 0; w < DV / 16; ++w) sums[u][w] = T(0);
    }
    i64 from, end;
    seen(first, g, &from, &end);
    for (i64 start = from; start < end; start += TILE) {
        __syncthreads();
        stage(kt, QP, DK, k + b * g.ks[0] + hk * g.ks[1], start, g.sk, g.d, g.ks[2], g.ks[3]);
        stage(vt, VP, DV, v + b * g.vs[0] + hk * g.vs[1], start, g.sk, g.dv, g.vs[2], g.vs[3]);
        __syncthreads();
        T s[PER][PER] = {};
        products<DK>(s, qt, kt, QP, ty, tx);
#pragma unroll
        for (int u = 0; u < PER; ++u) {
            const i64 i = first + ty + 16 * u;
            T slope, high = lowest<T>();
#pragma unroll
            for (int w = 0; w < PER; ++w) {
                s[u][w] = rated(s[u][w], b, h, i, start + tx + 16 * w, mask, bias, g, &slope);
                high = ruda_max(high, s[u][w]);
            }
            high = half_warp_max(high);
            high = high > top[u] ? high : top[u];
            const T level = high == lowest<T>() ? T(0) : high, shrink = exp(top[u] - level);
            top[u] = high;
            T part = T(0);
#pragma unroll
            for (int w = 0; w < PER; ++w) {
                const T p = exp(s[u][w] - level);
                part += p;
                const T share = kept<DROPOUT, T>(b, h, i, start + tx + 16 * w, g);
                pt[(ty + 16 * u) * SP + tx + 16 * w] = p * share;
            }
            total[u] = total[u] * shrink + half_warp_sum(part);
#pragma unroll
            for (int w = 0; w < DV / 16; ++w) sums[u][w] *= shrink;
        }
        __syncthreads();
        gather<DV, false>(sums, pt, vt, VP, ty, tx);
    }
    for (int u = 0; u < PER; ++u) {
        const i64 i = first + ty + 16 * u, row = (b * g.heads + h) * g.sq + i;
        if (i >= g.sq) continue;
        const T share = top[u] == lowest<T>() ? T(0) : T(1) / total[u];
        for (int w = 0; w < DV / 16; ++w)
            if (tx + 16 * w < g.dv) out[row * g.dv + tx + 16 * w] = to<S>(sums[u][w] * share);
        if (tx == 0) lse[row] = top[u] == lowest<T>() ? top[u] : top[u] + log(total[u]);
    }
}
#elif MODE == 1
extern "C" __global__ void __launch_bounds__(256, 1)
NAME(S* __restrict__ dq, T* __restrict__ delta, const S* __restrict__ dy, const T* __restrict__ dlse,
     const S* __restrict__ q, const S* __restrict__ k, const S* __restrict__ v,
     const S* __restrict__ out, const T* __restrict__ lse, const bool* __restrict__ mask,
     const BIAS_T* __restrict__ bias, const Scores g) {
    DYNAMIC_SHARED(T, memory);
    T *qt = memory, *kt = qt + TILE * QP, *vt = kt + TILE * QP, *gt = vt + TILE * VP;
    T* dt = gt + TILE * VP;
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    const i64 first = (i64)blockIdx.x * TILE, h = blockIdx.y, b = blockIdx.z, hk = h / g.group;
    stage(qt, QP, DK, q + b * g.qs[0] + h * g.qs[1], first, g.sq, g.d, g.qs[2], g.qs[3]);
    stage(gt, VP, DV, dy + b * g.gs[0] + h * g.gs[1], first, g.sq, g.dv, g.gs[2], g.gs[3]);
    __syncthreads();
    T sums[PER][DK / 16], level[PER], less[PER];
#pragma unroll
    for (int u = 0; u < PER; ++u) {
        const i64 i = first + ty + 16 * u, row = (b * g.heads + h) * g.sq + i;
        T part = T(0);
        if (i < g.sq)
            for (int c = tx; c < g.dv; c += 16)
                part += gt[(ty + 16 * u) * VP + c] * to<T>(out[row * g.dv + c]);
        less[u] = half_warp_sum(part);
        level[u] = T(0);
        if (i < g.sq) {
            if (DLSE) less[u] -= dlse[row];
            if (lse[row] != lowest<T>()) level[u] = lse[row];
            if (tx == 0) delta[row] = less[u];
        }
#pragma unroll
        for (int w = 0; w < DK / 16; ++w) sums[u][w] = T(0);
    }
    i64 from, end;
    seen(first, g, &from, &end);
    for (i64 start = from; start < end; start += TILE) {
        __syncthreads();
        stage(kt, QP, DK, k + b * g.ks[0] + hk * g.ks[1], start, g.sk, g.d, g.ks[2], g.ks[3]);
        stage(vt, VP, DV, v + b * g.vs[0] + hk * g.vs[1], start, g.sk, g.dv, g.vs[2], g.vs[3]);
        __syncthreads();
        T s[PER][PER] = {}, dp[PER][PER] = {};
        products<DK>(s, qt, kt, QP, ty, tx);
        products<DV>(dp, gt, vt, VP, ty, tx);
#pragma unroll
        for (int u = 0; u < PER; ++u)
#pragma unroll
            for (int w = 0; w < PER; ++w) {
                const i64 i = first + ty + 16 * u, j = start + tx + 16 * w;
                T slope;
                const T p = exp(rated(s[u][w], b, h, i, j, mask, bias, g, &slope) - level[u]);
                const T ds = p * (dp[u][w] * kept<DROPOUT, T>(b, h, i, j, g) - less[u]);
                dt[(ty + 16 * u) * SP + tx + 16 * w] = ds * slope * T(g.scale);
            }
        __syncthreads();
        gather<DK, false>(sums, dt, kt, QP, ty, tx);
    }
    for (int u = 0; u < PER; ++u) {
        const i64 i = first + ty + 16 * u, row = (b * g.heads + h) * g.sq + i;
        for (int w = 0; w < DK / 16; ++w)
            if (i < g.sq && tx + 16 * w < g.d) dq[row * g.d + tx + 16 * w] = to<S>(sums[u][w]);
    }
}
#else
extern "C" __global__ void __launch_bounds__(256, 1)
NAME(S* __restrict__ dk, S* __restrict__ dv, const S* __restrict__ dy, const T* __restrict__ delta,
     const S* __restrict__ q, const S* __restrict__ k, const S* __restrict__ v,
     const T* __restrict__ lse, const bool* __restrict__ mask, const BIAS_T* __restrict__ bias,
     const Scores g) {
    DYNAMIC_SHARED(T, memory);
    T *qt = memory, *kt = qt + TILE * QP, *vt = kt + TILE * QP, *gt = vt + TILE * VP;
    T *pt = gt + TILE * VP, *dt = pt + TILE * SP;
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    const i64 start = (i64)blockIdx.x * TILE, hk = blockIdx.y, b = blockIdx.z;
    stage(kt, QP, DK, k + b * g.ks[0] + hk * g.ks[1], start, g.sk, g.d, g.ks[2], g.ks[3]);
    stage(vt, VP, DV, v + b * g.vs[0] + hk * g.vs[1], start, g.sk, g.dv, g.vs[2], g.vs[3]);
    T keys[PER][DK / 16], values[PER][DV / 16];
#pragma unroll
    for (int u = 0; u < PER; ++u) {
#pragma unroll
        for (int w = 0; w < DK / 16; ++w) keys[u][w] = T(0);
#pragma unroll
        for (int w = 0; w < DV / 16; ++w) values[u][w] = T(0);
    }
    for (i64 h = hk * g.group; h < (hk + 1) * g.group; ++h)
        for (i64 first = 0; first < g.sq; first += TILE) {
            i64 from, end;
            seen(first, g, &from, &end);
            if (start < from || start >= end) continue;
            __syncthreads();
            stage(qt, QP, DK, q + b * g.qs[0] + h * g.qs[1], first, g.sq, g.d, g.qs[2], g.qs[3]);
            stage(gt, VP, DV, dy + b * g.gs[0] + h * g.gs[1], first, g.sq, g.dv, g.gs[2], g.gs[3]);
            __syncthreads();
            T s[PER][PER] = {}, dp[PER][PER] = {};
            products<DK>(s, qt, kt, QP, ty, tx);
            products<DV>(dp, gt, vt, VP, ty, tx);
#pragma unroll
            for (int u = 0; u < PER; ++u) {
                const i64 i = first + ty + 16 * u, row = (b * g.heads + h) * g.sq + i;
                const T found = i < g.sq ? lse[row] : T(0), less = i < g.sq ? delta[row] : T(0);
                const T level = found == lowest<T>() ? T(0) : found;
#pragma unroll
                for (int w = 0; w < PER; ++w) {
                    const i64 j = start + tx + 16 * w;
                    T slope;
                    const T p = exp(rated(s[u][w], b, h, i, j, mask, bias, g, &slope) - level);
                    const T share = kept<DROPOUT, T>(b, h, i, j, g);
                    const int at = (ty + 16 * u) * SP + tx + 16 * w;
                    pt[at] = p * share;
                    dt[at] = p * (dp[u][w] * share - less) * slope * T(g.scale);
                }
            }
            __syncthreads();
            gather<DV, true>(values, pt, gt, VP, ty, tx);
            gather<DK, true>(keys, dt, qt, QP, ty, tx);
        }
    const i64 rows = (b * (g.heads / g.group) + hk) * g.sk;
    for (int u = 0; u < PER; ++u) {
        const i64 j = start + ty + 16 * u;
        if (j >= g.sk) continue;
        for (int w = 0; w < DK / 16; ++w)
            if (tx + 16 * w < g.d) dk[(rows + j) * g.d + tx + 16 * w] = to<S>(keys[u][w]);
        for (int w = 0; w < DV / 16; ++w)
            if (tx + 16 * w < g.dv) dv[(rows + j) * g.dv + tx + 16 * w] = to<S>(values[u][w]);
    }
}
#endif
