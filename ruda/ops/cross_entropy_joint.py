"""Cross-entropy of logits together with its gradient, whose upstream factor is known beforehand.

Without a factor there is no gradient, but losses have the very bits that they have beside one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ruda.core.dtypes import FLOAT, INTEGER
from ruda.core.errors import ShapeError
from ruda.core.spec import is_absent
from ruda.ops import cross_entropy_rows
from ruda.ops.create import zeros
from ruda.ops.rowwise import statistics_dtype
from ruda.ops.rules import Specs
from ruda.ops.table import TABLE, fused
from ruda.tensor.tensor import RudaTensor

# Importing the module is what lists its rows.
_FORWARD, _BACKWARD = (TABLE[f"{cross_entropy_rows.NAME}{end}"] for end in ("", "_backward"))


def _shape(op: Any, specs: Specs, *attrs: Any) -> Any:
    dy, *others = specs
    rows = _FORWARD.shape(op, others, *attrs)  # type: ignore[misc]
    if is_absent(dy):
        return (0,), *rows
    if dy.shape != rows[0]:
        raise ShapeError(op.name, "dy does not fit", dy.shape, rows[0])
    return others[0].shape, *rows


def _dtype(op: Any, specs: Specs, *attrs: Any) -> Any:
    casts, dx = _BACKWARD.dtype(op, specs, *attrs)  # type: ignore[misc]
    return casts, (dx, *(statistics_dtype(specs[1]),) * 2)


def _reference(dy: Any, logits: Any, target: Any, weight: Any, *attrs: Any) -> Any:
    loss, lse = _FORWARD.numpy(logits, target, weight, *attrs)  # type: ignore[misc]
    if dy is None:
        return np.zeros(0, logits.dtype), loss, lse
    dx = _BACKWARD.numpy(dy, logits, target, lse, weight, *attrs)  # type: ignore[misc]
    return dx, loss, lse


@fused(
    "cross_entropy_joint",
    "dy logits target weight",
    "axis ignore_index label_smoothing z_loss",
    "dx loss lse",
    shape=_shape,
    takes={"dy": FLOAT, "logits": FLOAT, "target": INTEGER},
    dtype=_dtype,
    numpy=_reference,
    optional=("dy", "weight"),
    cast="high",
)
def _joint(dy: Any, logits: RudaTensor, target: RudaTensor, weight: Any, *attrs: Any) -> Any:
    """The gradient in the logits for ``dy`` of each example, the losses, the log-sum-exp.

    Without ``dy`` the gradient has length 0.
    """
    loss, lse = _FORWARD.call(logits, target, weight, *attrs)
    if dy is None:
        return zeros(0, dtype=logits.dtype, device=logits.device), loss, lse
    return _BACKWARD.call(dy, logits, target, lse, weight, *attrs), loss, lse


ROW = TABLE["cross_entropy_joint"]
