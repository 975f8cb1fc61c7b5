"""Samples of the affine map."""

from __future__ import annotations

import ruda
from ruda.core.errors import DTypeError, ShapeError
from ruda.ops.linear import linear
from tests.table.sample import Bad, Composed, Sample

SAMPLES = {
    "linear": [
        Sample(((2, 3, 4), (5, 4), (5,))),
        Sample(((3, 4), (5, 4), None)),
        Sample(((4,), (5, 4), (5,))),
        Sample(((0, 4), (5, 4), (5,))),
    ]
}

COMPOSED = [
    Composed("linear", linear, ((2, 3, 4), (5, 4), (5,))),
    Composed("linear-bare", linear, ((3, 4), (5, 4))),
    Composed("linear-row", linear, ((4,), (5, 4), (5,))),
]

BAD = [
    Bad(lambda: linear(ruda.ones((2, 3)), ruda.ones((4, 2))), ShapeError, "linear: the input"),
    Bad(
        lambda: linear(ruda.ones((2, 3)), ruda.ones((4, 3)), ruda.ones(4, dtype="float64")),
        DTypeError,
        "linear: bias has another dtype",
    ),
]
