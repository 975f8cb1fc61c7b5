"""Bounding gradients before a step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ruda.core.dtypes import float32
from ruda.core.errors import ArgumentError, DeviceError
from ruda.core.mode import no_grad
from ruda.ops.cast import astype
from ruda.ops.create import zeros
from ruda.ops.join import stack
from ruda.ops.joint_norm import joint_norm
from ruda.ops.select import clip
from ruda.ops.statistics import vector_norm
from ruda.tensor.batches import overwrite_each
from ruda.tensor.dispatch import OPS
from ruda.tensor.given import given_tensors
from ruda.tensor.node import gradients
from ruda.tensor.tensor import RudaTensor

# Beside the norm in the divisor, so that a norm of zero divides too; PyTorch's value.
_MARGIN = 1e-6


def _gradients(parameters: Any, op: str) -> list[RudaTensor]:
    given = [parameters] if isinstance(parameters, RudaTensor) else list(parameters)
    grads = [g for g in gradients(given) if g is not None]
    clients = [g.spec.client for g in grads]
    if clients != clients[:1] * len(clients):
        other = next(c for c in clients if c is not clients[0])
        got = f"{grads[0].device} and {other.device}"
        raise DeviceError(op, "gradients live on different devices", got)
    return grads


def scale_all(grads: Sequence[RudaTensor], factor: RudaTensor) -> None:
    """Overwrite gradients of one device with themselves times ``factor``, a 0-d tensor.

    Off the tape alone; the factor is rounded to the dtype of each.
    """
    of_dtype: dict[Any, list[RudaTensor]] = {}
    for g in grads:
        of_dtype.setdefault(g.spec.dtype, []).append(g)
    for dtype, some in of_dtype.items():
        overwrite_each(OPS["multiply"], some, (some, astype(factor, dtype, copy=False)))


@given_tensors
def clip_grad_norm_(
    parameters: RudaTensor | Iterable[RudaTensor], max_norm: Any, norm_type: float = 2.0
) -> RudaTensor:
    """Scale all gradients so that their norm together is at most ``max_norm``.

    Returns the norm before, as a 0-d tensor: nothing is read, so a step stays on the device. Half
    gradients are summed in float32. ``norm_type`` is positive, ``math.inf`` for the largest value.

    >>> weight = ruda.tensor([3.0, 4.0], requires_grad=True)
    >>> (weight * weight / 2).sum().backward()
    >>> clip_grad_norm_([weight], 1.0).item(), weight.grad.tolist()
    (5.0, [0.599..., 0.799...])
    """
    with no_grad():
        grads = _gradients(parameters, "clip_grad_norm_")
        norm = _norm(grads, norm_type, "clip_grad_norm_")
        scale_all(grads, clip_factor(norm, max_norm))
        return norm


def clip_factor(norm: RudaTensor, max_norm: Any) -> RudaTensor:
    """What brings a gradient of norm ``norm`` to at most ``max_norm``: at most 1."""
    return clip(max_norm / (norm + _MARGIN), max=1.0)


@given_tensors
def grad_norm(parameters: RudaTensor | Iterable[RudaTensor], norm_type: float = 2.0) -> RudaTensor:
    """The norm of all gradients together, a 0-d tensor; 0 where there are none.

    >>> weight = ruda.tensor([3.0, 4.0], requires_grad=True)
    >>> (weight * weight / 2).sum().backward()
    >>> grad_norm([weight]).item()
    5.0
    """
    with no_grad():
        return _norm(_gradients(parameters, "grad_norm"), norm_type, "grad_norm")


def _norm(grads: list[RudaTensor], kind: float, op: str) -> RudaTensor:
    """The norm of all ``grads`` as one vector, in float32 for half types."""
    if not kind > 0:
        raise ArgumentError(op, "norm_type is not positive", kind)
    if not grads:
        return zeros(())
    if kind == 2:
        return joint_norm(grads)
    wide = (astype(g, float32) if g.dtype.is_half else g for g in grads)
    return vector_norm(stack([vector_norm(g, ord=kind) for g in wide]), ord=kind)


@given_tensors
def clip_grad_value_(parameters: RudaTensor | Iterable[RudaTensor], clip_value: float) -> None:
    """Hold every element of the gradients inside ±``clip_value``.

    >>> weight = ruda.tensor([3.0, -0.5], requires_grad=True)
    >>> (weight * weight / 2).sum().backward()
    >>> clip_grad_value_([weight], 1.0)
    >>> weight.grad.tolist()
    [1.0, -0.5]
    """
    with no_grad():
        grads = _gradients(parameters, "clip_grad_value_")
        overwrite_each(OPS["clip"], grads, (grads, -clip_value, clip_value))
