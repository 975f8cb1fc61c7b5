"""The CPU client: runs the NumPy column of the operator table.

``bind`` is called once per plan. It looks at what the specs need (casts of operands, computing half
types in float32, row-major results) and returns the shortest closure that does it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ruda.backends.numpy.memory import Handle, ViewHandle, strided, view_of
from ruda.core import config
from ruda.core.devices import Device
from ruda.core.dtypes import Defaults, DType, as_dtype, compute_of
from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from ruda.core.spec import Spec

# NumPy reports overflow, division by zero and invalid values as warnings, once per call site. An
# errstate around each operator would cost more than dispatching it does.
warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"ruda\.")

_new: Any = object.__new__
_ELEMENTWISE = ("unary", "binary", "ternary")


class NumpyClient:
    """The one client of the CPU."""

    def __init__(self, device: Device) -> None:
        self.device = device
        floating = as_dtype(config.value("RUDA_DEFAULT_FLOAT"))
        self.defaults = Defaults(floating, as_dtype(config.value("RUDA_DEFAULT_INT")))

    def __repr__(self) -> str:
        return "NumpyClient(cpu)"

    def bind(self, plan: Any) -> Callable[..., Any]:
        """The function from input handles to output handles for one plan."""
        if plan.shares:
            return _bind_view(plan)
        if plan.op.kind in _ELEMENTWISE:
            return _bind_elementwise(plan)
        return _bind_general(plan)

    def read(self, spec: Spec, handle: Any) -> Any:
        """The ndarray itself: work on the CPU is done when the call returns."""
        return handle.array

    def adopt(self, array: Any) -> tuple[Any, Any]:
        """Strides in elements and a handle that shares ``array``'s memory if it is aligned."""
        size = array.itemsize
        if not array.flags.aligned or any(s % size for s in array.strides):
            array = array.copy()
        if array.dtype.byteorder not in "=|" and not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if array.__class__ is not np.ndarray:
            array = np.asarray(array)
        return tuple(s // size for s in array.strides), Handle(array)

    def view(self, handle: Any, spec: Spec, offset: int) -> Any:
        """``handle`` shown as ``spec`` says, after checking that it stays inside the memory."""
        root = handle if handle.root is None else handle.root
        if root.array.dtype != spec.dtype.numpy:
            raise DTypeError("RudaTensor", "not the memory's dtype", spec.dtype, root.array.dtype)
        low = handle.offset + offset
        low += sum(s * (n - 1) for n, s in zip(spec.shape, spec.strides, strict=True) if s < 0)
        high = handle.offset + offset
        high += sum(s * (n - 1) for n, s in zip(spec.shape, spec.strides, strict=True) if s > 0)
        if spec.size and (low < 0 or high >= root.array.size):
            what = "the geometry leaves the memory"
            raise ShapeError("RudaTensor", what, spec, f"{root.array.size} elements")
        array = handle.array
        if offset == 0 and array.shape == spec.shape and _strides(array) == spec.strides:
            return handle
        return view_of(handle, strided(handle, offset, spec.shape, spec.strides))

    def alias(self, handle: Any) -> Any:
        """A view of all of ``handle``."""
        root = handle if handle.root is None else handle.root
        return ViewHandle(handle.array, root, handle.offset)

    def write(self, spec: Spec, handle: Any, value_spec: Spec, value: Any) -> None:
        """Copy ``value``, broadcast, into what ``handle`` shows; overlapping memory is fine."""
        if not handle.array.flags.writeable:
            hint = "ruda.tensor(array), which copies"
            raise ArgumentError("assign", "the memory is read-only", spec, hint=hint)
        np.copyto(handle.array, value.array)

    def synchronize(self) -> None:
        """Nothing is ever queued on the CPU."""


def make(device: Device) -> NumpyClient:
    """The client of the CPU."""
    return NumpyClient(device)


def _strides(array: Any) -> tuple[int, ...]:
    return tuple(s // array.itemsize for s in array.strides)


def _bind_view(plan: Any) -> Callable[..., Any]:
    """A view row's reference gives an ndarray that shares memory with its first operand."""
    reference, attrs = plan.op.numpy, plan.attrs

    def run(h: Any, *values: Any) -> Any:
        return ViewHandle(reference(h.array, *values, *attrs), h if h.root is None else h.root)

    return run


def _compute_dtype(op: Any, dtype: DType) -> Any:
    return dtype.numpy if op.exact else compute_of(dtype).numpy


def _casts(op: Any, specs: tuple[Spec, ...], operand: Any) -> list[Any]:
    """The NumPy dtype each operand is cast to, None where it already has it."""
    wanted = operand if isinstance(operand, tuple) else (operand,) * len(specs)
    out: list[Any] = []
    for spec, dtype in zip(specs, wanted, strict=True):
        if dtype is None:
            out.append(None)
            continue
        target = _compute_dtype(op, dtype)
        out.append(None if not spec.weak and spec.dtype.numpy == target else target)
    return out


def _bind_elementwise(plan: Any) -> Callable[..., Any]:
    op, specs, out = plan.op, plan.specs, plan.out
    casts = _casts(op, specs, plan.operand)
    plain = all(c is None for c in casts) and compute_of(out.dtype) is out.dtype
    ordered = all(s.contiguous for s in specs)
    if plain and ordered and isinstance(op.numpy, np.ufunc) and out.shape:
        return _bind_ufunc(op.numpy, len(specs))
    return _bind_general(plan)


def _bind_ufunc(f: Any, arity: int) -> Callable[..., Any]:
    """The hot closures: one NumPy call and one handle."""

    def run1(hx: Any) -> Any:
        h = _new(Handle)
        h.array = f(hx.array)
        h.version = 0
        h.views = None
        return h

    def run2(hx: Any, hy: Any) -> Any:
        h = _new(Handle)
        h.array = f(hx.array, hy.array)
        h.version = 0
        h.views = None
        return h

    return run1 if arity == 1 else run2


def _bind_general(plan: Any) -> Callable[..., Any]:
    op, specs, out, attrs = plan.op, plan.specs, plan.out, plan.attrs
    reference, casts = op.numpy, _casts(op, specs, plan.operand)
    weak = [s.weak for s in specs]
    dynamic = op.kind == "dynamic"

    def run(*handles: Any) -> Any:
        arrays = [_operand(h, w, cast) for h, w, cast in zip(handles, weak, casts, strict=True)]
        result = reference(*arrays, *attrs)
        if dynamic:
            return result
        if out.__class__ is tuple:
            return tuple(_settle(op, r, o, arrays) for r, o in zip(result, out, strict=True))
        return _settle(op, result, out, arrays)

    return run


def _operand(handle: Any, weak: bool, cast: Any) -> Any:
    if weak:
        return handle if cast is None else np.asarray(handle, cast)
    return handle.array if cast is None else handle.array.astype(cast)


def _settle(op: Any, result: Any, out: Spec, arrays: list[Any]) -> Handle:
    """``result`` as a fresh row-major array of the promised dtype and shape."""
    array = np.asarray(result)
    if array.dtype != out.dtype.numpy:
        array = array.astype(out.dtype.numpy)
    if array.shape != out.shape:
        raise AssertionError(f"{op.name}: reference gave {array.shape}, rules say {out.shape}")
    if not array.flags.c_contiguous or not array.flags.owndata:
        array = _own(array, arrays)
    return Handle(array)


def _own(array: Any, arrays: list[Any]) -> Any:
    """Row-major and sharing no memory with an operand."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    if any(a.__class__ is np.ndarray and np.may_share_memory(a, array) for a in arrays):
        array = array.copy()
    return array
