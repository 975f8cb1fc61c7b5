// A kernel that may be begun before those ahead of it in a graph are over: it waits by itself, once,
// in all threads, before it touches memory that others write or read. Nothing is said to those that
// come next, so they begin when the last block is gone, but before what it wrote is seen everywhere.
// Launched without that leave, and before sm_90, the wait is nothing; so it is on the CPU.
#pragma once

__device__ __forceinline__ void wait_for_earlier() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
