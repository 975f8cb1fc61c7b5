"""The mean or the sum of cross-entropies, and the gradient that ``backward`` will ask for.

A walk that begins at the loss itself begins with one: then the gradient is known going forward,
while the logits are there. The tape keeps it, and hands it out if that is what is asked for; any
other gradient is made from the logits.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ruda.core.dtypes import FLOAT, INTEGER
from ruda.core.errors import GradientError
from ruda.core.mode import MODE
from ruda.core.shapes import Shape
from ruda.core.spec import Spec, absent_spec, spec_of
from ruda.ops.arith import multiply
from ruda.ops.cast import astype
from ruda.ops.counting import mean_counted
from ruda.ops.create import full
from ruda.ops.cross_entropy_joint import ROW as JOINT
from ruda.ops.cross_entropy_rows import NAME, check_operands, dtype_rule, logits_vjp
from ruda.ops.movement import broadcast_to
from ruda.ops.reduce import sum
from ruda.ops.rowwise import autocast_wide, statistics_dtype
from ruda.ops.rules import Specs
from ruda.ops.table import TABLE, fused
from ruda.tensor.tensor import RudaTensor

# Rows begin at packs of so many bytes: others would be read in another order without a gradient.
_ALIGNED = 16
# Logits by device, dtype and classes whose last loss was pulled back from one.
_PULLED: set[tuple[Any, ...]] = set()


def ahead(logits: RudaTensor, target: RudaTensor, axis: int, *attrs: Any) -> RudaTensor | None:
    """The loss by a row that may make the gradient as well; None where nothing is won by that.

    ``attrs`` are those of the row but the last. The gradient is made if the last one was asked
    for, so a loop that never calls ``backward``, or scales its losses, does not pay for it. Which
    of the two happened shows in no bit.
    """
    mode = MODE.get()
    if logits.node is None or not mode.grad or mode.watched:
        return None
    client = logits.spec.client
    if client.device.kind == "cpu" or axis != logits.ndim - 1 or not logits.spec.contiguous:
        return None
    if target.spec.client is not client or not logits.shape[-1] or logits.dtype not in FLOAT:
        # The row of losses raises, in its own name.
        return None
    x = autocast_wide(logits)
    if client.address(x.handle) % _ALIGNED or not _keeps(x.spec, target.spec, attrs[:-1]):
        return None
    key = _key(x.spec)
    made = key in _PULLED
    _PULLED.discard(key)
    loss: RudaTensor = _row(x, target, *attrs, made)[0]
    return loss


def _key(logits: Spec) -> tuple[Any, ...]:
    return logits.client, logits.dtype, logits.shape[-1]


@functools.lru_cache(maxsize=1024)
def _keeps(logits: Spec, target: Spec, attrs: tuple[Any, ...]) -> bool:
    """Whether logits are read once for losses and gradient."""
    client, rows = logits.client, logits.shape[:-1]
    dy = spec_of(client, rows, statistics_dtype(logits), (0,) * len(rows))
    specs = dy, logits, target, absent_spec(client)
    plan = JOINT.lookup(specs, (logits.ndim - 1, *attrs))
    return bool(getattr(plan.run, "keeps", False))


def _shape(op: Any, specs: Specs, *attrs: Any) -> Any:
    logits, target = specs
    rows: Shape = check_operands(op, logits, target, absent_spec(logits.client), logits.ndim - 1)
    return (), rows, (), logits.shape if attrs[-1] else (0,)


def _dtype(op: Any, specs: Specs, *_: Any) -> Any:
    logits, target = specs
    casts, (kind, *_) = dtype_rule(op, (logits, target, absent_spec(logits.client)))
    return casts[:2], (logits.dtype, kind, kind, logits.dtype)


def _reference(
    logits: Any, target: Any, ignore: int, smoothing: float, z_loss: float, mean: bool, made: bool
) -> Any:
    rates, axis = (ignore, smoothing, z_loss), logits.ndim - 1
    one = logits.dtype.type(1)
    count = logits.dtype.type(np.count_nonzero(target != ignore)) if mean else one
    share = np.divide(one, count)
    dy = np.full(target.shape, share) if made else None
    dx, loss, lse = JOINT.numpy(dy, logits, target, None, axis, *rates)  # type: ignore[misc]
    return np.divide(np.add.reduce(loss, axis=None), count), lse, share, dx


def _vjp(
    g: Any,
    logits: RudaTensor,
    target: RudaTensor,
    lse: RudaTensor,
    share: RudaTensor,
    dx: RudaTensor,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
) -> Any:
    if g[3] is not None and g[3].size:
        what = "the gradient that it made is for the tape alone, and has none of its own"
        raise GradientError(f"{NAME}_ahead", what, hint=NAME)
    dy, mode = g[0], MODE.get()
    if dy is not None and g[1] is None and mode.last and _is_one(dy.handle, mode.ones):
        _PULLED.add(_key(logits.spec))
        if dx.shape == logits.shape:
            return dx
    if dy is not None:
        dy = broadcast_to(multiply(astype(dy, share.dtype, copy=False), share), target.shape)
    rates = ignore_index, label_smoothing, z_loss
    return logits_vjp((dy, g[1]), logits, target, None, lse, logits.ndim - 1, *rates)


def _is_one(handle: Any, ones: tuple[Any, ...]) -> bool:
    """Whether it is one of ``ones``, and nobody has changed it since."""
    return handle.version == 0 and any(handle is each for each in ones)


@fused(
    f"{NAME}_ahead",
    "logits target",
    "ignore_index label_smoothing z_loss mean made",
    "loss lse share dx",
    shape=_shape,
    takes={"logits": FLOAT, "target": INTEGER},
    dtype=_dtype,
    numpy=_reference,
    vjp=(_vjp, None),
    cast="high",
)
def _row(
    logits: RudaTensor,
    target: RudaTensor,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    mean: bool,
    made: bool,
) -> Any:
    """The mean or sum of losses, how much each counts in it, and its gradient where it is ``made``.

    ``logits [..., V]`` with the classes on the last axis, ``target [...]``. Results: ``loss []``;
    ``lse [...]``, the log-sum-exp of each example; ``share []``, by which each counts;
    ``dx [..., V]``, or ``[0]`` where it is not ``made``. ``lse`` and ``share`` are of float32 or
    float64, the others of the dtype of the logits. Raises as ``cross_entropy`` does.
    """
    kind, axis = statistics_dtype(logits.spec), logits.ndim - 1
    share = full((), 1, dtype=kind, device=logits.device)
    if mean:
        share = TABLE["over_counted"].call(share, target, ignore_index)
    dy = broadcast_to(share, target.shape) if made else None
    rates = ignore_index, label_smoothing, z_loss
    dx, each, lse = JOINT.call(dy, logits, target, None, axis, *rates)
    loss = mean_counted(each, target, None, ignore_index) if mean else sum(each)
    return astype(loss, logits.dtype, copy=False), lse, share, dx
