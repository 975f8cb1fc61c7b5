"""Samples of the elementwise families, where the domain of the row does not say enough."""

from __future__ import annotations

import numpy as np

import ruda
from ruda.core.dtypes import FLOAT, INEXACT
from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from tests.table.sample import Bad, Composed, Sample

_PAIRS = [Sample(((3, 5), (3, 5))), Sample(((3, 5), (5,)))]
_TRUTHS = np.arange(15).reshape(3, 5) % 3 == 0

SAMPLES = {
    "where": [
        Sample((_TRUTHS, (3, 5), (3, 5))),
        Sample((_TRUTHS[:1], (3, 1), ())),
        Sample((_TRUTHS, 0, (3, 5))),
        Sample((_TRUTHS, (3, 5), 1)),
    ],
    "clip": [
        Sample(((3, 5), 0, 1)),
        Sample(((3, 5), -1.5, 0.5), dtypes=FLOAT),
        Sample(((3, 5), (5,), (3, 1))),
        Sample(((3, 5), 1, (3, 5))),
    ],
    "polygamma": [Sample(((3, 5),), (order,)) for order in (1, 2, 5)],
    "pow": [
        *_PAIRS,
        *(Sample(((3, 5), n)) for n in (3, 2.0, 0.5, 0)),
        Sample(((3, 5), -1), dtypes=INEXACT),
    ],
    "swiglu": _PAIRS,
    "swiglu_backward": [Sample(((3, 5), (3, 5), (3, 5))), Sample(((3, 5), (5,), (3, 1)))],
    "sigmoid_backward": _PAIRS,
    "tanh_backward": _PAIRS,
    "relu_backward": _PAIRS,
    "silu_backward": _PAIRS,
    "gelu_backward": _PAIRS,
    "gelu_tanh_backward": _PAIRS,
}

_MASK = ruda.asarray([True, False])
_WHOLE = ruda.asarray([1, 2])
_COMPLEX = ruda.asarray([1j, 2.0])
_REAL = ruda.asarray([1.0, 2.0])

BAD = [
    Bad(lambda: -_MASK, DTypeError, "negative: "),
    Bad(lambda: +_MASK, DTypeError, "positive: "),
    Bad(lambda: _MASK - _MASK, DTypeError, "subtract: bool is not a number"),
    Bad(lambda: ruda.sign(_MASK), DTypeError, "sign: "),
    Bad(lambda: _WHOLE**-1, ArgumentError, "pow: an integer to a negative power"),
    Bad(lambda: ruda.pow(_WHOLE, -1), ArgumentError, "pow: an integer to a negative power"),
    Bad(lambda: _WHOLE**-_WHOLE, ArgumentError, "pow: an integer to a negative power"),
    Bad(lambda: _COMPLEX < _COMPLEX, DTypeError, "less: "),
    Bad(lambda: ruda.maximum(_COMPLEX, 0), DTypeError, "maximum: "),
    Bad(lambda: ruda.floor(_COMPLEX), DTypeError, "floor: "),
    Bad(lambda: _COMPLEX // 2, DTypeError, "floor_divide: "),
    Bad(lambda: _REAL & 1, DTypeError, "bitwise_and: "),
    Bad(lambda: _WHOLE << 1.0, DTypeError, "bitwise_left_shift: "),
    Bad(lambda: ~_REAL, DTypeError, "bitwise_invert: "),
    Bad(lambda: ruda.where(_WHOLE, 1, 0), DTypeError, "where: the condition is not bool"),
    Bad(lambda: _REAL + ruda.asarray([1.0, 2.0, 3.0]), ShapeError, "add: shapes do not broadcast"),
    Bad(lambda: ruda.gelu(_REAL, "erf"), ArgumentError, "gelu: unknown approximation"),
    Bad(lambda: ruda.polygamma(-1, _REAL), ArgumentError, "polygamma: a negative order"),
    Bad(lambda: ruda.glu(ruda.asarray([1.0, 2.0, 3.0])), ShapeError, "glu: "),
    Bad(lambda: ruda.prelu(ruda.zeros((2, 3)), _REAL), ShapeError, "prelu: one slope"),
]

NO_GRADIENT = {"nextafter": "a step of one unit in the last place is no function to differentiate"}

COMPOSED = [
    Composed("relu6", ruda.relu6, ((3, 5),), (-3.0, 9.0)),
    Composed("hardsigmoid", ruda.hardsigmoid, ((3, 5),), (-5.0, 5.0)),
    Composed("softplus-beta", lambda x: ruda.softplus(x, 2.0), ((3, 5),)),
    Composed("glu", lambda x: ruda.glu(x, axis=0), ((4, 3),)),
    Composed("leaky_relu", lambda x: ruda.leaky_relu(x, 0.2), ((3, 5),)),
    Composed("elu", lambda x: ruda.elu(x, 0.7), ((3, 5),)),
    Composed("celu", lambda x: ruda.celu(x, 0.7), ((3, 5),)),
    Composed("selu", ruda.selu, ((3, 5),)),
    Composed("mish", ruda.mish, ((3, 5),)),
    Composed("hardtanh", ruda.hardtanh, ((3, 5),)),
    Composed("hardswish", ruda.hardswish, ((3, 5),), (-5.0, 5.0)),
    Composed("softsign", ruda.softsign, ((3, 5),)),
    Composed("tanhshrink", ruda.tanhshrink, ((3, 5),)),
    Composed("softshrink", ruda.softshrink, ((3, 5),)),
    Composed("hardshrink", ruda.hardshrink, ((3, 5),)),
    Composed("threshold", lambda x: ruda.threshold(x, 0.1, 20.0), ((3, 5),)),
    Composed("prelu", ruda.prelu, ((2, 3, 4), (3,))),
    Composed("xlogy", ruda.xlogy, ((3, 5), (5,)), (0.5, 2.0)),
    Composed("clip-below", lambda x: ruda.clip(x, 0.1), ((3, 5),)),
]
