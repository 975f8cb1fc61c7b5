"""The running statistics of batch norm: one row moves them towards those of a batch."""

from __future__ import annotations

from typing import Any

from ruda.core.dtypes import FLOAT, compute_of
from ruda.core.errors import DTypeError, ShapeError
from ruda.ops.cast import astype
from ruda.ops.movement import reshape
from ruda.ops.reference import standard as reference
from ruda.ops.rules import Specs
from ruda.ops.table import fused
from ruda.tensor.dispatch import OPS
from ruda.tensor.mutation import update_all
from ruda.tensor.tensor import RudaTensor


def _shape(op: Any, specs: Specs, *_: Any) -> Any:
    size = specs[0].shape
    for name, spec, expected in zip(op.args[:3], specs, (size, size, ()), strict=False):
        if spec.shape != expected:
            raise ShapeError(op.name, f"{name} does not fit", spec.shape, expected)
    for name, spec in zip(op.args[3:], specs[3:], strict=True):
        if spec.size != specs[0].size:
            raise ShapeError(op.name, f"{name} does not fit", spec.shape, size)
    return size, size, ()


def _dtype(op: Any, specs: Specs, *_: Any) -> Any:
    own = tuple(spec.dtype for spec in specs)
    if specs[2].weak or not own[2].is_integer:
        raise DTypeError(op.name, "the batches do not count", specs[2], "a tensor of integers")
    return own, own[:3]


@fused(
    "moving_statistics",
    "mean var count batch_mean batch_var",
    "length momentum",
    "new_mean new_var new_count",
    shape=_shape,
    dtype=_dtype,
    takes=dict.fromkeys(("mean", "var", "batch_mean", "batch_var"), FLOAT),
    numpy=reference.moving_statistics,
)
def _moving_statistics(
    mean: Any,
    var: Any,
    count: Any,
    batch_mean: Any,
    batch_var: Any,
    length: int,
    momentum: float | None,
) -> Any:
    """``mean`` and ``var`` towards those of a batch of ``length`` values, which counts one more.

    By ``momentum``, or without one so that all batches weigh the same. The biased ``batch_var``
    becomes unbiased; it and ``batch_mean`` may have axes of length 1.
    """
    new_count = count + 1
    share: Any = 1.0 / astype(new_count, "float64") if momentum is None else momentum
    found = []
    unbiased = length / (length - 1)
    for running, batch, factor in ((mean, batch_mean, 1.0), (var, batch_var, unbiased)):
        wide, batch = compute_of(running.dtype), reshape(batch, running.shape)
        old, new = (astype(t, wide, copy=False) for t in (running, batch))
        part = astype(share, wide) if momentum is None else share
        found.append(astype(old + (new * factor - old) * part, running.dtype, copy=False))
    return *found, new_count


def move(
    running: tuple[RudaTensor, RudaTensor, RudaTensor],
    batch: tuple[RudaTensor, RudaTensor],
    length: int,
    momentum: float | None,
) -> None:
    """Move running mean, variance ``[C]`` and count in place by the first two of a batch.

    Off the tape; those of the batch may have axes of length 1 besides.
    """
    update_all(running, OPS["moving_statistics"], (*running, *batch), (length, momentum))
