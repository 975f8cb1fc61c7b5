"""Changing dtype, and moving between devices."""

from __future__ import annotations

from typing import Any

from ruda.core.devices import Device
from ruda.core.devices import client as client_of
from ruda.core.dtypes import ALL, DType, as_dtype
from ruda.core.errors import DTypeError
from ruda.ops import rules
from ruda.ops.movement import copy as _duplicate
from ruda.ops.table import row
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor

DTYPE_NAMES = frozenset(d.name for d in ALL)


def _cast_dtype(op: Any, specs: Any, dtype: DType) -> Any:
    source = specs[0].dtype
    if source.kind == "complex" and dtype.kind not in ("complex", "bool"):
        hint = "real(x) or imag(x)"
        raise DTypeError("astype", "would drop the imaginary part", source, dtype, hint)
    return None, dtype


def _cast(x: Any, dtype: DType) -> Any:
    return x.astype(dtype.numpy)


_astype = row(
    "cast",
    "astype",
    "x",
    "dtype",
    shape=rules.same,
    dtype=_cast_dtype,
    numpy=_cast,
    expr="static_cast<T>(x)",
    vjp=(lambda g: g,),
    exact=True,
    doc="``x`` with its elements converted to ``dtype``.",
)


def _moved(x: Any, device: Device) -> Any:
    return x


_to = row(
    "transfer",
    "to",
    "x",
    "device",
    shape=rules.same,
    dtype=rules.unchanged,
    numpy=_moved,
    vjp=(lambda g, x_spec: to(g, x_spec.client.device),),
    accepts=ALL,
    exact=True,
    doc="A copy of ``x`` on another device.",
)


@given_tensors
def astype(x: RudaTensor, dtype: Any, /, *, copy: bool = True, device: Any = None) -> RudaTensor:
    """``x`` with its elements converted to ``dtype``; differentiable between floating dtypes.

    With ``copy=False`` a tensor that already has the dtype is returned as it is. Raises
    ``DTypeError`` for complex to real, which would drop the imaginary part.

    >>> astype(ruda.asarray([1.7, -1.7]), ruda.int32).tolist()
    [1, -1]
    """
    target = as_dtype(dtype, "astype")
    if device is not None:
        x = to(x, device)
    if x.spec.dtype is target and not x.spec.weak:
        return _duplicate(x) if copy else x
    return _astype(x, target)


def to(x: RudaTensor, device: Any, /, *, non_blocking: bool = False) -> RudaTensor:
    """``x`` on ``device``, or in a dtype when given one; ``x`` itself where nothing changes.

    Raises ``DeviceError`` for a device that is not there. The copy is differentiable.
    ``non_blocking`` allows a copy between host and GPU to go on while Python does.

    >>> to(ruda.ones(2), "float64").dtype
    ruda.float64
    """
    if isinstance(device, DType) or device in DTYPE_NAMES:
        return astype(x, device, copy=False)
    where = Device.parse(device)
    if where == x.device:
        return x
    target = client_of(where)
    relaxed = getattr(target, "relaxed", None) if non_blocking else None
    if relaxed is None:
        return _to(x, target.device)
    with relaxed():
        return _to(x, target.device)
