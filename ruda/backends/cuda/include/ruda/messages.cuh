// Values that a block sends into the shared memory of the others of its cluster, and counts of the
// bytes that have come, which threads wait for: quicker than a barrier for all, since nobody waits
// for those that have yet to receive. From sm_90 on.
#pragma once
#include "ruda/types.cuh"

// Before a block sends, all must have begun and set up their counts; between the two it may work.
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// A barrier of THREADS threads of the block, the part number `part` of it.
template <int THREADS> __device__ __forceinline__ void part_barrier(u32 part) {
    asm volatile("bar.sync %0, %1;" ::"r"(part + 1), "n"(THREADS) : "memory");
}

// How many bytes have come; one after the other waits for `expect` and for the bytes that it names.
struct Arrivals { u64 state; };

__device__ __forceinline__ void set_up(Arrivals& count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n"
                 "fence.mbarrier_init.release.cluster;"
                 ::"r"((u32)__cvta_generic_to_shared(&count)) : "memory");
}
__device__ __forceinline__ void expect(Arrivals& count, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 ::"r"((u32)__cvta_generic_to_shared(&count)), "r"(bytes) : "memory");
}
// Until the bytes have come; `odd` at every second use of the count.
__device__ __forceinline__ void await(Arrivals& count, bool odd) {
    asm volatile("{\n.reg .pred come;\n"
                 "AGAIN_%=:\n"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 come, [%0], %1;\n"
                 "@!come bra AGAIN_%=;\n}"
                 ::"r"((u32)__cvta_generic_to_shared(&count)), "r"((u32)odd) : "memory");
}

// Where the block number `rank` has what is `own` here.
__device__ __forceinline__ u32 of_peer(const void* own, u32 rank) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(there) : "r"((u32)__cvta_generic_to_shared(own)), "r"(rank));
    return there;
}
__device__ __forceinline__ void send(float v, float* own, Arrivals& count, u32 rank) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
                 ::"r"(of_peer(own, rank)), "r"(__float_as_uint(v)), "r"(of_peer(&count, rank))
                 : "memory");
}
__device__ __forceinline__ void send(double v, double* own, Arrivals& count, u32 rank) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];"
                 ::"r"(of_peer(own, rank)), "l"(__double_as_longlong(v)), "r"(of_peer(&count, rank))
                 : "memory");
}
