"""Cross-entropy of logits together with its gradient, whose upstream factor is known beforehand."""

from __future__ import annotations

from typing import Any

from ruda.core.dtypes import FLOAT, INTEGER
from ruda.core.errors import ShapeError
from ruda.ops import cross_entropy
from ruda.ops.rowwise import statistics_dtype
from ruda.ops.rules import Specs
from ruda.ops.table import TABLE, fused
from ruda.tensor.tensor import RudaTensor

# Importing the module is what lists its rows.
_FORWARD, _BACKWARD = (TABLE[f"{cross_entropy.NAME}{end}"] for end in ("", "_backward"))


def _shape(op: Any, specs: Specs, *attrs: Any) -> Any:
    dy, *others = specs
    rows = _FORWARD.shape(op, others, *attrs)  # type: ignore[misc]
    if dy.shape != rows[0]:
        raise ShapeError(op.name, "dy does not fit", dy.shape, rows[0])
    return others[0].shape, *rows


def _dtype(op: Any, specs: Specs, *attrs: Any) -> Any:
    casts, dx = _BACKWARD.dtype(op, specs, *attrs)  # type: ignore[misc]
    return casts, (dx, *(statistics_dtype(specs[1]),) * 2)


def _reference(dy: Any, logits: Any, target: Any, weight: Any, *attrs: Any) -> Any:
    loss, lse = _FORWARD.numpy(logits, target, weight, *attrs)  # type: ignore[misc]
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
    optional=("weight",),
    cast="high",
)
def _joint(dy: RudaTensor, logits: RudaTensor, target: RudaTensor, weight: Any, *attrs: Any) -> Any:
    """The gradient in the logits for ``dy`` of each example, the losses, the log-sum-exp."""
    loss, lse = _FORWARD.call(logits, target, weight, *attrs)
    return _BACKWARD.call(dy, logits, target, lse, weight, *attrs), loss, lse


ROW = TABLE["cross_entropy_joint"]
