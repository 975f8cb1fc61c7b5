"""A client with no memory: it plans everything and computes nothing.

Planning, tracing and mixing of devices can be tested with it on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ruda.core.devices import Device
from ruda.core.dtypes import Defaults
from ruda.core.errors import DeviceError
from ruda.core.shapes import contiguous_strides
from ruda.core.spec import Spec


class NullHandle:
    """The memory that is not there; ``root`` makes views of it."""

    __slots__ = ("__weakref__", "offset", "owner", "root", "version", "views")

    def __init__(self, root: NullHandle | None = None) -> None:
        self.root = root
        self.owner: Any = None
        self.offset = 0
        self.version = 0
        self.views: list[Any] | None = None


class NullClient:
    """A device that answers every plan with empty handles."""

    precisions: Mapping[str, tuple[Any, ...]] = {}

    def __init__(self, device: Device) -> None:
        self.device = device
        self.defaults = Defaults()

    def bind(self, plan: Any) -> Callable[..., Any]:
        """A function that makes handles for the outputs of ``plan``."""
        if plan.out is None:
            raise DeviceError(plan.op.name, "the null device has no values", plan.specs)
        if plan.shares:
            return lambda h, *_: NullHandle(h.root or h)
        if plan.out.__class__ is tuple:
            return lambda *_: tuple(NullHandle() for _ in plan.out)
        return lambda *_: NullHandle()

    def read(self, spec: Spec, handle: Any) -> Any:
        """There is nothing to read."""
        raise DeviceError("read", "the null device has no values", spec)

    def adopt(self, array: Any) -> tuple[Any, Any]:
        """Row-major strides and a handle that forgets ``array``."""
        return contiguous_strides(array.shape), NullHandle()

    def view(self, handle: Any, spec: Spec, offset: int) -> Any:
        """``handle`` shown in another geometry."""
        return NullHandle(handle.root or handle) if offset else handle

    def alias(self, handle: Any) -> Any:
        """A view of all of ``handle``."""
        return NullHandle(handle.root or handle)

    def write(self, spec: Spec, handle: Any, value_spec: Spec, value: Any) -> None:
        """Nothing to overwrite."""

    def update(self, plan: Any, handles: Any) -> None:
        """Nothing to overwrite."""

    def address(self, handle: Any) -> int:
        """There is no memory to point at."""
        raise DeviceError("data_ptr", "the null device has no memory")

    def synchronize(self) -> None:
        """Nothing is queued."""


def make(device: Device) -> NullClient:
    """The null client of ``device``."""
    return NullClient(device)
