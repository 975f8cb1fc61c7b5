// What reductions keep while they read: a state for each output, and how states join.
//
// A fold F over elements of type F::T (converted already) has F::State, start(), join(a, b) of the
// states of two disjoint sets, one(v, i) of element number i alone, and end(state, set). take()
// adds a batch of elements that are in registers; folds that gain by it have their own. All are
// free of the order in which states meet, up to rounding.
#pragma once
#include "ruda/limits.cuh"
#include "ruda/math.cuh"

#define HERE static __device__ __forceinline__

// What the end of a reduction needs to know: how many elements there were, and one number more
// (var, std: the degrees of freedom; vector_norm: the order).
struct Setting { i64 count; double value; };

template <class T> struct RealOf { typedef T type; };
template <class T> struct RealOf<cx<T>> { typedef T type; };

// Without a batch of its own: N elements, the first `valid` of them, number k at
// first + (k / RUN) * jump + k % RUN.
template <class F> struct OneByOne {
    template <int RUN, class S, class T, int N>
    HERE void take(S& s, const T (&v)[N], int valid, i64 first, i64 jump, const Setting& set) {
#pragma unroll
        for (int k = 0; k < N; ++k)
            if (k < valid) s = F::join(s, F::one(v[k], first + (k / RUN) * jump + k % RUN, set));
    }
};

template <class V> struct Sum : OneByOne<Sum<V>> {
    typedef V T;
    typedef V State;
    HERE State start() { return to<T>(0); }
    HERE State one(T v, i64, const Setting&) { return v; }
    HERE State join(State a, State b) { return State(a + b); }
    HERE T end(State s, const Setting&) { return s; }
};
template <class V> struct Mean : Sum<V> {
    HERE V end(V s, const Setting& set) { return mean_of(s, set.count); }
};
template <class V> struct Product : OneByOne<Product<V>> {
    typedef V T;
    typedef V State;
    HERE State start() { return to<T>(1); }
    HERE State one(T v, i64, const Setting&) { return v; }
    HERE State join(State a, State b) { return State(a * b); }
    HERE T end(State s, const Setting&) { return s; }
};
template <class V> struct Largest : OneByOne<Largest<V>> {
    typedef V T;
    typedef V State;
    HERE State start() { return lowest<T>(); }
    HERE State one(T v, i64, const Setting&) { return v; }
    HERE State join(State a, State b) { return ruda_max(a, b); }
    HERE T end(State s, const Setting&) { return s; }
};
template <class V> struct Smallest : OneByOne<Smallest<V>> {
    typedef V T;
    typedef V State;
    HERE State start() { return highest<T>(); }
    HERE State one(T v, i64, const Setting&) { return v; }
    HERE State join(State a, State b) { return ruda_min(a, b); }
    HERE T end(State s, const Setting&) { return s; }
};
// any, all and count_nonzero read elements as they are: T is what they are widened to.
template <class V> struct Some : OneByOne<Some<V>> {
    typedef V T;
    typedef u32 State;
    HERE State start() { return 0; }
    HERE State one(T v, i64, const Setting&) { return to<bool>(v); }
    HERE State join(State a, State b) { return a | b; }
    HERE bool end(State s, const Setting&) { return s != 0; }
};
template <class V> struct Every : OneByOne<Every<V>> {
    typedef V T;
    typedef u32 State;
    HERE State start() { return 1; }
    HERE State one(T v, i64, const Setting&) { return to<bool>(v); }
    HERE State join(State a, State b) { return a & b; }
    HERE bool end(State s, const Setting&) { return s != 0; }
};
template <class V> struct Nonzero : OneByOne<Nonzero<V>> {
    typedef V T;
    typedef i64 State;
    HERE State start() { return 0; }
    HERE State one(T v, i64, const Setting&) { return to<bool>(v); }
    HERE State join(State a, State b) { return a + b; }
    HERE i64 end(State s, const Setting&) { return s; }
};

// The place of an extreme: NaN before any number, then the better value, then the lower place.
template <class V> struct Place { V value; i64 at; };
template <class V, bool LARGEST> struct Where {
    typedef V T;
    typedef Place<V> State;
    HERE State start() { return {V(0), -1}; }
    HERE State one(T v, i64 i, const Setting&) { return {v, i}; }
    HERE State join(State a, State b) {
        if (a.at < 0) return b;
        if (b.at < 0) return a;
        const bool odd_a = a.value != a.value, odd_b = b.value != b.value;
        const bool better = LARGEST ? b.value > a.value : b.value < a.value;
        const bool level = odd_a ? odd_b : !odd_b && a.value == b.value;
        const bool second = level ? b.at < a.at : !odd_a && (odd_b || better);
        return second ? b : a;
    }
    // A batch finds its own first: its places ascend, so only what is better takes over.
    template <int RUN, class S, class U, int N>
    HERE void take(S& s, const U (&v)[N], int valid, i64 first, i64 jump, const Setting&) {
        if (valid <= 0) return;
        V best = v[0];
        int k_best = 0;
#pragma unroll
        for (int k = 1; k < N; ++k) {
            const bool worse = LARGEST ? v[k] <= best : v[k] >= best;
            const bool wins = k < valid && !worse && best == best;
            best = wins ? v[k] : best;
            k_best = wins ? k : k_best;
        }
        s = join(s, State{best, first + k_best / RUN * jump + k_best % RUN});
    }
    HERE i64 end(State s, const Setting&) { return s.at; }
};

template <class R> __device__ __forceinline__ R square_of(R v) { return v * v; }
template <class R> __device__ __forceinline__ R square_of(cx<R> v) {
    return v.re * v.re + v.im * v.im;
}

// Mean and sum of squared distances from it. A batch gets its own two passes in registers and then
// joins as sets do (Chan, Golub, LeVeque 1983), so nothing cancels and divisions are rare.
template <class V, bool ROOT> struct Spread {
    typedef V T;
    typedef typename RealOf<V>::type R;
    struct State { R n; V mean; R squares; };
    HERE State start() { return {R(0), to<V>(0), R(0)}; }
    HERE State join(State a, State b) {
        if (a.n == R(0)) return b;
        if (b.n == R(0)) return a;
        const R n = a.n + b.n, share = b.n / n;
        const V gap = b.mean - a.mean;
        return {n, a.mean + share * gap, a.squares + b.squares + square_of(gap) * (a.n * share)};
    }
    template <int RUN, class S, class U, int N>
    HERE void take(S& s, const U (&v)[N], int valid, i64, i64, const Setting&) {
        if (valid <= 0) return;
        V sum = to<V>(0);
#pragma unroll
        for (int k = 0; k < N; ++k)
            if (k < valid) sum = sum + v[k];
        const V mean = (R(1) / R(valid)) * sum;
        R squares = R(0);
#pragma unroll
        for (int k = 0; k < N; ++k)
            if (k < valid) squares += square_of(v[k] - mean);
        s = join(s, State{R(valid), mean, squares});
    }
    HERE R end(State s, const Setting& set) {
        const R spread = set.count ? s.squares / R(set.value) : quiet_nan<R>();
        return ROOT ? sqrt(spread) : spread;
    }
};

// Norms of order 1, 2, 0, inf, -inf and any other.
template <class V> struct SumOfSizes : OneByOne<SumOfSizes<V>> {
    typedef V T;
    typedef typename RealOf<V>::type State;
    HERE State start() { return State(0); }
    HERE State one(T v, i64, const Setting&) { return ruda_abs(v); }
    HERE State join(State a, State b) { return a + b; }
    HERE State end(State s, const Setting&) { return s; }
};
template <class V> struct RootOfSquares : OneByOne<RootOfSquares<V>> {
    typedef V T;
    typedef typename RealOf<V>::type State;
    HERE State start() { return State(0); }
    HERE State one(T v, i64, const Setting&) { return square_of(v); }
    HERE State join(State a, State b) { return a + b; }
    HERE State end(State s, const Setting&) { return sqrt(s); }
};
template <class V> struct LargestSize : OneByOne<LargestSize<V>> {
    typedef V T;
    typedef typename RealOf<V>::type State;
    HERE State start() { return State(0); }
    HERE State one(T v, i64, const Setting&) { return ruda_abs(v); }
    HERE State join(State a, State b) { return ruda_max(a, b); }
    HERE State end(State s, const Setting&) { return s; }
};
template <class V> struct SmallestSize : OneByOne<SmallestSize<V>> {
    typedef V T;
    typedef typename RealOf<V>::type State;
    HERE State start() { return highest<State>(); }
    HERE State one(T v, i64, const Setting&) { return ruda_abs(v); }
    HERE State join(State a, State b) { return ruda_min(a, b); }
    HERE State end(State s, const Setting&) { return s; }
};
template <class V> struct RootOfPowers : OneByOne<RootOfPowers<V>> {
    typedef V T;
    typedef typename RealOf<V>::type State;
    HERE State start() { return State(0); }
    HERE State one(T v, i64, const Setting& set) { return ruda_pow(ruda_abs(v), State(set.value)); }
    HERE State join(State a, State b) { return a + b; }
    HERE State end(State s, const Setting& set) { return ruda_pow(s, State(1 / set.value)); }
};

// The greatest element and the sum of exp(v - greatest); an infinite one shifts by nothing.
template <class V> struct LogSumExp {
    typedef V T;
    struct State { V top, sum; };
    HERE State start() { return {lowest<V>(), V(0)}; }
    HERE V shift(V top) { return ruda_isfinite(top) ? top : V(0); }
    HERE V scaled(State s, V to_top) {
        return s.sum == V(0) || s.top == to_top ? s.sum : s.sum * exp(shift(s.top) - shift(to_top));
    }
    HERE State join(State a, State b) {
        const V top = ruda_max(a.top, b.top);
        return {top, scaled(a, top) + scaled(b, top)};
    }
    template <int RUN, class S, class U, int N>
    HERE void take(S& s, const U (&v)[N], int valid, i64, i64, const Setting&) {
        V top = lowest<V>(), sum = V(0);
#pragma unroll
        for (int k = 0; k < N; ++k)
            if (k < valid) top = ruda_max(top, v[k]);
#pragma unroll
        for (int k = 0; k < N; ++k)
            if (k < valid) sum += exp(v[k] - shift(top));
        s = join(s, State{top, sum});
    }
    HERE V end(State s, const Setting&) { return log(s.sum) + shift(s.top); }
};
#undef HERE

// The state of the lane that is `far` lanes on, within groups of `width` lanes.
template <class S> __device__ __forceinline__ S shifted(S s, int far, int width) {
    const int words = (sizeof(S) + 3) / 4;
    u32 word[words] = {};
    memcpy(word, &s, sizeof(S));
#pragma unroll
    for (int k = 0; k < words; ++k) word[k] = __shfl_down_sync(0xffffffffu, word[k], far, width);
    memcpy(&s, word, sizeof(S));
    return s;
}

// Joins the states of `team` neighbouring threads (a power of two up to the block); the first of
// them has the result. Every thread of the block calls it; `slots` holds a state for each warp.
template <class F, class S>
__device__ __forceinline__ S joined(S s, u32 team, S* slots) {
    const u32 width = team < 32 ? team : 32;
    for (u32 far = width / 2; far > 0; far >>= 1) s = F::join(s, shifted(s, far, width));
    if (team <= 32) return s;
    const u32 warp = threadIdx.x / 32, warps = team / 32;
    __syncthreads();
    if (threadIdx.x % 32 == 0) slots[warp] = s;
    __syncthreads();
    const u32 lane = threadIdx.x % 32, first = warp / warps * warps;
    s = lane < warps ? slots[first + lane] : F::start();
    for (u32 far = warps / 2; far > 0; far >>= 1) s = F::join(s, shifted(s, far, 32));
    return s;
}

// The element number of row-major position i over RANK sizes, outermost first.
template <int RANK, class I>
__device__ __forceinline__ i64 place_of(I i, const i64* size, const i64* stride) {
    i64 at = 0;
#pragma unroll
    for (int d = RANK - 1; d > 0; --d) {
        const I n = (I)size[d], whole = i / n;
        at += (i64)(i - whole * n) * stride[d];
        i = whole;
    }
    return at + (i64)i * stride[0];
}

template <class E, int N> struct alignas(sizeof(E) * N) Pack { E at[N]; };

// How many of i, i + step, ... (N of them) are below the end; the first is.
template <int N, class I> __device__ __forceinline__ int present(I i, I step, I end) {
    int count = 1;
#pragma unroll
    for (int k = 1; k < N; ++k) count += i + (I)k * step < end;
    return count;
}
