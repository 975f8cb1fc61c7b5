// The second stage of a split reduction: out[o] = end of the joined states parts[split, o].
//
// at.team threads (1 to 256, a power of two) an output; grid (groups of outputs), 256 threads. The
// states meet in an order that depends on the numbers alone. Static shared memory: a state a warp.
// Settings: FOLD, OUT, NAME.
#include "ruda/earlier.cuh"
#include "ruda/fold.cuh"

typedef FOLD F;
typedef F::State State;

struct Geometry { i64 outputs, splits, team; Setting set; };

extern "C" __global__ void __launch_bounds__(256)
NAME(OUT* __restrict__ out, const State* __restrict__ parts, const Geometry at) {
    __shared__ State slots[8];
    const u32 team = (u32)at.team, mine = threadIdx.x & (team - 1);
    const i64 o = (i64)blockIdx.x * (256 / team) + threadIdx.x / team;
    wait_for_earlier();
    State s = F::start();
    if (o < at.outputs)
        for (i64 k = mine; k < at.splits; k += team) s = F::join(s, parts[k * at.outputs + o]);
    s = joined<F>(s, team, slots);
    if (mine == 0 && o < at.outputs) out[o] = to<OUT>(F::end(s, at.set));
}
