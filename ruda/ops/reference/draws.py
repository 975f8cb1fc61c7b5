"""From Philox words to elements: dense draws, draws by rejection, and the unit interval.

An element of a draw owns ``width`` consecutive words, so the words of element e are e * width to
(e + 1) * width - 1 whatever the shape: a GPU thread that takes whole blocks needs no neighbour.
Rejected elements read the same positions again under the next attempt of the counter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ruda.ops.reference import philox
from ruda.ops.reference.philox import Words

Array = NDArray[Any]
Where = slice | Array
Transform = Callable[[Words], Array]
Proposal = Callable[[Words, Where], tuple[Array, Array]]

ATTEMPTS = 1 << philox.ATTEMPT_BITS


def generate(
    seed: int, draw: int, n: int, width: int, dtype: np.dtype[Any], transform: Transform
) -> Array:
    """n elements; transform maps words [m * width] to elements [m], and must not keep its input."""
    out = np.empty(n, dtype)
    for start, chunk in philox.chunks(seed, draw, n * width):
        first = start // width
        values = transform(chunk)
        out[first : first + values.size] = values[: n - first]
    return out


def accept(
    seed: int, draw: int, n: int, width: int, dtype: np.dtype[Any], propose: Proposal
) -> Array:
    """n elements by rejection; propose maps words [m, width] and their place to (values, accepted).

    Raises RuntimeError when an element is refused under every attempt, which no valid parameter
    does with a probability above 2**-10000.
    """
    out = np.empty(n, dtype)
    refused = [np.empty(0, np.int64)]
    for start, chunk in philox.chunks(seed, draw, n * width):
        first = start // width
        rows = chunk.reshape(-1, width)[: n - first]
        place = slice(first, first + len(rows))
        out[place], good = propose(rows, place)
        refused.append(np.flatnonzero(~good) + first)
    pending = np.concatenate(refused)
    for attempt in range(1, ATTEMPTS):
        if not pending.size:
            return out
        rows = philox.words_of(seed, draw, pending.astype(np.uint64), width, attempt)
        values, good = propose(rows, pending)
        out[pending[good]] = values[good]
        pending = pending[~good]
    raise RuntimeError(f"random: {pending.size} elements were refused {ATTEMPTS} times.")


def compute_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """float64 for float64; float32 for float32 and the half dtypes, which round once at the end."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def word_width(real: np.dtype[Any]) -> int:
    """32-bit words in one number of the compute dtype."""
    return real.itemsize // 4


def numbers(words: Words, real: np.dtype[Any]) -> Array:
    """The words joined to the width of the compute dtype, the first word low."""
    if real.itemsize == 4:
        return words
    # Views on a little-endian host, and the same numbers on any other.
    return words.astype("<u4", copy=False).view("<u8").astype(np.uint64, copy=False)


def unit(words: Array, real: np.dtype[Any]) -> Array:
    """Uniform on [0, 1): the top 24 bits of a 32-bit word, or the top 53 of a 64-bit one."""
    bits = 24 if real.itemsize == 4 else 53
    out: Array = (words >> words.dtype.type(8 * words.itemsize - bits)).astype(real)
    out *= real.type(2.0**-bits)
    return out


def open_unit(words: Array, real: np.dtype[Any]) -> Array:
    """Uniform on (0, 1], fine near 0, for logarithms: (word + 1/2) / 2**bits, rounded."""
    bits = 8 * words.itemsize
    out = words.astype(real)
    out *= real.type(2.0**-bits)
    out += real.type(2.0 ** -(bits + 1))
    return out
