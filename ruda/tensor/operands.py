"""What may stand where an operator wants a tensor: tensors, Python and NumPy scalars, arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ruda.core.dtypes import ALL, as_dtype
from ruda.core.errors import DeviceError, DTypeError
from ruda.core.spec import Spec, spec_of, weak_spec
from ruda.tensor.tensor import RudaTensor


class Vector(tuple[int, ...]):
    """Integers that an operator takes by value, such as where a slice starts on each axis.

    A class of its own: a plain tuple is no operand, or ``x + (1, 2)`` would mean something.
    """

    __slots__ = ()


_KINDS: dict[type, str] = {bool: "bool", int: "int", float: "float", complex: "complex"}
_weak: dict[tuple[Any, type], Spec] = {}


class WeakScalar:
    """A scalar whose value is not known yet: what stands for a float argument in a trace.

    ``kind`` is that of the Python scalar it will be.
    """

    __slots__ = ()

    kind = "float"


def operand(op: str, value: Any, client: Any) -> tuple[Spec, Any, Any] | None:
    """``value`` as (spec, handle, node), or None when it is nothing an operator takes.

    Python and NumPy scalars are weak: the handle is the scalar itself. An ndarray is a tensor of
    the CPU; it is never moved to another device.
    """
    cls = value.__class__
    if cls is RudaTensor:
        return value.spec, value.handle, value.node
    spec = _weak.get((client, cls))
    if spec is not None:
        return spec, value, None
    if isinstance(value, np.ndarray):
        return _array(op, value, client)
    if cls is Vector:
        return weak_spec(client, "int"), value, None
    if isinstance(value, WeakScalar):
        spec = _weak[client, cls] = weak_spec(client, value.kind)
        return spec, value, None
    scalar = as_scalar(value)
    if scalar is None:
        return None
    kind = _KINDS[scalar.__class__]
    spec = _weak[client, scalar.__class__] = weak_spec(client, kind)
    return spec, scalar, None


def as_scalar(value: Any) -> bool | int | float | complex | None:
    """The Python scalar that ``value`` means, or None when it is no scalar.

    A scalar that is not known yet raises what says so, with the line.
    """
    if isinstance(value, np.generic):
        value = _python_scalar(value)
    kinds: tuple[Any, ...] = (bool, int, float, complex)
    for cls in kinds:
        if isinstance(value, cls):
            return value if value.__class__ is cls else cls(value)  # type: ignore[no-any-return]
    return float(value) if isinstance(value, WeakScalar) else None  # type: ignore[arg-type]


def _python_scalar(value: np.generic[Any]) -> Any:
    """A NumPy scalar as a Python one; None for strings, dates and records."""
    if value.dtype.kind not in "biufc":
        return float(value) if value.dtype in _HALF else None
    number = value.item()
    # A longdouble has no smaller form of its own: its item is itself.
    return number if not isinstance(number, np.generic) else _FROM_LONG[value.dtype.kind](number)


_HALF = tuple(d.numpy for d in ALL if d.numpy.kind not in "biufc")
_FROM_LONG: dict[str, Any] = {"f": float, "c": complex}


def native(op: str, array: Any) -> Any:
    """``array`` as a plain one in the byte order of the machine; a copy in the other order."""
    if array.__class__ is not np.ndarray:
        if np.any(getattr(array, "mask", False)):
            hint = "array.filled(value)"
            raise DTypeError(op, "masked elements have no values", type(array).__name__, hint=hint)
        array = np.asarray(array)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _array(op: str, array: np.ndarray[Any, Any], client: Any) -> tuple[Spec, Any, None]:
    if client.device.kind != "cpu":
        hint = f"ruda.asarray(array, device={str(client.device)!r})"
        raise DeviceError(
            op, "a NumPy array is on the CPU", f"an operand on {client.device}", hint=hint
        )
    array = native(op, array)
    dtype = as_dtype(array.dtype, op)
    strides, handle = client.adopt(array)
    return spec_of(client, array.shape, dtype, strides), handle, None
