// The integers and half types, and all that is said in the machine's own words (inline PTX): the one
// header that a stand-in replaces where kernels are run without a GPU.
#pragma once

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct half { u16 bits; };
struct bhalf { u16 bits; };

__device__ __forceinline__ float widen(half v) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v.bits));
    return f;
}
__device__ __forceinline__ float widen(bhalf v) { return __uint_as_float((u32)v.bits << 16); }

__device__ __forceinline__ half narrow_half(float f) {
    half v;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(v.bits) : "f"(f));
    return v;
}
__device__ __forceinline__ bhalf narrow_bhalf(float f) {
    bhalf v;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(v.bits) : "f"(f));
    return v;
}

// The larger and the smaller one; NaN if either is.
__device__ __forceinline__ float larger(float x, float y) {
    float f;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(f) : "f"(x), "f"(y));
    return f;
}
__device__ __forceinline__ float smaller(float x, float y) {
    float f;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(f) : "f"(x), "f"(y));
    return f;
}

// exp(x) to about 2^-20, in two instructions: what would be subnormal is 0.
__device__ __forceinline__ float quick_exp(float x) {
    float f;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(f) : "f"(x * 1.4426950408889634f));
    return f;
}

// d [16, 8] += a [16, 16] b [16, 8], by all lanes of a warp; F says whose bits a and b hold. With
// g = lane / 4 and t = lane % 4 a lane holds of a the pairs (g, 2t), (g + 8, 2t), (g, 2t + 8),
// (g + 8, 2t + 8), of b the pairs (2t, g), (2t + 8, g), of d (g, 2t), (g, 2t + 1), (g + 8, ...).
__device__ __forceinline__ void multiply_add(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], bhalf) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void multiply_add(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], half) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// 16 bytes that are read once: they do not displace what the first cache holds.
__device__ __forceinline__ uint4 read_once(const void* at) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at));
    return v;
}

// 16 bytes into shared memory that pass no register, zeros unless `real`. A thread's fetches since the
// last end make a group; it sees those of all but the latest LEFT groups once it has waited.
__device__ __forceinline__ void fetch_ahead(void* into, const void* from, bool real) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((u32)__cvta_generic_to_shared(into)),
                 "l"(from), "r"(real ? 16 : 0)
                 : "memory");
}
__device__ __forceinline__ void fetches_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> __device__ __forceinline__ void fetches_arrive() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

// The same for BYTES (4, 8 or more by 16), aligned on both sides.
template <int BYTES> __device__ __forceinline__ void copy_async(void* shared, const void* global) {
    const u32 to = (u32)__cvta_generic_to_shared(shared);
    const char* from = (const char*)global;
    if (BYTES < 16)
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from),
                     "n"(BYTES < 16 ? BYTES : 4) : "memory");
#pragma unroll
    for (int b = 0; b + 16 <= BYTES; b += 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + b), "l"(from + b)
                     : "memory");
}

// The lanes of a whole warp that have another bit than this one where `mask` has its only one: a
// test, a vote, a choice, a logical operation. The compiler's own way to test takes two more.
template <u32 MASK> __device__ __forceinline__ u32 lanes_unlike(u32 value) {
    u32 differ;
    asm volatile("{ .reg .pred p; .reg .b32 t, all;\n"
                 "and.b32 t, %1, %2; setp.ne.u32 p, t, 0;\n"
                 "vote.sync.ballot.b32 t, p, 0xffffffff;\n"
                 "selp.b32 all, 0xffffffff, 0, p; xor.b32 %0, t, all; }"
                 : "=r"(differ) : "r"(value), "n"(MASK));
    return differ;
}

// The dynamic shared memory of a block, as NAME, a pointer to T.
#define DYNAMIC_SHARED(T, NAME)                                  \
    extern __shared__ __align__(16) unsigned char ruda_shared[]; \
    T* NAME = reinterpret_cast<T*>(ruda_shared)
