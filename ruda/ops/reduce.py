"""Reductions over one axis, several, or all."""

from __future__ import annotations

from typing import Any

import numpy as np

from ruda.core import dtypes
from ruda.core.dtypes import ARITHMETIC, DType, as_dtype
from ruda.core.shapes import Shape, normalize_axes
from ruda.core.spec import Spec
from ruda.ops import rules
from ruda.ops.movement import broadcast_to, expand_dims
from ruda.ops.table import row
from ruda.tensor.tensor import RudaTensor

Specs = tuple[Spec, ...]


def _summed_dtype(op: Any, specs: Specs, axes: Shape, keepdims: bool, dtype: Any) -> Any:
    """Integers narrower than 64 bits add up in 64 bits unless a dtype is asked for."""
    out = dtype or widened(specs[0].dtype)
    return out, out


def widened(dtype: DType) -> DType:
    """The dtype that a sum or product of ``dtype`` is kept in."""
    if dtype.kind == "uint":
        return dtypes.uint64
    return dtypes.int64 if dtype.kind in ("int", "bool") else dtype


_sum = row(
    "reduction",
    "sum",
    "x",
    "axes keepdims dtype",
    shape=rules.reduced,
    dtype=_summed_dtype,
    numpy=lambda x, axes, keepdims, dtype: np.sum(x, axis=axes, keepdims=keepdims),
    vjp=(lambda g, x_spec, axes, keepdims: unreduced(g, x_spec, axes, keepdims),),
    accepts=ARITHMETIC,
    doc="Sum over ``axes``.",
)


def unreduced(g: RudaTensor, x_spec: Spec, axes: Shape, keepdims: bool) -> RudaTensor:
    """``g`` shown in the shape that it was reduced from."""
    if not keepdims and axes:
        g = expand_dims(g, axes)
    return broadcast_to(g, x_spec.shape)


def sum(
    x: RudaTensor, /, axis: Any = None, *, dtype: Any = None, keepdims: bool = False
) -> RudaTensor:
    """Sum over ``axis``: one, several, or None for all.

    Half types add up in float32; integers narrower than 64 bits give int64 or uint64 unless
    ``dtype`` says otherwise.

    >>> sum(ruda.asarray([[1, 2], [3, 4]]), axis=0).tolist()
    [4, 6]
    """
    kind = None if dtype is None else as_dtype(dtype, "sum")
    return _sum(x, normalize_axes(axis, x.ndim, "sum"), bool(keepdims), kind)
