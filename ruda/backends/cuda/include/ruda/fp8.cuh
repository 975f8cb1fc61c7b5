// Codes of the storage types: float8_e4m3 (no infinity, NaN is 0x7f), float8_e5m2 (as IEEE) and
// float4_e2m1 (no NaN and no infinity, one code a byte). Rounding is to nearest even; beyond the
// largest value a code is NaN, infinity and the largest value in turn, as on the CPU.
#pragma once
#include "ruda/types.cuh"

// The magnitude of a code of MANT mantissa bits and this bias, subnormals included.
template <int MANT, int BIAS> __device__ __forceinline__ float magnitude_of(u32 code) {
    const u32 e = code >> MANT, m = code & ((1u << MANT) - 1);
    if (e) return __uint_as_float((e + 127 - BIAS) << 23 | m << (23 - MANT));
    return (float)m * __uint_as_float((u32)(1 - BIAS - MANT + 127) << 23);
}

// The code nearest to a finite magnitude, without a limit above.
template <int MANT, int BIAS> __device__ __forceinline__ u32 code_of(float size) {
    const u32 bits = __float_as_uint(size);
    const int e = (int)(bits >> 23) - 127 + BIAS;
    if (e >= 1) {
        const u32 half = (1u << (22 - MANT)) - 1 + (bits >> (23 - MANT) & 1);
        return ((bits + half) >> (23 - MANT)) - ((u32)(127 - BIAS) << MANT);
    }
    // A subnormal: whole steps of 2^(1 - BIAS - MANT), rounded by the adder of floats.
    const float step = __uint_as_float((u32)(BIAS + MANT - 1 + 127) << 23);
    return (u32)rintf(size * step);
}

__device__ __forceinline__ float sign_of(u32 code, u32 sign, float size) {
    return __uint_as_float(__float_as_uint(size) | (code & sign ? 0x80000000u : 0u));
}

__device__ __forceinline__ float decode_float8_e4m3(u8 code) {
    const u32 low = code & 0x7f;
    return sign_of(code, 0x80, low == 0x7f ? quiet_nan<float>() : magnitude_of<3, 7>(low));
}
__device__ __forceinline__ float decode_float8_e5m2(u8 code) {
    const u32 low = code & 0x7f;
    const float size = low > 0x7c ? quiet_nan<float>()
                     : low == 0x7c ? __uint_as_float(0x7f800000u) : magnitude_of<2, 15>(low);
    return sign_of(code, 0x80, size);
}
__device__ __forceinline__ float decode_float4_e2m1(u8 code) {
    return sign_of(code, 8, magnitude_of<1, 1>(code & 7));
}

__device__ __forceinline__ u8 encode_float8_e4m3(float v) {
    const u32 sign = __float_as_uint(v) >> 24 & 0x80;
    const float size = fabsf(v);
    // 464 is halfway between the largest value and the next step, and goes to the even one below.
    return (u8)(sign | (size <= 464.0f ? code_of<3, 7>(size) : 0x7fu));
}
__device__ __forceinline__ u8 encode_float8_e5m2(float v) {
    const u32 sign = __float_as_uint(v) >> 24 & 0x80;
    const float size = fabsf(v);
    if (size != size) return (u8)(sign | 0x7e);
    return (u8)(sign | (size < 61440.0f ? code_of<2, 15>(size) : 0x7cu));
}
__device__ __forceinline__ u8 encode_float4_e2m1(float v) {
    const u32 sign = __float_as_uint(v) >> 28 & 8;
    const float size = fabsf(v);
    if (size != size) return (u8)(sign ^ 8);  // a zero of the other sign, as the CPU gives
    return (u8)(sign | (size <= 6.0f ? code_of<1, 1>(size) : 7u));
}
