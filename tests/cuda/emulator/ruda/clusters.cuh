// Clusters on the CPU: blocks take turns. Each runs until all of its threads wait for the others, with
// fibers and shared memory of its own, which are put aside while it waits.
//
// A kernel calls the number of blocks in a cluster CLUSTER; they are neighbours along z.
#pragma once
#include "ruda/types.cuh"

#define __cluster_dims__(...)

namespace emulated {
static const State CLUSTERS = State(4);
struct Turn {
    std::vector<Fiber*> fibers;
    std::unique_ptr<unsigned char[]> room{new unsigned char[sizeof shared]};
};
static std::vector<Turn> turns;
static unsigned rank;

// Whether the block has come to its end, and does not wait for the others.
inline bool is_over() {
    go_on();
    if (all_at(0, threads, CLUSTERS)) return false;
    be_over();
    return true;
}
inline void run_cluster(unsigned a, unsigned b, unsigned c, unsigned size) {
    if (turns.size() < size) turns.resize(size);
    bool over = false;
    for (bool first = true; !over; first = false) {
        for (rank = 0; rank < size; ++rank) {
            blockIdx = {a, b, c + rank};
            std::swap(fibers, turns[rank].fibers);
            if (first) memset(shared, 0xff, sizeof shared), start_block();
            else memcpy(shared, turns[rank].room.get(), sizeof shared), release(0, threads, CLUSTERS);
            over = is_over();
            memcpy(turns[rank].room.get(), shared, sizeof shared);
            std::swap(fibers, turns[rank].fibers);
        }
    }
}
inline void grid_of_clusters(void (*f)(void**), void** p, unsigned size, unsigned gx, unsigned gy, unsigned gz,
                             unsigned x, unsigned y, unsigned z) {
    body = f; parameters = p; threads = x * y * z;
    blockDim = {x, y, z}; gridDim = {gx, gy, gz};
    if (gz % size) { fprintf(stderr, "emulator: a cluster that is not full\n"); abort(); }
    for (unsigned c = 0; c < gz; c += size)
        for (unsigned b = 0; b < gy; ++b)
            for (unsigned a = 0; a < gx; ++a) run_cluster(a, b, c, size);
}
}  // namespace emulated

inline void cluster_barrier() { emulated::give_way(emulated::CLUSTERS); }
inline float4 of_block(const float4* own, unsigned rank) {
    const size_t place = (const unsigned char*)own - emulated::shared;
    return rank == emulated::rank ? *own : *(const float4*)(emulated::turns[rank].room.get() + place);
}
