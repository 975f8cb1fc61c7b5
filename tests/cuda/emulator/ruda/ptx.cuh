// The stand-in for the header of this name: the same types and functions in plain C++.
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

inline float widen(half v) {
    u32 sign = (u32)(v.bits & 0x8000) << 16, e = (v.bits >> 10) & 31, m = v.bits & 1023;
    if (e == 31) return __uint_as_float(sign | 0x7f800000u | m << 13);
    float f = e ? ldexpf((float)(1024 + m), (int)e - 25) : ldexpf((float)m, -24);
    return sign ? -f : f;
}
inline float widen(bhalf v) { return __uint_as_float((u32)v.bits << 16); }

inline half narrow_half(float f) {
    u16 sign = (__float_as_uint(f) >> 16) & 0x8000;
    float a = fabsf(f);
    if (a != a) return {0x7fff};
    if (a >= 65520.0f) return {(u16)(sign | 0x7c00)};
    int e;
    frexpf(a, &e);
    e = a == 0.0f || e < -13 ? -13 : e;           // below that halves have no more bits
    float q = rintf(ldexpf(a, 11 - e));
    return {(u16)(sign | ((u32)(e + 13) << 10) + (u32)q)};
}
inline bhalf narrow_bhalf(float f) {
    if (f != f) return {0x7fff};
    u32 b = __float_as_uint(f);
    return {(u16)((b + 0x7fff + ((b >> 16) & 1)) >> 16)};
}

inline float larger(float x, float y) { return x > y || x != x ? x : y; }
inline float smaller(float x, float y) { return x < y || x != x ? x : y; }
inline float quick_exp(float x) { return expf(x); }

template <class F> inline void multiply_add(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], F) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    for (int high = 0; high < 2; ++high)
        for (int pair = 0; pair < 4; ++pair) {
            const u32 rows[2] = {__shfl_sync(~0u, a[2 * high], 4 * g + pair),
                                 __shfl_sync(~0u, a[2 * high + 1], 4 * g + pair)};
            const u32 columns[2] = {__shfl_sync(~0u, b[high], 8 * t + pair),
                                    __shfl_sync(~0u, b[high], 8 * t + 4 + pair)};
            for (int i = 0; i < 4; ++i) {
                const u32 r = rows[i / 2], c = columns[i % 2];
                d[i] += widen(F{(u16)r}) * widen(F{(u16)c});
                d[i] += widen(F{(u16)(r >> 16)}) * widen(F{(u16)(c >> 16)});
            }
        }
}

inline uint4 read_once(const void* at) { return *(const uint4*)at; }

inline void fetch_ahead(void* into, const void* from, bool real) {
    *(uint4*)into = real ? *(const uint4*)from : uint4{};
}
inline void fetches_end() {}
template <int LEFT> inline void fetches_arrive() {}

template <int BYTES> inline void copy_async(void* shared, const void* global) {
    memcpy(shared, global, BYTES);
}

template <u32 MASK> inline u32 lanes_unlike(u32 value) {
    const bool one = (value & MASK) != 0;
    return __ballot_sync(~0u, one) ^ (one ? ~0u : 0u);
}

#define DYNAMIC_SHARED(T, NAME) T* NAME = reinterpret_cast<T*>(emulated::shared)
