// Reduction of runs: out[row] = fold of x over runs of `length` elements, `step` apart.
//
// ROWS x RUNS x STEPS batches are in flight in each thread: ROWS rows at once where a run is short,
// RUNS runs where one row has many short ones, STEPS packs of a long run. A team of at.team threads
// shares a row (1 to 256, a power of two), at.lanes of them a run. Long runs are cut into
// at.pieces of at.chunk elements. Grid (row groups, splits), 256 threads; static shared memory: a
// state for each warp; two blocks a multiprocessor are asked for, which keeps ptxas from spilling
// for the sake of more. With PEEL a run may start anywhere and its middle is read by packs.
// Settings: FOLD, IN, OUT, INDEX, KEPT, REDUCED, VECTOR, ROWS, RUNS, STEPS, PEEL, PARTS, NAME.
#include "ruda/earlier.cuh"
#include "ruda/fold.cuh"

typedef FOLD F;
typedef F::T T;
typedef F::State State;
typedef Pack<IN, VECTOR> Packed;
static const int BATCH = RUNS * STEPS * VECTOR;

struct Geometry {
    i64 kept[KEPT], kept_step[KEPT], runs[REDUCED], runs_step[REDUCED];
    i64 rows, length, step, chunk, pieces, all, lanes, team;
    Setting set;
};

__device__ __forceinline__ Packed pack_at(const IN* from, INDEX p, i64 step) {
    if (VECTOR > 1) return reinterpret_cast<const Packed*>(from)[p];
    Packed one;
    one.at[0] = from[(i64)p * step];
    return one;
}

// Adds RUNS x STEPS packs to a state, those that are there: `valid` counts packs.
__device__ __forceinline__ void add_packs(
    State& s, const Packed (&packs)[RUNS * STEPS], int valid, i64 first, i64 jump,
    const Setting& set
) {
    T v[BATCH];
#pragma unroll
    for (int k = 0; k < BATCH; ++k) v[k] = to<T>(packs[k / VECTOR].at[k % VECTOR]);
    F::take<VECTOR>(s, v, valid * VECTOR, first, jump, set);
}

__device__ __forceinline__ void add_one(State& s, IN v, i64 number, const Setting& set) {
    const T one[1] = {to<T>(v)};
    F::take<1>(s, one, 1, number, 0, set);
}

// The packs of runs that this thread has: all runs have `packs` packs, run k begins at from[k].
__device__ __forceinline__ void add_runs(
    State (&s)[ROWS], const IN* const (&from)[ROWS][RUNS], int runs, INDEX packs, u32 lane,
    u32 lanes, i64 number, i64 apart, const Geometry& at
) {
    const i64 jump = STEPS > 1 ? (i64)lanes * VECTOR : apart;
    INDEX p = lane;
    for (; p < packs; p += STEPS * lanes) {
        Packed read[ROWS][RUNS * STEPS];
        const int valid = STEPS == 1 ? runs : present<STEPS>(p, (INDEX)lanes, packs);
        if (valid == RUNS * STEPS) {
#pragma unroll
            for (int k = 0; k < ROWS * RUNS * STEPS; ++k)
                read[k / (RUNS * STEPS)][k % (RUNS * STEPS)] = pack_at(
                    from[k / (RUNS * STEPS)][k / STEPS % RUNS], p + k % STEPS * lanes, at.step);
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
                add_packs(s[r], read[r], RUNS * STEPS, number + (i64)p * VECTOR, jump, at.set);
        } else {
#pragma unroll
            for (int k = 0; k < ROWS * RUNS * STEPS; ++k)
                if (k % (RUNS * STEPS) < valid)
                    read[k / (RUNS * STEPS)][k % (RUNS * STEPS)] = pack_at(
                        from[k / (RUNS * STEPS)][k / STEPS % RUNS], p + k % STEPS * lanes, at.step);
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
                add_packs(s[r], read[r], valid, number + (i64)p * VECTOR, jump, at.set);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 2)
NAME(TARGET* __restrict__ out, const IN* __restrict__ x, const Geometry at) {
    __shared__ State slots[8];
    const u32 lanes = (u32)at.lanes, team = (u32)at.team, teams = 256 / team;
    const u32 mine = threadIdx.x & (team - 1), lane = mine & (lanes - 1);
    const INDEX row = (INDEX)blockIdx.x * teams * ROWS + threadIdx.x / team;
    wait_for_earlier();
    State s[ROWS];
    const IN* begin[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        s[r] = F::start();
        // A row too many reads the last one again and keeps quiet at the end.
        const INDEX here = min((i64)(row + r * teams), at.rows - 1);
        begin[r] = x + place_of<KEPT, INDEX>(here, at.kept, at.kept_step);
    }
    const INDEX all = (INDEX)at.all, pieces = (INDEX)at.pieces;
    const INDEX apart = gridDim.y * (team / lanes);
    for (INDEX run = blockIdx.y * (team / lanes) + mine / lanes; run < all; run += apart * RUNS) {
        const IN* from[ROWS][RUNS];
        const int runs = present<RUNS>(run, apart, all);
        const INDEX whole = STEPS > 1 ? run / pieces : run;
        const i64 skip = STEPS > 1 ? (i64)(run - whole * pieces) * at.chunk : 0;
#pragma unroll
        for (int k = 0; k < RUNS; ++k) {
            const INDEX other = k < runs ? whole + k * apart : whole;
            const i64 offset =
                place_of<REDUCED, INDEX>(other, at.runs, at.runs_step) + skip * at.step;
#pragma unroll
            for (int r = 0; r < ROWS; ++r) from[r][k] = begin[r] + offset;
        }
        i64 number = (i64)whole * at.length + skip;  // of the first element, in row-major order
        INDEX length = (INDEX)min(at.chunk, at.length - skip);
#if PEEL
        const u32 off = (u32)(reinterpret_cast<u64>(from[0][0]) % sizeof(Packed)) / sizeof(IN);
        const INDEX head = off ? min((i64)(VECTOR - off), (i64)length) : 0;
        for (INDEX i = lane; i < head; i += lanes) add_one(s[0], from[0][0][i], number + i, at.set);
        from[0][0] += head, number += head, length -= head;
        for (INDEX i = length / VECTOR * VECTOR + lane; i < length; i += lanes)
            add_one(s[0], from[0][0][i], number + i, at.set);
#endif
        add_runs(s, from, runs, length / VECTOR, lane, lanes, number, (i64)apart * at.length, at);
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const State total = joined<F>(s[r], team, slots);
        const i64 here = (i64)row + r * teams;
        if (mine != 0 || here >= at.rows) continue;
#if PARTS
        out[(i64)blockIdx.y * at.rows + here] = total;
#else
        out[here] = to<OUT>(F::end(total, at.set));
#endif
    }
}
