// Categories by weight, with replacement. STAGE 0: cumulative weights of each row; STAGE 1: a
// search for each sample. Weights are counted in whole units of 2^-shift of the greatest one of
// their row, so sums are exact, whatever the order, and a category of weight 0 never comes out.
//
// weights [rows, K] of type DATA, row-major; sums [rows, K] u64; out [rows, samples] i64. STAGE 0:
// a block of 256 threads for each row, 4 KiB of static shared memory. STAGE 1: a thread for each
// sample. A row of NaN, of weights outside of their domain or of nothing but zeros gives -1, and is
// a fault: 0 for a weight, 1 for the row. STAGE 2: a thread for each row of the greatest scores of
// type DATA; a fault where one of them is no score.
#include "ruda/faults.cuh"
#include "ruda/limits.cuh"
#include "ruda/math.cuh"
#include "ruda/philox.cuh"

static const int THREADS = 256, EACH = 4;

#if STAGE == 0
// The greatest weight of the row; NaN where one is not allowed.
__device__ __forceinline__ double worse(double a, double b) { return (a > b || a != a) ? a : b; }

__device__ __forceinline__ double peak_of(const DATA* row, u32 count, bool logits, double* lanes,
                                          const Faults& faults, u64 first) {
    double peak = lowest<double>();
    for (u32 i = threadIdx.x; i < count; i += THREADS) {
        double w = to<double>(row[i]);
        if (w != w || w == highest<double>() || (!logits && w < 0.0)) {
            tell(faults, __double_as_longlong(w), (i64)(first + i), 0);
            w = quiet_nan<double>();
        }
        peak = worse(peak, w);
    }
    lanes[threadIdx.x] = peak;
    __syncthreads();
    for (int far = THREADS / 2; far > 0; far >>= 1) {
        if (threadIdx.x < far)
            lanes[threadIdx.x] = worse(lanes[threadIdx.x], lanes[threadIdx.x + far]);
        __syncthreads();
    }
    peak = lanes[0];
    __syncthreads();
    return peak;
}

// The sum of the values of lower threads; *total is that of all.
__device__ __forceinline__ u64 sums_below(u64 own, u64* warps, u64* total) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    u64 sum = own;
#pragma unroll
    for (int far = 1; far < 32; far <<= 1) {
        const u64 other = __shfl_up_sync(~0u, sum, far);
        if (lane >= far) sum += other;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    u64 before = 0, all = 0;
#pragma unroll
    for (int w = 0; w < THREADS / 32; ++w) {
        if (w < warp) before += warps[w];
        all += warps[w];
    }
    __syncthreads();
    *total = all;
    return before + sum - own;
}

extern "C" __global__ void __launch_bounds__(THREADS)
NAME(u64* __restrict__ sums, const DATA* __restrict__ weights, u64 rows, u32 count, u32 logits,
     double units, const Faults faults) {
    __shared__ double lanes[THREADS];
    __shared__ u64 warps[THREADS / 32];
    for (u64 r = blockIdx.x; r < rows; r += gridDim.x) {
        const DATA* row = weights + r * count;
        u64* out = sums + r * count;
        const double peak = peak_of(row, count, logits, lanes, faults, r * count);
        const bool valid = logits ? peak > lowest<double>() : peak > 0.0;
        if (!valid && peak == peak && threadIdx.x == 0) tell(faults, 0, (i64)(r * count), 1);
        u64 carry = 0;
        for (u32 tile = 0; tile < count; tile += THREADS * EACH) {
            const u32 first = tile + threadIdx.x * EACH;
            u64 run[EACH], own = 0, total;
#pragma unroll
            for (int k = 0; k < EACH; ++k) {
                double p = 0.0;
                if (valid && first + k < count) {
                    const double w = to<double>(row[first + k]);
                    p = logits ? exp(w - peak) : w / peak;
                }
                own += (u64)rint(p * units);
                run[k] = own;
            }
            const u64 before = carry + sums_below(own, warps, &total);
#pragma unroll
            for (int k = 0; k < EACH; ++k)
                if (first + k < count) out[first + k] = before + run[k];
            carry += total;
        }
    }
}
#elif STAGE == 2
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(const DATA* __restrict__ scores, u64 rows, u32 samples, u32 count, const Faults faults) {
    const u64 r = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (r >= rows || scores[r * samples + samples - 1] != lowest<DATA>()) return;
    // The greatest come first.
    u32 possible = 0;
    while (possible < samples && scores[r * samples + possible] != lowest<DATA>()) ++possible;
    tell(faults, (i64)possible, (i64)(r * count), 1);
}
#else
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(i64* __restrict__ out, const u64* __restrict__ sums, u64 seed, u64 draw, u64 n, u32 count,
     u32 samples) {
    const Key key = key_of(seed, draw);
    const u64 step = (u64)gridDim.x * THREADS;
    for (u64 e = (u64)blockIdx.x * THREADS + threadIdx.x; e < n; e += step) {
        const u64* row = sums + e / samples * count;
        u32 w[4];
        philox(key, e >> 1, 0, w);
        const u64 number = e & 1 ? Number<double>::of(w, 1) : Number<double>::of(w, 0);
        const u64 total = row[count - 1], goal = __umul64hi(number >> 11 << 11, total);
        u32 low = 0, high = count - 1;
        while (low < high) {
            const u32 middle = low + (high - low) / 2;
            if (row[middle] > goal) high = middle;
            else low = middle + 1;
        }
        out[e] = total ? (i64)low : -1;
    }
}
#endif
