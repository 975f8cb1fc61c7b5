"""Statistics of order: quantiles and the median, read off the sorted elements."""

from __future__ import annotations

import math
from typing import Any

from ruda.core import dtypes
from ruda.core.dtypes import DType
from ruda.core.shapes import Shape, normalize_axes
from ruda.ops.cast import astype
from ruda.ops.compare import isnan
from ruda.ops.movement import expand_dims, squeeze
from ruda.ops.reduce import merged
from ruda.ops.scalars import real_number
from ruda.ops.select import where
from ruda.ops.sort import sort
from ruda.ops.statistics import mean
from ruda.ops.strides import span
from ruda.ops.table import composite
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


@composite
@given_tensors
def quantile(x: RudaTensor, q: float, /, axis: Any = None, *, keepdims: bool = False) -> RudaTensor:
    """The value below which a share ``q`` of the elements over ``axis`` lies.

    Between two elements it is interpolated linearly. NaN if there is one, and of nothing. Integers
    give the default float. Raises ``ArgumentError`` unless ``0 <= q <= 1``.

    >>> quantile(ruda.asarray([1.0, 2.0, 4.0]), 0.75).item()
    3.0
    """
    share = real_number("quantile", "q", q, 0, 1)
    return _quantile(x, share, normalize_axes(axis, x.ndim, "quantile"), keepdims)


@composite
@given_tensors
def median(x: RudaTensor, /, axis: Any = None, *, keepdims: bool = False) -> RudaTensor:
    """The middle element over ``axis`` (one, several, or None for all), as many above as below.

    The mean of two middle ones. NaN if there is one, and of nothing. Integers give the default
    float. Two equal middle elements share the gradient.

    >>> median(ruda.asarray([5, 1, 3, 2])).item()
    2.5
    """
    return _quantile(x, 0.5, normalize_axes(axis, x.ndim, "median"), keepdims)


def _quantile(x: RudaTensor, q: float, axes: Shape, keepdims: bool) -> RudaTensor:
    count = math.prod(x.shape[a] for a in axes)
    if not count:
        return mean(x, axes, keepdims=keepdims)
    line = sort(merged(x, axes))
    dtype = x.dtype if x.dtype.is_floating else x.spec.client.defaults.floating
    low, part = divmod(q * (count - 1), 1)
    value = _element(line, int(low), dtype)
    if part:
        value = value * (1 - part) + _element(line, int(low) + 1, dtype) * part
    last = _element(line, count - 1, dtype)
    value = astype(where(isnan(last), last, value), dtype, copy=False)
    return expand_dims(value, axes) if keepdims and axes else value


def _element(line: RudaTensor, i: int, dtype: DType) -> RudaTensor:
    """Element ``i`` of the last axis, in the dtype that ``dtype`` is computed in."""
    one = squeeze(span(line, line.ndim - 1, i, i + 1), -1)
    return astype(one, dtypes.compute_of(dtype), copy=False)
