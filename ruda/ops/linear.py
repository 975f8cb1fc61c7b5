"""The affine map of neural networks: a product with a transposed weight, and a bias.

One row rather than three: the bias is added where the product lies, and the gradient of the weight
comes out in the weight's own order, where that of a transposed weight would need a copy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ruda.core.dtypes import INEXACT, NUMERIC
from ruda.core.errors import DTypeError, ShapeError
from ruda.core.spec import Spec, is_absent
from ruda.ops import rules
from ruda.ops.complexes import conj
from ruda.ops.matmul import matmul
from ruda.ops.movement import matrix_transpose, reshape
from ruda.ops.reduce import sum
from ruda.ops.table import fused
from ruda.tensor.tensor import RudaTensor


def _shape(op: Any, specs: tuple[Spec, ...]) -> Any:
    x, w, b = (spec.shape for spec in specs)
    if len(w) != 2 or not x or x[-1] != w[1]:
        got, expected = f"input {x}, weight {w}", "[..., in] and [out, in]"
        flat = len(w) == 2 and math.prod(x[1:]) == w[1]
        hint = "nn.Flatten() in front, or x.reshape((len(x), -1))" if flat else None
        raise ShapeError(op.name, "the input does not fit the weight", got, expected, hint)
    if not is_absent(specs[2]) and b != w[:1]:
        raise ShapeError(op.name, "bias does not fit the weight", b, w[:1])
    return (*x[:-1], w[0])


def _dtype(op: Any, specs: tuple[Spec, ...]) -> Any:
    x, w, b = (spec.dtype for spec in specs)
    if x is not w and not (specs[0].weak or specs[1].weak):
        hint = f"x.astype({str(w)!r})"
        raise DTypeError(op.name, "input and weight differ in dtype", x, w, hint)
    if not is_absent(specs[2]) and b is not w:
        hint = f"bias.astype({str(w)!r})"
        raise DTypeError(op.name, "bias has another dtype", b, w, hint)
    meet, out = rules.promote(op, tuple(s for s in specs if not s.weak))
    return tuple(None if s.weak else meet for s in specs), out


def _rows(x: RudaTensor) -> RudaTensor:
    """``x [..., n]`` as ``[rows, n]``."""
    return x if x.ndim == 2 else reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


def _cotangents(g: RudaTensor, x: Any, w: Any, needs: tuple[bool, ...]) -> Any:
    dx = matmul(g, conj(w)) if needs[0] else None
    if needs[1] and needs[2]:
        return (dx, *_weight_backward(g, x))
    dw = matmul(matrix_transpose(_rows(g)), conj(_rows(x))) if needs[1] else None
    return dx, dw, sum(g, axis=tuple(range(g.ndim - 1))) if needs[2] else None


def _weight_shape(op: Any, specs: tuple[Spec, ...]) -> Any:
    g, x = (spec.shape for spec in specs)
    if not g or g[:-1] != x[:-1]:
        raise ShapeError(op.name, "the rows do not fit", g, f"[..., out] beside {x}")
    return (g[-1], x[-1]), g[-1:]


def _weight_dtype(op: Any, specs: tuple[Spec, ...]) -> Any:
    meet, out = rules.promote(op, specs)
    return meet, (out, out)


def _weight_reference(g: Any, x: Any) -> Any:
    g, x = (v.reshape(math.prod(v.shape[:-1]), v.shape[-1]) for v in (g, x))
    return np.matmul(g.T, np.conj(x)), np.add.reduce(g, axis=0)


@fused(
    "linear_weight_backward",
    "g x",
    outs="dw db",
    shape=_weight_shape,
    dtype=_weight_dtype,
    numpy=_weight_reference,
    accepts=INEXACT,
    bound="compute",
)
def _weight_backward(g: RudaTensor, x: RudaTensor) -> Any:
    """Gradients of weight and bias of ``linear``: ``g`` transposed times ``x``, and its sum."""
    rows = _rows(g)
    return matmul(matrix_transpose(rows), conj(_rows(x))), sum(rows, axis=0)


def _reference(x: Any, w: Any, b: Any) -> Any:
    out = np.matmul(x, w.T)
    return out if b is None else np.add(out, b, out=out)


@fused(
    "linear",
    "x w b",
    shape=_shape,
    dtype=_dtype,
    numpy=_reference,
    vjp=_cotangents,
    wants={"x": ("w",), "w": ("x",)},
    accepts=NUMERIC,
    optional=("b",),
    cast="low",
    bound="compute",
)
def _linear(x: RudaTensor, w: RudaTensor, b: RudaTensor | None) -> RudaTensor:
    """``x [..., in]`` times ``w [out, in]`` transposed, plus ``b [out]``."""
    out = matmul(x, matrix_transpose(w))
    return out if b is None else out + b


def linear(input: RudaTensor, weight: RudaTensor, bias: RudaTensor | None = None) -> RudaTensor:
    """``input [..., in]`` times ``weight [out, in]`` transposed, plus ``bias [out]``.

    One float dtype among all three; under ``autocast`` the product and the result are low. Raises
    ``ShapeError`` or ``DTypeError``.

    >>> linear(ruda.ones((2, 3)), ruda.ones((4, 3)), ruda.ones(4)).shape
    (2, 4)
    """
    return _linear(input, weight, bias)
