"""Pooling over one to three trailing axes: maximum with indices, and average.

Maximum pooling differentiates through two rows that are each other's transpose: gradients are added
to the elements that won, and read back from them.
"""

from __future__ import annotations

from typing import Any

from ruda.core import dtypes
from ruda.core.dtypes import INEXACT, INTEGER, REAL
from ruda.core.errors import ArgumentError
from ruda.core.shapes import Shape, index
from ruda.ops import rules
from ruda.ops.movement import moveaxis
from ruda.ops.pool_last import fits, max_pool_last
from ruda.ops.pool_rules import first_dtype, placed, pooled
from ruda.ops.reference import pool as reference
from ruda.ops.rules import Specs
from ruda.ops.table import row
from ruda.ops.windows import Pairs, check_rank, padding_pairs, per_axis
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


def with_indices(op: Any, specs: Specs, *_: Any) -> Any:
    """Values in the dtype of the input, indices in int64."""
    value, _ = rules.promote(op, specs)
    return value, (value, dtypes.int64)


def _max_shape(op: Any, specs: Specs, *attrs: Any) -> Any:
    shape = pooled(op.name, specs[0].shape, *attrs)
    return shape, shape


_max_pool = row(
    "index",
    "max_pool",
    "x",
    "kernel stride padding dilation ceil_mode",
    "values indices",
    shape=_max_shape,
    dtype=with_indices,
    numpy=reference.max_pool,
    vjp=(
        lambda g, x_spec, indices, kernel, stride, padding, dilation: max_pool_backward(
            g[0], indices, x_spec.shape, len(kernel), (kernel, stride, padding, dilation)
        ),
    ),
    accepts=REAL,
    doc="Maximum of each window and its flat position in the plane.",
)


# ``window`` says which windows can have chosen an element, so that a backward may gather: kernel,
# stride, padding and dilation, () for adaptive windows, None where any may.
max_pool_backward = row(
    "index",
    "max_pool_backward",
    "dy indices",
    "x_shape ndim window",
    shape=placed,
    takes={"indices": INTEGER},
    dtype=first_dtype,
    numpy=lambda g, indices, x_shape, ndim, window: reference.max_pool_backward(
        g, indices, x_shape, ndim
    ),
    vjp=(lambda g, indices, ndim, window: _pick(g, indices, ndim, window), None),
    doc="Each gradient added to the element that won its window.",
)
_pick = row(
    "index",
    "max_pool_pick",
    "x indices",
    "ndim window",
    shape=lambda op, specs, *_: specs[1].shape,
    takes={"indices": INTEGER},
    dtype=first_dtype,
    numpy=lambda x, indices, ndim, window: reference.max_pool_pick(x, indices, ndim),
    vjp=(
        lambda g, indices, x_spec, ndim, window: max_pool_backward(
            g, indices, x_spec.shape, ndim, window
        ),
        None,
    ),
    doc="The elements that won their windows; zero for a window of padding.",
)


def _average_shape(
    op: Any, specs: Specs, kernel: Shape, stride: Shape, padding: Pairs, ceil: bool, *_: Any
) -> Shape:
    ones = (1,) * len(kernel)
    return pooled(op.name, specs[0].shape, kernel, stride, padding, ones, ceil)


_avg_pool = row(
    "index",
    "avg_pool",
    "x",
    "kernel stride padding ceil_mode count_include_pad divisor",
    shape=_average_shape,
    dtype=rules.promote,
    numpy=reference.avg_pool,
    vjp=(
        lambda g, x_spec, kernel, stride, padding, ceil_mode, count_include_pad, divisor: _spread(
            g, x_spec.shape, kernel, stride, padding, ceil_mode, count_include_pad, divisor
        ),
    ),
    accepts=INEXACT,
    doc="Average of each window.",
)
_spread = row(
    "index",
    "avg_pool_backward",
    "dy",
    "x_shape kernel stride padding ceil_mode count_include_pad divisor",
    shape=lambda op, specs, x_shape, *_: x_shape,
    dtype=rules.promote,
    numpy=reference.avg_pool_backward,
    vjp=(
        lambda g, kernel, stride, padding, ceil_mode, count_include_pad, divisor: _avg_pool(
            g, kernel, stride, padding, ceil_mode, count_include_pad, divisor
        ),
    ),
    accepts=INEXACT,
    doc="Each gradient shared out over the elements of its window.",
)


def _max(
    name: str,
    rank: int,
    x: RudaTensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
    layout: str,
) -> Any:
    if layout not in ("nchw", "nhwc"):
        raise ArgumentError(name, "unknown layout", repr(layout), "nchw or nhwc")
    kernel, steps, pairs = _window(name, rank, x, kernel_size, stride, padding)
    settings = (kernel, steps, pairs, per_axis(dilation, rank, name, "dilation"), bool(ceil_mode))
    if layout == "nchw":
        values, indices = _max_pool(x, *settings)
    elif return_indices or not fits(kernel) or x.ndim == rank + 1:
        # Positions in planes, whose axes come last: the results are views of what is pooled so.
        values, indices = (
            moveaxis(t, -rank - 1, -1) for t in _max_pool(_second(x, rank), *settings)
        )
    else:
        return max_pool_last(x, *settings)[0]
    return (values, indices) if return_indices else values


def _second(x: RudaTensor, rank: int) -> RudaTensor:
    """``x [N, *S, C]`` with its channels before the ``rank`` axes; a view."""
    return moveaxis(x, -1, -rank - 1)


def _window(
    name: str, rank: int, x: RudaTensor, kernel_size: Any, stride: Any, padding: Any
) -> tuple[Shape, Shape, Pairs]:
    check_rank(name, rank, x)
    kernel = per_axis(kernel_size, rank, name, "kernel_size")
    steps = kernel if stride is None else per_axis(stride, rank, name, "stride")
    pairs = padding_pairs(padding, rank, name)
    if any(2 * max(pair) > k for pair, k in zip(pairs, kernel, strict=True)):
        # More would leave windows that hold padding alone.
        got = f"padding {padding} for kernel {kernel}"
        raise ArgumentError(name, "padding exceeds half of the kernel", got)
    return kernel, steps, pairs


@given_tensors
def max_pool1d(
    input: RudaTensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    layout: str = "nchw",
) -> Any:
    """Maximum of each window of ``input [N, C, L]``; see ``max_pool2d``."""
    settings = (kernel_size, stride, padding, dilation, ceil_mode)
    return _max("max_pool1d", 1, input, *settings, return_indices, layout)


@given_tensors
def max_pool2d(
    input: RudaTensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    layout: str = "nchw",
) -> Any:
    """Maximum of each window of ``input [N, C, H, W]``, a real dtype: ``[N, C, *windows]``.

    The batch axis may be left out; ``stride`` is the kernel size unless given; padding never wins,
    and is at most half of the kernel, an integer, one per axis or a pair per axis.
    ``ceil_mode`` adds a last partial window where elements are left over. With ``return_indices``
    also the int64 positions in each flattened plane. NaN wins; ties go to the lower index. With
    ``layout="nhwc"`` the input is ``[N, H, W, C]`` and so are the results.

    >>> max_pool2d(ruda.asarray([[[1.0, 2.0], [4.0, 3.0]]]), 2, return_indices=True)
    (tensor([[[4.]]]), tensor([[[2]]], dtype=int64))
    """
    settings = (kernel_size, stride, padding, dilation, ceil_mode)
    return _max("max_pool2d", 2, input, *settings, return_indices, layout)


@given_tensors
def max_pool3d(
    input: RudaTensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    layout: str = "nchw",
) -> Any:
    """Maximum of each window of ``input [N, C, D, H, W]``; see ``max_pool2d``."""
    settings = (kernel_size, stride, padding, dilation, ceil_mode)
    return _max("max_pool3d", 3, input, *settings, return_indices, layout)


def _average(
    name: str,
    rank: int,
    x: RudaTensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: Any = None,
) -> RudaTensor:
    window = _window(name, rank, x, kernel_size, stride, padding)
    if divisor is not None:
        divisor = index(divisor, name, "divisor_override")
        if divisor == 0:
            raise ArgumentError(name, "the divisor is zero", divisor)
    return _avg_pool(x, *window, bool(ceil_mode), bool(count_include_pad), divisor)


@given_tensors
def avg_pool1d(
    input: RudaTensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> RudaTensor:
    """Average of each window of ``input [N, C, L]``; see ``avg_pool2d``."""
    settings = (kernel_size, stride, padding, ceil_mode, count_include_pad)
    return _average("avg_pool1d", 1, input, *settings)


@given_tensors
def avg_pool2d(
    input: RudaTensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> RudaTensor:
    """Average of each window of ``input [N, C, H, W]``, a float or complex dtype.

    Arguments as ``max_pool2d``. The sum is divided by the part of the window inside the padded
    input, inside the input alone (``count_include_pad=False``), or by ``divisor_override``.

    >>> avg_pool2d(ruda.asarray([[[1.0, 2.0], [4.0, 3.0]]]), 2).tolist()
    [[[2.5]]]
    """
    settings = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return _average("avg_pool2d", 2, input, *settings)


@given_tensors
def avg_pool3d(
    input: RudaTensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> RudaTensor:
    """Average of each window of ``input [N, C, D, H, W]``; see ``avg_pool2d``."""
    settings = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return _average("avg_pool3d", 3, input, *settings)
