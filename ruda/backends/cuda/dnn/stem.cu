// Images of few channels as images of half the size with the channels of two by two pixels.
//
// PACK 1: out [n, rows, columns, WIDTH] from x [n, height, width, c], any strides; c is CHANNELS,
// up to 4. Channel (2 a + b) c + k is channel k of pixel (2 i + a - top, 2 j + b - left), zero
// beyond the image and from 4 c on. A thread has 8 channels. PACK 0: back, x [n, height, width, c]
// dense from out; a thread has an element. 256 threads a block, grid-stride; no shared memory.
// Fewer than 2^31 elements on either side.
#include "ruda/rows.cuh"

struct Geometry { i32 n, height, width, rows, columns, top, left, unused; i64 stride[4]; };

extern "C" __global__ void __launch_bounds__(256)
NAME(S* __restrict__ out, const S* __restrict__ x, const Geometry g) {
    const i32 step = gridDim.x * 256;
#if PACK
    const i32 total = g.n * g.rows * g.columns * (WIDTH / 8);
    for (i32 e = blockIdx.x * 256 + threadIdx.x; e < total; e += step) {
        const i32 first = e % (WIDTH / 8) * 8, place = e / (WIDTH / 8);
        const i32 j = place % g.columns, above = place / g.columns;
        const i32 i = above % g.rows, image = above / g.rows;
        Pack<S, 8> pack;
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            const i32 pixel = (first + k) / CHANNELS, channel = (first + k) % CHANNELS;
            const i32 y = 2 * i + pixel / 2 - g.top, z = 2 * j + pixel % 2 - g.left;
            const bool inside = pixel < 4 && y >= 0 && y < g.height && z >= 0 && z < g.width;
            const i64 from = image * g.stride[0] + y * g.stride[1] + z * g.stride[2];
            pack.at[k] = inside ? x[from + channel * g.stride[3]] : to<S>(0.0f);
        }
        reinterpret_cast<Pack<S, 8>*>(out)[e] = pack;
    }
#else
    const i32 total = g.n * g.height * g.width * CHANNELS;
    for (i32 e = blockIdx.x * 256 + threadIdx.x; e < total; e += step) {
        const i32 channel = e % CHANNELS, place = e / CHANNELS, z = place % g.width, above = place / g.width;
        const i32 y = above % g.height, image = above / g.height;
        const i64 row = ((i64)image * g.rows + y / 2) * g.columns + z / 2;
        out[e] = x[row * WIDTH + (y % 2 * 2 + z % 2) * CHANNELS + channel];
    }
#endif
}
