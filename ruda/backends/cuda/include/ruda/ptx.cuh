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

// The dynamic shared memory of a block, as NAME, a pointer to T.
#define DYNAMIC_SHARED(T, NAME)                                  \
    extern __shared__ __align__(16) unsigned char ruda_shared[]; \
    T* NAME = reinterpret_cast<T*>(ruda_shared)
