"""Samples of waves, rotations and slopes."""

from __future__ import annotations

from typing import Any

import ruda
from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from ruda.ops.positions import (
    alibi_bias,
    alibi_slopes,
    apply_rotary,
    rotary_frequencies,
    sinusoidal_positions,
)
from tests.table.sample import Bad, Composed, Sample


def _interleaved(x: Any, cos: Any, sin: Any) -> Any:
    return apply_rotary(x, cos, sin, interleaved=True)


def _biased(slopes: Any) -> Any:
    return alibi_bias(slopes, ruda.arange(2, 5), ruda.arange(4))


def _waves(scale: Any) -> Any:
    return scale * sinusoidal_positions(ruda.arange(5), 6, dtype=scale.dtype)


_ROTARY = ((2, 3, 4, 8), (4, 4), (4, 4))
SAMPLES = {
    "rotary": [
        Sample(_ROTARY, (False, False)),
        Sample(_ROTARY, (True, True)),
        Sample(((2, 3, 6), (2, 1, 3), (3,)), (False, True)),
        Sample(((5, 1, 16), (5, 1, 8), (5, 1, 8)), (True, False)),
        Sample(((0, 4), (2,), (2,)), (False, False)),
    ],
}

COMPOSED = [
    Composed("apply_rotary", apply_rotary, ((2, 3, 4, 6), (4, 3), (4, 3))),
    Composed("apply_rotary-partial", apply_rotary, ((2, 1, 4, 6), (2, 1, 4, 2), (2, 1, 4, 2))),
    Composed("apply_rotary-interleaved", _interleaved, ((3, 4, 6), (4, 3), (4, 3))),
    Composed("alibi_bias", _biased, ((3,),)),
    Composed("sinusoidal_positions", _waves, ((5, 6),)),
]

ONE = ruda.ones
BAD = [
    Bad(
        lambda: apply_rotary(ONE((2, 3)), ONE((2, 2)), ONE((2, 2))),
        ShapeError,
        "apply_rotary: angles do not fit",
    ),
    Bad(
        lambda: apply_rotary(ONE((2, 4)), ONE((3, 2)), ONE((3, 2))),
        ShapeError,
        "apply_rotary: angles do not fit",
    ),
    Bad(lambda: sinusoidal_positions(ONE(2), 4), DTypeError, "sinusoidal_positions: positions"),
    Bad(
        lambda: sinusoidal_positions(ruda.arange(2), 3),
        ArgumentError,
        "sinusoidal_positions: width is not even",
    ),
    Bad(
        lambda: rotary_frequencies(4, scaling={"rope_type": "spiral"}),
        ArgumentError,
        "rotary_frequencies: unknown scaling",
    ),
    Bad(
        lambda: rotary_frequencies(4, scaling={"rope_type": "linear", "speed": 2}),
        ArgumentError,
        "rotary_frequencies: linear scaling",
    ),
    Bad(lambda: alibi_slopes(0), ArgumentError, "alibi_slopes: heads"),
    Bad(
        lambda: alibi_bias(ONE((2, 1)), ruda.arange(2), ruda.arange(2)),
        ShapeError,
        "alibi_bias: one axis each",
    ),
]
