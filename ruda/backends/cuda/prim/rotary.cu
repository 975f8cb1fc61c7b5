// Pairs of features turned: x and y [rows, 2 half], cos and sin [rows, half] that repeat over some
// axes of the rows. A block has one place of the other axes: its angles are read once and kept while
// rows that share them go by, LANES threads a row, N pairs a thread, DEEP rows on their way.
// 128 threads; grid: places, parts of the axes that repeat. TOGETHER: a pair is (2 i, 2 i + 1), else
// (i, i + half); BACK turns the other way.
#include "ruda/rows.cuh"

static const int THREADS = 128, GROUPS = THREADS / LANES, DEEP = 4;
struct Steps { i64 place[PLACES], repeat[REPEATS], last; };
struct Geometry {
    i64 half, repeats, psize[PLACES], rsize[REPEATS];
    Steps x, y, cos, sin;
};

// N pairs of one row, as their first and their second halves.
struct Pairs {
    Pack<X, N> one, two;

    __device__ __forceinline__ void read(const X* p, i64 i, i64 half, i64 step) {
        if (TOGETHER && N > 1) {
            const Pack<X, 2 * N> both = fetch<2 * N>(p + 2 * i);
#pragma unroll
            for (int k = 0; k < N; ++k) one.at[k] = both.at[2 * k], two.at[k] = both.at[2 * k + 1];
        } else {
            one = fetch<N>(p + (TOGETHER ? 2 * i : i) * step);
            two = fetch<N>(p + (TOGETHER ? 2 * i + 1 : i + half) * step);
        }
    }
    __device__ __forceinline__ void write(X* p, i64 i, i64 half, i64 step) const {
        if (TOGETHER && N > 1) {
            Pack<X, 2 * N> both;
#pragma unroll
            for (int k = 0; k < N; ++k) both.at[2 * k] = one.at[k], both.at[2 * k + 1] = two.at[k];
            *reinterpret_cast<Pack<X, 2 * N>*>(p + 2 * i) = both;
        } else {
            *reinterpret_cast<Pack<X, N>*>(p + (TOGETHER ? 2 * i : i) * step) = one;
            *reinterpret_cast<Pack<X, N>*>(p + (TOGETHER ? 2 * i + 1 : i + half) * step) = two;
        }
    }
    __device__ __forceinline__ void turn(const T (&c)[N], const T (&s)[N]) {
#pragma unroll
        for (int k = 0; k < N; ++k) {
            const T a = to<T>(one.at[k]), b = to<T>(two.at[k]);
            one.at[k] = to<X>(a * c[k] - b * s[k]);
            two.at[k] = to<X>(b * c[k] + a * s[k]);
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS)
NAME(X* __restrict__ y, const X* __restrict__ x, const C* __restrict__ cos,
     const S* __restrict__ sin, const Geometry at) {
    const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    x += place<PLACES>(blockIdx.x, at.psize, at.x.place);
    y += place<PLACES>(blockIdx.x, at.psize, at.y.place);
    cos += place<PLACES>(blockIdx.x, at.psize, at.cos.place);
    sin += place<PLACES>(blockIdx.x, at.psize, at.sin.place);
    const i64 step = (i64)gridDim.y * GROUPS;
    for (i64 i = lane * N; i < at.half; i += LANES * N) {
        T c[N], s[N];
        widened(c, fetch<N>(cos + i * at.cos.last));
        widened(s, fetch<N>(sin + i * at.sin.last));
#pragma unroll
        for (int k = 0; k < N; ++k) s[k] = BACK ? -s[k] : s[k];
        for (i64 r = (i64)blockIdx.y * GROUPS + group; r < at.repeats; r += DEEP * step) {
            Pairs pairs[DEEP];
#pragma unroll
            for (int d = 0; d < DEEP; ++d)
                if (r + d * step < at.repeats)
                    pairs[d].read(x + place<REPEATS>(r + d * step, at.rsize, at.x.repeat), i,
                                  at.half, at.x.last);
#pragma unroll
            for (int d = 0; d < DEEP; ++d)
                if (r + d * step < at.repeats) {
                    pairs[d].turn(c, s);
                    pairs[d].write(y + place<REPEATS>(r + d * step, at.rsize, at.y.repeat), i,
                                   at.half, at.y.last);
                }
        }
    }
}
