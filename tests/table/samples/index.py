"""Samples of the rows that read and write at places, join tensors, and show strided memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import ruda
from ruda.core.devices import Device
from ruda.core.dtypes import NUMERIC
from ruda.core.errors import (
    ArgumentError,
    AxisError,
    DTypeError,
    IndexRangeError,
    ShapeError,
)
from ruda.tensor.operands import Vector
from tests.table.sample import Bad, Composed, Sample

CPU = Device("cpu")
ROWS = np.array([3, 0, -1, 3])
GRID = np.array([[0, 2], [-1, 1], [2, 2]], np.int32)
# One row of places per axis: each index pairs with the one below it.
PAIRS = np.array([[0, 1, 3, 1], [2, -1, 0, -1]])
ALONG = np.array([[3, 0, 1], [0, 0, -1]], np.int8)
NOTHING = np.zeros((0,), np.int64)
IDS = np.array([2, 0, 2, 2, 0])


def _written(*attrs: Any, **facts: Any) -> list[Sample]:
    """Samples of a row that writes by ``index``."""
    return [
        Sample(((4, 3), (4, 3), ROWS), ((0,), *attrs), **facts),
        Sample(((4, 3), (4, 3, 2), GRID), ((1,), *attrs), **facts),
        Sample(((4, 3), (), GRID), ((1,), *attrs), **facts),
        Sample(((4, 4, 2), (4, 2), PAIRS), ((0, 1), *attrs), **facts),
        Sample(((4, 2, 4), (4, 1), PAIRS), ((0, 2), *attrs), **facts),
        Sample(((4, 9), (1, 9), ROWS), ((0,), *attrs), **facts),
        Sample(((4, 3), (0, 3), NOTHING), ((0,), *attrs), **facts),
    ]


def _scattered(*attrs: Any, **facts: Any) -> list[Sample]:
    """Samples of a row that writes by ``take_along_axis``."""
    return [
        Sample(((4, 3), (2, 3), ALONG), ((0,), *attrs), **facts),
        Sample(((4, 3), (3,), ALONG), ((0,), *attrs), **facts),
        Sample(((4, 5), (3, 2), GRID), ((1,), *attrs), **facts),
        Sample(((4,), (), ROWS), ((0,), *attrs), **facts),
    ]


SAMPLES = {
    "unslice": [
        Sample(((2, 3), Vector((1, 5))), ((4, 6), (2, 3), (1, -2), ())),
        Sample(((6,), Vector((3, 0))), ((4, 6), (1, 6), (1, 1), (0,))),
    ],
    "diagonal": [
        Sample(((3, 4),), (0, 0, 1)),
        Sample(((3, 4, 2),), (-1, 1, 0)),
        Sample(((3, 4),), (2, 0, 1)),
        Sample(((3, 4),), (7, 0, 1)),
    ],
    "diagonal_embed": [
        Sample(((3,),), ((3, 4), 0, 0, 1)),
        Sample(((2, 3),), ((3, 4, 2), -1, 1, 0)),
    ],
    "unfold": [
        Sample(((7, 2),), (0, 3, 2)),
        Sample(((5,),), (0, 5, 1)),
        Sample(((2, 6),), (1, 2, 3)),
    ],
    "fold": [
        Sample(((3, 2, 3),), ((7, 2), 0, 3, 2), dtypes=NUMERIC),
        Sample(((4, 2),), ((5,), 0, 2, 1), dtypes=NUMERIC),
    ],
    "index": [
        Sample(((4, 3), ROWS), ((0,),)),
        Sample(((4, 3), GRID), ((1,),)),
        Sample(((4, 3), np.array(2)), ((0,),)),
        Sample(((4, 4, 2), PAIRS), ((0, 1),)),
        Sample(((4, 2, 4), PAIRS), ((0, 2),)),
        Sample(((4, 3), NOTHING), ((0,),)),
    ],
    "index_adjoint": [
        Sample(((4, 3), ROWS), ((4, 3), (0,)), dtypes=NUMERIC),
        Sample(((4, 9), ROWS), ((4, 9), (0,)), dtypes=NUMERIC),
        Sample(((4, 3, 2), GRID), ((4, 3), (1,)), dtypes=NUMERIC),
        Sample(((4, 2), PAIRS), ((4, 2, 4), (0, 2)), dtypes=NUMERIC),
    ],
    "index_put": _written(),
    "index_add": _written(dtypes=NUMERIC),
    "index_multiply": _written(),
    "index_extreme": [*_written("min"), *_written("max")],
    "take_along_axis": [
        Sample(((4, 3), ALONG), ((0,),)),
        Sample(((4, 5), GRID), ((1,),)),
        Sample(((4,), ROWS), ((0,),)),
    ],
    "take_along_axis_adjoint": [
        Sample(((2, 3), ALONG), ((4, 3), (0,)), dtypes=NUMERIC),
        Sample(((3, 2), GRID), ((4, 5), (1,)), dtypes=NUMERIC),
    ],
    "scatter_put": _scattered(),
    "scatter_add": _scattered(dtypes=NUMERIC),
    "scatter_multiply": _scattered(),
    "scatter_extreme": [*_scattered("min"), *_scattered("max")],
    "true_places": [
        Sample((np.array([[True, False], [True, True]]),)),
        Sample((np.array(True),)),
        Sample((np.zeros((0, 2), np.bool_),)),
    ],
    "repeated_places": [Sample((np.array([2, 0, 3]),)), Sample((NOTHING,))],
    "concat": [
        Sample(((2, 3), (4, 3)), (0,)),
        Sample(((2, 3), (2, 0), (2, 1)), (1,)),
        Sample(((3,),), (0,)),
        Sample(((2,), (1,), (2,), (3,)), (0,)),
    ],
    "pad_constant": [
        Sample(((2, 3), 0), (((1, 2), (0, 1)),)),
        Sample(((), 1), ((),)),
        Sample(((0, 2), 1), (((1, 1), (0, 0)),)),
    ],
    "tril": [Sample(((3, 4),), (0,)), Sample(((2, 3, 3),), (-1,)), Sample(((3, 4),), (9,))],
    "triu": [Sample(((3, 4),), (0,)), Sample(((2, 3, 3),), (1,)), Sample(((3, 4),), (-9,))],
    "eye": [
        Sample((0,), ((3, 4), ruda.float32, CPU)),
        Sample((-1,), ((3, 3), ruda.int8, CPU)),
        Sample((2,), ((2, 2), ruda.bfloat16, CPU)),
        Sample((0,), ((0, 2), ruda.complex64, CPU)),
    ],
}

NO_GRADIENT = {"eye": "made from an integer, which has no gradient"}


def _zeros(*shape: int) -> ruda.Tensor:
    return ruda.zeros(shape)


def _at(key: Any, *shape: int) -> Callable[[], Any]:
    return lambda: _zeros(*shape)[key]


def _put(key: Any, value: Any, *shape: int) -> Callable[[], Any]:
    return lambda: _zeros(*shape).__setitem__(key, value)


BAD = [
    Bad(_at(3, 3), IndexRangeError, "getitem: .*3 for axis 0 of size 3.*-3 to 2"),
    Bad(_at((0, -4), 2, 3), IndexRangeError, "getitem: .*-4 for axis 1 of size 3"),
    Bad(_at(0, 0), IndexRangeError, "getitem: .*no index at all"),
    Bad(_at((0, 0, 0), 2, 3), IndexRangeError, "getitem: too many indices"),
    Bad(_at((..., ...), 2, 3), IndexRangeError, "getitem: .*one"),
    Bad(_at(1.5, 3), DTypeError, "getitem: not an index"),
    Bad(_at("a", 3), DTypeError, "getitem: not an index"),
    Bad(_at([0.5], 3), DTypeError, "getitem: not an index"),
    Bad(_at(slice(0, 1.5), 3), DTypeError, "getitem: .*bounds"),
    Bad(_at(slice(None, None, 0), 3), ArgumentError, "getitem: .*step"),
    Bad(_at([0, 3], 3), IndexRangeError, "getitem: .*3 for axis 0 of size 3"),
    Bad(_at(([0, 1], [0, -4]), 2, 3), IndexRangeError, "getitem: .*-4 for axis 1 of size 3"),
    Bad(_at([True, False], 3), ShapeError, "getitem: the mask does not fit"),
    Bad(_at(([0, 1], [0, 1, 2]), 3, 3), ShapeError, "getitem: shapes do not broadcast"),
    Bad(_put(0, _zeros(4), 3, 3), ShapeError, "assign: cannot broadcast"),
    Bad(_put([0, 5], 1.0, 3), IndexRangeError, "setitem: .*5 for axis 0"),
    Bad(_put([0, 1], _zeros(3), 3), ShapeError, "index_put: cannot broadcast"),
    Bad(_put([0, 1], "a", 3), DTypeError, "index_put: not a value"),
    Bad(_put(0, 1j, 3), DTypeError, "assign: .*kind"),
    Bad(lambda: ruda.arange(3).__setitem__(0, 1.5), DTypeError, "assign: .*kind"),
    Bad(lambda: ruda.arange(3).__setitem__([0], 1.5), DTypeError, "index_put: .*kind"),
    Bad(
        lambda: ruda.broadcast_to(_zeros(1), (3,)).__setitem__(slice(2), 1),
        ShapeError,
        "assign: .*repeats memory",
    ),
    Bad(lambda: ruda.take(_zeros(3, 3), ruda.arange(2)), ShapeError, "take: needs an axis"),
    Bad(lambda: ruda.take(_zeros(3), _zeros(2)), DTypeError, "take: not an index"),
    Bad(lambda: ruda.take(_zeros(3), ruda.arange(2), axis=1), AxisError, "take: "),
    Bad(
        lambda: ruda.take_along_axis(_zeros(3, 3), ruda.arange(3)),
        ShapeError,
        "take_along_axis: the ranks differ",
    ),
    Bad(
        lambda: ruda.gather(_zeros(2, 3), ruda.asarray([[0], [2]]), axis=0),
        IndexRangeError,
        "gather: .*2 for axis 0 of size 2",
    ),
    Bad(
        lambda: ruda.scatter(_zeros(2), ruda.arange(2), 1, axis=0, mode="min_"),
        ArgumentError,
        "scatter: unknown mode",
    ),
    Bad(
        lambda: ruda.scatter(_zeros(2), ruda.asarray([2]), 1, axis=0),
        IndexRangeError,
        "scatter: .*2 for axis 0",
    ),
    Bad(
        lambda: ruda.index_add(_zeros(2), ruda.asarray([2]), 1.0),
        IndexRangeError,
        "index_add: .*2 for axis 0",
    ),
    Bad(lambda: ruda.index_put(_zeros(2), (), 1.0), IndexRangeError, "index_put: "),
    Bad(lambda: ruda.masked_select(_zeros(2), _zeros(2)), DTypeError, "masked_select: "),
    Bad(lambda: ruda.one_hot(ruda.asarray([3]), 3), IndexRangeError, "scatter: .*3 for axis 1"),
    Bad(
        lambda: ruda.segment_sum(_zeros(2), ruda.arange(3)),
        ShapeError,
        "segment_sum: the ids do not fit",
    ),
    Bad(lambda: ruda.concat([]), ArgumentError, "concat: nothing to join"),
    Bad(lambda: ruda.concat(_zeros(2)), DTypeError, "concat: takes a sequence"),
    Bad(lambda: ruda.concat([_zeros(2), [1.0]]), DTypeError, "concat: not a tensor"),
    Bad(lambda: ruda.concat([_zeros(2, 3), _zeros(2, 4)]), ShapeError, "concat: .*axis 0"),
    Bad(lambda: ruda.stack([_zeros(2), _zeros(3)]), ShapeError, "stack: shapes differ"),
    Bad(lambda: ruda.split(_zeros(5), [2, 2]), ShapeError, "split: .*add up to 5"),
    Bad(lambda: ruda.split(_zeros(5), 0), ArgumentError, "split: "),
    Bad(lambda: ruda.chunk(_zeros(5), 0), ArgumentError, "chunk: "),
    Bad(lambda: ruda.repeat(_zeros(2), -1), ArgumentError, "repeat: the count is negative"),
    Bad(lambda: ruda.repeat(_zeros(2), [1, -1]), ArgumentError, "repeat: a count is negative"),
    Bad(lambda: ruda.repeat(_zeros(2), [1, 1, 1]), ShapeError, "repeat: the counts do not fit"),
    Bad(lambda: ruda.roll(_zeros(2), (1, 2), axis=0), ArgumentError, "roll: .*pair up"),
    Bad(lambda: ruda.pad(_zeros(2), 2, mode="reflect"), ShapeError, "pad: too wide for reflect"),
    Bad(lambda: ruda.pad(_zeros(2), 1, mode="mirror"), ArgumentError, "pad: unknown mode"),
    Bad(lambda: ruda.pad(_zeros(2), -2), ShapeError, "pad: cuts off more"),
    Bad(lambda: ruda.pad(ruda.arange(2), 1, value=0.5), DTypeError, "pad: "),
    Bad(lambda: ruda.tril(_zeros(2)), ShapeError, "tril: needs matrices"),
    Bad(lambda: ruda.diag(_zeros(2, 2, 2)), ShapeError, "diag: neither"),
    Bad(lambda: ruda.diagonal(_zeros(2, 2), axis1=1), ArgumentError, "diagonal: .*different"),
    Bad(lambda: ruda.meshgrid(_zeros(2, 2)), ShapeError, "meshgrid: "),
    Bad(lambda: ruda.meshgrid(_zeros(2), indexing="yx"), ArgumentError, "meshgrid: "),
    Bad(lambda: ruda.unfold(_zeros(2), 3), ShapeError, "unfold: .*longer"),
    Bad(lambda: ruda.fold(_zeros(2, 2), 4), ShapeError, "fold: "),
    Bad(lambda: _zeros(2).T, ShapeError, "T: not a matrix"),
    Bad(lambda: ruda.flatten(_zeros(2, 2), 1, 0), AxisError, "flatten: "),
]

COMPOSED = [
    Composed("stack", lambda x, y: ruda.stack([x, y * x], axis=1), ((3, 2), (3, 2))),
    Composed("repeat", lambda x: ruda.repeat(x, 3, axis=0) * 2, ((2, 3),)),
    Composed(
        "repeat-counts",
        lambda x: ruda.repeat(x * x, [2, 0, 1], axis=1),
        ((2, 3),),
        captured=False,
    ),
    Composed("tile", lambda x: ruda.tile(x * x, (2, 1, 2)), ((2, 3),)),
    Composed("roll", lambda x: ruda.roll(x * x, (1, -1), axis=(0, 1)), ((2, 3),)),
    Composed("pad", lambda x: ruda.pad(x * x, [(1, -1), (0, 2)], value=2.0), ((2, 3),)),
    Composed("pad-reflect", lambda x: ruda.pad(x * x, 1, mode="reflect"), ((2, 3),)),
    Composed("pad-edge", lambda x: ruda.pad(x * x, (2, 1), mode="edge"), ((2, 3),)),
    Composed("pad-circular", lambda x: ruda.pad(x * x, (2, 3), mode="circular"), ((2, 3),)),
    Composed("segment_sum", lambda x: ruda.segment_sum(x * x, _ids(), 4), ((5, 2),)),
    Composed("segment_mean", lambda x: ruda.segment_mean(x * x, _ids(), 4), ((5, 2),)),
    Composed("segment_max", lambda x: ruda.segment_max(x * x, _ids(), 3)[::2], ((5, 2),)),
    Composed("segment_min", lambda x: ruda.segment_min(x * x, _ids(), 3)[::2], ((5, 2),)),
    Composed("getitem", lambda x: x[None, 1:, [0, 2]] * x[::-1, None, 1][:2], ((3, 3),)),
    Composed("split", lambda x: ruda.split(x, 2)[0] * ruda.chunk(x, 2)[1], ((4, 2),)),
    Composed("diag", lambda x: ruda.diag(ruda.diagonal(x) * x[0], k=-1), ((3, 3),)),
]


def _ids() -> ruda.Tensor:
    return ruda.asarray(IDS)
