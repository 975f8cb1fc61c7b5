// Folds whose results are wanted a row later: what threads and blocks hand in travels while they work
// on other rows. One barrier of the block a row is between all that a half of `scratch` is used for.
#pragma once
#include "ruda/rows.cuh"

// The sums of warps into a half of scratch; behind a barrier, their sums in all threads.
template <int HALF, int K, class T>
__device__ __forceinline__ void hand_in(T (&v)[K], T* scratch, int turn) {
#pragma unroll
    for (int far = 16; far > 0; far >>= 1)
#pragma unroll
        for (int k = 0; k < K; ++k) v[k] += __shfl_xor_sync(~0u, v[k], far);
    if ((threadIdx.x & 31) == 0)
#pragma unroll
        for (int k = 0; k < K; ++k)
            scratch[(turn & 1) * HALF + k * 32 + (threadIdx.x >> 5)] = v[k];
}
template <int WARPS, int HALF, int K, class T>
__device__ __forceinline__ void take_out(T (&v)[K], const T* scratch, int turn) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
        v[k] = scratch[(turn & 1) * HALF + k * 32 + (threadIdx.x & (WARPS - 1))];
#pragma unroll
        for (int far = WARPS / 2; far > 0; far >>= 1) v[k] += __shfl_xor_sync(~0u, v[k], far);
    }
}

// Rows of a block, every so many from `start` to before `limit`: all rows, or a piece of those that
// begin alike, at the same element of a pack.
struct Share { i64 start, step, limit; };

// Pieces of rows that begin alike in the share of one of `blocks`: of rows of odd lengths they are
// every VEC-th. Where that many blocks divide evenly each has rows of one kind, else its share goes
// from one kind to the next.
template <int VEC> __device__ __forceinline__ int pieces_of(i64 blocks) {
    return blocks % VEC == 0 ? 1 : int((VEC - 1) / blocks) + 2;
}
template <int VEC>
__device__ __forceinline__ Share share_of(i64 rows, i64 blocks, i64 block, int piece) {
    if (blocks % VEC == 0) return {block, blocks, rows};
    const i64 alike = (rows + VEC - 1) / VEC, share = (alike * VEC + blocks - 1) / blocks;
    const i64 begin = block * share, end = begin + share;
    const i64 kind = begin / alike + piece;
    const i64 from = piece == 0 ? begin : kind * alike;
    const i64 to = end < (kind + 1) * alike ? end : (kind + 1) * alike;
    if (kind >= VEC || from >= to) return {rows, VEC, rows};
    const i64 limit = kind + VEC * (to - kind * alike);
    return {kind + VEC * (from - kind * alike), VEC, limit < rows ? limit : rows};
}
