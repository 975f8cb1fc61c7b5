"""Factories: tensors from data, and tensors from a rule."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import ruda.tensor as _package
from ruda.core.devices import Device
from ruda.core.devices import client as client_of
from ruda.core.dtypes import ALL, DType, as_dtype, complex128, float64, integer_range
from ruda.core.errors import ArgumentError, DeviceError, DTypeError, IntegerRangeError, ShapeError
from ruda.core.shapes import Shape, index, normalize_shape
from ruda.ops.cast import astype, to
from ruda.ops.movement import copy as _copy
from ruda.ops.table import row
from ruda.tensor.dispatch import clear_plans
from ruda.tensor.dlpack import to_array
from ruda.tensor.operands import as_scalar, native
from ruda.tensor.tensor import RudaTensor, from_array


def _made(op: Any, specs: Any, shape: Shape, *_: Any) -> Shape:
    return shape


def _made_dtype(op: Any, specs: Any, *attrs: Any) -> Any:
    return (None,) * len(specs), attrs[1]


_full = row(
    "create",
    "full",
    "value",
    "shape dtype device",
    shape=_made,
    dtype=_made_dtype,
    # Cast here: a warning of the cast inside of np.full would bear NumPy's name.
    numpy=lambda value, shape, dtype, device: np.full(shape, np.asarray(value, dtype.numpy)),
    accepts=ALL,
    exact=True,
    doc="A tensor with every element equal to a scalar.",
)
_arange = row(
    "create",
    "arange",
    "start step",
    "shape dtype device",
    shape=_made,
    dtype=_made_dtype,
    numpy=lambda start, step, shape, dtype, device: _evenly(start, step, shape, dtype),
    exact=True,
    doc="Evenly spaced values: ``start + i * step``.",
)


def _evenly(start: Any, step: Any, shape: Shape, dtype: DType) -> Any:
    if dtype.is_integer:
        # Wrapping arithmetic in the dtype itself gives exact values over the whole range.
        steps = np.arange(shape[0], dtype=np.uint64) * np.uint64(int(step) % 2**64)
        return (steps + np.uint64(int(start) % 2**64)).astype(np.int64).astype(dtype.numpy)
    return (start + np.arange(shape[0]) * step).astype(dtype.numpy)


_linspace = row(
    "create",
    "linspace",
    "start stop",
    "shape dtype endpoint device",
    shape=_made,
    dtype=_made_dtype,
    numpy=lambda start, stop, shape, dtype, endpoint, device: np.linspace(
        start, stop, shape[0], endpoint, dtype=None if dtype.is_half else dtype.numpy
    ),
    exact=True,
    doc="Evenly spaced values between two ends.",
)


def _place(device: Any) -> Device:
    return client_of(device).device


def float_dtype(dtype: Any, device: Any, op: str) -> DType:
    """``dtype``, or the default float of ``device`` where it is None."""
    return client_of(device).defaults.floating if dtype is None else as_dtype(dtype, op)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> RudaTensor:
    """A tensor of ``shape`` with every element ``fill_value``, a scalar.

    Without ``dtype`` the scalar's kind decides among the default dtypes. Raises
    ``IntegerRangeError`` for an integer that does not fit.

    >>> full((2,), 7).tolist()
    [7, 7]
    """
    value = as_scalar(fill_value)
    if fill_value.__class__ is RudaTensor and fill_value.shape == ():
        return _copy(fill_value.broadcast_to(shape).astype(dtype or fill_value.dtype))
    if value is None:
        raise DTypeError("full", "the value is not a scalar", type(fill_value).__name__)
    defaults = client_of(device).defaults
    by_kind = {bool: defaults.boolean, int: defaults.integer, float: defaults.floating}
    kind = (
        by_kind.get(value.__class__, defaults.complex) if dtype is None else as_dtype(dtype, "full")
    )
    check_scalar("full", value, kind)
    return _full(value, normalize_shape(shape, "full"), kind, _place(device))


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


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> RudaTensor:
    """Zeros of ``shape``; the default float without ``dtype``."""
    kind = float_dtype(dtype, device, "zeros")
    return _full(0, normalize_shape(shape, "zeros"), kind, _place(device))


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> RudaTensor:
    """Ones of ``shape``; the default float without ``dtype``."""
    kind = float_dtype(dtype, device, "ones")
    return _full(1, normalize_shape(shape, "ones"), kind, _place(device))


def empty(shape: Any, *, dtype: Any = None, device: Any = None, pin: bool = False) -> RudaTensor:
    """A tensor of ``shape`` with whatever values are there; ``pin`` asks for page-locked memory.

    Raises ``DeviceError`` for ``pin`` where no GPU is there to copy to.
    """
    if pin:
        raise DeviceError("empty", "pinned memory needs a GPU", "pin=True", hint="pin=False")
    # Zeros cost the same as uninitialised memory on the CPU, which maps fresh pages lazily.
    return zeros(shape, dtype=dtype, device=device)


def full_like(
    x: RudaTensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None
) -> RudaTensor:
    """``full`` in the shape of ``x``, its dtype and its device unless given."""
    kind = x.dtype if dtype is None else dtype
    return full(x.shape, fill_value, dtype=kind, device=device or x.device)


def zeros_like(x: RudaTensor, /, *, dtype: Any = None, device: Any = None) -> RudaTensor:
    """Zeros in the shape of ``x``, its dtype and its device unless given."""
    return zeros(x.shape, dtype=x.dtype if dtype is None else dtype, device=device or x.device)


def ones_like(x: RudaTensor, /, *, dtype: Any = None, device: Any = None) -> RudaTensor:
    """Ones in the shape of ``x``, its dtype and its device unless given."""
    return ones(x.shape, dtype=x.dtype if dtype is None else dtype, device=device or x.device)


def empty_like(x: RudaTensor, /, *, dtype: Any = None, device: Any = None) -> RudaTensor:
    """``empty`` in the shape of ``x``, its dtype and its device unless given."""
    return empty(x.shape, dtype=x.dtype if dtype is None else dtype, device=device or x.device)


def arange(
    start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None
) -> RudaTensor:
    """``start, start + step, ...`` up to but not including ``stop``; one argument is the stop.

    Integers without ``dtype`` give the default integer, anything else the default float.

    >>> arange(2, 8, 2).tolist()
    [2, 4, 6]
    """
    start, stop = (0, start) if stop is None else (start, stop)
    values: list[Any] = [as_scalar(v) for v in (start, stop, step)]
    if any(v is None or v.__class__ is complex for v in values):
        raise DTypeError("arange", "start, stop and step are real scalars", (start, stop, step))
    first, last, stride = values
    if stride == 0:
        raise ArgumentError("arange", "the step is zero", step)
    integers = all(isinstance(v, int) for v in values)
    length = _steps(first, last, stride)
    defaults = client_of(device).defaults
    kind = (
        as_dtype(dtype, "arange") if dtype else defaults.integer if integers else defaults.floating
    )
    if length and integers:
        check_scalar("arange", first, kind)
        check_scalar("arange", first + (length - 1) * stride, kind)
    return _arange(first, stride, (length,), kind, _place(device))


def _steps(first: Any, last: Any, stride: Any) -> int:
    """How many values ``arange`` gives; exact for integers."""
    if all(isinstance(v, int) for v in (first, last, stride)):
        return max(-((first - last) // stride), 0)
    values = [check_real("arange", v) for v in (first, last, stride)]
    if not all(map(math.isfinite, values)):
        got = (first, last, stride)
        raise ArgumentError("arange", "start, stop and step are finite", got, "finite numbers")
    count = (values[1] - values[0]) / values[2]
    if not math.isfinite(count):
        raise ShapeError("arange", "too many values", (first, last, stride))
    return max(math.ceil(count), 0)


def check_real(op: str, value: Any) -> float:
    """A real Python scalar as a float; raises for an integer that no float holds."""
    check_scalar(op, value, float64)
    return float(value)


def linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> RudaTensor:
    """``num`` evenly spaced values from ``start`` to ``stop``, which counts if ``endpoint``."""
    ends = [as_scalar(v) for v in (start, stop)]
    if None in ends:
        raise DTypeError("linspace", "start and stop are scalars", (start, stop))
    count = index(num, "linspace", "num")
    if count < 0:
        raise ShapeError("linspace", "num is negative", num)
    defaults = client_of(device).defaults
    kind = defaults.complex if complex in map(type, ends) else defaults.floating
    kind = kind if dtype is None else as_dtype(dtype, "linspace")
    for end in ends:
        check_scalar("linspace", end, complex128)
    return _linspace(*ends, (count,), kind, bool(endpoint), _place(device))


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
    if _holds_tensor(obj):
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
    while isinstance(obj, list | tuple | range):
        if not obj:
            return 0.0
        obj = obj[0]
    return obj


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
    if x.__class__ is RudaTensor:
        return _from_tensor(x, None, device, copy)
    return from_array(to_array(x, copy), device)


def set_default_dtypes(*, floating: Any = None, integer: Any = None, device: Any = None) -> None:
    """Change the dtypes that ``device`` (None: the default one) gives to values without one."""
    client = client_of(device)
    before = client.defaults
    client.defaults = type(before)(
        as_dtype(floating or before.floating, "set_default_dtypes"),
        as_dtype(integer or before.integer, "set_default_dtypes"),
    )
    clear_plans()


_package.factory = tensor
