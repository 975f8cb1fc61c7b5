"""Samples of the losses that sum over alignments: CTC and transducers."""

from __future__ import annotations

import numpy as np

import ruda
from ruda.core.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
from ruda.ops.ctc import ctc_loss
from ruda.ops.transducer import rnnt_loss
from tests.table.sample import Bad, Composed, Sample

# Repeats, an empty target, a label past the end, and a target too long for its frames.
TARGETS = np.array([[1, 1, 3], [0, 1, 3], [3, 1, 0], [1, 3, 1]])
FRAMES = np.array([5, 3, 4, 2])
LENGTHS = np.array([3, 0, 2, 3])
NONE = np.zeros((2, 0), np.int64)

STEPS = (2, 3, 3)
UP_TO = (np.array([3, 2]), np.array([2, 1]))

SAMPLES = {
    "ctc": [
        Sample(((5, 3, 4), TARGETS[:3], FRAMES[:3], LENGTHS[:3]), (2,)),
        Sample(((5, 4, 4), TARGETS, FRAMES, LENGTHS), (2,), grad=False),
        Sample(((3, 2, 4), NONE, np.array([3, 0]), np.array([0, 0])), (0,)),
        Sample(((0, 2, 4), NONE, np.array([0, 0]), np.array([0, 0])), (0,)),
    ],
    "ctc_backward": [
        Sample(((3,), (5, 3, 4), TARGETS[:3], FRAMES[:3], LENGTHS[:3]), (2,)),
        Sample(((4,), (5, 4, 4), TARGETS, FRAMES, LENGTHS), (2,)),
        Sample(((2,), (3, 2, 4), NONE, np.array([3, 0]), np.array([0, 0])), (0,)),
    ],
    "transducer": [
        Sample((STEPS, STEPS, *UP_TO)),
        Sample(((2, 2, 1), (2, 2, 1), np.array([2, 0]), np.array([0, 0]))),
    ],
    "transducer_backward": [
        Sample(((2,), STEPS, STEPS, *UP_TO)),
        Sample(((2,), (2, 2, 1), (2, 2, 1), np.array([2, 0]), np.array([0, 0]))),
    ],
}

X = ruda.zeros((4, 2, 5))
Y = ruda.ones((2, 3), dtype="int64")
LOGITS = ruda.zeros((2, 3, 4, 5))

BAD = [
    Bad(lambda: ctc_loss(X, Y, [4, 5], [3, 3]), ArgumentError, "an input length does not fit"),
    Bad(lambda: ctc_loss(X, Y, [4, 4], [3, 4]), ArgumentError, "a target length does not fit"),
    Bad(lambda: ctc_loss(X, Y, [4], [3, 3]), ShapeError, "input_lengths does not fit"),
    Bad(lambda: ctc_loss(X, Y, [4, 4], [3, 3], 1), IndexRangeError, "no such label"),
    Bad(lambda: ctc_loss(X, Y * 5, [4, 4], [3, 3]), IndexRangeError, "Got 5 at"),
    Bad(lambda: ctc_loss(X, Y, [4, 4], [3, 3], 5), ArgumentError, "blank is no class"),
    Bad(lambda: ctc_loss(X, Y[0], [4, 4], [3, 3]), ShapeError, "concatenated targets"),
    Bad(lambda: ctc_loss(X, Y[:1], [4, 4], [3, 3]), ShapeError, "batches differ"),
    Bad(lambda: ctc_loss(X, Y * 1.0, [4, 4], [3, 3]), DTypeError, "targets are no labels"),
    Bad(lambda: ctc_loss(X, Y, [4, 4], [3, 3], reduction="avg"), ArgumentError, "reduction"),
    Bad(lambda: rnnt_loss(LOGITS, Y[:, :2], [3, 3], [3, 3]), ShapeError, "targets do not fit"),
    Bad(lambda: rnnt_loss(LOGITS, Y, [3, 4], [3, 3]), ArgumentError, "a logit length"),
    Bad(lambda: rnnt_loss(LOGITS, Y, [3, 3], [3, 4]), ArgumentError, "a target length"),
    Bad(lambda: rnnt_loss(LOGITS, Y * 5, [3, 3], [3, 3]), IndexRangeError, "out of range"),
    Bad(lambda: rnnt_loss(LOGITS, -Y, [3, 3], [3, 3]), IndexRangeError, "out of range"),
    Bad(lambda: rnnt_loss(LOGITS, Y, [3, 3], [3, 3], 5), ArgumentError, "blank is no class"),
    Bad(lambda: rnnt_loss(LOGITS[0], Y, [3, 3], [3, 3]), ShapeError, "ranks do not fit"),
]

COMPOSED = [
    Composed(
        "ctc_loss",
        lambda x: ctc_loss(x, ruda.asarray(TARGETS[:3]), [5, 3, 4], ruda.asarray([3, 0, 2]), 2),
        ((5, 3, 4),),
    ),
    Composed(
        "rnnt_loss",
        lambda x: rnnt_loss(x, ruda.asarray([[0, 1], [2, 9]]), [3, 2], [2, 1]),
        ((2, 3, 3, 4),),
    ),
]
