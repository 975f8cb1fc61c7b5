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

#define DYNAMIC_SHARED(T, NAME) T* NAME = reinterpret_cast<T*>(emulated::shared)
