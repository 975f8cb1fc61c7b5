// What blocks of a cluster hand to each other while they work on other rows.
#pragma once
#include "ruda/piped_rows.cuh"
#include "ruda/shared_rows.cuh"

// The sums of a block to all blocks of the cluster. Those of the turn before must have been read, by
// all threads behind a barrier: one that sends for the next turn has had these of all.
template <int K, class T, int CLUSTER, int HALF>
__device__ __forceinline__ void hand_out(T (&v)[K], Mail<T, CLUSTER, HALF>& mail, int turn) {
    const int side = turn & 1;
    if (threadIdx.x == 0) expect(mail.come[side], CLUSTER * K * sizeof(T));
    if (threadIdx.x < CLUSTER)
#pragma unroll
        for (int k = 0; k < K; ++k)
            send(v[k], mail.sent[side] + blockIdx.z * K + k, mail.come[side], threadIdx.x);
}
// The sums of all blocks, in their order.
template <int K, class T, int CLUSTER, int HALF>
__device__ __forceinline__ void come_in(T (&v)[K], Mail<T, CLUSTER, HALF>& mail, int turn) {
    await(mail.come[turn & 1], turn >> 1 & 1);
    const T* sent = mail.sent[turn & 1];
#pragma unroll
    for (int k = 0; k < K; ++k) {
        v[k] = sent[k];
#pragma unroll
        for (int c = 1; c < CLUSTER; ++c) v[k] += sent[c * K + k];
    }
}
