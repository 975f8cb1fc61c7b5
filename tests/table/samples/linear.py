"""Samples of the affine map, alone and under cross-entropy."""

from __future__ import annotations

import numpy as np

import ruda
from ruda.core.dtypes import float32, float64
from ruda.core.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
from ruda.ops.linear import linear
from ruda.ops.linear_cross_entropy import linear_cross_entropy
from ruda.ops.table import TABLE
from tests.table.sample import Bad, Composed, Sample

LABELS = np.array([1, -100, 3])
PLACES = np.array([1, -2, 4])
ALL, FIRST, NONE = (True,) * 3, (True, False, False), (False,) * 3
FIXED = ("target", "count")
SMOOTHED, PLAIN = (-100, 0.1, 0.01), (-100, 0.0, 0.0)

SAMPLES = {
    "linear": [
        Sample(((2, 3, 4), (5, 4), (5,))),
        Sample(((3, 4), (5, 4), None)),
        Sample(((4,), (5, 4), (5,))),
        Sample(((0, 4), (5, 4), (5,))),
    ],
    "linear_weight_backward": [
        Sample(((2, 3, 5), (2, 3, 4))),
        Sample(((3, 5), (3, 4))),
        Sample(((5,), (4,))),
        Sample(((0, 5), (0, 4))),
    ],
    "linear_cross_entropy": [
        Sample(((3, 2), (4, 2), LABELS, (4,)), SMOOTHED, constants=("target",)),
        Sample(((3, 2), (4, 2), LABELS, None), PLAIN, constants=("target",)),
        Sample(((0, 2), (4, 2), LABELS[:0], (4,)), PLAIN, constants=("target",)),
    ],
    "linear_cross_entropy_backward": [
        Sample(((3,), (3,), (3, 2), (4, 2), LABELS, (4,), (3,)), SMOOTHED),
        Sample(((3,), None, (3, 2), (4, 2), LABELS, None, (3,)), PLAIN),
        Sample((None, (3,), (3, 2), (4, 2), LABELS, None, (3,)), PLAIN),
    ],
    # The gradients are for the tape: only the loss is differentiated.
    "linear_cross_entropy_sum": [
        Sample(((3, 2), (4, 2), LABELS, (4,), np.array(2)), (*SMOOTHED, NONE), constants=FIXED),
        Sample(((3, 2), (4, 2), LABELS, (4,), np.array(2)), (*SMOOTHED, ALL), grad=False),
        Sample(((3, 2), (4, 2), LABELS, None, None), (*PLAIN, FIRST), grad=False),
        Sample(((0, 2), (4, 2), LABELS[:0], (4,), None), (*PLAIN, ALL), grad=False),
    ],
    "linear_cross_entropy_scaled": [
        Sample(((3, 4), ()), (False,)),
        Sample(((0, 4), ()), (False,)),
    ],
    "class_gradient": [
        Sample(((3, 4), PLACES, *[(3,)] * 4), (float32,), (float32,)),
        Sample(((3, 4), PLACES, *[(3,)] * 4), (float64,), (float64,)),
        Sample(((0, 4), PLACES[:0], *[(0,)] * 4), (float32,), (float32,)),
        Sample(((3, 0), PLACES, *[(3,)] * 4), (float32,), (float32,)),
    ],
}

COMPOSED = [
    Composed("linear", linear, ((2, 3, 4), (5, 4), (5,))),
    Composed("linear-bare", linear, ((3, 4), (5, 4))),
    Composed("linear-row", linear, ((4,), (5, 4), (5,))),
    Composed(
        "linear_cross_entropy",
        lambda x, w, b: linear_cross_entropy(x, w, ruda.asarray(LABELS), bias=b),
        ((3, 2), (4, 2), (4,)),
    ),
    Composed(
        "linear_cross_entropy-sum",
        lambda x, w: linear_cross_entropy(
            x, w, ruda.asarray(LABELS), reduction="sum", label_smoothing=0.1, z_loss=0.01
        ),
        ((3, 2), (4, 2)),
    ),
]


def loss(*shape: int, target: object = LABELS, dtype: str = "float32", **options: object) -> object:
    weight = ruda.ones((4, 2), dtype=dtype)
    return linear_cross_entropy(ruda.ones(shape), weight, ruda.asarray(target), **options)


BAD = [
    Bad(lambda: linear(ruda.ones((2, 3)), ruda.ones((4, 2))), ShapeError, "linear: the input"),
    Bad(
        lambda: linear(ruda.ones((2, 3)), ruda.ones((4, 3)), ruda.ones(4, dtype="float64")),
        DTypeError,
        "linear: bias has another dtype",
    ),
    Bad(
        lambda: linear(ruda.ones((2, 3), dtype="float64"), ruda.ones((4, 3))),
        DTypeError,
        "linear: input and weight differ in dtype",
    ),
    Bad(
        lambda: TABLE["linear_weight_backward"].call(ruda.ones((2, 3)), ruda.ones((3, 3))),
        ShapeError,
        "the rows do not fit",
    ),
    Bad(lambda: loss(3, 5), ShapeError, "hidden and weight do not fit"),
    Bad(lambda: loss(4, 2), ShapeError, "the target does not fit"),
    Bad(lambda: loss(3, 2, bias=ruda.ones(3)), ShapeError, "one bias per class"),
    Bad(lambda: loss(3, 2, target=LABELS + 1), IndexRangeError, "linear_cross_entropy: no such"),
    Bad(lambda: loss(3, 2, target=LABELS / 1), DTypeError, "class indices"),
    Bad(lambda: loss(3, 2, dtype="float64"), DTypeError, r"Try weight.astype\('float32'\)"),
    Bad(lambda: loss(3, 2, reduction="avg"), ArgumentError, "unknown reduction"),
    Bad(lambda: loss(3, 2, label_smoothing=2), ArgumentError, "^linear_cross_entropy: label"),
]
