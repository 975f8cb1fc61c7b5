// Unsigned integers in the order of the elements: Key<T>::of and back.
//
// Every NaN is the greatest key and comes back as one NaN. A zero keeps its sign, -0 below 0, unless
// `zeros` says that the two are one key. ordered() also turns the order round for descending sorts.
#pragma once
#include "ruda/types.cuh"

template <class T> struct Key;

#define KEY_OF_INTEGER(T, UNSIGNED, FLIP)                                                       \
    template <> struct Key<T> {                                                                 \
        typedef UNSIGNED U;                                                                     \
        static __device__ __forceinline__ U of(T v, bool) { return (U)((U)v ^ (U)(FLIP)); }     \
        static __device__ __forceinline__ T back(U k) { return (T)(U)(k ^ (U)(FLIP)); }         \
    }
KEY_OF_INTEGER(bool, u8, 0);
KEY_OF_INTEGER(u8, u8, 0);
KEY_OF_INTEGER(u16, u16, 0);
KEY_OF_INTEGER(u32, u32, 0);
KEY_OF_INTEGER(u64, u64, 0);
KEY_OF_INTEGER(i8, u8, 0x80);
KEY_OF_INTEGER(i16, u16, 0x8000);
KEY_OF_INTEGER(i32, u32, 0x80000000u);
KEY_OF_INTEGER(i64, u64, 0x8000000000000000ull);

// INFINITE: the bits of infinity, above which lie the NaNs.
#define KEY_OF_FLOAT(T, UNSIGNED, INFINITE, BITS, VALUE)                                        \
    template <> struct Key<T> {                                                                 \
        typedef UNSIGNED U;                                                                     \
        static __device__ __forceinline__ U of(T v, bool zeros) {                               \
            const U top = (U)((U)1 << (8 * sizeof(U) - 1)), bits = BITS, size = bits & (U)~top; \
            if (size > (U)(INFINITE)) return (U)~(U)0;                                          \
            if (zeros && size == 0) return top;                                                 \
            return bits & top ? (U)~bits : (U)(bits | top);                                     \
        }                                                                                       \
        static __device__ __forceinline__ T back(U k) {                                         \
            const U top = (U)((U)1 << (8 * sizeof(U) - 1));                                     \
            const U bits = k & top ? (U)(k ^ top) : (U)~k;                                      \
            return VALUE;                                                                       \
        }                                                                                       \
    }
KEY_OF_FLOAT(half, u16, 0x7c00, v.bits, half{bits});
KEY_OF_FLOAT(bhalf, u16, 0x7f80, v.bits, bhalf{bits});
KEY_OF_FLOAT(float, u32, 0x7f800000u, __float_as_uint(v), __uint_as_float(bits));
KEY_OF_FLOAT(double, u64, 0x7ff0000000000000ull, (u64)__double_as_longlong(v),
             __longlong_as_double((i64)bits));
#undef KEY_OF_INTEGER
#undef KEY_OF_FLOAT

template <class T> __device__ __forceinline__
typename Key<T>::U ordered(T v, bool zeros, bool descending) {
    typedef typename Key<T>::U U;
    const U key = Key<T>::of(v, zeros);
    return descending ? (U)~key : key;
}
template <class T> __device__ __forceinline__ T unordered(typename Key<T>::U key, bool descending) {
    typedef typename Key<T>::U U;
    return Key<T>::back(descending ? (U)~key : key);
}
