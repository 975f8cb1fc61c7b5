"""Samples of the random rows: parameters, seed and draw number, then shape, dtype and device."""

from __future__ import annotations

import numpy as np

import ruda
from ruda.core.devices import Device
from ruda.core.errors import ArgumentError, DTypeError, GradientError, ShapeError, StrategyError
from tests.table.sample import Bad, Sample

CPU = Device("cpu")
R = ruda.random

SAMPLES = {
    "uniform": [
        Sample((0.0, 1.0, 7, 2), ((3, 4), ruda.float32, CPU)),
        Sample((-1.0, 3.0, 2**63, 2**40), ((5,), ruda.bfloat16, CPU)),
        Sample((-1, 3, 0, 0), ((0, 2), ruda.float64, CPU)),
    ],
    "normal": [
        Sample((0.0, 1.0, 7, 2), ((3, 3), ruda.float32, CPU)),
        Sample((1.0, 2.0, 7, 2), ((5,), ruda.float16, CPU)),
    ],
    "truncated_normal": [Sample((0.0, 1.0, -2.0, 2.0, 7, 2), ((3, 4), ruda.float32, CPU))],
    "exponential": [Sample((2.0, 7, 2), ((3, 4), ruda.float64, CPU))],
    "gamma": [
        Sample((0.5, 2.0, 7, 2), ((3, 4), ruda.float32, CPU)),
        Sample((np.array([1, 2, 3]), 1.0, 7, 2), ((2, 3), ruda.float32, CPU)),
    ],
    "integers": [
        Sample((-5, 5, 7, 2), ((3, 4), ruda.int32, CPU)),
        Sample((0, 2**64, 7, 2), ((3,), ruda.uint64, CPU)),
    ],
    "bernoulli": [
        Sample((0.3, 7, 2), ((3, 4), CPU)),
        Sample((np.array([0, 1]), 7, 2), ((3, 2), CPU)),
    ],
    "dropout_mask": [Sample((0.3, 7, 2), ((3, 4), CPU))],
    "permutation": [Sample((7, 2), (5, CPU)), Sample((7, 2), (0, CPU))],
    "categorical": [
        Sample((np.array([[0.1, 0.9], [1.0, 0.0]]), 7, 2), (3, False, True)),
        Sample((np.array([0.5, -0.5, 2.0]), 7, 2), (2, True, False)),
    ],
}

# Draws are constants: nothing to differentiate in them.
NO_GRADIENT = dict.fromkeys(
    ("uniform", "normal", "truncated_normal", "exponential", "gamma"), "a draw is a constant"
)

BAD = [
    Bad(lambda: R.uniform((2,), 1.0, 0.0), ArgumentError, "uniform: the interval is empty"),
    Bad(lambda: R.uniform((2,), dtype="int32"), DTypeError, "uniform: no random numbers"),
    Bad(lambda: R.normal(), ShapeError, "normal: needs a shape"),
    Bad(lambda: R.normal((2,), std=-1.0), ArgumentError, "normal: std is no width"),
    Bad(lambda: R.normal((3,), mean=ruda.zeros(2)), ShapeError, "does not broadcast"),
    Bad(lambda: R.exponential((2,), 0.0), ArgumentError, "exponential: scale is no width"),
    Bad(lambda: R.gamma((2,), -1.0), ArgumentError, "gamma: concentration"),
    Bad(
        lambda: R.gamma(None, ruda.ones(2).requires_grad_()),
        GradientError,
        "no gradient in the concentration",
    ),
    Bad(lambda: R.truncated_normal((2,), low=1.0, high=0.0), ArgumentError, "interval is empty"),
    Bad(lambda: R.bernoulli(1.5, (2,)), ArgumentError, "bernoulli: p is no probability"),
    Bad(lambda: R.integers(5, 5, (2,)), ArgumentError, "integers: the interval is empty"),
    Bad(lambda: R.integers(0, 300, (2,), dtype="int8"), ArgumentError, "leaves int8"),
    Bad(lambda: R.integers(0, 3, (2,), dtype="float32"), DTypeError, "not an integer dtype"),
    Bad(lambda: R.permutation(-1), ArgumentError, "permutation: the length is negative"),
    Bad(lambda: R.categorical(ruda.asarray([0.0, 0.0])), ArgumentError, "too few possible"),
    Bad(lambda: R.multinomial(ruda.ones(2), 3), ArgumentError, "cannot draw so many"),
    Bad(lambda: R.normal((2,), generator=3), DTypeError, "normal: not a generator"),
    Bad(lambda: R.Generator(-1), ArgumentError, "Generator: seed does not fit"),
    Bad(
        lambda: R.uniform((2,), device="cpu", generator=R.Generator(0, engine="vendor")),
        StrategyError,
        "no generator of a vendor's library is there",
    ),
    Bad(lambda: R.Generator(0, engine="mt19937"), ArgumentError, "unknown engine"),
    Bad(lambda: R.Generator(0).load_state_dict({"seed": 1}), ArgumentError, "load_state_dict"),
    Bad(lambda: R.Generator(0).jump(-1), ArgumentError, "streams is negative"),
]
