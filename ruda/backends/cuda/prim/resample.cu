// One axis resampled: out [outer, count, inner], row-major, element i of the axis a weighted sum
// of a few elements of x. The transpose has a table of the same form, so it gathers as well.
//
// x: outer and inner through two strides each; indices i32 and weights [terms, count]. 256 threads
// (blockDim.x positions (i, inner), blockDim.y outer): a thread keeps its position, and what the
// table says of it in registers for up to 4 terms (TERMS; 0: any number), and goes through outer.
// COUNT neighbours of inner a thread: 16 bytes where both sides allow it. No shared memory.
#include "ruda/math.cuh"

struct Geometry {
    i64 step, outer[2], inner[2];
    u32 outers, lower_outers, count, inners, lower_inners, terms;
};
struct alignas(sizeof(STORED) * COUNT) Pack { STORED at[COUNT]; };
typedef REAL T;

__device__ __forceinline__ void gathered(const STORED* x, i64 at, WEIGHT w, bool first,
                                         T (&sum)[COUNT]) {
    const Pack p = *reinterpret_cast<const Pack*>(x + at);
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
        const T v = w * to<T>(p.at[k]);
        sum[k] = first ? v : sum[k] + v;
    }
}

extern "C" __global__ void __launch_bounds__(256, 3)
NAME(STORED* __restrict__ out, const STORED* __restrict__ x, const i32* __restrict__ indices,
     const WEIGHT* __restrict__ weights, const Geometry g) {
    const u32 across = g.inners / COUNT, position = blockIdx.x * blockDim.x + threadIdx.x;
    if (position >= g.count * across) return;
    const u32 i = position / across, j = (position - i * across) * COUNT;
    const i64 place = j / g.lower_inners * g.inner[0] + j % g.lower_inners * g.inner[1];
    const u32 kept = TERMS ? TERMS : 1;
    i64 from[kept];
    WEIGHT share[kept];
#pragma unroll
    for (int t = 0; t < TERMS; ++t) {
        from[t] = place + indices[t * g.count + i] * g.step;
        share[t] = weights[t * g.count + i];
    }
    const u32 stride = gridDim.y * blockDim.y;
#pragma unroll 4
    for (u32 o = blockIdx.y * blockDim.y + threadIdx.y; o < g.outers; o += stride) {
        const u32 high = o / g.lower_outers;
        const STORED* line = x + high * g.outer[0] + (i64)(o - high * g.lower_outers) * g.outer[1];
        T sum[COUNT];
#if TERMS
#pragma unroll
        for (int t = 0; t < TERMS; ++t) gathered(line, from[t], share[t], t == 0, sum);
#else
        for (u32 t = 0; t < g.terms; ++t)
            gathered(line, place + indices[t * g.count + i] * g.step, weights[t * g.count + i],
                     t == 0, sum);
#endif
        Pack result;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) result.at[k] = to<STORED>(sum[k]);
        *reinterpret_cast<Pack*>(out + ((i64)o * g.count + i) * g.inners + j) = result;
    }
}
