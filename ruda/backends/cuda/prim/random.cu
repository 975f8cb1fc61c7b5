// Draws of n elements, row-major, by the class MAKER: one thread makes whole Philox blocks and
// stores 16 bytes at a time. 256 threads, grid-stride, no shared memory.
//
// out [n] of type STORED; data [n]: a parameter that is a tensor, of type DATA; seed and draw
// by value; p0 to p6: parameters by value, in raw bits. A maker turns group g of WORDS words into
// elements g * MADE to g * MADE + MADE - 1. With CHECKED a value of data that is outside of its
// domain is a fault.
#include "ruda/faults.cuh"
#include "ruda/limits.cuh"
#include "ruda/math.cuh"
#include "ruda/philox.cuh"

template <class T> __device__ __forceinline__ T from_raw(u64 raw);
template <> __device__ __forceinline__ float from_raw<float>(u64 raw) {
    return __uint_as_float((u32)raw);
}
template <> __device__ __forceinline__ double from_raw<double>(u64 raw) {
    return __longlong_as_double((i64)raw);
}
template <> __device__ __forceinline__ u64 from_raw<u64>(u64 raw) { return raw; }

// What every maker is made of.
struct Setting {
    Key key;
    u64 p[7], n;
    const void* data;
    const Faults* faults;
};

// A parameter in memory, one element for each of the draw.
struct Given {
    const DATA* data;
    u64 n;
    const Faults* faults;
    __device__ __forceinline__ Given(const Setting& s)
        : data((const DATA*)s.data), n(s.n), faults(s.faults) {}
    template <class T> __device__ __forceinline__ T at(u64 i) const {
        return to<T>(data[i < n ? i : n - 1]);
    }
    __device__ __forceinline__ void refuse(double value, u64 i) const {
        if (faults) tell(*faults, __double_as_longlong(value), (i64)(i < n ? i : n - 1), 0);
    }
};

template <class T> struct Uniform {
    typedef T Value;
    static const int MADE = 16 / sizeof(T), WORDS = 4;
    T span, offset, least, greatest;
    __device__ __forceinline__ Uniform(const Setting& s)
        : span(from_raw<T>(s.p[0])), offset(from_raw<T>(s.p[1])),
          least(from_raw<T>(s.p[2])), greatest(from_raw<T>(s.p[3])) {}
    __device__ __forceinline__ void from(const u32* w, u64 group, T* out) const {
#pragma unroll
        for (int k = 0; k < MADE; ++k) {
            const T x = add(mul(unit(Number<T>::of(w, k)), span), offset);
            out[k] = x < least ? least : (x > greatest ? greatest : x);
        }
    }
};

// Radius and angle of a normal point (Box and Muller) from numbers i and i + 1.
template <class T> __device__ __forceinline__ void polar(const u32* w, int i, T* radius, T* angle) {
    *radius = sqrt(mul(log(open_unit(Number<T>::of(w, i))), T(-2)));
    *angle = mul(unit(Number<T>::of(w, i + 1)), T(6.283185307179586));
}
template <class T> __device__ __forceinline__ T cosine(const u32* w) {
    T radius, angle;
    polar(w, 0, &radius, &angle);
    return mul(radius, cos(angle));
}

template <class T> struct Normal {
    typedef T Value;
    static const int MADE = 16 / sizeof(T), WORDS = 4;
    T mean, std;
    __device__ __forceinline__ Normal(const Setting& s)
        : mean(from_raw<T>(s.p[0])), std(from_raw<T>(s.p[1])) {}
    __device__ __forceinline__ void from(const u32* w, u64 group, T* out) const {
#pragma unroll
        for (int k = 0; k < MADE; k += 2) {
            T radius, angle, s, c;
            polar(w, k, &radius, &angle);
            sincos(angle, &s, &c);
            out[k] = add(mul(mul(radius, c), std), mean);
            out[k + 1] = add(mul(mul(radius, s), std), mean);
        }
    }
};

template <class T> struct Exponential {
    typedef T Value;
    static const int MADE = 16 / sizeof(T), WORDS = 4;
    T factor;
    __device__ __forceinline__ Exponential(const Setting& s) : factor(from_raw<T>(s.p[0])) {}
    __device__ __forceinline__ void from(const u32* w, u64 group, T* out) const {
#pragma unroll
        for (int k = 0; k < MADE; ++k) out[k] = mul(log1p(-unit(Number<T>::of(w, k))), factor);
    }
};

// Whether a word is below a limit of up to 2^32, or the opposite.
template <class T> struct Below {
    typedef bool Value;
    static const int MADE = 4, WORDS = 4;
    u64 limit;
    bool turned;
    __device__ __forceinline__ Below(const Setting& s) : limit(s.p[0]), turned(s.p[1] != 0) {}
    __device__ __forceinline__ void from(const u32* w, u64 group, bool* out) const {
#pragma unroll
        for (int k = 0; k < MADE; ++k) out[k] = (w[k] < limit) != turned;
    }
};

// As Below, with a probability in memory for each element. NaN and what is below 0 never comes
// true.
template <class T> struct Bernoulli {
    typedef bool Value;
    static const int MADE = 4, WORDS = 4;
    Given given;
    __device__ __forceinline__ Bernoulli(const Setting& s) : given(s) {}
    __device__ __forceinline__ void from(const u32* w, u64 group, bool* out) const {
#pragma unroll
        for (int k = 0; k < MADE; ++k) {
            const u64 i = group * MADE + k;
            const double p = given.at<double>(i);
            if (!(p >= 0.0 && p <= 1.0)) given.refuse(p, i);
            out[k] = (double)w[k] < rint(p * 4294967296.0);
        }
    }
};

// Gumbel noise on log weights, or on logits: the greatest are a draw without replacement. What is
// no weight gives NaN, an impossible category -inf.
template <class T> struct Gumbel {
    typedef T Value;
    static const int MADE = 16 / sizeof(T), WORDS = 4;
    Given given;
    bool logits;
    T last;
    __device__ __forceinline__ Gumbel(const Setting& s)
        : given(s), logits(s.p[0] != 0), last(from_raw<T>(s.p[1])) {}
    __device__ __forceinline__ T score(u64 i) const {
        const T w = given.at<T>(i);
        if (w != w || w == highest<T>() || (!logits && w < T(0))) {
            given.refuse((double)w, i);
            return quiet_nan<T>();
        }
        return logits ? w : log(w);
    }
    __device__ __forceinline__ void from(const u32* w, u64 group, T* out) const {
#pragma unroll
        for (int k = 0; k < MADE; ++k) {
            const T u = open_unit(Number<T>::of(w, k));
            const T wait = -log1p(-(u < last ? u : last));
            out[k] = score(group * MADE + k) - log(wait);
        }
    }
};

// 64-bit keys, whose order is a permutation.
template <class T> struct Keys {
    typedef u64 Value;
    static const int MADE = 2, WORDS = 4;
    __device__ __forceinline__ Keys(const Setting&) {}
    __device__ __forceinline__ void from(const u32* w, u64 group, u64* out) const {
        out[0] = Number<double>::of(w, 0);
        out[1] = Number<double>::of(w, 1);
    }
};

// Proposals: each says whether it accepts, and is asked again under the next attempt if not.

// Lemire 2019: the high half of word * span, refused where the low half would bias it.
template <class T> struct Narrow {
    typedef u64 Value;
    static const int WIDTH = 1;
    u64 span, fraction, offset;
    __device__ __forceinline__ Narrow(const Setting& s)
        : span(s.p[0]), fraction(s.p[1]), offset(s.p[2]) {}
    __device__ __forceinline__ bool propose(const u32* w, u64, u64* out) const {
        const u64 product = w[0] * span;
        *out = (product >> 32) + offset;
        return (u32)product >= fraction;
    }
};
// A span of 2^64 is passed as 0.
template <class T> struct Broad {
    typedef u64 Value;
    static const int WIDTH = 2;
    u64 span, fraction, offset;
    __device__ __forceinline__ Broad(const Setting& s)
        : span(s.p[0]), fraction(s.p[1]), offset(s.p[2]) {}
    __device__ __forceinline__ bool propose(const u32* w, u64, u64* out) const {
        const u64 number = Number<double>::of(w, 0);
        *out = (span ? __umul64hi(number, span) : number) + offset;
        return number * span >= fraction;
    }
};

// A value of a truncated normal: origin + step * x, held between two numbers.
template <class T> struct Held {
    typedef T Value;
    static const int WIDTH = sizeof(T) / 2;
    T a, b, c, origin, step, least, greatest;
    __device__ __forceinline__ Held(const Setting& s)
        : a(from_raw<T>(s.p[0])), b(from_raw<T>(s.p[1])), c(from_raw<T>(s.p[2])),
          origin(from_raw<T>(s.p[3])), step(from_raw<T>(s.p[4])), least(from_raw<T>(s.p[5])),
          greatest(from_raw<T>(s.p[6])) {}
    __device__ __forceinline__ T held(T x) const {
        const T value = add(mul(x, step), origin);
        return value < least ? least : (value > greatest ? greatest : value);
    }
};
template <class T> struct Bulk : Held<T> {
    __device__ __forceinline__ Bulk(const Setting& s) : Held<T>(s) {}
    __device__ __forceinline__ bool propose(const u32* w, u64, T* out) const {
        const T x = cosine<T>(w);
        *out = this->held(x);
        return x >= this->a && x <= this->b;
    }
};
template <class T> struct Box : Held<T> {
    __device__ __forceinline__ Box(const Setting& s) : Held<T>(s) {}
    __device__ __forceinline__ bool propose(const u32* w, u64, T* out) const {
        const T x = unit(Number<T>::of(w, 0));
        *out = this->held(x);
        const T power = add(mul(x, add(mul(x, this->a), this->b)), this->c);
        return unit(Number<T>::of(w, 1)) <= exp(power);
    }
};
template <class T> struct Tail : Held<T> {
    __device__ __forceinline__ Tail(const Setting& s) : Held<T>(s) {}
    __device__ __forceinline__ bool propose(const u32* w, u64, T* out) const {
        const T x = -log(open_unit(Number<T>::of(w, 0)));
        *out = this->held(x);
        const T gap = add(mul(x, this->b), -this->c);
        const T limit = exp(mul(mul(gap, gap), T(-0.5)));
        return x <= this->a && unit(Number<T>::of(w, 1)) <= limit;
    }
};

// Marsaglia and Tsang 2000. Without data the concentration is by value; one outside of its domain
// gives NaN, since nobody waits for the device to tell.
template <class T> struct Gamma {
    typedef T Value;
    static const int WIDTH = sizeof(T);
    Given given;
    double alpha;
    T scale, smallest, largest;
    __device__ __forceinline__ Gamma(const Setting& s)
        : given(s), alpha(from_raw<double>(s.p[0])), scale(from_raw<T>(s.p[1])), smallest(from_raw<T>(s.p[2])), largest(from_raw<T>(s.p[3])) {}
    __device__ __forceinline__ bool propose(const u32* w, u64 i, T* out) const {
        const double own = given.data ? given.at<double>(i) : alpha;
        if (!(own > 0.0 && own <= (double)largest)) {
            given.refuse(own, i);
            *out = quiet_nan<T>();
            return true;
        }
        const double raised = (own < 1.0 ? own + 1.0 : own) - 1.0 / 3.0;
        const T d = (T)raised, c = (T)(1.0 / sqrt(9.0 * raised)), x = cosine<T>(w);
        T t = mul(x, c);
        const bool positive = t > T(-1);
        if (!positive) t = T(0);
        const T cubed = mul(t, add(add(T(3), mul(T(3), t)), mul(t, t)));
        const T rest = mul(d, add(cubed, -mul(T(3), log1p(t))));
        const T slack = add(mul(mul(x, x), T(0.5)), -rest);
        const T root = add(T(1), t);
        T value = mul(mul(mul(d, root), root), root);
        if (own < 1.0) {
            const double power = 1.0 / (own > (double)smallest ? own : (double)smallest);
            value = mul(value, pow(open_unit(Number<T>::of(w, 3)), (T)power));
        }
        *out = mul(value, scale);
        return positive && log(open_unit(Number<T>::of(w, 2))) < slack;
    }
};

__device__ __forceinline__ void blocks(Key key, u64 group, u32 attempt, u32 (&w)[4]) {
    philox(key, group, attempt, w);
}
__device__ __forceinline__ void blocks(Key key, u64 group, u32 attempt, u32 (&w)[8]) {
    philox(key, 2 * group, attempt, w);
    philox(key, 2 * group + 1, attempt, w + 4);
}

// The elements of a group by a proposal; what is refused waits for the next attempt.
template <class P> struct Accepted : P {
    static const int WORDS = P::WIDTH > 4 ? P::WIDTH : 4, MADE = WORDS / P::WIDTH;
    __device__ __forceinline__ Accepted(const Setting& s) : P(s) {}
    __device__ __forceinline__ void make(Key key, u64 group, typename P::Value* out) const {
        u32 w[WORDS];
        u32 pending = (1u << MADE) - 1;
        for (u32 attempt = 0; pending && attempt < 65536u; ++attempt) {
            blocks(key, group, attempt, w);
#pragma unroll
            for (int k = 0; k < MADE; ++k) {
                typename P::Value value;
                if (!(pending >> k & 1)) continue;
                const bool good = this->propose(w + k * P::WIDTH, group * MADE + k, &value);
                out[k] = value;
                pending &= ~((u32)good << k);
            }
        }
    }
};
template <class P> struct Dense : P {
    __device__ __forceinline__ Dense(const Setting& s) : P(s) {}
    __device__ __forceinline__ void make(Key key, u64 group, typename P::Value* out) const {
        u32 w[P::WORDS];
        blocks(key, group, 0, w);
        this->from(w, group, out);
    }
};

typedef MAKER Maker;
static const int MADE = Maker::MADE;
static const int COUNT = MADE * (int)sizeof(STORED) > 16 ? MADE : 16 / (int)sizeof(STORED);
static const int BYTES = sizeof(STORED) * COUNT;
struct alignas(BYTES > 16 ? 16 : BYTES) Pack { STORED at[COUNT]; };

extern "C" __global__ void __launch_bounds__(256)
NAME(STORED* __restrict__ out, const void* __restrict__ data, u64 seed, u64 draw, u64 p0, u64 p1,
     u64 p2, u64 p3, u64 p4, u64 p5, u64 p6, u64 n
#if CHECKED
     , const Faults faults) {
    const Faults* const told = &faults;
#else
     ) {
    const Faults* const told = nullptr;
#endif
    const Setting setting = {key_of(seed, draw), {p0, p1, p2, p3, p4, p5, p6}, n, data, told};
    const Maker maker(setting);
    const u64 packs = (n + COUNT - 1) / COUNT, step = (u64)gridDim.x * 256;
    for (u64 p = (u64)blockIdx.x * 256 + threadIdx.x; p < packs; p += step) {
        Pack pack;
#pragma unroll
        for (int g = 0; g < COUNT / MADE; ++g) {
            typename Maker::Value made[MADE];
            maker.make(setting.key, p * (COUNT / MADE) + g, made);
#pragma unroll
            for (int k = 0; k < MADE; ++k) pack.at[g * MADE + k] = to<STORED>(made[k]);
        }
        if ((p + 1) * COUNT <= n) {
            reinterpret_cast<Pack*>(out)[p] = pack;
            continue;
        }
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            if (p * COUNT + k < n) out[p * COUNT + k] = pack.at[k];
    }
}
