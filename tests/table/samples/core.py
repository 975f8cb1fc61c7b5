"""Samples of the rows that the core itself stands on: movement, casts, factories."""

from __future__ import annotations

import numpy as np

import ruda
from ruda.core.devices import Device
from ruda.core.dtypes import ARITHMETIC, NUMERIC, REAL
from ruda.core.errors import ArgumentError, AxisError, DTypeError, IntegerRangeError, ShapeError
from ruda.tensor.operands import Vector
from tests.table.sample import Bad, Composed, Sample

CPU = Device("cpu")

SAMPLES = {
    "permute": [
        Sample(((2, 3, 4),), ((2, 0, 1),)),
        Sample(((),), ((),)),
        Sample(((2, 0),), ((1, 0),)),
    ],
    "expand": [
        Sample(((3, 1),), ((2, 3, 4),)),
        Sample(((),), ((2,),)),
        Sample(((1, 3),), ((0, 3),)),
    ],
    "reshape": [
        Sample(((3, 4),), ((2, 6),)),
        Sample(((1,),), ((),)),
        Sample(((0, 4),), ((2, 0),)),
        Sample(((2, 3, 4),), ((6, 4),)),
    ],
    "flip": [Sample(((2, 3, 4),), ((0, 2),)), Sample(((),), ((),)), Sample(((0,),), ((0,),))],
    "slice": [
        Sample(((4, 6), Vector((1, 5))), ((2, 3), (1, -2), ())),
        Sample(((4, 6), Vector((3, 0))), ((1, 6), (1, 1), (0,))),
        Sample(((4, 6), Vector((0, 6))), ((4, 0), (1, 1), ())),
        Sample(((4, 6, 2), Vector((3,))), ((2,), (-3,), ())),
    ],
    "as_strided": [
        Sample(((4, 6), 1), ((2, 3), (6, 2)), dense=True),
        Sample(((12,), 0), ((5, 3), (2, 1)), dense=True),
        Sample(((5,), 4), ((3,), (-1,)), dense=True),
    ],
    "assign_view": [
        Sample(((4, 6), (2, 3), 1), ((2, 3), (6, 2))),
        Sample(((4, 6), (), 23), ((2,), (-5,))),
    ],
    "add_view": [
        Sample(((4, 6), (2, 3), 1), ((2, 3), (6, 2)), dtypes=NUMERIC),
        Sample(((12,), (5, 3), 0), ((5, 3), (2, 1)), dtypes=NUMERIC),
    ],
    "copy": [Sample(((3, 4),)), Sample(((),)), Sample(((0, 2),))],
    "astype": [
        Sample(((3, 4),), (ruda.float32,), dtypes=(*REAL, ruda.bool), grad=False),
        Sample(((3, 4),), (ruda.float64,), dtypes=(*REAL, ruda.bool)),
        Sample(((3, 4),), (ruda.bfloat16,), dtypes=REAL, grad=False),
        Sample(((3, 4),), (ruda.int32,), dtypes=(*REAL, ruda.bool)),
        Sample(((3, 4),), (ruda.complex128,), dtypes=ARITHMETIC),
        Sample(((3, 4),), (ruda.float8_e4m3,), dtypes=(ruda.float32, ruda.bfloat16), grad=False),
        Sample(((),), (ruda.float64,), dtypes=REAL),
        Sample(((0, 2),), (ruda.float16,), dtypes=REAL),
    ],
    "to": [Sample(((3, 4),), (CPU,)), Sample(((),), (CPU,))],
    "full": [
        Sample((2,), ((3, 4), ruda.float32, CPU)),
        Sample((7,), ((), ruda.int8, CPU)),
        Sample((1j,), ((2,), ruda.complex64, CPU)),
        Sample((1.5,), ((0, 2), ruda.bfloat16, CPU)),
        Sample((True,), ((2,), ruda.bool, CPU)),
    ],
    "arange": [
        Sample((2, 3), ((5,), ruda.int32, CPU)),
        Sample((0.5, -0.25), ((4,), ruda.float64, CPU)),
        Sample((2**63, 1), ((3,), ruda.uint64, CPU)),
        Sample((0, 1), ((0,), ruda.int64, CPU)),
    ],
    "linspace": [
        Sample((0.0, 1.0), ((5,), ruda.float32, True, CPU)),
        Sample((0.0, 1.0), ((5,), ruda.float64, False, CPU)),
        Sample((1j, 2.0), ((3,), ruda.complex128, True, CPU)),
        Sample((3.0, 4.0), ((1,), ruda.float16, True, CPU)),
    ],
}

NO_GRADIENT = {
    "full": "made from a Python scalar, which has no gradient",
    "arange": "made from Python scalars, which have no gradient",
    "linspace": "made from Python scalars, which have no gradient",
}


def _ones(*shape: int) -> ruda.Tensor:
    return ruda.ones(shape)


BAD = [
    Bad(lambda: ruda.add(_ones(2, 3), _ones(4)), ShapeError, r"add: .*\(2, 3\) and \(4,\)"),
    Bad(lambda: ruda.add(_ones(2), "a"), DTypeError, "add: not an operand"),
    Bad(lambda: ruda.add(ruda.ones(2, dtype="int8"), 300), IntegerRangeError, "add: .*300"),
    Bad(lambda: ruda.permute_dims(_ones(2, 3), (0, 0)), AxisError, "permute_dims: "),
    Bad(lambda: ruda.permute_dims(_ones(2, 3), (0, 2)), AxisError, "permute_dims: "),
    Bad(lambda: ruda.broadcast_to(_ones(3), (2,)), ShapeError, "broadcast_to: "),
    Bad(lambda: ruda.reshape(_ones(2, 3), (4,)), ShapeError, "reshape: .*6 elements"),
    Bad(lambda: ruda.reshape(_ones(2, 3), (-1, -1)), ShapeError, "reshape: "),
    Bad(lambda: ruda.flip(_ones(2), axis=1), AxisError, "flip: "),
    Bad(lambda: ruda.squeeze(_ones(2, 1), axis=0), ShapeError, "squeeze: "),
    Bad(lambda: ruda.expand_dims(_ones(2), 3), AxisError, "expand_dims: "),
    Bad(lambda: ruda.matrix_transpose(_ones(2)), ShapeError, "matrix_transpose: "),
    Bad(lambda: ruda.moveaxis(_ones(2, 3), (0, 1), (0,)), AxisError, "moveaxis: "),
    Bad(lambda: ruda.sum(_ones(2), axis=(0, 0)), AxisError, "sum: "),
    Bad(lambda: ruda.sum(_ones(2), axis=0.5), DTypeError, "sum: axis must be an integer"),
    Bad(
        lambda: ruda.astype(ruda.ones(2, dtype="complex64"), "float32"),
        DTypeError,
        "astype: .*imaginary",
    ),
    Bad(lambda: ruda.full((2,), 300, dtype="int8"), IntegerRangeError, "full: .*300"),
    Bad(lambda: ruda.zeros((2, -1)), ShapeError, "zeros: "),
    Bad(lambda: ruda.arange(0, 4, 0), ArgumentError, "arange: "),
    Bad(lambda: ruda.linspace(0, 1, -1), ShapeError, "linspace: "),
    Bad(lambda: ruda.asarray([[1, 2], [3]]), ShapeError, "asarray: .*ragged"),
    Bad(lambda: ruda.asarray(np.array(["a"])), DTypeError, "asarray: not numbers"),
]

COMPOSED = [
    Composed("moveaxis", lambda x: ruda.moveaxis(x, 0, 2), ((2, 3, 4),)),
    Composed("squeeze", lambda x: ruda.squeeze(x) * x, ((3, 1),)),
    Composed("matrix_transpose", lambda x: ruda.matrix_transpose(x) * x, ((3, 3),)),
    Composed("broadcast_arrays", lambda x, y: ruda.broadcast_arrays(x, y), ((3, 1), (4,))),
    Composed("quotient", lambda x, y: ruda.sum(x / (y * y + 2), axis=1), ((3, 3), (3,))),
]
