"""The loops of map kernels, as templates that ``codegen`` fills: flat, strided, packed, tiled, and
flat over many tensors.
"""

from __future__ import annotations

FLAT = """{function}
// out and dense operands: n elements. 16-byte accesses where all addresses allow them.
extern "C" __global__ void __launch_bounds__({threads})
{name}({parameters}, {index} n, u32 aligned) {{
    wait_for_earlier();
{singles}
    const {index} start = ({index})blockIdx.x * {threads} + threadIdx.x;
    const {index} step = ({index})gridDim.x * {threads};
    const {index} packs = aligned ? n / {count} : 0;
    for ({index} p = start; p < packs; p += {deep} * step) {{
{declared}
#pragma unroll
        for (int d = 0; d < {deep}; ++d) {{
            const {index} q = p + d * step;
            if (d > 0 && q >= packs) break;
{packs}
        }}
#pragma unroll
        for (int d = 0; d < {deep}; ++d) {{
            const {index} q = p + d * step;
            if (d > 0 && q >= packs) break;
            Pack<{out}, {count}> result;
#pragma unroll
            for (int k = 0; k < {count}; ++k) result.at[k] = apply({from_packs});
            reinterpret_cast<Pack<{out}, {count}>*>(out)[q] = result;
        }}
    }}
    for ({index} i = packs * {count} + start; i < n; i += step) out[i] = apply({from_memory});
}}
"""

# From the row-major number of an element to its coordinates, and to a place in each operand.
WALK = """    for ({index} i = ({index})blockIdx.x * {threads} + threadIdx.x; i < at.n;
         i += ({index})gridDim.x * {threads}) {{
        {index} rest = i{zeros};
#pragma unroll
        for (int d = {rank} - 1; d > 0; --d) {{
            const {index} whole = rest / at.size[d], k = rest - whole * at.size[d];
{steps}
            rest = whole;
        }}
{heads}
"""

# A kernel over strides as far as the places in its operands, behind what ``function`` defines.
WALKING = (
    """{function}
struct Geometry {{ {index} n, size[{rank}]{fields}; }};

// Coordinates from the row-major number of an element, or of a pack of them: n, the last size and
// the strides along it count packs then. A stride for each operand that needs one.
extern "C" __global__ void __launch_bounds__({threads})
{name}({parameters}, const Geometry at) {{
    wait_for_earlier();
{singles}
"""
    + WALK
)

STRIDED = (
    WALKING
    + """        out[{target}] = apply({from_memory});
    }}
}}
"""
)

# As STRIDED, over packs of ``count`` neighbours along the last dimension: n and the last size
# count packs. Every address is a multiple of a pack; an operand that repeats along the last
# dimension gives its one element to all of the pack.
PACKED = (
    WALKING
    + """{packs}
        Pack<{out}, {count}> result;
#pragma unroll
        for (int k = 0; k < {count}; ++k) result.at[k] = apply({from_packs});
        *reinterpret_cast<Pack<{out}, {count}>*>({target}) = result;
    }}
}}
"""
)

# The tile of a block, and where the operands begin for it.
TILE = """    const {index} na = at.size[{rank} - 1], nb = at.size[{rank} - 2];
    const {index} wide = (na + {tile} - 1) / {tile}, high = (nb + {tile} - 1) / {tile};
    {index} rest = ({index})blockIdx.x / wide{zeros};
    const {index} a0 = (({index})blockIdx.x - rest * wide) * {tile};
    {index} whole = rest / high;
    const {index} b0 = (rest - whole * high) * {tile};
    rest = whole;
#pragma unroll
    for (int d = {rank} - 3; d >= 0; --d) {{
        whole = rest / at.size[d];
        const {index} k = rest - whole * at.size[d];
{steps}
        rest = whole;
    }}
    const int lane = threadIdx.x & 31, row = threadIdx.x >> 5;
"""

# Dimensions: the rest, then b, along which turned operands lie densely, then a, along which the
# output does. A block takes {tile} x {tile} of (b, a): reads along b, turns in shared memory (a
# tile each turned operand, padded so that reading down a column meets every bank), writes along a.
TILED = (
    """{function}
struct Geometry {{ {index} size[{rank}]{fields}; }};

extern "C" __global__ void __launch_bounds__({threads})
{name}({parameters}, const Geometry at) {{
{tiles}
    wait_for_earlier();
{singles}
"""
    + TILE
    + """#pragma unroll
    for (int r = 0; r < {tile}; r += {threads} / 32)
#pragma unroll
        for (int q = 0; q < {tile}; q += 32) {{
            const {index} a = a0 + r + row, b = b0 + q + lane;
            if (a < na && b < nb) {{
{loads}
            }}
        }}
    __syncthreads();
#pragma unroll
    for (int r = 0; r < {tile}; r += {threads} / 32)
#pragma unroll
        for (int q = 0; q < {tile}; q += 32) {{
            const {index} a = a0 + q + lane, b = b0 + r + row;
            if (a < na && b < nb)
                out[out__at + b * at.out_[{rank} - 2] + a * at.out_[{rank} - 1]] =
                    apply({from_memory});
        }}
}}
"""
)

# As TILED for elements of two bytes: pairs are read along b and written along a, both sizes are
# even and all addresses multiples of a pair. Pair p of row r lies r / 2 places further on in its
# row, so that neither rows nor the even or odd ones among them meet in a bank.
PAIRED = (
    """{function}
struct Geometry {{ {index} size[{rank}]{fields}; }};

extern "C" __global__ void __launch_bounds__({threads})
{name}({parameters}, const Geometry at) {{
    __shared__ Pack<{given}, 2> tile[64 * 32];
    wait_for_earlier();
{singles}
"""
    + TILE.replace("{tile}", "64")
    + """#pragma unroll
    for (int q = 0; q < 64; q += {threads} / 32) {{
        const int r = q + row;
        const {index} a = a0 + r, b = b0 + 2 * lane;
        if (a < na && b < nb)
            tile[r * 32 + (lane + r / 2) % 32] = *reinterpret_cast<const Pack<{given}, 2>*>(
                {x}_data + {x}_at + b + a * at.{x}[{rank} - 1]);
    }}
    __syncthreads();
#pragma unroll
    for (int q = 0; q < 32; q += {threads} / 32) {{
        const int p = q + row;
        const {index} a = a0 + 2 * lane, b = b0 + 2 * p;
        if (a >= na || b >= nb) continue;
        const Pack<{given}, 2> even = tile[2 * lane * 32 + (p + lane) % 32];
        const Pack<{given}, 2> odd = tile[(2 * lane + 1) * 32 + (p + lane) % 32];
#pragma unroll
        for (int j = 0; j < 2; ++j) {{
            Pack<{out}, 2> result;
            result.at[0] = apply({from_even});
            result.at[1] = apply({from_odd});
            *reinterpret_cast<Pack<{out}, 2>*>(out + out__at + (b + j) * at.out_[{rank} - 2] + a) =
                result;
        }}
    }}
}}
"""
)

# table: for each tensor where its output and its dense operands lie, and its size; chunks: which
# tensor a block has, and which part of {chunk} elements. Outputs may lie where operands do. Two
# packs are read before the first is written, so that enough is under way.
MANY = """{function}
extern "C" __global__ void __launch_bounds__({threads})
{name}(const u64* __restrict__ table, const u32* __restrict__ chunks{parameters}) {{
    wait_for_earlier();
{singles}
    const u64* word = table + (u64)chunks[2 * blockIdx.x] * {words};
    {out}* out = ({out}*)word[0];
{pointers}
    const i64 n = (i64)word[{words} - 1], from = (i64)chunks[2 * blockIdx.x + 1] * {chunk};
    const i64 end = from + {chunk} < n ? from + {chunk} : n;
{neutral}
    const bool aligned = (({joined}) & 15) == 0;
    const i64 packed_end = aligned ? from + (end - from) / {count} * {count} : from;
    for (i64 i = from + threadIdx.x * {count}; i < packed_end; i += 2 * {threads} * {count}) {{
{declared}
#pragma unroll
        for (int d = 0; d < 2; ++d) {{
            const i64 q = i + d * {threads} * {count};
            if (d > 0 && q >= packed_end) break;
{packs}
        }}
#pragma unroll
        for (int d = 0; d < 2; ++d) {{
            const i64 q = i + d * {threads} * {count};
            if (d > 0 && q >= packed_end) break;
            Pack<{out}, {count}> result;
#pragma unroll
            for (int k = 0; k < {count}; ++k) result.at[k] = apply({from_packs});
            *reinterpret_cast<Pack<{out}, {count}>*>(out + q) = result;
        }}
    }}
    for (i64 i = packed_end + threadIdx.x; i < end; i += {threads}) out[i] = apply({from_memory});
}}
"""
