// The mean of a row and its squares: the sum of squared distances from the mean. Each warp takes the
// distances from the mean of its own elements, so that one exchange joins both, and nothing cancels:
// the squares of a whole are those of its parts and, by count, those of the parts' means.
#pragma once
#include "ruda/rows.cuh"

template <class T, int CLUSTER, int HALF> struct Mail;

// How many of n elements WIDE threads have, of which `first` is the first in the row; `loose` of them
// are in no pack, but each the only one of one of the first threads.
template <int LANES, int VEC, int WIDE>
__device__ __forceinline__ int share_of(int n, int first, int loose) {
    const int all = n - loose, whole = all / (LANES * VEC), rest = all - (whole * LANES + first) * VEC;
    const int last = rest < 0 ? 0 : rest < WIDE * VEC ? rest : WIDE * VEC;
    return whole * WIDE * VEC + last + (first == 0 ? loose : 0);
}
// The mean of `count` values to two steps, as exact as their sum is. None have the mean 0.
__device__ __forceinline__ float mean_near(float sum, int count) {
    return count > 0 ? __fdividef(sum, float(count)) : 0.0f;
}
__device__ __forceinline__ double mean_near(double sum, int count) {
    return count > 0 ? sum / double(count) : 0.0;
}
template <int WIDTH, class T> __device__ __forceinline__ void sum_lanes(T& v) {
#pragma unroll
    for (int far = WIDTH / 2; far > 0; far >>= 1) v += __shfl_xor_sync(~0u, v, far);
}

// The mean of what a warp has of its row, or of the whole row where a warp has that; `level` becomes
// the sum of it.
template <int LANES, int VEC, class T>
__device__ __forceinline__ T near_mean(T& level, int n, int lane, int loose) {
    sum_lanes<LANES < 32 ? LANES : 32>(level);
    const int count = LANES > 32 ? share_of<LANES, VEC, 32>(n, lane & ~31, loose) : n;
    return mean_near(level, count);
}

// Lanes have the sum, the squares and the count of a part each, PARTS neighbours those of a whole of
// `all` elements: sum and squares of the whole, the same bits in each.
template <int PARTS, class T>
__device__ __forceinline__ void join_parts(T& level, T& squares, int count, int all) {
    T total = level;
    sum_lanes<PARTS>(total);
    const T apart = count > 0 ? mean_near(level, count) - mean_near(total, all) : T(0);
    squares += T(count) * apart * apart;
    sum_lanes<PARTS>(squares);
    level = total;
}
template <class T> __device__ __forceinline__ void tell_warps(T level, T squares, T* mine) {
    const int warp = threadIdx.x >> 5;
    if ((threadIdx.x & 31) == 0) mine[warp] = level, mine[32 + warp] = squares;
}
// Behind a barrier: what all warps have told.
template <int LANES, int VEC, int THREADS, class T>
__device__ __forceinline__ void join_warps(
    T& level, T& squares, int n, int start, int loose, const T* mine) {
    constexpr int WARPS = THREADS / 32;
    const int part = threadIdx.x & (WARPS - 1);
    level = mine[part], squares = mine[32 + part];
    const int count = share_of<LANES, VEC, 32>(n, start + 32 * part, loose);
    join_parts<WARPS>(level, squares, count, share_of<LANES, VEC, THREADS>(n, start, loose));
}

// From the sum of each warp and each thread's squares to the mean and the squares of the row. Two
// values are folded together: HALF is 64.
template <int LANES, int VEC, int HALF, int ROWS, class T>
__device__ __forceinline__ T join_moments(
    T level, T& squares, int n, int lane, int loose, T* scratch, int& turn) {
    static_assert(LANES <= 32 || HALF >= 64, "room for two values of each warp");
    sum_lanes<LANES < 32 ? LANES : 32>(squares);
    if constexpr (LANES > 32) {
        tell_warps(level, squares, scratch + turn * HALF);
        __syncthreads();
        join_warps<LANES, VEC, LANES>(level, squares, n, 0, loose, scratch + turn * HALF);
        turn ^= 1;
    }
    return level / T(n);
}
// Over a cluster: blocks send each other their sums and squares, of each of ROWS rows.
template <int LANES, int VEC, int HALF, int ROWS, class T, int CLUSTER>
__device__ __forceinline__ T join_moments(
    T level, T& squares, int n, int lane, int loose, Mail<T, CLUSTER, HALF>& mail, int& turn) {
    constexpr int THREADS = LANES / CLUSTER;
    sum_lanes<32>(squares);
    const int start = lane - (int)threadIdx.x;
    T* mine = mail.scratch + (turn & 1) * HALF;
    tell_warps(level, squares, mine);
    mail.template meet<THREADS, ROWS>();
    join_warps<LANES, VEC, THREADS>(level, squares, n, start, loose, mine);
    T pair[2] = {level, squares};
    const T* all = exchanged(pair, mail, turn);
    const int part = threadIdx.x & (CLUSTER - 1);
    level = all[2 * part], squares = all[2 * part + 1];
    const int count = share_of<LANES, VEC, THREADS>(n, part * THREADS, loose);
    join_parts<CLUSTER>(level, squares, count, n);
    return level / T(n);
}
