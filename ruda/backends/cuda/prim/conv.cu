// Convolution in up to three dimensions: x [n, groups * c, *in], w [groups * o, c, *kernel],
// y [n, groups * o, *out], any strides. MODE says which of the three is written: 0 y, 1 dx, 2 dw.
// S is the type in memory, T the one that sums are kept in.
//
// direct: one thread an element of the result, 256 a block, no shared memory.
// tiled: the same sums as a product of matrices whose entries are read where they lie: blocks of
// 64 x 64 results, 256 threads with 4 x 4 results each, inner steps of 16 through 8 KiB of shared
// memory (float). gridDim = (rows / 64, columns / 64, groups).
#include "ruda/math.cuh"

struct Geometry {
    i64 n, groups, c, o, in[3], out[3], kernel[3], stride[3], low[3], dilation[3];
    i64 xs[5], ws[5], ys[5];
    i64 rows, columns, inner, total;
};
struct Place { i64 at[3]; bool inside; };

__device__ __forceinline__ Place unwind(i64 i, const i64* size) {
    Place p;
    p.at[2] = i % size[2];
    i /= size[2];
    p.at[1] = i % size[1];
    p.at[0] = i / size[1];
    p.inside = true;
    return p;
}
__device__ __forceinline__ i64 offset(const Place& p, const i64* strides) {
    return p.at[0] * strides[2] + p.at[1] * strides[3] + p.at[2] * strides[4];
}
// Which element of the input tap t of window p reads.
__device__ __forceinline__ Place read_by(const Place& p, const Place& t, const Geometry& g) {
    Place q;
    q.inside = true;
#pragma unroll
    for (int d = 0; d < 3; ++d) {
        q.at[d] = p.at[d] * g.stride[d] + t.at[d] * g.dilation[d] - g.low[d];
        q.inside = q.inside && q.at[d] >= 0 && q.at[d] < g.in[d];
    }
    return q;
}
// Which window reads element q of the input by tap t.
__device__ __forceinline__ Place reader_of(const Place& q, const Place& t, const Geometry& g) {
    Place p;
    p.inside = true;
#pragma unroll
    for (int d = 0; d < 3; ++d) {
        const i64 far = q.at[d] + g.low[d] - t.at[d] * g.dilation[d];
        p.at[d] = far / g.stride[d];
        p.inside = p.inside && far >= 0 && p.at[d] * g.stride[d] == far && p.at[d] < g.out[d];
    }
    return p;
}
__device__ __forceinline__ i64 count(const i64* size) { return size[0] * size[1] * size[2]; }

// The left matrix at (row i, inner k) and the right one at (inner k, column j) of a group. a is x,
// dy, dy and b is w, w, x in modes 0, 1, 2.
__device__ __forceinline__ T left(const S* a, i64 group, i64 i, i64 k, const Geometry& g) {
#if MODE == 0
    const i64 windows = count(g.out), taps = count(g.kernel), n = i / windows, c = k / taps;
    const Place q = read_by(unwind(i % windows, g.out), unwind(k % taps, g.kernel), g);
    if (!q.inside) return to<T>(0);
    return to<T>(a[n * g.xs[0] + (group * g.c + c) * g.xs[1] + offset(q, g.xs)]);
#elif MODE == 1
    const i64 pixels = count(g.in), taps = count(g.kernel), n = i / pixels, o = k / taps;
    const Place p = reader_of(unwind(i % pixels, g.in), unwind(k % taps, g.kernel), g);
    if (!p.inside) return to<T>(0);
    return to<T>(a[n * g.ys[0] + (group * g.o + o) * g.ys[1] + offset(p, g.ys)]);
#else
    const i64 windows = count(g.out), n = k / windows;
    return to<T>(a[n * g.ys[0] + (group * g.o + i) * g.ys[1] + offset(unwind(k % windows, g.out), g.ys)]);
#endif
}
__device__ __forceinline__ T right(const S* b, i64 group, i64 k, i64 j, const Geometry& g) {
#if MODE == 2
    const i64 windows = count(g.out), taps = count(g.kernel), n = k / windows, c = j / taps;
    const Place q = read_by(unwind(k % windows, g.out), unwind(j % taps, g.kernel), g);
    if (!q.inside) return to<T>(0);
    return to<T>(b[n * g.xs[0] + (group * g.c + c) * g.xs[1] + offset(q, g.xs)]);
#else
    const i64 taps = count(g.kernel);
    const i64 o = MODE == 0 ? j : k / taps, c = MODE == 0 ? k / taps : j;
    return to<T>(b[(group * g.o + o) * g.ws[0] + c * g.ws[1] + offset(unwind(k % taps, g.kernel), g.ws)]);
#endif
}
__device__ __forceinline__ i64 target(i64 group, i64 i, i64 j, const Geometry& g) {
#if MODE == 0
    const i64 windows = count(g.out);
    return i / windows * g.ys[0] + (group * g.o + j) * g.ys[1] + offset(unwind(i % windows, g.out), g.ys);
#elif MODE == 1
    const i64 pixels = count(g.in);
    return i / pixels * g.xs[0] + (group * g.c + j) * g.xs[1] + offset(unwind(i % pixels, g.in), g.xs);
#else
    const i64 taps = count(g.kernel);
    return (group * g.o + i) * g.ws[0] + j / taps * g.ws[1] + offset(unwind(j % taps, g.kernel), g.ws);
#endif
}

#ifdef DIRECT
extern "C" __global__ void __launch_bounds__(256)
NAME(S* __restrict__ out, const S* __restrict__ a, const S* __restrict__ b, const Geometry g) {
    const i64 step = (i64)gridDim.x * 256;
    for (i64 e = (i64)blockIdx.x * 256 + threadIdx.x; e < g.total; e += step) {
        const i64 j = e % g.columns, rest = e / g.columns, i = rest % g.rows, group = rest / g.rows;
        T sum = to<T>(0);
        for (i64 k = 0; k < g.inner; ++k) sum = sum + left(a, group, i, k, g) * right(b, group, k, j, g);
        out[target(group, i, j, g)] = to<S>(sum);
    }
}
#else
extern "C" __global__ void __launch_bounds__(256)
NAME(S* __restrict__ out, const S* __restrict__ a, const S* __restrict__ b, const Geometry g) {
    __shared__ T rows[16][65], columns[16][65];
    const i64 first = (i64)blockIdx.x * 64, side = (i64)blockIdx.y * 64, group = blockIdx.z;
    const int y = threadIdx.x / 16, x = threadIdx.x % 16;
    T sums[4][4];
#pragma unroll
    for (int u = 0; u < 16; ++u) sums[u / 4][u % 4] = to<T>(0);
    for (i64 start = 0; start < g.inner; start += 16) {
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            const int e = threadIdx.x + 256 * u;
            // Neighbouring threads take what lies side by side: taps of w, windows of x and dy.
            const int ia = e % 64, ka = e / 64, jb = e / 16, kb = e % 16;
            const i64 i = first + ia, j = side + jb;
            rows[ka][ia] = i < g.rows && start + ka < g.inner ? left(a, group, i, start + ka, g) : to<T>(0);
            columns[kb][jb] =
                j < g.columns && start + kb < g.inner ? right(b, group, start + kb, j, g) : to<T>(0);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 16; ++k)
#pragma unroll
            for (int u = 0; u < 4; ++u)
#pragma unroll
                for (int v = 0; v < 4; ++v)
                    sums[u][v] = sums[u][v] + rows[k][y * 4 + u] * columns[k][x * 4 + v];
        __syncthreads();
    }
    for (int u = 0; u < 4; ++u)
        for (int v = 0; v < 4; ++v) {
            const i64 i = first + y * 4 + u, j = side + x * 4 + v;
            if (i < g.rows && j < g.columns) out[target(group, i, j, g)] = to<S>(sums[u][v]);
        }
}
#endif
