// CUDA C on the CPU: every thread of a block is a fiber, blocks run one after another.
//
// A barrier gives way to the other fibers until all of the block (or of the warp) have come. What a
// real device does at the same time happens here in a fixed order, so races are not seen; wrong
// indices, missing barriers before a read of another thread's value, and wrong arithmetic are.
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __shared__ static
#define __constant__ static const
#define __align__(n) alignas(n)
#define __launch_bounds__(...)
#define __grid_constant__

struct dim3 { unsigned x = 1, y = 1, z = 1; };
struct uint3 { unsigned x, y, z; };
#define VECTORS(T, N) \
    struct N##2 { T x, y; }; struct N##3 { T x, y, z; }; struct alignas(4 * sizeof(T)) N##4 { T x, y, z, w; }; \
    inline N##2 make_##N##2(T a, T b) { return {a, b}; } \
    inline N##4 make_##N##4(T a, T b, T c, T d) { return {a, b, c, d}; }
VECTORS(float, float) VECTORS(int, int) VECTORS(double, double)
struct uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
inline uint2 make_uint2(unsigned a, unsigned b) { return {a, b}; }
inline uint4 make_uint4(unsigned a, unsigned b, unsigned c, unsigned d) { return {a, b, c, d}; }
static uint3 threadIdx, blockIdx;
static dim3 blockDim, gridDim;
static const int warpSize = 32;

namespace emulated {
alignas(128) static unsigned char shared[256 << 10];
enum State { READY, BLOCK, WARP, DONE };
static const size_t STACK = 256 << 10;
struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack;   // not cleared: pages that no call reaches take no memory
    uint3 at;
    State state = DONE;
    unsigned turn = 0, mask = 0;
};
static std::vector<Fiber*> fibers;
static ucontext_t scheduler;
static Fiber* now;
static void (*body)(void**);
static void** parameters;
static unsigned threads;
static unsigned long long slots[64][2][32];   // what the lanes of each warp show each other
static int votes;

inline unsigned linear() { return (now->at.z * blockDim.y + now->at.y) * blockDim.x + now->at.x; }
inline void give_way(State state) {
    Fiber* self = now;
    self->state = state;
    swapcontext(&self->context, &scheduler);
}
inline void enter() {
    for (;;) {
        body(parameters);
        give_way(DONE);
    }
}
inline Fiber* fiber(unsigned i) {
    while (fibers.size() <= i) {
        Fiber* f = new Fiber;
        f->stack.reset(new char[STACK]);
        getcontext(&f->context);
        f->context.uc_stack.ss_sp = f->stack.get();
        f->context.uc_stack.ss_size = STACK;
        f->context.uc_link = nullptr;
        makecontext(&f->context, (void (*)())enter, 0);
        fibers.push_back(f);
    }
    return fibers[i];
}
// Whether the fibers of a group have all come to a barrier of this kind, or ended.
inline bool all_at(unsigned from, unsigned to, State state) {
    bool any = false;
    for (unsigned i = from; i < to; ++i) {
        if (fibers[i]->state == READY || (fibers[i]->state != state && fibers[i]->state != DONE)) return false;
        any |= fibers[i]->state == state;
    }
    return any;
}
// A warp's barrier concerns the lanes of its mask alone.
inline bool warp_ready(unsigned from, unsigned to) {
    unsigned mask = 0;
    for (unsigned i = from; i < to; ++i)
        if (fibers[i]->state == WARP) mask |= fibers[i]->mask;
    if (!mask) return false;
    for (unsigned i = from; i < to; ++i)
        if ((mask >> (i - from) & 1) && fibers[i]->state != WARP && fibers[i]->state != DONE) return false;
    return true;
}
inline void release(unsigned from, unsigned to, State state) {
    for (unsigned i = from; i < to; ++i)
        if (fibers[i]->state == state) fibers[i]->state = READY;
}
inline void start_block() {
    for (unsigned i = 0; i < threads; ++i) {
        Fiber* f = fiber(i);
        f->at = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
        f->state = READY;
        f->turn = 0;
    }
}
// Until no thread of the block can go on.
inline void go_on() {
    for (bool ran = true; ran;) {
        ran = false;
        for (unsigned i = 0; i < threads; ++i) {
            if (fibers[i]->state != READY) continue;
            now = fibers[i];
            threadIdx = now->at;
            swapcontext(&scheduler, &now->context);
            ran = true;
        }
        for (unsigned w = 0; w < threads; w += 32) {
            unsigned end = w + 32 < threads ? w + 32 : threads;
            if (warp_ready(w, end)) { release(w, end, WARP); ran = true; }
        }
        if (all_at(0, threads, BLOCK)) { release(0, threads, BLOCK); votes = 0; ran = true; }
    }
}
inline void be_over() {
    for (unsigned i = 0; i < threads; ++i)
        if (fibers[i]->state != DONE) { fprintf(stderr, "emulator: threads wait for each other for ever\n"); abort(); }
}
inline void run_block() {
    start_block();
    go_on();
    be_over();
}
template <class... A, size_t... I>
inline void invoke(void (*f)(A...), void** p, std::index_sequence<I...>) {
    f(*reinterpret_cast<std::remove_const_t<A>*>(p[I])...);
}
template <class... A> inline void invoke(void (*f)(A...), void** p) {
    invoke(f, p, std::index_sequence_for<A...>{});
}
inline void grid(void (*f)(void**), void** p, unsigned gx, unsigned gy, unsigned gz, unsigned x, unsigned y, unsigned z) {
    body = f; parameters = p; threads = x * y * z;
    blockDim = {x, y, z}; gridDim = {gx, gy, gz};
    for (unsigned c = 0; c < gz; ++c)
        for (unsigned b = 0; b < gy; ++b)
            for (unsigned a = 0; a < gx; ++a) {
                blockIdx = {a, b, c};
                memset(shared, 0xff, sizeof shared);
                run_block();
            }
}
template <class T> inline T exchange(unsigned mask, T v, unsigned from) {
    unsigned me = linear(), side = now->turn++ & 1;
    unsigned long long raw = 0;
    memcpy(&raw, &v, sizeof v);
    slots[me >> 5][side][me & 31] = raw;
    now->mask = mask;
    give_way(WARP);
    T out;
    memcpy(&out, &slots[me >> 5][side][from & 31], sizeof out);
    return out;
}
}  // namespace emulated

inline void __syncthreads() { emulated::give_way(emulated::BLOCK); }
inline void __syncwarp(unsigned mask = ~0u) { emulated::now->mask = mask; emulated::give_way(emulated::WARP); }
inline int __syncthreads_count(int p) {
    __shared__ int total;
    __syncthreads();
    total = 0;
    __syncthreads();
    total += p != 0;
    __syncthreads();
    return total;
}
inline int __syncthreads_or(int p) { return __syncthreads_count(p) != 0; }
inline int __syncthreads_and(int p) { return __syncthreads_count(!p) == 0; }
inline unsigned ruda_lane() { return emulated::linear() & 31; }
template <class T> T __shfl_sync(unsigned m, T v, int from, int w = 32) {
    unsigned l = ruda_lane();
    return emulated::exchange(m, v, (l & ~(w - 1)) + (from & (w - 1)));
}
template <class T> T __shfl_xor_sync(unsigned m, T v, int x, int w = 32) {
    unsigned l = ruda_lane(), t = l ^ x;
    return emulated::exchange(m, v, (t & ~(w - 1)) > (l & ~(w - 1)) ? l : t);
}
template <class T> T __shfl_down_sync(unsigned m, T v, unsigned d, int w = 32) {
    unsigned l = ruda_lane();
    return emulated::exchange(m, v, (l & (w - 1)) + d < (unsigned)w ? l + d : l);
}
template <class T> T __shfl_up_sync(unsigned m, T v, unsigned d, int w = 32) {
    unsigned l = ruda_lane();
    return emulated::exchange(m, v, (l & (w - 1)) >= d ? l - d : l);
}
inline unsigned __activemask() { return ~0u; }
inline unsigned __ballot_sync(unsigned m, int p) {
    using namespace emulated;
    unsigned me = linear(), side = now->turn++ & 1, out = 0, first = me & ~31u;
    slots[me >> 5][side][me & 31] = p != 0;
    now->mask = m;
    give_way(WARP);
    for (unsigned i = 0; i < 32 && first + i < threads; ++i)
        if ((m >> i & 1) && slots[me >> 5][side][i] == 1) out |= 1u << i;
    return out;
}
inline int __any_sync(unsigned m, int p) { return __ballot_sync(m, p) != 0; }
inline int __all_sync(unsigned m, int p) { return __ballot_sync(m, !p) == 0; }
template <class T> unsigned __match_any_sync(unsigned m, T v) {
    unsigned out = 0;
    for (int i = 0; i < 32; ++i) {
        T other = __shfl_sync(m, v, i);
        if ((m >> i & 1) && other == v) out |= 1u << i;
    }
    return out;
}
#define REDUCE(NAME, T, EXPR) \
    inline T NAME(unsigned m, T v) { \
        T out = v; bool first = true; \
        for (int i = 0; i < 32; ++i) { T o = __shfl_sync(m, v, i); if (!(m >> i & 1)) continue; \
            if (first) { out = o; first = false; } else { T a = out, b = o; out = EXPR; } } \
        return out; }
REDUCE(__reduce_add_sync, unsigned, a + b) REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
REDUCE(__reduce_max_sync, unsigned, a > b ? a : b) REDUCE(__reduce_or_sync, unsigned, a | b)

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) { emulated::give_way(emulated::READY); }
inline void __trap() { abort(); }
template <class T> T __ldg(const T* p) { return *p; }
template <class T> T __ldcs(const T* p) { return *p; }
template <class T> T __ldcg(const T* p) { return *p; }
template <class T> void __stcs(T* p, T v) { *p = v; }
template <class T> void __stcg(T* p, T v) { *p = v; }

template <class D, class S> D ruda_bits(S s) { D d; memcpy(&d, &s, sizeof d); return d; }
inline float __uint_as_float(unsigned v) { return ruda_bits<float>(v); }
inline float __int_as_float(int v) { return ruda_bits<float>(v); }
inline unsigned __float_as_uint(float v) { return ruda_bits<unsigned>(v); }
inline int __float_as_int(float v) { return ruda_bits<int>(v); }
inline double __longlong_as_double(long long v) { return ruda_bits<double>(v); }
inline long long __double_as_longlong(double v) { return ruda_bits<long long>(v); }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __clz(int v) { return v ? __builtin_clz(v) : 32; }
inline int __clzll(long long v) { return v ? __builtin_clzll(v) : 64; }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline unsigned __brev(unsigned v) { unsigned o = 0; for (int i = 0; i < 32; ++i) o |= (v >> i & 1) << (31 - i); return o; }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)((unsigned __int128)a * b >> 64); }
inline long long clock64() { return 0; }

template <class T> T atomicAdd(T* p, T v) { T o = *p; *p = (T)(o + v); return o; }
template <class T> T atomicSub(T* p, T v) { T o = *p; *p = (T)(o - v); return o; }
template <class T> T atomicMax(T* p, T v) { T o = *p; if (v > o) *p = v; return o; }
template <class T> T atomicMin(T* p, T v) { T o = *p; if (v < o) *p = v; return o; }
template <class T> T atomicOr(T* p, T v) { T o = *p; *p = o | v; return o; }
template <class T> T atomicAnd(T* p, T v) { T o = *p; *p = o & v; return o; }
template <class T> T atomicXor(T* p, T v) { T o = *p; *p = o ^ v; return o; }
template <class T> T atomicExch(T* p, T v) { T o = *p; *p = v; return o; }
template <class T> T atomicCAS(T* p, T c, T v) { T o = *p; if (o == c) *p = v; return o; }

#define BOTH(T) inline T min(T a, T b) { return b < a ? b : a; } inline T max(T a, T b) { return a < b ? b : a; }
BOTH(int) BOTH(unsigned) BOTH(long long) BOTH(unsigned long long)
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
using std::isnan; using std::isinf; using std::isfinite; using std::signbit;
#define FLOATS(NAME) inline float NAME(float x) { return NAME##f(x); }
FLOATS(exp) FLOATS(log) FLOATS(sin) FLOATS(cos) FLOATS(tan) FLOATS(sinh) FLOATS(cosh) FLOATS(tanh) FLOATS(sqrt)
FLOATS(expm1) FLOATS(log1p) FLOATS(log2) FLOATS(log10) FLOATS(exp2) FLOATS(asin) FLOATS(acos) FLOATS(atan)
FLOATS(asinh) FLOATS(acosh) FLOATS(atanh) FLOATS(cbrt) FLOATS(erf) FLOATS(erfc) FLOATS(fabs) FLOATS(floor)
FLOATS(ceil) FLOATS(trunc) FLOATS(rint) FLOATS(lgamma) FLOATS(tgamma)
inline float pow(float a, float b) { return powf(a, b); }
inline float atan2(float a, float b) { return atan2f(a, b); }
inline float fmod(float a, float b) { return fmodf(a, b); }
inline float hypot(float a, float b) { return hypotf(a, b); }
inline float copysign(float a, float b) { return copysignf(a, b); }
inline float nextafter(float a, float b) { return nextafterf(a, b); }
inline float fmin(float a, float b) { return fminf(a, b); }
inline float fmax(float a, float b) { return fmaxf(a, b); }
inline float fma(float a, float b, float c) { return fmaf(a, b, c); }
inline float ldexp(float a, int e) { return ldexpf(a, e); }
inline void sincos(float x, float* s, float* c) { *s = sinf(x); *c = cosf(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float __logf(float x) { return logf(x); }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (by & 31));
}
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1 / a; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double cospi(double x) { return cos(3.14159265358979323846 * x); }
inline double sinpi(double x) { return sin(3.14159265358979323846 * x); }
inline float cospi(float x) { return (float)cospi((double)x); }
inline float sinpi(float x) { return (float)sinpi((double)x); }
inline double exp10(double x) { return pow(10.0, x); }
inline float exp10(float x) { return powf(10.0f, x); }
inline double erfinv(double y) {   // Newton's steps from a rough start (Winitzki 2008)
    if (!(fabs(y) < 1)) return fabs(y) == 1 ? copysign(INFINITY, y) : NAN;
    double l = log1p(-y * y), a = 0.147, t = 2 / (M_PI * a) + l / 2;
    double x = copysign(sqrt(sqrt(t * t - l / a) - t), y);
    for (int i = 0; i < 4; ++i) x -= (erf(x) - y) / (2 / sqrt(M_PI) * exp(-x * x));
    return x;
}
inline float erfinv(float y) { return (float)erfinv((double)y); }
inline float erfinvf(float y) { return erfinv(y); }
inline double normcdfinv(double p) { return M_SQRT2 * erfinv(2 * p - 1); }
