"""The gradient of a cross-entropy in the logits of some of the classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ruda.core.dtypes import FLOAT, INTEGER, DType, compute_of
from ruda.core.errors import DTypeError, ShapeError
from ruda.ops.arith import multiply, subtract
from ruda.ops.cast import astype
from ruda.ops.compare import equal
from ruda.ops.create import arange
from ruda.ops.explog import exp
from ruda.ops.movement import expand_dims
from ruda.ops.rowwise import wide
from ruda.ops.rules import Specs
from ruda.ops.select import where
from ruda.ops.table import fused
from ruda.tensor.tensor import RudaTensor


def _shape(op: Any, specs: Specs, dtype: DType) -> Any:
    logits, *rows = specs
    if logits.ndim != 2:
        raise ShapeError(op.name, "logits are no matrix", logits.shape, "[N, V]")
    for name, spec in zip(op.args[1:], rows, strict=True):
        if spec.shape != logits.shape[:1]:
            raise ShapeError(op.name, f"{name} does not fit", spec.shape, logits.shape[:1])
    return logits.shape


def _dtype(op: Any, specs: Specs, dtype: DType) -> Any:
    logits, target, *rows = specs
    kind = compute_of(logits.dtype)
    for name, spec in zip(op.args[2:], rows, strict=True):
        if spec.dtype is not kind:
            raise DTypeError(op.name, f"{name} has another dtype", spec.dtype, kind)
    return (logits.dtype, target.dtype, *(kind for _ in rows)), dtype


def _reference(
    logits: Any, target: Any, lse: Any, slope: Any, share: Any, flat: Any, dtype: DType
) -> Any:
    dx = np.exp(logits - lse[:, None])
    dx *= slope[:, None]
    dx -= flat[:, None]
    (here,) = np.nonzero((target >= 0) & (target < logits.shape[1]))
    dx[here, target[here]] -= share[here]
    return dx


@fused(
    "class_gradient",
    "logits target lse slope share flat",
    "dtype",
    shape=_shape,
    takes={"logits": FLOAT, "target": INTEGER, **dict.fromkeys(("lse", "slope", "share"), FLOAT)},
    dtype=_dtype,
    numpy=_reference,
    cast="high",
)
def class_gradient(
    logits: RudaTensor,
    target: RudaTensor,
    lse: RudaTensor,
    slope: RudaTensor,
    share: RudaTensor,
    flat: RudaTensor,
    dtype: DType,
) -> RudaTensor:
    """``exp(logits - lse) * slope - flat``, less ``share`` at ``target``, as ``dtype``.

    ``logits [N, V]`` are those of V classes of many and ``lse [N]`` the log-sum-exp of all; a
    ``target [N]`` outside [0, V) is among the others.
    """
    p = exp(subtract(wide(logits), expand_dims(lse, 1)))
    classes = arange(logits.shape[1], dtype=target.dtype, device=target.device)
    hot = equal(expand_dims(target, 1), expand_dims(classes, 0))
    dx = subtract(multiply(p, expand_dims(slope, 1)), expand_dims(flat, 1))
    return astype(subtract(dx, where(hot, expand_dims(share, 1), 0)), dtype, copy=False)
