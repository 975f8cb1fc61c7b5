"""Factories: tensors from a rule."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ruda.core.devices import Device, default_gpu
from ruda.core.devices import client as client_of
from ruda.core.dtypes import ALL, DType, as_dtype, complex128, float64
from ruda.core.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from ruda.core.shapes import Shape, index, normalize_shape
from ruda.ops.conversion import check_scalar
from ruda.ops.movement import copy as _copy
from ruda.ops.table import row
from ruda.tensor.dispatch import clear_plans
from ruda.tensor.given import given_tensors
from ruda.tensor.operands import as_scalar
from ruda.tensor.tensor import RudaTensor


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


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> RudaTensor:
    """Zeros of ``shape``; the default float without ``dtype``.

    >>> zeros((2, 3), dtype="int32").tolist()
    [[0, 0, 0], [0, 0, 0]]
    """
    kind = float_dtype(dtype, device, "zeros")
    return _full(0, normalize_shape(shape, "zeros"), kind, _place(device))


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> RudaTensor:
    """Ones of ``shape``; the default float without ``dtype``.

    >>> ones(2).tolist()
    [1.0, 1.0]
    """
    kind = float_dtype(dtype, device, "ones")
    return _full(1, normalize_shape(shape, "ones"), kind, _place(device))


def empty(shape: Any, *, dtype: Any = None, device: Any = None, pin: bool = False) -> RudaTensor:
    """A tensor of ``shape`` with whatever values are there; ``pin`` asks for page-locked memory.

    Raises ``DeviceError`` for ``pin`` where no GPU is there to copy to, or on another device than
    the CPU.
    """
    if pin:
        if device is not None and Device.parse(device).kind != "cpu":
            raise DeviceError("empty", "pinned memory is the CPU's", device, '"cpu"')
        gpu: Any = client_of(default_gpu())
        kind = client_of("cpu").defaults.floating if dtype is None else as_dtype(dtype, "empty")
        return gpu.pinned_empty(normalize_shape(shape, "empty"), kind)
    # Zeros cost the same as uninitialised memory on the CPU, which maps fresh pages lazily.
    return zeros(shape, dtype=dtype, device=device)


@given_tensors
def full_like(
    x: RudaTensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None
) -> RudaTensor:
    """``full`` in the shape of ``x``, its dtype and its device unless given."""
    kind = x.dtype if dtype is None else dtype
    return full(x.shape, fill_value, dtype=kind, device=device or x.device)


@given_tensors
def zeros_like(x: RudaTensor, /, *, dtype: Any = None, device: Any = None) -> RudaTensor:
    """Zeros in the shape of ``x``, its dtype and its device unless given."""
    return zeros(x.shape, dtype=x.dtype if dtype is None else dtype, device=device or x.device)


@given_tensors
def ones_like(x: RudaTensor, /, *, dtype: Any = None, device: Any = None) -> RudaTensor:
    """Ones in the shape of ``x``, its dtype and its device unless given."""
    if dtype is None and device is None:
        return _full(1, x.spec.shape, x.spec.dtype, x.spec.client.device)
    return ones(x.shape, dtype=x.dtype if dtype is None else dtype, device=device or x.device)


@given_tensors
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
    """``num`` evenly spaced values from ``start`` to ``stop``, which counts if ``endpoint``.

    >>> linspace(0.0, 1.0, 5).tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
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


def set_default_dtypes(*, floating: Any = None, integer: Any = None, device: Any = None) -> None:
    """Change the dtypes that ``device`` (None: the default one) gives to values without one."""
    client = client_of(device)
    before = client.defaults
    client.defaults = type(before)(
        as_dtype(floating or before.floating, "set_default_dtypes"),
        as_dtype(integer or before.integer, "set_default_dtypes"),
    )
    clear_plans()
