// Blocks that run at the same time and see each other's shared memory: clusters, from sm_90 on.
#pragma once
#include "ruda/types.cuh"

// All threads of all blocks: what was written to shared memory before is seen behind it.
__device__ __forceinline__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// What the block number `rank` of the cluster has where `own` is in this one's shared memory.
__device__ __forceinline__ float4 of_block(const float4* own, u32 rank) {
    u32 there;
    float4 v;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(there) : "r"((u32)__cvta_generic_to_shared(own)), "r"(rank));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(there) : "memory");
    return v;
}
