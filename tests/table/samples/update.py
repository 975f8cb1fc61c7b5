"""Samples of the optimizer steps: parameter, gradient and state alike, the rest 0-d."""

from __future__ import annotations

import itertools

import numpy as np

import ruda
from ruda.core.errors import DTypeError, ShapeError
from ruda.ops.update import adamw_step, momentum_step, sgd_step
from ruda.ops.update_formulas import rmsprop_step
from tests.table.sample import Bad, Sample

_FLAGS = list(itertools.product((False, True), repeat=2))
_RATE = 0.05


def _counted(steps: int) -> np.ndarray:
    return np.asarray(steps, np.int64)


SAMPLES = {
    "sgd_step": [
        Sample(((3, 5), (3, 5), _RATE, decay), (maximize,))
        for maximize, decay in itertools.product((False, True), (None, 0.1))
    ],
    "momentum_step": [
        Sample(((7,), (7,), (7,), _counted(steps), _RATE, 0.9, 0.1, 0.1), flags)
        for flags, steps in itertools.product(_FLAGS, (0, 3))
    ],
    "adamw_step": [
        Sample(((7,), (7,), (7,), (7,), _counted(2), _RATE, 0.9, 0.99, 1e-3, 0.1), flags)
        for flags in _FLAGS
    ]
    + [
        Sample(((7,), (7,), (7,), (7,), _counted(0), _RATE, 0.9, 0.99, 1e-3, None), flags)
        for flags in _FLAGS[1:3]
    ],
    "adan_step": [
        Sample(((7,),) * 6 + (_counted(steps), _RATE, 0.98, 0.92, 0.99, 1e-3, decay), flags)
        for flags, steps, decay in zip(_FLAGS, (0, 2, 2, 0), (0.1, 0.1, None, 0.1), strict=True)
    ],
    "lion_step": [
        Sample(((7,),) * 3 + (_RATE, 0.9, 0.99, decay), (maximize,))
        for maximize, decay in itertools.product((False, True), (None, 0.1))
    ],
}

for _name, _alike, _settings in (
    ("rmsprop_step", 3, (0.9, 1e-3)),
    ("adagrad_step", 3, (0.1, 1e-3)),
    ("adadelta_step", 4, (0.9, 1e-3)),
    ("amsgrad_step", 5, (0.9, 0.99, 1e-3)),
    ("nadam_step", 4, (0.6, 0.9, 0.99, 1e-3, 4e-3)),
    ("radam_step", 4, (0.9, 0.99, 1e-3)),
):
    SAMPLES[_name] = [
        Sample(((7,),) * _alike + (_counted(steps), _RATE, *_settings, decay), flags)
        for flags, steps, decay in zip(_FLAGS, (0, 9, 2, 9), (0.1, 0.1, None, 0.1), strict=True)
    ]


def _float(*shape: int, dtype: str = "float32") -> ruda.Tensor:
    return ruda.ones(shape, dtype=dtype)


def _count() -> ruda.Tensor:
    return ruda.asarray(0, dtype="int64")


_BETAS = (0.9, 0.99, 1e-8, 0.0, True, False)
BAD = [
    Bad(lambda: sgd_step(_float(3), _float(4), 0.1, 0.0, False), ShapeError, "sgd_step: g does"),
    Bad(
        lambda: sgd_step(_float(3), _float(3), _float(3), 0.0, False), ShapeError, "lr does not fit"
    ),
    Bad(
        lambda: sgd_step(ruda.arange(3), _float(3), 0.1, 0.0, False),
        DTypeError,
        "sgd_step: p has the wrong dtype",
    ),
    Bad(
        lambda: momentum_step(
            *[_float(3)] * 2, _float(3, dtype="float64"), _count(), 0.1, 0.9, 0, 0, False, False
        ),
        DTypeError,
        "momentum_step: b has the wrong dtype. Got float64. Expected float32",
    ),
    Bad(
        lambda: adamw_step(*[_float(3)] * 4, _float(), 0.1, *_BETAS),
        DTypeError,
        "adamw_step: the step does not count",
    ),
    Bad(
        lambda: rmsprop_step(*[_float(3)] * 2, _float(4), _count(), 0.1, 0.9, 1e-8, 0, True, False),
        ShapeError,
        "rmsprop_step: v does not fit",
    ),
]
