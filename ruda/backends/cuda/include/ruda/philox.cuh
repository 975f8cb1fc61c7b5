// Philox 4x32-10 (Salmon et al., SC'11) and numbers from its words.
//
// Key: the 64-bit seed. Counter: element block (48 bits) and attempt (16) in the first two words,
// draw number (64) in the others. Block b holds words 4b to 4b + 3 of a draw, so a word follows
// from (seed, draw, attempt, index) alone and never from the geometry of a launch.
#pragma once
#include "ruda/types.cuh"

struct Key { u64 seed, draw; };

// Seed and draw number by value, or, with the top bit of draw set, as two such marked addresses:
// those of a graph, whose replays draw other numbers.
__device__ __forceinline__ Key key_of(u64 seed, u64 draw) {
    const u64 mark = 1ull << 63;
    if (!(draw & mark)) return {seed, draw};
    return {*reinterpret_cast<const u64*>(seed & ~mark), *reinterpret_cast<const u64*>(draw & ~mark)};
}

__device__ __forceinline__ void philox(Key key, u64 block, u32 attempt, u32* out) {
    u32 k0 = (u32)key.seed, k1 = (u32)(key.seed >> 32);
    u32 x0 = (u32)block, x1 = (u32)(block >> 32) | attempt << 16;
    u32 x2 = (u32)key.draw, x3 = (u32)(key.draw >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const u64 p0 = (u64)x0 * 0xD2511F53u, p1 = (u64)x2 * 0xCD9E8D57u;
        x0 = (u32)(p1 >> 32) ^ x1 ^ k0;
        x1 = (u32)p1;
        x2 = (u32)(p0 >> 32) ^ x3 ^ k1;
        x3 = (u32)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = x0;
    out[1] = x1;
    out[2] = x2;
    out[3] = x3;
}

// Number i of a run of words: one word for float, two for double, the first low.
template <class T> struct Number;
template <> struct Number<float> {
    typedef u32 Bits;
    static __device__ __forceinline__ u32 of(const u32* w, int i) { return w[i]; }
};
template <> struct Number<double> {
    typedef u64 Bits;
    static __device__ __forceinline__ u64 of(const u32* w, int i) {
        return w[2 * i] | (u64)w[2 * i + 1] << 32;
    }
};

// On [0, 1): 24 or 53 bits.
__device__ __forceinline__ float unit(u32 w) { return (float)(w >> 8) * 5.9604644775390625e-8f; }
__device__ __forceinline__ double unit(u64 w) {
    return (double)(w >> 11) * 1.1102230246251565404e-16;
}
// On (0, 1], fine near 0: (word + 1/2) / 2^bits, rounded.
__device__ __forceinline__ float open_unit(u32 w) {
    return (float)w * 2.3283064365386962891e-10f + 1.1641532182693481445e-10f;
}
__device__ __forceinline__ double open_unit(u64 w) {
    return (double)w * 5.4210108624275221700e-20 + 2.7105054312137610850e-20;
}

// Products and sums that are rounded one by one, as the reference does it: the compiler may not
// join them.
__device__ __forceinline__ float mul(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double mul(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double add(double a, double b) { return __dadd_rn(a, b); }
