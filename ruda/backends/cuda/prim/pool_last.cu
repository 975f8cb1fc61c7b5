// Maximum pooling with channels last: x [batches, elements, channels], out and codes [batches,
// windows, channels], all dense, up to three axes of positions. A code is the row-major place in
// the window that won, 255 for none.
//
// OP 0: out and codes from x. OP 1: out [batches, elements, channels], the gradients of windows (x)
// added up where their codes say. OP 2: out [batches, windows, channels], the elements of x that
// codes name, 0 for 255. OP 3: as 1, where windows of the last two axes are two apart and leave no
// gaps: a thread has two by two positions, which share what they read of windows. Else a thread has
// VEC channels of a position; blocks of 256 are g.across packs
// of channels by 256 / g.across positions, grid (positions, channels); blocks stride over positions.
// No shared memory. Fewer than 2^30 positions. Three blocks a multiprocessor: without that bound
// the compiler spills a register or two to save others.
#include "ruda/rows.cuh"
#include "ruda/windows.cuh"

typedef REAL T;
typedef Pack<STORED, VEC> Packed;
typedef Pack<u8, VEC> Codes;
#define NONE 255u
// Packs on their way at once: a row of most windows.
const int AHEAD = 3;

struct Geometry {
    Axis axis[3];
    u32 positions, across, channels;
};

__device__ __forceinline__ u32 divide(u32 i, u32 n) { return n == 1 ? i : i / n; }

// The row of x at (batch, z, y, 0), in elements of the positions.
__device__ __forceinline__ i64 line(const Geometry& g, bool windows, u32 batch, i32 z, i32 y) {
    const Axis* a = g.axis;
    const i64 n0 = windows ? a[0].count : a[0].size, n1 = windows ? a[1].count : a[1].size;
    return ((batch * n0 + z) * n1 + y) * (windows ? a[2].count : a[2].size);
}

#if OP == 0
struct Best { T value[VEC]; u32 place[VEC]; };
__device__ __forceinline__ void take(Best& best, const Packed& read, u32 place) {
#pragma unroll
    for (int k = 0; k < VEC; ++k) {
        const T v = to<T>(read.at[k]), b = best.value[k];
        if (best.place[k] == NONE || (!(v <= b) && b == b)) best.value[k] = v, best.place[k] = place;
    }
}
__device__ __forceinline__ Range places(const Axis& a, i32 i, i32& first) {
    const Range r = window(a, i);
    first = (r.begin - (i * a.step - a.low)) / a.gap;
    return r;
}
__device__ __forceinline__ void pooled(
    STORED* out, u8* codes, const STORED* x, u32 batch, const i32 (&at)[3], const Geometry& g
) {
    i32 first[3];
    Range r[3];
#pragma unroll
    for (int d = 0; d < 3; ++d) r[d] = places(g.axis[d], at[d], first[d]);
    Best best;
#pragma unroll
    for (int k = 0; k < VEC; ++k) best.value[k] = lowest<T>(), best.place[k] = NONE;
    const i32 gap = g.axis[2].gap;
    i32 kz = first[0];
    for (i32 z = r[0].begin; z < r[0].end; z += g.axis[0].gap, ++kz) {
        i32 ky = first[1];
        for (i32 y = r[1].begin; y < r[1].end; y += g.axis[1].gap, ++ky) {
            const STORED* from = x + line(g, false, batch, z, y) * g.channels;
            i32 place = (kz * g.axis[1].kernel + ky) * g.axis[2].kernel + first[2];
            for (i32 i = r[2].begin; i < r[2].end; i += AHEAD * gap, place += AHEAD) {
                Packed read[AHEAD];
#pragma unroll
                for (int j = 0; j < AHEAD; ++j)
                    if (i + j * gap < r[2].end)
                        read[j] = fetch<VEC>(from + (i64)(i + j * gap) * g.channels);
#pragma unroll
                for (int j = 0; j < AHEAD; ++j)
                    if (i + j * gap < r[2].end) take(best, read[j], place + j);
            }
        }
    }
    put(out, best.value);
    Codes found;
#pragma unroll
    for (int k = 0; k < VEC; ++k) found.at[k] = (u8)best.place[k];
    *reinterpret_cast<Codes*>(codes) = found;
}
#elif OP == 1
// By which place of its axis window w reads element i; -1 if it steps over it.
__device__ __forceinline__ i32 place_of(const Axis& a, i32 i, i32 w) {
    const i32 apart = i + a.low - w * a.step;
    if (a.gap == 1) return apart;
    const i32 place = apart / a.gap;
    return place * a.gap == apart ? place : -1;
}
__device__ __forceinline__ void given(
    STORED* out, const u8* codes, const STORED* dy, u32 batch, const i32 (&at)[3],
    const Geometry& g
) {
    Range r[3];
#pragma unroll
    for (int d = 0; d < 3; ++d) r[d] = covering(g.axis[d], at[d]);
    T sum[VEC] = {};
    for (i32 z = r[0].begin; z < r[0].end; ++z) {
        const i32 kz = place_of(g.axis[0], at[0], z);
        for (i32 y = r[1].begin; y < r[1].end; ++y) {
            const i32 ky = place_of(g.axis[1], at[1], y);
            const i64 from = line(g, true, batch, z, y);
            for (i32 i = r[2].begin; i < r[2].end; ++i) {
                const i32 ki = place_of(g.axis[2], at[2], i);
                if ((kz | ky | ki) < 0) continue;
                const u32 place = (kz * g.axis[1].kernel + ky) * g.axis[2].kernel + ki;
                const Codes won = *reinterpret_cast<const Codes*>(codes + (from + i) * g.channels);
                const Packed read = fetch<VEC>(dy + (from + i) * g.channels);
#pragma unroll
                for (int k = 0; k < VEC; ++k)
                    if (won.at[k] == place) sum[k] += to<T>(read.at[k]);
            }
        }
    }
    put(out, sum);
}
#elif OP == 3
// The windows that can cover one of the elements i and i + 1.
__device__ __forceinline__ Range covering_both(const Axis& a, i32 i) {
    const i32 next = i + 1 < a.size ? i + 1 : i;
    return {covering(a, i).begin, covering(a, next).end};
}
__device__ __forceinline__ void given_four(
    STORED* out, const u8* codes, const STORED* dy, u32 batch, const i32 (&at)[3],
    const Geometry& g
) {
    const Axis *a1 = &g.axis[1], *a2 = &g.axis[2];
    const i32 y0 = 2 * at[1], x0 = 2 * at[2];
    const Range r0 = covering(g.axis[0], at[0]);
    const Range r1 = covering_both(*a1, y0), r2 = covering_both(*a2, x0);
    T sum[4][VEC] = {};
    for (i32 z = r0.begin; z < r0.end; ++z) {
        const i32 kz = at[0] + g.axis[0].low - z * g.axis[0].step;
        for (i32 y = r1.begin; y < r1.end; ++y) {
            const i64 from = line(g, true, batch, z, y);
            for (i32 i = r2.begin; i < r2.end; ++i) {
                const Codes won = *reinterpret_cast<const Codes*>(codes + (from + i) * g.channels);
                const Packed read = fetch<VEC>(dy + (from + i) * g.channels);
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const i32 ky = y0 + e / 2 + a1->low - 2 * y, kx = x0 + e % 2 + a2->low - 2 * i;
                    const bool inside = ky >= 0 && ky < a1->kernel && kx >= 0 && kx < a2->kernel;
                    const u32 place = inside ? (kz * a1->kernel + ky) * a2->kernel + kx : 256;
#pragma unroll
                    for (int k = 0; k < VEC; ++k)
                        if (won.at[k] == place) sum[e][k] += to<T>(read.at[k]);
                }
            }
        }
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
        const i32 y = y0 + e / 2, x = x0 + e % 2;
        if (y >= a1->size || x >= a2->size) continue;
        put(out + (line(g, false, batch, at[0], y) + x) * g.channels, sum[e]);
    }
}
#else
__device__ __forceinline__ void picked(
    STORED* out, const u8* codes, const STORED* x, u32 batch, const i32 (&at)[3], const Geometry& g
) {
#pragma unroll
    for (int k = 0; k < VEC; ++k) {
        const i32 code = codes[k], n2 = g.axis[2].kernel, n1 = g.axis[1].kernel;
        const i32 place[3] = {code / n2 / n1, code / n2 % n1, code % n2};
        i32 where[3];
        bool inside = code != 255;
#pragma unroll
        for (int d = 0; d < 3; ++d) {
            const Axis& a = g.axis[d];
            where[d] = at[d] * a.step - a.low + place[d] * a.gap;
            inside = inside && where[d] >= 0 && where[d] < a.size;
        }
        const i64 from = line(g, false, batch, where[0], where[1]) + where[2];
        out[k] = inside ? x[from * g.channels + k] : to<STORED>(T(0));
    }
}
#endif

extern "C" __global__ void __launch_bounds__(256, 3)
NAME(STORED* __restrict__ out, u8* __restrict__ codes, const STORED* __restrict__ x,
     const Geometry g) {
    const bool windows = OP == 0 || OP == 2;
    const u32 down = 256 / g.across;
    const u32 channel = (blockIdx.y * g.across + threadIdx.x % g.across) * VEC;
    if (channel >= g.channels) return;
    u32 n[3];
#pragma unroll
    for (int d = 0; d < 3; ++d) n[d] = windows ? g.axis[d].count : g.axis[d].size;
#if OP == 3
    n[1] = (n[1] + 1) / 2;
    n[2] = (n[2] + 1) / 2;
#endif
    const u32 step = gridDim.x * down;
    for (u32 p = blockIdx.x * down + threadIdx.x / g.across; p < g.positions; p += step) {
        const u32 rows = divide(p, n[2]), planes = divide(rows, n[1]), batch = divide(planes, n[0]);
        const i32 at[3] = {
            (i32)(planes - batch * n[0]), (i32)(rows - planes * n[1]), (i32)(p - rows * n[2])
        };
        const i64 here = (i64)p * g.channels + channel;
#if OP == 0
        pooled(out + here, codes + here, x + channel, batch, at, g);
#elif OP == 3
        given_four(out + channel, codes + channel, x + channel, batch, at, g);
#elif OP == 1
        given(out + here, codes + channel, x + channel, batch, at, g);
#else
        picked(out + here, codes + here, x + channel, batch, at, g);
#endif
    }
}
