"""The CPU client: runs the NumPy column of the operator table.

``bind`` is called once per plan. It looks at what the specs need (casts of operands, computing half
types in float32, row-major results) and returns the shortest closure that does it.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence, Set
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from ruda.backends.numpy import halves, kernels, regions, segments
from ruda.backends.numpy.fast import FAST
from ruda.backends.numpy.large import bind_ufunc, is_large, ufunc_of
from ruda.backends.numpy.memory import Handle, ViewHandle, address, handle_of, strided, view_of
from ruda.core import config
from ruda.core.devices import Device
from ruda.core.dtypes import Defaults, as_dtype, compute_of
from ruda.core.errors import ArgumentError, DeviceError, DTypeError, OutOfMemoryError, ShapeError
from ruda.core.shapes import extent
from ruda.core.spec import Spec, spec_of

# NumPy reports overflow, division by zero and invalid values as warnings, once per call site. An
# errstate around each operator would cost more than dispatching it does.
warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"ruda\.")

# Unlike np.copyto, which runs a line of Python first.
_store = np.ndarray.__setitem__
_ELEMENTWISE = ("unary", "binary", "ternary")
_LACKING = {
    ("attention", "vendor"): "cuDNN runs on CUDA devices alone",
    ("attention", "flash"): "tensor cores are what CUDA devices have",
    ("attention", "flash_unit"): "it is a kernel of CUDA devices",
    ("conv", "vendor"): "no vendor library computes convolutions on the CPU",
}
# From here on an operator may run out of memory, and says so itself.
_HUGE = 1 << 28


class NumpyClient:
    """The one client of the CPU."""

    precisions: Mapping[str, tuple[Any, ...]] = {}
    ordered_prices: Mapping[str, str] = {}

    def __init__(self, device: Device) -> None:
        self.device = device
        floating, integer = "RUDA_DEFAULT_FLOAT", "RUDA_DEFAULT_INT"
        self.defaults = Defaults(
            as_dtype(config.value(floating), floating), as_dtype(config.value(integer), integer)
        )

    def __repr__(self) -> str:
        return "NumpyClient(cpu)"

    def obstacle(self, op: Any) -> str | None:
        """Every row runs: a reference or a body is what makes a row complete."""
        return None

    def lack(
        self, op: str, strategy: str, specs: tuple[Spec, ...], attrs: tuple[Any, ...]
    ) -> str | None:
        """Why ``strategy`` of ``op`` cannot run here, or None."""
        return _LACKING.get((op, strategy))

    def bind(self, plan: Any) -> Callable[..., Any]:
        """The function from input handles to output handles for one plan."""
        run = self._bound(plan)
        return run if _size(plan) < _HUGE else _telling(plan, run)

    def _bound(self, plan: Any) -> Callable[..., Any]:
        override = FAST.get(plan.op.name)
        run = override(plan) if override is not None else kernels.bind(plan)
        if run is None:
            run = halves.bind(plan)
        if run is not None:
            return run
        if plan.shares:
            return _bind_view(plan)
        if plan.op.kind in _ELEMENTWISE:
            return _bind_elementwise(plan)
        return _bind_general(plan)

    def fuses(self, plan: Any) -> bool:
        """Whether ``plan`` can be a step of a region."""
        return regions.fuses(plan)

    def bind_region(self, region: Any) -> Callable[..., tuple[Any, ...]]:
        """The function from input handles to the handles of what a region keeps."""
        return regions.bind_region(region)

    def joins(self, plan: Any) -> bool:
        """Whether ``plan`` may be one of a segment, by its row and dtypes."""
        return segments.joins(plan)

    def worthwhile(self, plans: Sequence[Any]) -> bool:
        """Whether ``plans`` in turn are work enough for a segment."""
        return segments.worthwhile(plans)

    def bind_segment(
        self, region: Any, values: Mapping[int, Any], steady: Set[int]
    ) -> Callable[..., tuple[Any, ...]]:
        """As ``bind_region``; ``values`` are scalars by place, ``steady`` what comes every time."""
        return segments.bind(region, values, steady)

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
        return tuple(s // size for s in array.strides), handle_of(array)

    def view(self, handle: Any, spec: Spec, offset: int) -> Any:
        """``handle`` shown as ``spec`` says, after checking that it stays inside the memory."""
        if handle.__class__ is not Handle and handle.__class__ is not ViewHandle:
            hint = "client.adopt(array)" if isinstance(handle, np.ndarray) else None
            got = type(handle).__name__
            raise DeviceError("RudaTensor", "not memory of the CPU", got, "a handle", hint)
        root = handle if handle.root is None else handle.root
        if root.array.dtype != spec.dtype.numpy:
            raise DTypeError("RudaTensor", "not the memory's dtype", spec.dtype, root.array.dtype)
        start, (low, high) = handle.offset + offset, extent(spec.shape, spec.strides)
        if spec.size and (start + low < 0 or start + high > root.array.size):
            what = "the geometry leaves the memory"
            raise ShapeError("RudaTensor", what, spec, f"{root.array.size} elements")
        array = handle.array
        if offset == 0 and array.shape == spec.shape and _strides(array) == spec.strides:
            return handle
        return view_of(handle, strided(handle, offset, spec.shape, spec.strides))

    def alias(self, handle: Any) -> Any:
        """A view of all of ``handle``."""
        return view_of(handle, handle.array)

    def write(self, spec: Spec, handle: Any, value_spec: Spec, value: Any) -> None:
        """Copy ``value``, broadcast, into what ``handle`` shows; overlapping memory is fine."""
        target = handle.array
        _check_writeable(target, spec)
        source = value if value_spec.weak else value.array
        # On one axis NumPy 2.4 overwrites what it has yet to read when the strides differ:
        # `a[::2] = a[:3]` of 0, 1, 2, 3, 4 ends in 1.
        if target.ndim == 1 and not value_spec.weak and np.may_share_memory(target, source):
            source = source.copy()
        target[...] = source

    def update(self, plan: Any, handles: Sequence[Any]) -> None:
        """Run ``plan`` so that its first operand takes the place of the output."""
        target, *rest = handles
        _check_writeable(target.array, plan.specs[0])
        arrays = [h if s.weak else h.array for h, s in zip(rest, plan.specs[1:], strict=True)]
        plan.op.numpy.in_place(target.array, *arrays, *plan.attrs)

    def update_all(self, plan: Any, handles: Sequence[Any], targets: Sequence[Any]) -> None:
        """Run ``plan`` so that its outputs overwrite ``targets``, which may be operands."""
        for target, spec in zip(targets, plan.out, strict=True):
            _check_writeable(target.array, spec)
        write = getattr(plan.run, "in_place", None)
        if write is None:
            # Half types compute in float32: there is no memory of theirs to compute in.
            for target, result in zip(targets, plan.run(*handles), strict=True):
                np.copyto(target.array, result.array)
            return
        values = [h if s.weak else h.array for h, s in zip(handles, plan.specs, strict=True)]
        write([t.array for t in targets], *values, *plan.attrs)

    def bind_many(self, plans: Sequence[Any]) -> Callable[..., None] | None:
        """The kernel of all ``plans``, which are of one row, or None where there is none.

        ``run.settled(handles, targets, place)`` gives the same for good, but for the operands at
        ``place``, the gradients; it takes handles of a scale and a condition as well.
        """
        many = kernels.bind_many(plans)
        if many is None:
            return None

        def check(targets: Sequence[Any]) -> None:
            for plan, written in zip(plans, targets, strict=True):
                for target, spec in zip(written, plan.out, strict=True):
                    _check_writeable(target.array, spec)

        def run(handles: Sequence[Any], targets: Sequence[Any]) -> None:
            check(targets)
            many(handles, targets)

        def settled(handles: Sequence[Any], targets: Sequence[Any], place: int) -> Any:
            check(targets)
            return many.settled(handles, targets)  # type: ignore[attr-defined]

        run.settled = settled  # type: ignore[attr-defined]
        return run

    def base(self, handle: Any) -> Spec:
        """The spec of the array of a base handle."""
        array = handle.array
        return spec_of(self, array.shape, as_dtype(array.dtype), _strides(array))

    def extent(self, handle: Any) -> tuple[int, int]:
        """The addresses between which the elements of ``handle`` lie, the end excluded."""
        array = handle.array
        if array.flags.c_contiguous:
            start = address(array)
            return start, start + array.nbytes
        return byte_bounds(array)

    def writes(self, changes: Sequence[tuple[Any, Any, int]]) -> list[tuple[Any, ...]]:
        """Calls of C functions that store each value and count its target's version up."""
        for target, _, _ in changes:
            if not target.array.flags.writeable:
                _check_writeable(target.array, self.base(target))
        calls: list[tuple[Any, ...]] = []
        for target, value, count in changes:
            calls.append((_store, target.array, ..., value.array))
            calls.append((setattr, target, "version", target.version + count))
        return calls

    def address(self, handle: Any) -> int:
        """Where the first element lies, in bytes."""
        return address(handle.array)

    def synchronize(self) -> None:
        """Nothing is ever queued on the CPU."""


def _size(plan: Any) -> int:
    """Bytes of the largest operand or output of a plan, as far as they are known."""
    outs = () if plan.out is None else plan.out if plan.out.__class__ is tuple else (plan.out,)
    return max((s.nbytes for s in (*plan.specs, *outs)), default=0)


def _telling(plan: Any, run: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` with NumPy's error about memory in the name of the operator."""

    @functools.wraps(run)
    def told(*handles: Any) -> Any:
        try:
            return run(*handles)
        except MemoryError as error:
            hint = "a smaller batch, checkpoint, or dropping tensors"
            raise OutOfMemoryError(
                plan.op.name, "the CPU is out of memory", error, hint=hint
            ) from None

    return told


def make(device: Device) -> NumpyClient:
    """The client of the CPU."""
    return NumpyClient(device)


def _check_writeable(array: Any, spec: Spec) -> None:
    if not array.flags.writeable:
        hint = "ruda.tensor(array), which copies"
        raise ArgumentError("assign", "the memory is read-only", spec, hint=hint)


def _strides(array: Any) -> tuple[int, ...]:
    return tuple(s // array.itemsize for s in array.strides)


def _bind_view(plan: Any) -> Callable[..., Any]:
    """A view row's reference gives an ndarray that shares memory with its first operand."""
    reference, attrs = plan.op.numpy, plan.attrs

    def run(h: Any, *values: Any) -> Any:
        return ViewHandle(reference(h.array, *values, *attrs), h if h.root is None else h.root)

    return run


def _bind_elementwise(plan: Any) -> Callable[..., Any]:
    op, specs, out = plan.op, plan.specs, plan.out
    wanted = op.dtype_of_operands(plan)
    ufunc = ufunc_of(plan)
    if ufunc is None or not out.shape or not all(s.contiguous for s in specs):
        return _bind_general(plan)
    weak = [s.weak for s in specs]
    if is_large(plan) and all(s.weak or s.shape == out.shape for s in specs):
        pairs = zip(specs, wanted, strict=True)
        return bind_ufunc(ufunc, plan, tuple(d.numpy if s.weak else None for s, d in pairs))
    if weak == [False, True]:
        return _bind_scalar(ufunc, wanted[1].numpy, swapped=False)
    if weak == [True, False]:
        return _bind_scalar(ufunc, wanted[0].numpy, swapped=True)
    return _bind_general(plan) if any(weak) or len(specs) > 2 else _bind_ufunc(ufunc, len(specs))


def _bind_ufunc(f: Any, arity: int) -> Callable[..., Any]:
    """The hot closures: one NumPy call and one handle."""

    def run1(hx: Any) -> Any:
        h = Handle()
        h.array = f(hx.array)
        h.version = 0
        h.views = None
        return h

    def run2(hx: Any, hy: Any) -> Any:
        h = Handle()
        h.array = f(hx.array, hy.array)
        h.version = 0
        h.views = None
        return h

    return run1 if arity == 1 else run2


_SCALARS_KEPT = 32


def _bind_scalar(f: Any, dtype: Any, swapped: bool) -> Callable[..., Any]:
    """A ufunc of an array and a Python scalar; NumPy is quicker on a 0-d array, so some are kept.

    Zero is not kept: 0.0 and -0.0 are one key of a dict and two different numbers.
    """
    kept: dict[Any, Any] = {}

    def array_of(value: Any) -> Any:
        array = np.asarray(value, dtype)
        if value and len(kept) < _SCALARS_KEPT:
            kept[value] = array
        return array

    def run(hx: Any, y: Any) -> Any:
        v = kept.get(y)
        if v is None:
            v = array_of(y)
        h = Handle()
        h.array = f(hx.array, v)
        h.version = 0
        h.views = None
        return h

    def run_swapped(x: Any, hy: Any) -> Any:
        v = kept.get(x)
        if v is None:
            v = array_of(x)
        h = Handle()
        h.array = f(v, hy.array)
        h.version = 0
        h.views = None
        return h

    return run_swapped if swapped else run


def _bind_general(plan: Any) -> Callable[..., Any]:
    """Any reference: operands cast as the plan says, the result made what the plan promises."""
    op, specs, out, attrs = plan.op, plan.specs, plan.out, plan.attrs
    reference, several = op.numpy, plan.out.__class__ is tuple
    casts = [
        None if d is None else (d if op.exact else compute_of(d)).numpy
        for d in op.dtype_of_operands(plan)
    ]
    fetches = [_fetch(s, c) for s, c in zip(specs, casts, strict=True)]
    if op.kind == "dynamic":
        return lambda *handles: _found(
            specs[0].client,
            reference(*[fetch(h) for fetch, h in zip(fetches, handles, strict=True)], *attrs),
        )
    if len(fetches) == 1 and not several:
        fetch1 = fetches[0]

        def run1(h: Any) -> Any:
            x = fetch1(h)
            return _settle(op, reference(x, *attrs), out, (x,))

        return run1

    def run(*handles: Any) -> Any:
        arrays = [fetch(h) for fetch, h in zip(fetches, handles, strict=True)]
        result = reference(*arrays, *attrs)
        if several:
            return tuple(_settle(op, r, o, arrays) for r, o in zip(result, out, strict=True))
        return _settle(op, result, out, arrays)

    if several and hasattr(reference, "in_place") and not any(o.dtype.is_half for o in out):
        run.in_place = _cast_first(reference.in_place, casts)  # type: ignore[attr-defined]
    return run


def _cast_first(write: Callable[..., None], casts: Sequence[Any]) -> Callable[..., None]:
    """``write(outs, *values, *attrs)`` with the values in the dtypes that it computes in."""
    wanted = [(i, cast) for i, cast in enumerate(casts) if cast is not None]

    def in_place(outs: Sequence[Any], *values: Any) -> None:
        given = list(values)
        for i, cast in wanted:
            value = given[i]
            if value.__class__ is np.ndarray and value.dtype != cast:
                given[i] = value.astype(cast)
        write(outs, *given)

    return in_place


def _found(client: NumpyClient, result: Any) -> tuple[Any, Any]:
    """Spec and handle of a result whose shape depends on values; tuples for several results."""
    if isinstance(result, tuple):
        specs, handles = zip(*(_found(client, r) for r in result), strict=True)
        return specs, handles
    array = np.ascontiguousarray(result).reshape(np.shape(result))
    dtype = as_dtype(array.dtype)
    return spec_of(client, array.shape, dtype), handle_of(array)


def _fetch(spec: Spec, cast: Any) -> Callable[[Any], Any]:
    """From a handle to what the reference sees of it."""
    if spec.weak:
        return (lambda value: value) if cast is None else (lambda value: np.asarray(value, cast))
    if cast is None or spec.dtype.numpy == cast:
        return attrgetter("array")
    return lambda h: h.array.astype(cast)


def _settle(op: Any, result: Any, out: Spec, arrays: Sequence[Any]) -> Handle:
    """``result`` as a fresh row-major array of the promised dtype and shape."""
    dtype = out.dtype.numpy
    array = result if result.__class__ is np.ndarray else np.asarray(result)
    if array.dtype is not dtype and array.dtype != dtype:
        array = array.astype(dtype)
    if array.shape != out.shape:
        raise _misshapen(op, array.shape, out.shape)
    # A reference may return an operand as it is: rounding integers, moving to the same device.
    if array.base is not None or not array.flags.c_contiguous or any(array is a for a in arrays):
        array = _own(array, arrays)
    handle = Handle()
    handle.array = array
    handle.version = 0
    handle.views = None
    return handle


def _misshapen(op: Any, got: Any, expected: Any) -> Exception:
    """A row of ruda's is wrong then; of a custom operator it may be that its shape was not said."""
    if op.grade == "custom":
        hint = "custom_op(shape=...), a function of the operands' shapes"
        return ShapeError(op.name, "the function's result does not fit", got, expected, hint)
    return AssertionError(f"{op.name}: reference gave {got}, rules say {expected}")


def _own(array: Any, arrays: Sequence[Any]) -> Any:
    """Row-major and sharing no memory with an operand."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    if any(a.__class__ is np.ndarray and np.may_share_memory(a, array) for a in arrays):
        array = array.copy()
    return array
