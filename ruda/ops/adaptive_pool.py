"""Adaptive pooling: windows that divide each axis into a given number of outputs.

Window ``i`` of ``count`` over ``size`` elements is ``[floor(i * size / count),
ceil((i + 1) * size / count))``; neighbours may overlap.
"""

from __future__ import annotations

from typing import Any

from ruda.core.dtypes import INEXACT, REAL
from ruda.core.errors import ArgumentError, ShapeError
from ruda.core.shapes import Shape
from ruda.core.spec import Spec
from ruda.ops import rules
from ruda.ops.pool import max_pool_backward, with_indices
from ruda.ops.reference import pool as reference
from ruda.ops.table import row
from ruda.ops.windows import check_rank, per_axis
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor

_adaptive_max_pool = row(
    "index",
    "adaptive_max_pool",
    "x",
    "output_size",
    "values indices",
    shape=lambda op, specs, size: (_resized(specs[0].shape, size),) * 2,
    dtype=with_indices,
    numpy=reference.adaptive_max_pool,
    vjp=(
        lambda g, x_spec, indices, output_size: max_pool_backward(
            g[0], indices, x_spec.shape, len(output_size), ()
        ),
    ),
    accepts=REAL,
    doc="Maximum over windows that divide each axis evenly, and its flat position.",
)


_adaptive_avg_pool = row(
    "index",
    "adaptive_avg_pool",
    "x",
    "output_size",
    shape=lambda op, specs, size: _resized(specs[0].shape, size),
    dtype=rules.promote,
    numpy=reference.adaptive_avg_pool,
    vjp=(lambda g, x_spec, output_size: _adaptive_spread(g, x_spec.shape, len(output_size)),),
    accepts=INEXACT,
    doc="Average over windows that divide each axis evenly.",
)
_adaptive_spread = row(
    "index",
    "adaptive_avg_pool_backward",
    "dy",
    "x_shape ndim",
    shape=lambda op, specs, x_shape, ndim: x_shape,
    dtype=rules.promote,
    numpy=reference.adaptive_avg_pool_backward,
    vjp=(lambda g, dy_spec, ndim: _adaptive_avg_pool(g, _trailing(dy_spec, ndim)),),
    accepts=INEXACT,
    doc="Each gradient shared out over the elements of its adaptive window.",
)


def _trailing(spec: Spec, ndim: int) -> Shape:
    return spec.shape[spec.ndim - ndim :]


def _resized(shape: Shape, size: Shape) -> Shape:
    return (*shape[: len(shape) - len(size)], *size)


def _target(name: str, rank: int, x: RudaTensor, output_size: Any) -> Shape:
    """The adaptive output size of each pooled axis; None keeps an axis as it is."""
    check_rank(name, rank, x)
    own = x.shape[x.ndim - rank :]
    sizes = output_size if isinstance(output_size, tuple | list) else (output_size,) * rank
    if len(sizes) != rank:
        raise ArgumentError(name, f"output_size does not fit {rank} axes", output_size)
    filled = tuple(n if s is None else s for n, s in zip(own, sizes, strict=True))
    if 0 in own:
        raise ShapeError(name, "an axis to pool is empty", x.shape)
    return per_axis(filled, rank, name, "output_size", least=1)


@given_tensors
def adaptive_avg_pool1d(input: RudaTensor, output_size: Any) -> RudaTensor:
    """Average over windows that divide the last axis into ``output_size``."""
    return _adaptive_avg_pool(input, _target("adaptive_avg_pool1d", 1, input, output_size))


@given_tensors
def adaptive_avg_pool2d(input: RudaTensor, output_size: Any) -> RudaTensor:
    """Average over windows that divide the last two axes into ``output_size``.

    ``output_size`` is an integer or one per axis, None for an axis that stays as it is.

    >>> adaptive_avg_pool2d(ruda.ones((1, 3, 5, 7)), (2, None)).shape
    (1, 3, 2, 7)
    """
    return _adaptive_avg_pool(input, _target("adaptive_avg_pool2d", 2, input, output_size))


@given_tensors
def adaptive_avg_pool3d(input: RudaTensor, output_size: Any) -> RudaTensor:
    """Average over windows that divide the last three axes into ``output_size``."""
    return _adaptive_avg_pool(input, _target("adaptive_avg_pool3d", 3, input, output_size))


def _adaptive_max(
    name: str, rank: int, x: RudaTensor, output_size: Any, return_indices: bool
) -> Any:
    values, indices = _adaptive_max_pool(x, _target(name, rank, x, output_size))
    return (values, indices) if return_indices else values


@given_tensors
def adaptive_max_pool1d(input: RudaTensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum over windows that divide the last axis into ``output_size``."""
    return _adaptive_max("adaptive_max_pool1d", 1, input, output_size, return_indices)


@given_tensors
def adaptive_max_pool2d(input: RudaTensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum over windows that divide the last two axes; indices as ``max_pool2d``."""
    return _adaptive_max("adaptive_max_pool2d", 2, input, output_size, return_indices)


@given_tensors
def adaptive_max_pool3d(input: RudaTensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum over windows that divide the last three axes; indices as ``max_pool2d``."""
    return _adaptive_max("adaptive_max_pool3d", 3, input, output_size, return_indices)
