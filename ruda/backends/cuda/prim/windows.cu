// Windows laid out as columns and added up again: every element of the output gathers.
//
// OP 0 im2col: out [planes, K, L] from x, planes addressed by two strides and positions by three;
// K kernel places, L windows. OP 1 col2im: out [planes, elements] from x [planes, K, L], row-
// major; sums in row-major order of the windows. Both: 256 threads (blockDim.x positions,
// blockDim.y rows); a thread keeps its position. OP 2 fold: out [outer, size, inner] from x
// [outer, count, inner, kernel], row-major, along the one axis 2; 256 threads, grid-stride. No
// shared memory.
#include "ruda/math.cuh"
#include "ruda/windows.cuh"

struct Geometry {
    Axis axis[3];
    i64 stride[3], batch, channel;
    u32 batches, channels;
};
typedef REAL T;

__device__ __forceinline__ void split(i32 i, i32 n1, i32 n2, i32 (&at)[3]) {
    at[2] = i % n2;
    at[1] = i / n2 % n1;
    at[0] = i / n2 / n1;
}

#if OP == 0
extern "C" __global__ void __launch_bounds__(256, 3)
NAME(STORED* __restrict__ out, const STORED* __restrict__ x, const Geometry g) {
    const i32 length = g.axis[0].count * g.axis[1].count * g.axis[2].count;
    const i32 places = g.axis[0].kernel * g.axis[1].kernel * g.axis[2].kernel;
    const i32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= length) return;
    i32 at[3], k[3];
    split(i, g.axis[1].count, g.axis[2].count, at);
    const u64 rows = (u64)g.batches * g.channels * places, step = gridDim.y * blockDim.y;
    for (u64 r = blockIdx.y * blockDim.y + threadIdx.y; r < rows; r += step) {
        const u32 plane = (u32)(r / places), batch = plane / g.channels;
        split((i32)(r - (u64)plane * places), g.axis[1].kernel, g.axis[2].kernel, k);
        i64 place = batch * g.batch + (i64)(plane - batch * g.channels) * g.channel;
        bool inside = true;
#pragma unroll
        for (int d = 0; d < 3; ++d) {
            const i32 p = at[d] * g.axis[d].step - g.axis[d].low + k[d] * g.axis[d].gap;
            inside = inside && p >= 0 && p < g.axis[d].size;
            place += p * g.stride[d];
        }
        out[r * length + i] = inside ? x[place] : to<STORED>(to<T>(0));
    }
}
#elif OP == 1
// The place of the kernel by which window i reads element x of an axis; negative if there is none.
__device__ __forceinline__ i32 place_in(const Axis& a, i32 i, i32 x) {
    const i32 far = x + a.low - i * a.step;
    return far % a.gap ? -1 : far / a.gap;
}

extern "C" __global__ void __launch_bounds__(256, 3)
NAME(STORED* __restrict__ out, const STORED* __restrict__ x, const Geometry g) {
    const i32 length = g.axis[0].count * g.axis[1].count * g.axis[2].count;
    const i32 places = g.axis[0].kernel * g.axis[1].kernel * g.axis[2].kernel;
    const i32 size = g.axis[0].size * g.axis[1].size * g.axis[2].size;
    const i32 e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= size) return;
    i32 at[3];
    split(e, g.axis[1].size, g.axis[2].size, at);
    Range r[3];
#pragma unroll
    for (int d = 0; d < 3; ++d) r[d] = covering(g.axis[d], at[d]);
    const u32 planes = g.batches * g.channels, step = gridDim.y * blockDim.y;
    for (u32 q = blockIdx.y * blockDim.y + threadIdx.y; q < planes; q += step) {
        const STORED* columns = x + (i64)q * places * length;
        T sum = to<T>(0);
#pragma unroll 1
        for (i32 z = r[0].begin; z < r[0].end; ++z)
#pragma unroll 1
            for (i32 y = r[1].begin; y < r[1].end; ++y) {
                const i32 kz = place_in(g.axis[0], z, at[0]), ky = place_in(g.axis[1], y, at[1]);
                if (kz < 0 || ky < 0) continue;
                const i64 row = (i64)(kz * g.axis[1].kernel + ky) * g.axis[2].kernel;
                const i32 line = (z * g.axis[1].count + y) * g.axis[2].count;
#pragma unroll 1
                for (i32 k = r[2].begin; k < r[2].end; ++k) {
                    const i32 kx = place_in(g.axis[2], k, at[2]);
                    if (kx >= 0) sum = sum + to<T>(columns[(row + kx) * length + line + k]);
                }
            }
        out[(i64)q * size + e] = to<STORED>(sum);
    }
}
#else
extern "C" __global__ void __launch_bounds__(256, 3)
NAME(STORED* __restrict__ out, const STORED* __restrict__ x, const Geometry g) {
    const Axis a = g.axis[2];
    const u64 inner = g.channels, n = (u64)g.batches * a.size * inner, step = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += step) {
        const u64 line = i / inner, outer = line / a.size;
        const i32 p = (i32)(line - outer * a.size);
        const Range r = covering(a, p);
        const STORED* from = x + (outer * a.count * inner + (i - line * inner)) * a.kernel;
        T sum = to<T>(0);
        for (i32 w = r.begin; w < r.end; ++w)
            sum = sum + to<T>(from[w * inner * a.kernel + (p - w * a.step)]);
        out[i] = to<STORED>(sum);
    }
}
#endif
