// Columns of rows that begin anywhere, in shared memory for all rows of a block: word j of every pack
// is in plane j. Lanes that read neighbouring packs, from any element on, so meet different banks, and
// no word has to be chosen out of several.
#pragma once
#include "ruda/skewed_rows.cuh"

// Planes of a pack of N elements, and words of a plane: a pack more than there are threads, since the
// last of them reads across.
template <int N, int THREADS, class E> struct Planes {
    static const int WORDS = N * (int)sizeof(E) / 4, STEP = THREADS + 1;
};

// Elements i to i + N of a column of n, of which those behind the row do not matter, into place `slot`.
template <int N, int THREADS, class E>
__device__ __forceinline__ void keep(u32* planes, int slot, const E* from, int i, int n) {
    typedef Planes<N, THREADS, E> P;
    constexpr int PART = 4 / (int)sizeof(E);
    if (i + N <= n) {
#pragma unroll
        for (int j = 0; j < P::WORDS; ++j)
            copy_async<4>(planes + j * P::STEP + slot, from + i + j * PART);
        return;
    }
#pragma unroll 1
    for (int k = 0; i + k < n; ++k)
        reinterpret_cast<E*>(planes + k / PART * P::STEP + slot)[k % PART] = from[i + k];
}

// A pack of more than 16 bytes, in pieces of 16 as many bytes apart as all threads have.
template <class K, int THREADS> __device__ __forceinline__ K fetch_apart(const char* at) {
    union { uint4 piece[sizeof(K) / 16]; K pack; } out;
#pragma unroll
    for (int j = 0; j < (int)sizeof(K) / 16; ++j)
        out.piece[j] = *reinterpret_cast<const uint4*>(at + j * THREADS * 16);
    return out.pack;
}
// A pack of a column from `head` elements behind place `slot` on.
template <class K, int N, int THREADS, class E>
__device__ __forceinline__ K kept_across(const u32* planes, int slot, int head) {
    typedef Planes<N, THREADS, E> P;
    constexpr int PART = 4 / (int)sizeof(E), MORE = PART > 1;
    const int far = head / PART;
    u32 w[P::WORDS + 1];
#pragma unroll
    for (int j = 0; j < P::WORDS + MORE; ++j) {
        const int word = far + j;
        w[j] = planes[(word & (P::WORDS - 1)) * P::STEP + slot + word / P::WORDS];
    }
    union { u32 word[P::WORDS]; K pack; } out;
#pragma unroll
    for (int j = 0; j < P::WORDS; ++j)
        out.word[j] = MORE ? __funnelshift_r(w[j], w[j + MORE], 8 * (head % PART) * (int)sizeof(E)) : w[j];
    return out.pack;
}
