#include "ruda/math.cuh"
// Sums (or products, extremes) of the rows of `value` that have equal keys, in their order.
//
// keys, order [n] are sorted; value row order[i] starts at order[i] * at.row and has `columns`
// packs of VEC elements. PHASE 0: a chunk of entries and 256 / `lanes` chunks a block; threads hold
// a pack of columns and walk the chunk. A segment inside of its chunk is final; of one that goes
// on, each chunk leaves a part: parts [chunks, 2, columns * VEC] in C, the second of them for where
// it starts. PHASE 1: a block for each chunk and 256 / `lanes`-th of the columns; where a segment
// starts that goes on, adds the parts of its chunks up, in an order that the geometry alone decides.
// NAME; T, C, V: in out, in arithmetic, in value (BYVALUE: one C); COMBINE(a, b); BASE: 1 combines
// with base [like out]; RANK, AXES: how columns and keys are taken apart; I, U as for offsets.
// Grid: x over chunks, y over columns; 256 threads. Shared memory: a C for each thread in PHASE 1.

#define UNROLL 4
struct Geometry {
    I n, chunk, columns, row, limit, size[RANK], value[RANK], out[RANK], count[AXES], step[AXES];
    u32 lanes;
};
struct alignas(sizeof(V) * VEC) Given { V at[VEC]; };
struct alignas(sizeof(T) * VEC) Taken { T at[VEC]; };

#if BYVALUE
#define VALUE const C value
#else
#define VALUE const V* __restrict__ value
#endif

__device__ __forceinline__ I out_of(u32 key, const Geometry& at) {
    U rest = key;
    I place = 0;
#pragma unroll
    for (int d = AXES - 1; d > 0; --d) {
        const U whole = rest / (U)at.count[d];
        place += (I)(rest - whole * (U)at.count[d]) * at.step[d];
        rest = whole;
    }
    return place + (I)rest * at.step[0];
}
__device__ __forceinline__ void column_of(I column, const Geometry& at, I* value, I* out) {
    U rest = (U)column;
    *value = *out = 0;
#pragma unroll
    for (int d = RANK - 1; d >= 0; --d) {
        const U whole = d ? rest / (U)at.size[d] : 0;
        const I k = (I)(d ? rest - whole * (U)at.size[d] : rest);
        *value += k * at.value[d];
        *out += k * at.out[d];
        rest = whole;
    }
}

struct alignas(sizeof(C) * VEC < 16 ? sizeof(C) * VEC : 16) Sum { C at[VEC]; };

__device__ __forceinline__ void finish(T* out, const T* base, u32 key, I column, const Sum& sum,
                                       const Geometry& at) {
    if ((I)key >= at.limit) return;
    const I place = out_of(key, at) + column;
    Taken result;
#if BASE
    const Taken old = *reinterpret_cast<const Taken*>(base + place);
#endif
#pragma unroll
    for (int v = 0; v < VEC; ++v) {
#if BASE
        result.at[v] = to<T>(C(COMBINE(to<C>(old.at[v]), sum.at[v])));
#else
        result.at[v] = to<T>(sum.at[v]);
#endif
    }
    *reinterpret_cast<Taken*>(out + place) = result;
}

#if PHASE == 0
__device__ __forceinline__ void leave(C* parts, I part, I column, const Sum& sum, const Geometry& at) {
    reinterpret_cast<Sum*>(parts)[(i64)part * at.columns + column] = sum;
}

// With four blocks asked for the compiler has registers enough not to spill any.
extern "C" __global__ void __launch_bounds__(256, 4)
NAME(T* out, const T* base, C* __restrict__ parts, VALUE, const u32* __restrict__ keys,
     const u32* __restrict__ order, const Geometry at) {
    const I column = (I)(blockIdx.y * at.lanes + threadIdx.x % at.lanes);
    const I chunk = (I)blockIdx.x * (256 / at.lanes) + threadIdx.x / at.lanes;
    const I start = chunk * at.chunk;
    if (column >= at.columns || start >= at.n) return;
    const I stop = min(start + at.chunk, at.n);
    I from, into;
    column_of(column, at, &from, &into);
    u32 key = keys[start];
    bool began = start > 0 && keys[start - 1] == key, any = false;
    Sum sum;
    for (I i = start; i < stop; i += UNROLL) {
        u32 next[UNROLL];
        Given row[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const I k = min(i + u, stop - 1);
            next[u] = keys[k];
#if BYVALUE
            for (int v = 0; v < VEC; ++v) row[u].at[v] = value;
#else
            row[u] = *reinterpret_cast<const Given*>(value + from + (I)order[k] * at.row);
#endif
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            if (i + u >= stop) break;
            if (next[u] != key) {
                if (began) leave(parts, 2 * chunk, column, sum, at);
                else finish(out, base, key, into, sum, at);
                key = next[u];
                began = any = false;
            }
#pragma unroll
            for (int v = 0; v < VEC; ++v) {
                const C one = to<C>(row[u].at[v]);
                sum.at[v] = any ? C(COMBINE(sum.at[v], one)) : one;
            }
            any = true;
        }
    }
    const bool goes_on = stop < at.n && keys[stop] == key;
    if (began) leave(parts, 2 * chunk, column, sum, at);
    else if (goes_on) leave(parts, 2 * chunk + 1, column, sum, at);
    else finish(out, base, key, into, sum, at);
}
#else
__device__ __forceinline__ Sum both(const Sum& a, const Sum& b) {
    Sum sum;
#pragma unroll
    for (int v = 0; v < VEC; ++v) sum.at[v] = C(COMBINE(a.at[v], b.at[v]));
    return sum;
}

extern "C" __global__ void __launch_bounds__(256)
NAME(T* out, const T* base, const C* __restrict__ parts, const u32* __restrict__ keys,
     const Geometry at) {
    __shared__ Sum sums[256];
    const I chunk = (I)blockIdx.x, start = chunk * at.chunk, stop = start + at.chunk;
    if (stop >= at.n) return;
    const u32 key = keys[stop - 1];
    if (keys[stop] != key || (start > 0 && keys[start - 1] == key && keys[start] == key)) return;
    I low = stop, high = at.n;
    while (low < high) {
        const I middle = low + (high - low) / 2;
        if (keys[middle] > key) high = middle;
        else low = middle + 1;
    }
    const I last = (low - 1) / at.chunk;
    const u32 lane = threadIdx.x % at.lanes, rows = 256 / at.lanes;
    const I column = (I)(blockIdx.y * at.lanes + lane), first = chunk + threadIdx.x / at.lanes;
    const bool has = column < at.columns && first <= last;
    const Sum* own = reinterpret_cast<const Sum*>(parts) + column;
    Sum sum = {};
    if (has) {
        sum = own[(i64)(2 * first + (first == chunk)) * at.columns];
#pragma unroll 4
        for (I c = first + rows; c <= last; c += rows)
            sum = both(sum, own[(i64)(2 * c) * at.columns]);
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (!has || first != chunk) return;
    for (u32 r = 1; r < rows && first + r <= last; ++r)
        sum = both(sum, sums[r * at.lanes + lane]);
    I from, into;
    column_of(column, at, &from, &into);
    finish(out, base, key, into, sum, at);
}
#endif
