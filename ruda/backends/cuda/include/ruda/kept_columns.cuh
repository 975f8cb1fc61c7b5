// Packs of columns in shared memory that are more than 16 bytes: in pieces of 16 that lie apart, so
// that lanes that are neighbours meet different banks.
#pragma once
#include "ruda/types.cuh"

// A pack whose pieces are as many times 16 bytes apart as there are THREADS.
template <class K, int THREADS> __device__ __forceinline__ K fetch_apart(const char* at) {
    union { uint4 piece[sizeof(K) / 16]; K pack; } out;
#pragma unroll
    for (int j = 0; j < (int)sizeof(K) / 16; ++j)
        out.piece[j] = *reinterpret_cast<const uint4*>(at + j * THREADS * 16);
    return out.pack;
}
