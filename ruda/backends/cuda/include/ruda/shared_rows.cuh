// Rows that the blocks of a cluster share, neighbours along z: what they fold goes through their
// shared memory.
#pragma once
#include "ruda/clusters.cuh"
#include "ruda/messages.cuh"
#include "ruda/rows.cuh"

// What was made of words before is made of them again: floats of all passes have no room beside them.
template <int N> __device__ __forceinline__ void forget(Pairs<N>& pairs) {
#pragma unroll
    for (int j = 0; j < N / 2; ++j) asm volatile("" : "+r"(pairs.at[j]));
}

// What a block has for its folds: `sent` has two sides, which take turns.
template <class T, int CLUSTER, int HALF> struct Mail {
    Arrivals come[2];
    T scratch[2 * HALF];
    T sent[2][CLUSTER * (HALF / 32)];

    __device__ __forceinline__ void open() {
        if (threadIdx.x == 0) set_up(come[0]), set_up(come[1]);
        cluster_arrive();
    }
    // A barrier of the THREADS that work on a row, where a block has ROWS of them along y.
    template <int THREADS, int ROWS> __device__ __forceinline__ void meet() {
        if constexpr (ROWS == 1) __syncthreads();
        else part_barrier<THREADS>(threadIdx.y);
    }
};

// What all blocks send each other, in their order: the K values of each. A block sends for the next
// turn but one only when all have sent for the next, hence read this one.
template <int K, class T, int CLUSTER, int HALF>
__device__ __forceinline__ const T* exchanged(T (&v)[K], Mail<T, CLUSTER, HALF>& mail, int& turn) {
    const int side = turn & 1;
    const bool odd = turn >> 1 & 1;
    if (turn == 0) cluster_wait();
    ++turn;
    T* sent = mail.sent[side];
    if (threadIdx.x == 0) expect(mail.come[side], CLUSTER * K * sizeof(T));
    if (threadIdx.x < CLUSTER)
#pragma unroll
        for (int k = 0; k < K; ++k)
            send(v[k], sent + blockIdx.z * K + k, mail.come[side], threadIdx.x);
    await(mail.come[side], odd);
    return sent;
}

// As over a block; LANES are those of the cluster. The parts of the blocks are folded in their order.
template <int LANES, int HALF, class F, int K, class T, int CLUSTER>
__device__ __forceinline__ void fold_group(T (&v)[K], Mail<T, CLUSTER, HALF>& mail, int& turn) {
    int half = turn & 1;
    fold_group<LANES / CLUSTER, HALF, F>(v, mail.scratch, half);
    const T* sent = exchanged(v, mail, turn);
#pragma unroll
    for (int k = 0; k < K; ++k) {
        v[k] = sent[k];
#pragma unroll
        for (int c = 1; c < CLUSTER; ++c) v[k] = F::of(v[k], sent[c * K + k]);
    }
}
