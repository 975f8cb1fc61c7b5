"""The CUDA client of one device: memory, one stream, and a kernel for each plan."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ruda.backends.cuda.alloc_conf import pool_of
from ruda.backends.cuda.compiled_steps import Steps
from ruda.backends.cuda.dnn import graph
from ruda.backends.cuda.faults import Faults
from ruda.backends.cuda.inplace import InPlace
from ruda.backends.cuda.interop import Interop
from ruda.backends.cuda.kernels import KERNELS, LACKS
from ruda.backends.cuda.memory import Handle, ViewHandle, allocate
from ruda.backends.cuda.nvtx import ranges
from ruda.backends.cuda.pinned import Staging
from ruda.backends.cuda.pool_guards import Guards
from ruda.backends.cuda.prim import map as maps
from ruda.backends.cuda.rand import curand
from ruda.backends.cuda.redzone import RedZones
from ruda.backends.cuda.stream_order import Order, touch
from ruda.backends.cuda.transfers import Transfers
from ruda.core import config
from ruda.core.devices import Device
from ruda.core.dtypes import Defaults
from ruda.core.errors import DeviceError, DTypeError, ShapeError, StrategyError
from ruda.core.mode import recording
from ruda.core.shapes import extent
from ruda.core.spec import Spec, spec_of
from ruda.ops.geometry import fast_offset
from ruda.tensor.dispatch import clear_plans
from ruda.tensor.tensor import wrap

_ELEMENTWISE = ("unary", "binary", "ternary")
_BLOCKING = ("RUDA_LAUNCH_BLOCKING", "CUDA_LAUNCH_BLOCKING")


@functools.lru_cache(maxsize=4096)
def _bytes(spec: Spec) -> tuple[int, int]:
    """Between which bytes all elements lie, counted from the first one."""
    low, high = extent(spec.shape, spec.strides)
    return low * spec.dtype.itemsize, high * spec.dtype.itemsize


class _Now(threading.local):
    """The stream that each thread queues its work in; at first that of the client.

    ``lax``: copies from page-locked memory are not waited for.
    """

    lax = False

    def __init__(self, stream: int, activate: Callable[[], None]) -> None:
        # Once in each thread, when it first asks: a launch needs the device's context there.
        activate()
        self.stream = stream


class CudaClient(Transfers, Interop, Steps, InPlace):
    """One GPU. Work is queued in the calling thread's stream, which is the main one at first."""

    precisions: Mapping[str, tuple[Any, ...]] = {
        "matmul": ("tf32",),
        "half_reduction": (True,),
        "fp16_accumulate": (True,),
    }

    def __init__(self, device: Device, driver: Any, out_of_memory: type[Exception]) -> None:
        self.device = device
        self.driver = driver
        self.defaults = Defaults()
        self.main = driver.new_stream()
        self.now = _Now(int(self.main.ptr), self._enter)
        self.pool = pool_of(driver, out_of_memory, self.now)
        self.order = Order(driver, self.now, self.now.stream)
        self.staging = Staging(driver)
        # Called after each wait for the device: each raises what it finds.
        self.checks: list[Callable[[], None]] = []
        self.faults = Faults(self)
        # Whether plans keep streams in order, or a capture sees what they touch.
        self.guarded = False
        if config.value("RUDA_MEMORY_DEBUG") == "redzone":
            self.guards.zones = RedZones(driver, self.now)
            self.checks.append(self.guards.zones.check)
        self.blocking = any(config.value(n) == "1" for n in _BLOCKING)

    def _enter(self) -> None:
        """A thread asks for its stream for the first time."""
        order = getattr(self, "order", None)
        # Among several GPUs each operator says whose it is.
        if order is None or not order.crowded:
            self.driver.activate()

    def __repr__(self) -> str:
        return f"CudaClient({self.device}, {self.driver.arch})"

    @property
    def ordered_prices(self) -> Mapping[str, str]:
        """Per operator that the vendor computes, what its ordered kernel costs."""
        return graph.ordered_prices()

    def name_ranges(self, enabled: bool) -> None:
        """Name for profilers what operators queue, on this GPU and all others."""
        ranges.enabled = enabled

    def obstacle(self, op: Any) -> str | None:
        """Why no plan of ``op`` has a kernel here; the order is that of ``bind``."""
        mapped = op.kind in _ELEMENTWISE and op.expr is not None and not op.attrs
        moved = op.kind in ("view", "copy", "cast", "transfer", "create")
        named = op.name in KERNELS
        known = mapped or moved or named or op.body is not None
        return None if known else self._silence(op)

    def _silence(self, op: Any) -> str:
        why = "" if op.cuda is None else f": {op.cuda.reason}"
        return f"has no kernel on {self.device}{why}"

    def lack(
        self, op: str, strategy: str, specs: tuple[Spec, ...], attrs: tuple[Any, ...]
    ) -> str | None:
        """Why ``strategy`` of ``op`` cannot run here, or None."""
        return LACKS[op](self, strategy, specs, attrs)

    def bind(self, plan: Any) -> Callable[..., Any]:
        """The function from input handles to output handles for one plan."""
        op, _ = plan.op, self.order.current()
        if plan.shares:
            return self._view(plan)
        run = self._bound(plan, op)
        if self.blocking:
            run = self.blocked(plan, run)
        if ranges.enabled:
            run = ranges.eager(self.driver, op.name, run)
        return self.order.guarded(self, plan, run) if self.guarded else run

    def _bound(self, plan: Any, op: Any) -> Callable[..., Any]:
        own = KERNELS.get(op.name)
        run = own(self, plan) if own is not None else None
        return self._by_kind(plan, op) if run is None else run

    def _by_kind(self, plan: Any, op: Any) -> Callable[..., Any]:
        if op.kind in _ELEMENTWISE and op.expr is not None and not self._lacks(plan):
            return self._map(plan, op.expr, plan.specs)
        if op.kind in ("copy", "cast", "view"):
            return self._copy(plan)
        if op.kind == "transfer":
            return self._transfer(plan)
        if op.kind == "create":
            return self._create(plan)
        return self.by_body(plan) if op.body is not None else self._missing(plan)

    def _missing(self, plan: Any) -> Callable[..., Any]:
        """Raise when the plan is run and not when it is made: a node may need the plan alone."""

        def run(*_: Any) -> Any:
            what = self._silence(plan.op)
            raise StrategyError(plan.op.name, what, plan.specs, hint='x.to("cpu")')

        return run

    def _lacks(self, plan: Any) -> bool:
        """Whether the expression needs what map kernels do not pass: attributes."""
        return bool(plan.op.attrs)

    def _map(self, plan: Any, expr: str, specs: tuple[Spec, ...]) -> Callable[..., Any]:
        wanted = plan.op.dtype_of_operands(plan)
        return maps.bind(self, plan, plan.op.name, expr, plan.op.args, specs, wanted)

    def _copy(self, plan: Any) -> Callable[..., Any]:
        """Copies, casts, and reshapes that strides cannot express."""
        source = plan.specs[0]
        # The elements in their own order: the output is dense, whatever shape it is shown in.
        flat = spec_of(self, source.shape, plan.out.dtype)
        run = maps.bind_into(self, flat, plan.op.name, "x", ("x",), (source,), (source.dtype,))

        def launch(h: Any, *_: Any) -> Any:
            out = allocate(self.pool, flat)
            run(out.address, h)
            return out

        return launch

    def _view(self, plan: Any) -> Callable[..., Any]:
        size, out, offset = plan.specs[0].dtype.itemsize, plan.out, fast_offset(plan)
        if not callable(offset):
            shift = offset * size

            def shown(h: Any, *_: Any) -> Any:
                return ViewHandle(h.address + shift, out, h if h.root is None else h.root)

            return shown

        def shown_from(h: Any, value: Any) -> Any:
            root = h if h.root is None else h.root
            return ViewHandle(h.address + offset(value) * size, out, root)

        return shown_from

    def by_body(self, plan: Any) -> Callable[..., Any]:
        """A fused row without a kernel: its body on this device."""
        body, specs, attrs, several = plan.op.body, plan.specs, plan.attrs, plan.op.outs

        def settled(tensor: Any, spec: Spec) -> Any:
            if tensor.spec is not spec or tensor.handle.root is not None:
                tensor = tensor.copy()
            return tensor.handle

        def run(*handles: Any) -> Any:
            with recording(False):
                operands = [
                    h if s.weak or h is None else wrap(s, h)
                    for s, h in zip(specs, handles, strict=True)
                ]
                out = body(*operands, *attrs)
            if several:
                return tuple(settled(t, s) for t, s in zip(out, plan.out, strict=True))
            return settled(out, plan.out)

        run.by_body = True  # type: ignore[attr-defined]
        return run

    def fill_by_vendor(self, op: str, kind: str, spec: Spec, seed: int, draw: int) -> Any:
        """A handle of ``spec`` that cuRAND has filled with words, uniform or normal numbers."""
        try:
            found = curand.library(self)
        except StrategyError as error:
            raise error.renamed(op) from None
        return found.fill(op, kind, spec, seed, draw)

    def _create(self, plan: Any) -> Callable[..., Any]:
        out = plan.out
        if plan.op.name == "full":
            wanted = (out.dtype,)
            run = maps.bind_into(self, out, "full", "x", ("x",), plan.specs, wanted)

            def fill(value: Any) -> Any:
                result = allocate(self.pool, out)
                run(result.address, value)
                return result

            return fill
        reference, attrs = plan.op.numpy, plan.attrs
        # A factory's values come from a rule, not from a tensor: the host makes and sends them.
        return lambda *values: self.upload(
            np.asarray(reference(*values, *attrs), out.dtype.numpy), constant=True
        )

    def _transfer(self, plan: Any) -> Callable[..., Any]:
        source = plan.specs[0]
        if source.client is self:
            return lambda h: plan.out.client.adopt(self.read(source, h))[1]
        if source.client.device.kind == "cuda":
            return self.from_peer(plan)
        if source.client.device.kind != "cpu":
            raise DeviceError("to", "no copy between these devices", source.client.device)
        return lambda h: self.upload(np.ascontiguousarray(source.client.read(source, h)))

    def adopt(self, array: Any) -> tuple[Any, Any]:
        """Row-major strides and a base handle with a copy of ``array``."""
        dense = np.ascontiguousarray(array).reshape(array.shape)
        if not dense.dtype.isnative:
            dense = dense.astype(dense.dtype.newbyteorder("="))
        handle = self.upload(dense)
        return handle.spec.strides, handle

    @functools.cached_property
    def guards(self) -> Guards:
        """What the pool does beyond handing out blocks, from the first time it is asked for."""
        made = self.pool.special = Guards(self.pool, self.order)
        return made

    def keep_order(self) -> None:
        """There is a second stream from now on: plans are bound again with guards around them."""
        if not self.guards.ordered:
            self.guards.ordered = self.guarded = True
            clear_plans()

    def view(self, handle: Any, spec: Spec, offset: int) -> Any:
        """``handle`` shown as ``spec`` says, after checking that it stays inside the memory."""
        if handle.__class__ is not Handle and handle.__class__ is not ViewHandle:
            got = type(handle).__name__
            raise DeviceError("RudaTensor", f"not memory of {self.device}", got, "a handle")
        root = handle if handle.root is None else handle.root
        if root.spec.dtype is not spec.dtype:
            raise DTypeError("RudaTensor", "not the memory's dtype", spec.dtype, root.spec.dtype)
        low, high = (handle.offset + offset + end for end in extent(spec.shape, spec.strides))
        if spec.size and (low < 0 or high > root.spec.size):
            what = "the geometry leaves the memory"
            raise ShapeError("RudaTensor", what, spec, f"{root.spec.size} elements")
        if offset == 0 and handle.spec is spec:
            return handle
        return ViewHandle(handle.address + offset * spec.dtype.itemsize, spec, root)

    def alias(self, handle: Any) -> Any:
        """A view of all of ``handle``."""
        root = handle if handle.root is None else handle.root
        return ViewHandle(handle.address, handle.spec, root)

    def write(self, spec: Spec, handle: Any, value_spec: Spec, value: Any) -> None:
        """Overwrite what ``spec`` shows of ``handle`` with ``value``, broadcast."""
        if not value_spec.weak and self.overlaps(spec, handle, value_spec, value):
            value, value_spec = self._copied(value_spec, value)
        self.check_writable(handle)
        if self.guarded:
            touch(self.order, () if value_spec.weak else (value,), (handle,))
        self.writer(spec, value_spec)(handle.address, value)

    @functools.lru_cache(maxsize=4096)  # noqa: B019  (a client lives as long as the process)
    def writer(self, spec: Spec, value: Spec) -> Callable[..., None]:
        """A function that writes a handle of ``value``, broadcast, to an address as ``spec``."""
        return maps.bind_into(self, spec, "copy", "x", ("x",), (value,), (spec.dtype,))

    def copier(self, out: Spec, given: Spec) -> Callable[[Any], Any]:
        """A function from a handle of ``given`` to a new one of ``out``, by ``writer``."""
        write, pool = self.writer(out, given), self.pool

        def copied(handle: Any) -> Any:
            made = allocate(pool, out)
            write(made.address, handle)
            return made

        return copied

    def overlaps(self, spec: Spec, handle: Any, other_spec: Spec, other: Any) -> bool:
        """Whether two pieces of one allocation may touch, unless they are the same in order."""
        if (handle.root or handle) is not (other.root or other):
            return False
        if handle.address == other.address and spec is other_spec:
            return False
        (low, high), (start, stop) = self._bounds(spec, handle), self._bounds(other_spec, other)
        return low < stop and start < high

    def _bounds(self, spec: Spec, handle: Any) -> tuple[int, int]:
        low, high = _bytes(spec)
        return handle.address + low, handle.address + high

    def dense_copy(self, spec: Spec, handle: Any) -> Any:
        """A row-major copy of what ``spec`` shows of ``handle``, in order with its stream."""
        if self.guarded:
            touch(self.order, (handle,), ())
        return self._copied(spec, handle)[0]

    def _copied(self, spec: Spec, handle: Any) -> tuple[Any, Spec]:
        dense = spec_of(self, spec.shape, spec.dtype)
        return self.copier(dense, spec)(handle), dense

    def update(self, plan: Any, handles: Sequence[Any]) -> None:
        """Run ``plan`` and put the result where its first operand is: in place, if that can be."""
        target, *others = handles
        write, root = getattr(plan.run, "in_place", None), target.root or target
        if write is None or any(h is root or getattr(h, "root", None) is root for h in others):
            self.write(plan.specs[0], target, plan.out, plan.run(*handles))
        else:
            write(target.address, target.address, *others)

    def base(self, handle: Any) -> Spec:
        """The spec of all the memory of a base handle."""
        return handle.spec

    def extent(self, handle: Any) -> tuple[int, int]:
        """The addresses between which the elements of ``handle`` lie, the end excluded."""
        return self._bounds(handle.spec, handle)

    def writes(self, changes: Sequence[tuple[Any, Any, int]]) -> list[tuple[Any, ...]]:
        """The calls that store each value and count its target's version up."""
        calls: list[tuple[Any, ...]] = []
        for target, value, count in changes:
            calls.append((self.write, target.spec, target, value.spec, value))
            calls.append((setattr, target, "version", target.version + count))
        return calls

    def address(self, handle: Any) -> int:
        """Where the first element lies in the device's memory, in bytes."""
        return handle.address

    def fill_zero(self, address: int, nbytes: int) -> None:
        """Zero bytes, queued."""
        self.driver.fill(address, 0, nbytes, self.now.stream)
