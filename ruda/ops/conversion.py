"""Tensors from data: scalars, nested lists, arrays, and whatever speaks an exchange protocol."""

from __future__ import annotations

from typing import Any

import numpy as np

import ruda.tensor as _package
from ruda.core.devices import Device
from ruda.core.devices import client as client_of
from ruda.core.dtypes import DType, as_dtype, integer_range
from ruda.core.errors import ArgumentError, DTypeError, IntegerRangeError, ShapeError
from ruda.core.nesting import loop_in
from ruda.ops.cast import astype, to
from ruda.ops.movement import copy as _copy
from ruda.tensor.dlpack import of_device, to_array
from ruda.tensor.operands import as_scalar, native
from ruda.tensor.tensor import RudaTensor, from_array, wrap

# So many axes an ndarray has at most.
_DEEP = 64


def asarray(
    obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None
) -> RudaTensor:
    """``obj`` as a tensor, sharing memory where it can.

    ``obj`` is a tensor, ndarray, scalar, nested list of scalars, or anything with ``__dlpack__``,
    ``__array__`` or the buffer protocol. Python values take the default dtypes, arrays keep
    theirs. ``copy=True`` always copies, ``copy=False`` raises ``ArgumentError`` where a copy would
    be needed.

    >>> asarray([[1, 2], [3, 4]]).dtype
    ruda.int32
    """
    if obj.__class__ is RudaTensor:
        return _from_tensor(obj, dtype, device, copy)
    borrowed_there = None if isinstance(obj, _HERE) else of_device(obj)
    if borrowed_there is not None:
        return _from_tensor(wrap(*borrowed_there), dtype, device, copy)
    values, borrowed = _values(obj, client_of(device).defaults if dtype is None else None, dtype)
    if dtype is not None:
        cast = _cast_to(values, as_dtype(dtype, "asarray"))
        borrowed, values = borrowed and cast is values, cast
    if copy is False and not (borrowed and _is_adoptable(values)):
        raise ArgumentError("asarray", "needs a copy, which copy=False forbids", type(obj).__name__)
    return from_array(values, device, share=not (copy and borrowed))


def tensor(
    data: Any, /, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> RudaTensor:
    """``data`` copied into a new tensor, a leaf that asks for gradients if ``requires_grad``.

    >>> tensor([1.0, 2.0], requires_grad=True).requires_grad
    True
    """
    if data.__class__ is RudaTensor:
        data = data.detach()
    out = asarray(data, dtype=dtype, device=device, copy=True)
    return out.requires_grad_() if requires_grad else out


# What is on the host without a question.
_HERE = (np.ndarray, np.generic, list, tuple, range, bool, int, float, complex)


def _from_tensor(x: RudaTensor, dtype: Any, device: Any, copy: bool | None) -> RudaTensor:
    moves = device is not None and Device.parse(device) != x.device
    casts = dtype is not None and as_dtype(dtype, "asarray") is not x.dtype
    if copy is False and (moves or casts):
        raise ArgumentError("asarray", "needs a copy, which copy=False forbids", x.spec)
    out = to(x, device) if moves else x
    out = astype(out, dtype, copy=False) if casts else out
    return _copy(out) if copy and out is x else out


def _cast_to(values: Any, dtype: DType) -> Any:
    if values.dtype.kind == "c" and dtype.kind not in ("complex", "bool"):
        hint = "the real or the imaginary part"
        raise DTypeError("asarray", "would drop the imaginary part", values.dtype, dtype, hint)
    return values.astype(dtype.numpy, copy=False)


def _is_adoptable(values: Any) -> bool:
    """Whether a client of the CPU takes the memory as it is."""
    return values.flags.aligned and not any(s % values.itemsize for s in values.strides)


def _values(obj: Any, defaults: Any, dtype: Any) -> tuple[Any, bool]:
    """``obj`` as an ndarray, and whether it shares the memory of ``obj``."""
    if isinstance(obj, np.ndarray | np.generic):
        values = _known(native("asarray", obj) if isinstance(obj, np.ndarray) else np.asarray(obj))
        return values, isinstance(obj, np.ndarray) and obj.dtype.isnative
    leaf = _first_leaf(obj)
    if _nests_tensor(obj):
        obj, leaf = _read_leaves(obj), None if leaf.__class__ is RudaTensor else leaf
    if hasattr(obj, "__dlpack__") and not isinstance(obj, list | tuple):
        return to_array(obj), True
    try:
        values = np.asarray(obj)
    except ValueError as error:
        raise ShapeError(
            "asarray", f"the nesting is ragged ({error})", expected="equal lengths"
        ) from None
    if isinstance(leaf, bool | int | float | complex) and not isinstance(leaf, np.generic):
        return _python_values(_whole(values, obj, leaf), defaults, dtype), False
    # Memory that the new array does not own is the object's, as with a bytearray.
    borrowed = hasattr(obj, "__array__") or not values.flags.owndata
    return _known(native("asarray", values)), borrowed and values.dtype.isnative


def _first_leaf(obj: Any) -> Any:
    outer, depth = obj, 0
    while isinstance(obj, list | tuple | range):
        if not obj:
            return 0.0
        obj, depth = obj[0], depth + 1
        if depth > _DEEP:
            raise _too_deep(outer)
    return obj


def _nests_tensor(obj: Any) -> bool:
    try:
        return _holds_tensor(obj)
    except RecursionError:
        raise _too_deep(obj) from None


def _too_deep(obj: Any) -> ShapeError:
    place = loop_in(obj, "the list")
    what = f"{place} is a list that it lies in itself" if place else "lists are nested too deeply"
    return ShapeError("asarray", what, type(obj).__name__, f"up to {_DEEP} lists in each other")


def _holds_tensor(obj: Any) -> bool:
    """Whether a tensor is anywhere in nested lists."""
    if not isinstance(obj, list | tuple):
        return False
    kinds = set(map(type, obj))
    if RudaTensor in kinds:
        return True
    return not kinds.isdisjoint((list, tuple)) and any(map(_holds_tensor, obj))


def _whole(values: Any, obj: Any, leaf: Any) -> Any:
    """``values``, or ``obj`` read again where NumPy took integers beyond int64 for floats."""
    if not isinstance(leaf, int) or values.dtype.kind != "f" or not values.size:
        return values
    if not np.max(np.abs(values)) >= 2.0**63:
        return values
    exact = np.asarray(obj, dtype=object)
    return exact if _all_integers(exact) else values


def _read_leaves(obj: Any) -> Any:
    """``obj`` with its tensors read; one with history raises, since its gradient would be lost."""
    if isinstance(obj, list | tuple):
        return [_read_leaves(item) for item in obj]
    if obj.__class__ is not RudaTensor:
        return obj
    if obj.node is not None:
        hint = "ruda.stack, which keeps gradients, or x.detach()"
        raise DTypeError("asarray", "a tensor that requires grad in a list", obj.spec, hint=hint)
    return obj.numpy()


def _known(values: Any) -> Any:
    if values.dtype.kind in "OUSM":
        for item in values.flat:
            # Of a number that a trace does not know, this says so.
            as_scalar(item)
        hint = "a list of numbers of equal lengths"
        raise DTypeError("asarray", "not numbers", got=f"dtype {values.dtype}", hint=hint)
    as_dtype(values.dtype, "asarray")
    return values


def _python_values(values: Any, defaults: Any, dtype: Any) -> Any:
    """Values of Python scalars in the wanted or default dtype, integers checked."""
    kind = values.dtype.kind
    target = as_dtype(dtype, "asarray") if dtype is not None else None
    if target is None and kind in "iuO":
        target = defaults.integer
    elif target is None:
        target = {"b": defaults.boolean, "f": defaults.floating, "c": defaults.complex}.get(kind)
    if target is None or (kind == "O" and not _all_integers(values)):
        return _known(values)
    if kind in "iuO" and values.size and target.kind != "bool":
        check_scalar("asarray", int(values.min()), target)
        check_scalar("asarray", int(values.max()), target)
    return _cast_to(values, target)


def _all_integers(values: Any) -> bool:
    return all(isinstance(v, int) for v in values.flat)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> RudaTensor:
    """A tensor over the memory of ``x``, anything that speaks DLPack, without a copy."""
    if not hasattr(x, "__dlpack__"):
        raise DTypeError("from_dlpack", "has no __dlpack__", type(x).__name__)
    found = None if x.__class__ is RudaTensor else of_device(x)
    if x.__class__ is RudaTensor or found is not None:
        return _from_tensor(x if found is None else wrap(*found), None, device, copy)
    return from_array(to_array(x, copy), device)


def check_scalar(op: str, value: Any, dtype: DType) -> None:
    """Raise unless a tensor of ``dtype`` can hold the Python scalar ``value``."""
    hint: str | None
    if dtype.is_integer and value.__class__ in (float, complex):
        hint = f"int({value!r}) or a float dtype"
        raise DTypeError(op, f"{dtype} cannot hold the value", repr(value), hint=hint)
    low, high = integer_range(dtype)
    if value.__class__ is int and not low <= value <= high:
        hint = "dtype=ruda.int64 or a wider dtype" if dtype.is_integer else None
        expected = f"{low} to {high}" if dtype.is_integer else "what a Python float holds"
        raise IntegerRangeError(op, f"does not fit {dtype}", value, expected, hint)
    if value.__class__ is complex and dtype.kind != "complex":
        raise DTypeError(op, f"{dtype} cannot hold a complex value", repr(value))


_package.factory = tensor
