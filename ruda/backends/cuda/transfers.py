"""Values between host and device, and waiting: the part of the client that meets the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ruda.backends.cuda.memory import Pool, allocate
from ruda.backends.cuda.pinned import Staging
from ruda.backends.cuda.runs import Mark
from ruda.backends.cuda.stream_order import Order, StreamState
from ruda.backends.cuda.user_code import user_line
from ruda.core.dtypes import as_dtype
from ruda.core.errors import DeviceError
from ruda.core.spec import Spec, spec_of
from ruda.tensor.tensor import from_array


class Transfers:
    """What ``CudaClient`` does with the host's memory and the host's time."""

    device: Any
    driver: Any
    now: Any
    order: Order
    pool: Pool
    staging: Staging
    faults: Any
    guarded: bool
    checks: list[Callable[[], None]]
    copier: Callable[..., Any]

    def upload(self, array: Any, constant: bool = False) -> Any:
        """A base handle with the values of a row-major ndarray; the copy is queued, nothing waits.

        A graph can hold the upload of a ``constant`` alone, which is the same at every replay.
        """
        spec = spec_of(self, array.shape, as_dtype(array.dtype, "asarray"))  # type: ignore[arg-type]
        self.order.capture_lock.wait()
        capture = self.order.capture
        if capture is not None and not constant:
            hint = "a tensor made before the capture, and copy_ into it between replays"
            capture.refuse("values are sent from the host", hint)
        handle = allocate(self.pool, spec)
        if array.nbytes and capture is not None:
            slot = self.staging.send_for_good(handle.address, array, self.now.stream)
            capture.slots.append(slot)
        elif array.nbytes:
            self.staging.send(handle.address, array, self.now.stream, self.now.lax)
        return handle

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        """Copies from page-locked memory are not waited for in the block: ``non_blocking=True``."""
        before, self.now.lax = self.now.lax, True
        try:
            yield
        finally:
            self.now.lax = before

    @contextmanager
    def on(self, stream: StreamState) -> Iterator[None]:
        """The calling thread queues its work in ``stream`` in the block."""
        if self.order.capture is not None:
            self.order.capture.enters(stream)
        before, self.now.stream = self.now.stream, stream.ptr
        try:
            yield
        finally:
            self.now.stream = before

    def read(self, spec: Spec, handle: Any) -> Any:
        """The values as a fresh ndarray, after the work that makes them."""
        return self.start_read(spec, handle, ahead=3)()

    def start_read(self, spec: Spec, handle: Any, ahead: int = 0) -> Callable[[], Any]:
        """Queue the copy to the host, in the stream that wrote the values; the result waits for it.

        With ``ahead`` a large tensor is copied in turns, so that little page-locked memory is used.
        """
        self.check_open("a value is read")
        if not self.guarded:
            return self._start_read(spec, handle, ahead)
        with self.on(self.order.producer(handle)):
            return self._start_read(spec, handle, ahead)

    def _start_read(self, spec: Spec, handle: Any, ahead: int) -> Callable[[], Any]:
        if not spec.contiguous:
            dense = spec_of(self, spec.shape, spec.dtype)  # type: ignore[arg-type]
            handle = self.copier(dense, spec)(handle)
        out = np.empty(spec.shape, spec.dtype.numpy)
        with self.failures():
            finish = self.staging.fetch(handle.address, out, self.now.stream, ahead)

        # Nothing is waited for where nothing is read.
        mark = self.faults.waits.mark(self.now.stream) if out.nbytes else None

        def end(_kept: Any = handle) -> Any:
            with self.failures():
                finish()
            self.settle(mark)
            return out

        return end

    def pinned(self, x: Any) -> Any:
        """A copy of a CPU tensor in page-locked memory."""
        out = self.staging.array(x.shape, x.dtype.numpy)
        out[...] = x.spec.client.read(x.spec, x.handle)
        return from_array(out, "cpu")

    def pinned_empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A CPU tensor in page-locked memory, with whatever values are there."""
        return from_array(self.staging.array(shape, dtype.numpy), "cpu")

    def is_pinned(self, x: Any) -> bool:
        """Whether a CPU tensor lies in page-locked memory."""
        return self.staging.holds(x.spec.client.address(x.handle), x.nbytes)

    def synchronize(self) -> None:
        """Wait for all that is queued in the calling thread's stream."""
        self.wait(self.now.stream)

    def synchronize_all(self) -> None:
        """Wait for all that is queued on the device."""
        self.check_open("the device is waited for")
        mark = self.faults.waits.mark(None)
        with self.failures():
            self.driver.wait_all()
        self.settle(mark)

    def wait(self, stream: int) -> None:
        """Wait for all that is queued in ``stream``."""
        self.check_open("a stream is waited for")
        mark = self.faults.waits.mark(stream)
        with self.failures():
            self.driver.wait(stream)
        self.settle(mark)

    def settle(self, mark: Mark | None = None) -> None:
        """After waiting for all that ``mark`` knows of: raise what the device has recorded."""
        try:
            for check in self.checks:
                check()
        finally:
            if mark is not None:
                self.faults.waits.passed(mark)

    def check_open(self, what: str) -> None:
        """Raise ``CaptureError`` while a graph is captured, which nothing may wait in.

        One of another thread is waited for.
        """
        self.order.capture_lock.wait()
        if self.order.capture is not None:
            self.order.capture.refuse(what)

    @contextmanager
    def failures(self, op: str = "synchronize") -> Iterator[None]:
        """Errors of the driver as ``DeviceError``."""
        try:
            yield
        except self.driver.errors as error:
            raise self.failure(op, error) from error

    def failure(self, op: str, error: Exception) -> DeviceError:
        """The error of ours for one of the driver's."""
        what = f"the device failed ({error})"
        hint = "RUDA_LAUNCH_BLOCKING=1, which names the operator; the process must start anew"
        if op == "synchronize":
            what += " in work queued before"
            # Which kernel it was the driver does not say; what failed is not far behind the last.
            last = ", ".join(self.driver.recent)
            got = f"{self.device}, last kernels {last}" if last else self.device
            return DeviceError(op, what, got, hint=hint)
        return DeviceError(op, what, self.device)

    def blocked(self, plan: Any, run: Callable[..., Any]) -> Callable[..., Any]:
        """``run``, waited for at once: a failure then names the operator and the line."""

        def call(*handles: Any) -> Any:
            try:
                out = run(*handles)
                if self.order.capture is None:
                    self.driver.wait(self.now.stream)
            except self.driver.errors as error:
                what = f"the device failed ({error}), in the operator queued at {user_line()}"
                raise DeviceError(plan.op.name, what, self.device) from error
            return out

        return call
