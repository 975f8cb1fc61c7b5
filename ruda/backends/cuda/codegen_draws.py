"""CUDA C of steps that draw random numbers: the words of their elements, and what becomes of them.

Word ``i`` of a draw belongs to element ``i`` of the step's result, counted row by row, as in the
rows of the table: a fused draw gives the numbers of one that is not.
"""

from __future__ import annotations

from dataclasses import dataclass

HEADER = '#include "ruda/philox.cuh"\n'

# N words from element ``first`` on, a multiple of N.
FUNCTIONS = """
template <int N> __device__ __forceinline__ void words(Key key, u64 first, u32 (&out)[N]) {
    if constexpr (N >= 4) {
#pragma unroll
        for (int b = 0; b < N / 4; ++b) philox(key, first / 4 + b, 0, out + 4 * b);
    } else {
        u32 w[4];
        philox(key, first / 4, 0, w);
        const u32 at = (u32)first & 3u;
        if constexpr (N == 2) {
            out[0] = at ? w[2] : w[0];
            out[1] = at ? w[3] : w[1];
        } else {
            out[0] = at < 2u ? (at ? w[1] : w[0]) : (at == 2u ? w[2] : w[3]);
        }
    }
}
__device__ __forceinline__ float held(float x, float least, float greatest) {
    return x < least ? least : (x > greatest ? greatest : x);
}
"""


@dataclass(frozen=True)
class Draw:
    """Step ``step`` draws; ``numbers`` are its parameters by value beside seed and draw number.

    Each is (C type, name); the step's expression calls the word ``word``.
    """

    step: int
    numbers: tuple[tuple[str, str], ...]


def lines(draw: Draw, count: int, first: str, indent: str) -> list[str]:
    """The words of a pack that begins at element ``first``."""
    name = f"d{draw.step}"
    return [
        f"{indent}u32 {name}_words[{count}];",
        f"{indent}words<{count}>(key_of({name}_seed, {name}_draw), {first}, {name}_words);",
    ]


def parameters(draw: Draw) -> list[str]:
    """Seed, draw number and the rest, by value."""
    own = [("u64", "seed"), ("u64", "draw"), *draw.numbers]
    return [f"const {kind} d{draw.step}_{name}" for kind, name in own]


def arguments(draw: Draw, word: str) -> list[str]:
    """What the function of the step takes beside its operands."""
    return [f"d{draw.step}_words[{word}]", *(f"d{draw.step}_{name}" for _, name in draw.numbers)]
