// Pairs of features turned: x and y [rows, 2 half], cos and sin [rows, half] that repeat over some
// axes of the rows. A block has one place of the other axes: its angles are read once and kept while
// rows that share them go by, LANES threads a row, N pairs a thread, DEEP rows on their way.
// 128 threads; grid: places, parts of the axes that repeat. TOGETHER: a pair is (2 i, 2 i + 1), else
// (i, i + half); BACK turns the other way.
#include "ruda/earlier.cuh"
#include "ruda/rows.cuh"

static const int THREADS = 128, GROUPS = THREADS / LANES, DEEP = 4;
struct Steps { i64 place[PLACES], repeat[REPEATS], last; };
struct Geometry {
    i64 half, repeats, psize[PLACES], rsize[REPEATS];
    Steps x, y, cos, sin;
};

// As place, of less than 2^31 rows: a division of 64 bits takes longer than all else here.
template <int R> __device__ __forceinline__ i64 spot(u32 i, const i64* size, const i64* stride) {
    i64 at = 0;
#pragma unroll
    for (int d = R - 1; d > 0; --d) {
        const u32 whole = i / (u32)size[d];
        at += (i64)(i - whole * (u32)size[d]) * stride[d];
        i = whole;
    }
    return at + (i64)i * stride[0];
}

template <int BYTES> struct Unit;
template <> struct Unit<2> { typedef u16 Type; };
template <> struct Unit<4> { typedef u32 Type; };
template <> struct Unit<8> { typedef uint2 Type; };
template <> struct Unit<16> { typedef uint4 Type; };

// As put, by one store: left to itself the compiler makes one an element here.
template <int COUNT> __device__ __forceinline__ void put_whole(X* target, const T (&v)[COUNT]) {
    typedef typename Unit<sizeof(X) * COUNT>::Type Whole;
    alignas(16) Pack<X, COUNT> pack;
#pragma unroll
    for (int k = 0; k < COUNT; ++k) pack.at[k] = to<X>(v[k]);
    __stcg(reinterpret_cast<Whole*>(target), *reinterpret_cast<const Whole*>(&pack));
}

// N pairs of one row: in one pack, where they lie together, or their halves in two.
struct Turned {
    static const int COUNT = TOGETHER && N > 1 ? 1 : 2, WIDTH = 2 * N / COUNT;
    Pack<X, WIDTH> part[COUNT];

    __device__ __forceinline__ i64 place_of(int p, i64 i, i64 half, i64 step) const {
        return COUNT == 1 ? 2 * i : (TOGETHER ? 2 * i + p : i + p * half) * step;
    }
    __device__ __forceinline__ void read(const X* from, i64 i, i64 half, i64 step) {
#pragma unroll
        for (int p = 0; p < COUNT; ++p)
            part[p] = fetch<WIDTH>(from + place_of(p, i, half, step));
    }
    __device__ __forceinline__ void turn(X* into, i64 i, i64 half, i64 step, const T (&c)[N],
                                         const T (&s)[N]) const {
        T v[COUNT][WIDTH];
#pragma unroll
        for (int p = 0; p < COUNT; ++p) widened(v[p], part[p]);
#pragma unroll
        for (int k = 0; k < N; ++k) {
            T& one = COUNT == 1 ? v[0][2 * k] : v[0][k];
            T& two = COUNT == 1 ? v[0][2 * k + 1] : v[COUNT - 1][k];
            const T a = one, b = two;
            one = a * c[k] - b * s[k];
            two = b * c[k] + a * s[k];
        }
#pragma unroll
        for (int p = 0; p < COUNT; ++p) put_whole(into + place_of(p, i, half, step), v[p]);
    }
};

extern "C" __global__ void __launch_bounds__(THREADS)
NAME(X* __restrict__ y, const X* __restrict__ x, const C* __restrict__ cos,
     const S* __restrict__ sin, const Geometry at) {
    const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    x += spot<PLACES>(blockIdx.x, at.psize, at.x.place);
    y += spot<PLACES>(blockIdx.x, at.psize, at.y.place);
    cos += spot<PLACES>(blockIdx.x, at.psize, at.cos.place);
    sin += spot<PLACES>(blockIdx.x, at.psize, at.sin.place);
    wait_for_earlier();
    const i64 step = (i64)gridDim.y * GROUPS;
    for (i64 i = lane * N; i < at.half; i += LANES * N) {
        T c[N], s[N];
        widened(c, fetch<N>(cos + i * at.cos.last));
        widened(s, fetch<N>(sin + i * at.sin.last));
#pragma unroll
        for (int k = 0; k < N; ++k) s[k] = BACK ? -s[k] : s[k];
        for (i64 r = (i64)blockIdx.y * GROUPS + group; r < at.repeats; r += DEEP * step) {
            Turned pairs[DEEP];
#pragma unroll
            for (int d = 0; d < DEEP; ++d)
                if (r + d * step < at.repeats) {
                    const X* from = x + spot<REPEATS>(r + d * step, at.rsize, at.x.repeat);
                    pairs[d].read(from, i, at.half, at.x.last);
                }
#pragma unroll
            for (int d = 0; d < DEEP; ++d)
                if (r + d * step < at.repeats) {
                    X* into = y + spot<REPEATS>(r + d * step, at.rsize, at.y.repeat);
                    pairs[d].turn(into, i, at.half, at.y.last, c, s);
                }
        }
    }
}
