"""Samples of reductions, scans, ordering and sets."""

from __future__ import annotations

import math

import numpy as np

import ruda
from ruda.core.dtypes import REAL
from ruda.core.errors import ArgumentError, AxisError, DTypeError, IndexRangeError, ShapeError
from tests.table.sample import Bad, Composed, Sample

AXES = [(((2, 3, 4),), ((1,), False)), (((2, 3, 4),), ((0, 2), True)), (((3, 5),), ((0, 1), False))]
EVERY_RANK = [*AXES, (((),), ((), False)), (((2, 3),), ((), True))]
NOTHING = [(((2, 0, 3),), ((1,), False)), (((0,),), ((0,), True))]


def _samples(calls: list[object], *more: object, **columns: object) -> list[Sample]:
    return [Sample(x, (*attrs, *more), **columns) for x, attrs in calls]  # type: ignore[misc, arg-type]


_ZEROS = np.array([[1.5, 0.0, -2.0, 0.5], [0.0, 3.0, 0.0, -1.0], [1.0, 2.0, -0.5, 3.0]])
_TIES = np.array([[1.0, 3.0, 3.0, -1.0], [2.0, 2.0, 2.0, 2.0]])
_SPECIAL = np.array([[math.inf, 1.0, math.nan], [-math.inf, -math.inf, 2.0]])
_FLAGS = np.array([[True, False, True], [False, False, False]])
_SORTED = np.array([-1.0, 0.0, 0.0, 1.5])
_LABELS = np.array([[0, 3], [3, 1]])
_WAYS = [(0, False, False), (1, True, False), (1, False, True), (0, True, True)]

SAMPLES = {
    "sum": [
        *_samples(EVERY_RANK + NOTHING, None),
        Sample(((3, 4),), ((0,), False, ruda.float64), dtypes=REAL),
        Sample(((3, 4),), ((1,), False, ruda.int16), dtypes=(ruda.int8, ruda.bool)),
    ],
    "prod": [
        *_samples(EVERY_RANK + NOTHING, None),
        Sample((_ZEROS,), ((1,), False, None)),
        Sample((_ZEROS,), ((0, 1), False, None)),
    ],
    "mean": [
        *_samples(EVERY_RANK, None),
        Sample(((3, 4),), ((0,), False, ruda.float64), dtypes=REAL),
    ],
    "var": [
        *_samples(AXES, 0.0),
        *_samples(AXES, 1.0),
        Sample(((),), ((), False, 0.0), grad=False),
    ],
    "std": [
        *_samples(AXES, 0.0),
        *_samples(AXES, 1.0),
        Sample((_TIES,), ((1,), True, 0.0), grad=False),
    ],
    "vector_norm": [
        sample
        for order in (2.0, 1.0, math.inf, -math.inf, 3.0, 0.0)
        for sample in _samples(AXES[:2], order)
    ],
    "logsumexp": [
        *_samples(EVERY_RANK),
        *_samples(NOTHING, grad=False),
        Sample((_SPECIAL,), ((1,), False), dtypes=(ruda.float32, ruda.float16), grad=False),
    ],
    "any": [*_samples(EVERY_RANK + NOTHING), Sample((_FLAGS,), ((1,), False))],
    "all": [*_samples(EVERY_RANK + NOTHING), Sample((_FLAGS,), ((0,), False))],
    "count_nonzero": [*_samples(EVERY_RANK + NOTHING), Sample((_ZEROS,), ((1,), False))],
    "cumsum": [Sample(((3, 4),), (*way, None)) for way in _WAYS]
    + [Sample(((3, 4),), (0, False, False, ruda.float64), dtypes=REAL)],
    "cumprod": [Sample(((3, 4),), (*way, None)) for way in _WAYS]
    + [Sample((_ZEROS,), (*way, None)) for way in _WAYS],
    "cumlogsumexp": [Sample(((3, 4),), way, grad=not way[1]) for way in _WAYS],
    "linear_recurrence": [Sample(((3, 4), (3, 4)), way) for way in _WAYS]
    + [Sample(((1, 4), (3, 4)), (0, False, False))],
    "argsort": [
        Sample(((3, 5),), (1, False, True)),
        Sample(((3, 5),), (0, True, True)),
        Sample((_SPECIAL,), (1, True, True), dtypes=(ruda.float32, ruda.bfloat16)),
        Sample((_TIES,), (1, True, True)),
    ],
    "sort": [
        Sample(((3, 5),), (1, False)),
        Sample(((3, 5),), (0, True)),
        Sample((_SPECIAL,), (1, False), dtypes=(ruda.float32, ruda.float16), grad=False),
        Sample(((3, 0),), (1, True)),
    ],
    "topk": [
        Sample(((3, 9),), (2, 1, True)),
        Sample(((6, 3),), (4, 0, False)),
        Sample((_TIES,), (2, 1, True), grad=False),
        Sample((_SPECIAL,), (1, 1, False), dtypes=(ruda.float32, ruda.bfloat16), grad=False),
        Sample(((3, 4),), (0, 1, True)),
    ],
    "searchsorted": [
        Sample((_SORTED, (2, 3)), (False,)),
        Sample((np.stack([_SORTED, _SORTED + 0.25]), (2, 3)), (True,)),
        Sample((_SORTED, 0.0), (True,)),
    ],
    "unique_all": [Sample((_ZEROS,)), Sample((_LABELS,)), Sample(((0,),))],
    "unique_values": [Sample((_ZEROS,)), Sample((_LABELS,)), Sample(((0,),))],
    "bincount": [Sample((_LABELS, None), (5,)), Sample((_LABELS, (2, 2)), (4,))],
}
for _name in ("max", "min", "argmax", "argmin"):
    _one_or_all = [*AXES[:1], *AXES[2:], *EVERY_RANK[3:4]]
    SAMPLES[_name] = [
        *_samples(EVERY_RANK if _name in ("max", "min") else _one_or_all),
        Sample((_TIES,), ((1,), False), grad=False),
        Sample((_SPECIAL,), ((1,), True), dtypes=(ruda.float32, ruda.float16), grad=False),
    ]
for _name in ("cummax", "cummin"):
    SAMPLES[_name] = [
        *(Sample(((3, 4),), way, grad=not way[1]) for way in _WAYS),
        *(Sample((_TIES,), way, grad=False) for way in _WAYS),
    ]

NO_GRADIENT = {
    "unique_all": "as in the Array API, where values taken out of a set have none",
    "unique_values": "as in the Array API, where values taken out of a set have none",
}


def _ones(*shape: int) -> ruda.Tensor:
    return ruda.ones(shape)


BAD = [
    Bad(lambda: ruda.sum(ruda.ones(2, dtype="complex64"), dtype="float32"), DTypeError, "sum: "),
    Bad(lambda: ruda.prod(_ones(2), dtype="bool"), DTypeError, "prod: cannot accumulate"),
    Bad(lambda: ruda.max(_ones(2, 0), axis=1), ShapeError, r"max: nothing .*\(2, 0\)"),
    Bad(lambda: ruda.min(_ones(0)), ShapeError, "min: nothing"),
    Bad(lambda: ruda.argmax(_ones(0, 3), axis=0), ShapeError, "argmax: nothing"),
    Bad(lambda: ruda.argmin(_ones(3), axis=1), AxisError, "argmin: axis"),
    Bad(lambda: ruda.mean(_ones(3), dtype="int32"), DTypeError, "mean: "),
    Bad(lambda: ruda.norm(_ones(3), ord="fro"), ArgumentError, "vector_norm: .*'fro'"),
    Bad(lambda: ruda.quantile(_ones(3), 1.5), ArgumentError, "quantile: .*1.5"),
    Bad(lambda: ruda.cumsum(_ones(2, 2)), AxisError, "cumsum: needs an axis"),
    Bad(
        lambda: ruda.cumprod(_ones(2), exclusive=True, include_initial=True),
        ArgumentError,
        "cumprod: ",
    ),
    Bad(lambda: ruda.diff(_ones(3), n=-1), ArgumentError, "diff: .*-1"),
    Bad(lambda: ruda.sort(_ones()), ShapeError, "sort: a 0-d"),
    Bad(lambda: ruda.topk(_ones(3), 4), ShapeError, "topk: .*Got 4. Expected 0 to 3"),
    Bad(lambda: ruda.searchsorted(_ones(3), _ones(2), side="in"), ArgumentError, "searchsorted: "),
    Bad(
        lambda: ruda.searchsorted(_ones(2, 3), _ones(3, 3)),
        ShapeError,
        r"searchsorted: batches differ. Got \(2, 3\) and \(3, 3\)",
    ),
    Bad(lambda: ruda.nonzero(_ones()), ShapeError, "nonzero: "),
    Bad(lambda: ruda.unique(_ones(0), size=2), ShapeError, "unique: "),
    Bad(lambda: ruda.unique(_ones(3), size=-1), ShapeError, "unique: .*negative"),
    Bad(lambda: ruda.bincount(_ones(3)), DTypeError, "bincount: not integers"),
    Bad(lambda: ruda.bincount(ruda.asarray([1, -1])), IndexRangeError, "bincount: .*-1"),
    Bad(lambda: ruda.bincount(ruda.asarray([1, 4]), length=4), IndexRangeError, "bincount: .*4"),
    Bad(
        lambda: ruda.bincount(ruda.asarray([1, 4]), _ones(3), length=5),
        ShapeError,
        "bincount: the w",
    ),
    Bad(lambda: ruda.histogram(_ones(3), 0), ArgumentError, "histogram: no bins"),
    Bad(lambda: ruda.histogram(_ones(3), range=(2, 1)), ArgumentError, "histogram: not a range"),
]

COMPOSED = [
    Composed("argtopk", lambda x: ruda.take_along_axis(x, ruda.argtopk(x, 2), axis=1), ((3, 4),)),
    Composed("nonzero", lambda x: ruda.take(x, ruda.nonzero(x, size=4)[0]), ((5,),)),
    Composed("median", lambda x: ruda.median(x, axis=1), ((3, 4),)),
    Composed("median-all", lambda x: ruda.median(x, keepdims=True), ((3, 3),)),
    Composed("quantile", lambda x: ruda.quantile(x, 0.3, axis=(0, 2)), ((2, 3, 4),)),
    Composed("diff", lambda x, y: ruda.diff(x, n=2, prepend=y) * x, ((3, 4), (3, 2))),
    Composed(
        "cumprod-initial",
        lambda x: ruda.cumprod(x, 0, include_initial=True, reverse=True),
        ((3, 4),),
    ),
    Composed("unique", lambda x: ruda.unique(x, size=5, fill_value=0.0), ((3, 4),)),
    Composed(
        "cummax-cummin", lambda x: ruda.cummax(x, 1).values * ruda.cummin(x, 0).values, ((3, 4),)
    ),
    Composed(
        "histogram-weights",
        lambda x: ruda.histogram(_POSITIONS, 3, range=(0, 1), weights=x).counts,
        ((5,),),
    ),
]

_POSITIONS = ruda.asarray(np.array([0.1, 0.5, 0.2, 0.9, 1.5]))
