#include "ruda/earlier.cuh"
#include "ruda/faults.cuh"
#include "ruda/rows.cuh"
// The gradient of a small table: out [rows, width] with dy [places, width] added where index
// [places] says; all row-major.
//
// A block for each row of the table and 32 packs of VEC columns: its 8 warps look through an eighth
// of the places each, in their order, and what they find is added up in the order of the warps. S:
// the type in memory, C: the one that sums are kept in. Grid: (rows, columns), 256 threads.

static const int WARPS = 8, AHEAD = 4, WIDTH = 32 * VEC;

struct Geometry { i64 places, rows, width, dropped; };

extern "C" __global__ void __launch_bounds__(256)
NAME(S* __restrict__ out, const S* __restrict__ dy, const INDEX* __restrict__ index,
     const Faults faults, const Geometry g) {
    __shared__ C parts[WARPS * WIDTH];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 row = blockIdx.x, column = (i64)blockIdx.y * WIDTH + lane * VEC;
    const bool inside = column < g.width, judges = blockIdx.x == 0 && blockIdx.y == 0;
    const i64 share = (g.places + WARPS * 32 - 1) / (WARPS * 32) * 32;
    const i64 end = (warp + 1) * share < g.places ? (warp + 1) * share : g.places;
    C sums[VEC] = {};
    wait_for_earlier();
    for (i64 from = warp * share; from < end; from += 32 * AHEAD) {
        i64 found[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            const i64 place = from + 32 * a + lane;
            found[a] = place < end ? (i64)index[place] : -1;
            const bool wrong = found[a] < 0 || found[a] >= g.rows;
            if (judges && wrong && place < end && found[a] != g.dropped)
                report(faults, found[a], place, 0);
        }
#pragma unroll
        for (int a = 0; a < AHEAD; ++a) {
            u32 hits = __ballot_sync(~0u, found[a] == row && row != g.dropped);
            while (hits != 0) {
                Pack<S, VEC> packs[AHEAD];
                int count = 0;
#pragma unroll
                for (int k = 0; k < AHEAD; ++k) {
                    if (hits == 0) continue;
                    const i64 place = from + 32 * a + __ffs(hits) - 1;
                    hits &= hits - 1;
                    ++count;
                    if (inside) packs[k] = fetch<VEC>(dy + place * g.width + column);
                }
#pragma unroll
                for (int k = 0; k < AHEAD; ++k)
                    if (k < count && inside)
#pragma unroll
                        for (int v = 0; v < VEC; ++v) sums[v] += to<C>(packs[k].at[v]);
            }
        }
    }
#pragma unroll
    for (int v = 0; v < VEC; ++v) parts[warp * WIDTH + lane * VEC + v] = sums[v];
    __syncthreads();
    if (warp != 0 || !inside) return;
    for (int w = 1; w < WARPS; ++w)
#pragma unroll
        for (int v = 0; v < VEC; ++v) sums[v] += parts[w * WIDTH + lane * VEC + v];
    put<VEC>(out + row * g.width + column, sums);
}
