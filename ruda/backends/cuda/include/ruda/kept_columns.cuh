// Packs of columns in shared memory that are more than 16 bytes: in pieces of 16 that lie apart, so
// that lanes that are neighbours meet different banks.
#pragma once
#include "ruda/skewed_rows.cuh"

// A pack whose pieces are as many times 16 bytes apart as there are THREADS.
template <class K, int THREADS> __device__ __forceinline__ K fetch_apart(const char* at) {
    union { uint4 piece[sizeof(K) / 16]; K pack; } out;
#pragma unroll
    for (int j = 0; j < (int)sizeof(K) / 16; ++j)
        out.piece[j] = *reinterpret_cast<const uint4*>(at + j * THREADS * 16);
    return out.pack;
}
// Elements i to i + N of a column of n, from anywhere on, to such a place.
template <int THREADS, int N, class E>
__device__ __forceinline__ void keep_across(char* to, const E* from, int i, int n) {
    constexpr int PIECE = 16 / (int)sizeof(E), READ = ((N + PIECE - 1) / PIECE + 1) * PIECE;
    union { uint4 piece[N / PIECE]; Pack<E, N> pack; } out;
    if (i + READ <= n) {
        out.pack = fetch_across<N>(from, i);
    } else {
#pragma unroll
        for (int k = 0; k < N; ++k) out.pack.at[k] = from[i + k];
    }
#pragma unroll
    for (int j = 0; j < N / PIECE; ++j)
        *reinterpret_cast<uint4*>(to + j * THREADS * 16) = out.piece[j];
}
