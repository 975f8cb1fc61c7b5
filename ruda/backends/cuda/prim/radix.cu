#include "ruda/types.cuh"
// A stable sort of 32-bit keys with their numbers, by digits of up to 9 bits, least first.
//
// A tile of `chunk` keys belongs to one block of 256 threads. Each pass: PHASE 0 counts the digits
// of each tile, PHASE 1 (a block for each digit) adds the counts of the tiles before, PHASE 2 moves
// keys and numbers. PHASE 3 is all passes in one block. No order means 0, 1, 2, ...
// Shared memory: 18 KiB. Nothing depends on timing: atomics are on integers.

#define WARPS 8
#define ROWS 8
#define MOST 512
struct Pass { u32 n, chunk, tiles, shift, bits; };

// The sum of `value` over the threads up to this one, and over all in `total`.
__device__ __forceinline__ u32 added_up(u32 value, u32* sums, u32* total) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    u32 sum = value;
#pragma unroll
    for (int far = 1; far < 32; far <<= 1) {
        const u32 other = __shfl_up_sync(~0u, sum, far);
        if (lane >= far) sum += other;
    }
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    u32 before = 0, all = 0;
#pragma unroll
    for (u32 w = 0; w < WARPS; ++w) {
        if (w < warp) before += sums[w];
        all += sums[w];
    }
    *total = all;
    __syncthreads();
    return before + sum;
}

// base [MOST] becomes the sums of what stood before each place.
__device__ __forceinline__ void exclusive(u32* base, u32* sums) {
    const u32 t = threadIdx.x, a = base[2 * t], b = base[2 * t + 1];
    u32 total;
    const u32 end = added_up(a + b, sums, &total);
    base[2 * t] = end - a - b;
    base[2 * t + 1] = end - b;
    __syncthreads();
}

__device__ __forceinline__ void tally(const u32* keys, u32 start, u32 stop, const Pass& at, u32* count) {
    for (u32 b = threadIdx.x; b < MOST; b += 256) count[b] = 0;
    __syncthreads();
    const u32 mask = (1u << at.bits) - 1;
    for (u32 i = start + threadIdx.x; i < stop; i += 256)
        atomicAdd(&count[(keys[i] >> at.shift) & mask], 1u);
    __syncthreads();
}

// Moves keys [start, stop) to base[digit], base[digit] + 1, ... in their order.
__device__ __forceinline__ void spread(const u32* keys, const u32* order, u32* keys_out,
                                       u32* order_out, u32 start, u32 stop, const Pass& at,
                                       u32* base, u32 (*count)[MOST]) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, bins = 1u << at.bits;
    for (u32 tile = start; tile < stop; tile += 256 * ROWS) {
        for (u32 b = threadIdx.x; b < bins; b += 256)
            for (u32 w = 0; w < WARPS; ++w) count[w][b] = 0;
        __syncthreads();
        u32 key[ROWS], rank[ROWS];
#pragma unroll
        for (u32 r = 0; r < ROWS; ++r) {
            const u32 i = tile + (warp * ROWS + r) * 32 + lane;
            key[r] = i < stop ? keys[i] : 0;
            const u32 digit = i < stop ? (key[r] >> at.shift) & (bins - 1) : bins;
            const u32 peers = __match_any_sync(~0u, digit);
            const int leader = __ffs(peers) - 1;
            u32 old = 0;
            if ((int)lane == leader && i < stop) {
                old = count[warp][digit];
                count[warp][digit] = old + __popc(peers);
            }
            rank[r] = __shfl_sync(~0u, old, leader) + __popc(peers & ((1u << lane) - 1));
            __syncwarp();
        }
        __syncthreads();
        for (u32 b = threadIdx.x; b < bins; b += 256) {
            u32 next = base[b];
            for (u32 w = 0; w < WARPS; ++w) {
                const u32 here = count[w][b];
                count[w][b] = next;
                next += here;
            }
            base[b] = next;
        }
        __syncthreads();
#pragma unroll
        for (u32 r = 0; r < ROWS; ++r) {
            const u32 i = tile + (warp * ROWS + r) * 32 + lane;
            if (i >= stop) continue;
            const u32 to_ = count[warp][(key[r] >> at.shift) & (bins - 1)] + rank[r];
            keys_out[to_] = key[r];
            order_out[to_] = order ? order[i] : i;
        }
        __syncthreads();
    }
}

#if PHASE == 0
extern "C" __global__ void __launch_bounds__(256)
NAME(u32* __restrict__ counts, const u32* __restrict__ keys, const Pass at) {
    __shared__ u32 count[MOST];
    const u32 start = blockIdx.x * at.chunk;
    tally(keys, start, min(start + at.chunk, at.n), at, count);
    for (u32 b = threadIdx.x; b < (1u << at.bits); b += 256)
        counts[b * at.tiles + blockIdx.x] = count[b];
}
#elif PHASE == 1
extern "C" __global__ void __launch_bounds__(256)
NAME(u32* __restrict__ counts, u32* __restrict__ totals, const Pass at) {
    __shared__ u32 sums[WARPS];
    u32* own = counts + blockIdx.x * at.tiles;
    u32 before = 0;
    for (u32 first = 0; first < at.tiles; first += 256) {
        const u32 i = first + threadIdx.x, value = i < at.tiles ? own[i] : 0;
        u32 total;
        const u32 end = added_up(value, sums, &total);
        if (i < at.tiles) own[i] = before + end - value;
        before += total;
    }
    if (threadIdx.x == 0) totals[blockIdx.x] = before;
}
#elif PHASE == 2
extern "C" __global__ void __launch_bounds__(256)
NAME(u32* __restrict__ keys_out, u32* __restrict__ order_out, const u32* __restrict__ keys,
     const u32* __restrict__ order, const u32* __restrict__ counts,
     const u32* __restrict__ totals, const Pass at) {
    __shared__ u32 base[MOST], count[WARPS][MOST], sums[WARPS];
    const u32 bins = 1u << at.bits;
    for (u32 b = threadIdx.x; b < MOST; b += 256) base[b] = b < bins ? totals[b] : 0;
    __syncthreads();
    exclusive(base, sums);
    for (u32 b = threadIdx.x; b < bins; b += 256) base[b] += counts[b * at.tiles + blockIdx.x];
    __syncthreads();
    const u32 start = blockIdx.x * at.chunk;
    spread(keys, order, keys_out, order_out, start, min(start + at.chunk, at.n), at, base, count);
}
#else
// `bits` of each of `tiles` passes; the result lies in the second pair of arrays after an odd
// number of passes, in the first after an even one.
extern "C" __global__ void __launch_bounds__(256)
NAME(u32* keys, u32* order, u32* other_keys, u32* other_order, const Pass at) {
    __shared__ u32 base[MOST], count[WARPS][MOST], sums[WARPS];
    Pass now = at;
    for (u32 pass = 0; pass < at.tiles; ++pass, now.shift += at.bits) {
        tally(keys, 0, at.n, now, base);
        exclusive(base, sums);
        spread(keys, pass ? order : nullptr, other_keys, other_order, 0, at.n, now, base, count);
        u32* swap = keys;
        keys = other_keys;
        other_keys = swap;
        swap = order;
        order = other_order;
        other_order = swap;
    }
}
#endif
