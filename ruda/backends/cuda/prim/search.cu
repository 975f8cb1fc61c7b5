// Searching sorted lines, and counting integers.
//
// MODE 1  a thread to a value: where it goes in its line of n elements (1 line, or one for each m
//         values); T is the type both are compared in.
// MODE 2  counts of integers below `length`, in the shared memory of each block first (4 `length`
//         bytes), then by atomics on integers. MODE 3: by those alone, of 1 or of integer weights.
// MODE 4  sums of float weights: block (bin, part) adds a part of the elements of its bin, which a
//         stable sort has put side by side, in fixed order. MODE 5: the parts of a bin.
#include "ruda/faults.cuh"
#include "ruda/keys.cuh"
#include "ruda/together.cuh"

#define THREADS 256

#if MODE == 1
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(i64* __restrict__ out, const X* __restrict__ lines, const Y* __restrict__ values,
     const i64 count, const i64 n, const i64 m) {
    for (i64 i = (i64)blockIdx.x * THREADS + threadIdx.x; i < count;
         i += (i64)gridDim.x * THREADS) {
        const X* line = lines + i / m * n;
        const Key<T>::U wanted = Key<T>::of(to<T>(values[i]), true);
        i64 low = 0, high = n;
        while (low < high) {
            const i64 middle = low + (high - low) / 2;
            const Key<T>::U here = Key<T>::of(to<T>(line[middle]), true);
            if (RIGHT ? here <= wanted : here < wanted) low = middle + 1;
            else high = middle;
        }
        out[i] = low;
    }
}
#endif

#if MODE == 2 || MODE == 3
__device__ __forceinline__ bool has_bin(const Faults& faults, X value, i64 length, i64 i) {
    const bool fits = !(value < X(0)) && (u64)value < (u64)length;
    if (!fits) report(faults, (i64)value, i, 0);
    return fits;
}
#endif

#if MODE == 2
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(u64* __restrict__ out, const X* __restrict__ x, const Faults faults, const i64 n,
     const i64 length) {
    DYNAMIC_SHARED(u32, own);
    for (int b = threadIdx.x; b < length; b += THREADS) own[b] = 0;
    __syncthreads();
    for (i64 i = (i64)blockIdx.x * THREADS + threadIdx.x; i < n; i += (i64)gridDim.x * THREADS) {
        const X value = x[i];
        if (has_bin(faults, value, length, i)) atomicAdd(own + value, 1u);
    }
    __syncthreads();
    for (int b = threadIdx.x; b < length; b += THREADS)
        if (own[b]) atomicAdd(out + b, (u64)own[b]);
}
#endif

#if MODE == 3
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(u64* __restrict__ out, const X* __restrict__ x, const Faults faults,
     const Y* __restrict__ weights, const i64 n, const i64 length) {
    for (i64 i = (i64)blockIdx.x * THREADS + threadIdx.x; i < n; i += (i64)gridDim.x * THREADS) {
        const X value = x[i];
        if (has_bin(faults, value, length, i))
            atomicAdd(out + value, weights ? (u64)(i64)weights[i] : 1ull);
    }
}
#endif

#if MODE == 4
__device__ __forceinline__ i64 first_from(const X* x, i64 n, i64 bin) {
    i64 low = 0, high = n;
    while (low < high) {
        const i64 middle = low + (high - low) / 2;
        if (x[middle] < X(0) || (u64)x[middle] < (u64)bin) low = middle + 1;
        else high = middle;
    }
    return low;
}

// x sorted, order where each was, parts [length, gridDim.y].
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(double* __restrict__ parts, const X* __restrict__ x, const Faults faults,
     const i64* __restrict__ order, const Y* __restrict__ weights, const i64 n, const i64 length) {
    __shared__ double sums[THREADS];
    __shared__ i64 ends[2];
    const i64 bin = blockIdx.x;
    if (threadIdx.x < 2) ends[threadIdx.x] = first_from(x, n, bin + threadIdx.x);
    if (bin == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
        if (x[0] < X(0)) report(faults, (i64)x[0], order[0], 0);
        else if ((u64)x[n - 1] >= (u64)length) report(faults, (i64)x[n - 1], order[n - 1], 0);
    }
    __syncthreads();
    const i64 each = (ends[1] - ends[0] + gridDim.y - 1) / gridDim.y;
    const i64 from = ends[0] + blockIdx.y * each;
    const i64 end = from + each < ends[1] ? from + each : ends[1];
    double sum = 0;
    for (i64 i = from + threadIdx.x; i < end; i += THREADS) sum += to<double>(weights[order[i]]);
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int far = THREADS / 2; far > 0; far >>= 1) {
        if (threadIdx.x < far) sums[threadIdx.x] += sums[threadIdx.x + far];
        __syncthreads();
    }
    if (threadIdx.x == 0) parts[bin * gridDim.y + blockIdx.y] = sums[0];
}
#endif

#if MODE == 5
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(Y* __restrict__ out, const double* __restrict__ parts, const i64 length, const i64 count) {
    const i64 bin = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (bin >= length) return;
    double sum = 0;
    for (i64 p = 0; p < count; ++p) sum += parts[bin * count + p];
    out[bin] = to<Y>(sum);
}
#endif
