// Rows that begin anywhere: their packs begin at multiples of a pack in memory all the same. The few
// elements before and behind those, the loose ones, are the first threads' of a row, one for each.
#pragma once
#include "ruda/rows.cuh"

// Packs are from `head` to `end`, `count` elements are loose.
struct Skew { int head, end, count; };

// Of a row of n elements that begins at element `at` of memory. SPARE elements behind a pack are of
// the row, too.
template <int VEC, int SPARE> __device__ __forceinline__ Skew skew_of(i64 at, int n) {
    const int head = -(int)at & (VEC - 1), packs = (n - head - SPARE) / VEC;
    return {head, head + packs * VEC, n - packs * VEC};
}
// The loose element of a thread; -1 where it has none.
__device__ __forceinline__ int loose_of(const Skew& skew, int lane) {
    if (lane >= skew.count) return -1;
    return lane < skew.head ? lane : skew.end - skew.head + lane;
}

// Words from word FAR on where `real`: so many are needed still.
template <int FAR, int NEEDED, int W> __device__ __forceinline__ void move_down(u32 (&w)[W], bool real) {
#pragma unroll
    for (int j = 0; j < NEEDED; ++j)
        if (real) w[j] = w[j + FAR];
}
// N elements from element i on of a column at `p`, a multiple of 16 bytes: out of all pieces of 16
// bytes across which they may lie.
template <int N, class E> __device__ __forceinline__ Pack<E, N> fetch_across(const E* p, int i) {
    constexpr int PIECE = 16 / (int)sizeof(E), PIECES = (N + PIECE - 1) / PIECE + 1;
    constexpr int WORDS = N * (int)sizeof(E) / 4;
    const int low = i & ~(PIECE - 1);
    u32 w[4 * PIECES];
#pragma unroll
    for (int j = 0; j < PIECES; ++j) {
        const uint4 piece = reinterpret_cast<const uint4*>(p + low)[j];
        w[4 * j] = piece.x, w[4 * j + 1] = piece.y, w[4 * j + 2] = piece.z, w[4 * j + 3] = piece.w;
    }
    const u32 far = (u32)(i - low) * (u32)sizeof(E);
    move_down<2, WORDS + 2>(w, far & 8);
    move_down<1, WORDS + 1>(w, far & 4);
    union { u32 word[WORDS]; Pack<E, N> pack; } out;
#pragma unroll
    for (int j = 0; j < WORDS; ++j) out.word[j] = __funnelshift_r(w[j], w[j + 1], 8 * (far & 3));
    return out.pack;
}
