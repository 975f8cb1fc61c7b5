"""A client with no memory: it plans everything and computes nothing.

Planning, tracing and mixing of devices can be tested with it on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ruda.core.devices import Device
from ruda.core.dtypes import Defaults, as_dtype
from ruda.core.errors import DeviceError
from ruda.core.spec import Spec, spec_of


class NullHandle:
    """The memory that is not there; ``root`` makes views of it, ``spec`` is that of a base."""

    __slots__ = ("__weakref__", "offset", "owner", "root", "spec", "version", "views")

    def __init__(self, root: NullHandle | None = None, spec: Spec | None = None) -> None:
        self.root = root
        self.spec = spec
        self.owner: Any = None
        self.offset = 0
        self.version = 0
        self.views: list[Any] | None = None


class NullClient:
    """A device that answers every plan with empty handles."""

    precisions: Mapping[str, tuple[Any, ...]] = {}
    ordered_prices: Mapping[str, str] = {}

    def __init__(self, device: Device) -> None:
        self.device = device
        self.defaults = Defaults()

    def obstacle(self, op: Any) -> str | None:
        """What depends on values cannot be planned alone."""
        return "the null device has no values" if op.kind == "dynamic" else None

    def lack(
        self, op: str, strategy: str, specs: tuple[Spec, ...], attrs: tuple[Any, ...]
    ) -> str | None:
        """There are no kernels to choose from."""
        return None if strategy in ("auto", "composite") else "the null device has no kernels"

    def bind(self, plan: Any) -> Callable[..., Any]:
        """A function that makes handles for the outputs of ``plan``."""
        if plan.out is None:
            raise DeviceError(plan.op.name, "the null device has no values", plan.specs)
        if plan.op.kind == "transfer" and plan.out.client is not self:
            raise DeviceError(plan.op.name, "the null device has no values", plan.specs[0])
        if plan.shares:
            return lambda h, *_: NullHandle(h.root or h)
        if plan.out.__class__ is tuple:
            return lambda *_: tuple(NullHandle(spec=spec) for spec in plan.out)
        return lambda *_: NullHandle(spec=plan.out)

    def update_all(self, plan: Any, handles: Sequence[Any], targets: Sequence[Any]) -> None:
        """Nothing is written."""

    def bind_many(self, plans: Sequence[Any]) -> Callable[..., None] | None:
        """Steps of many tensors go one by one."""
        return None

    def read(self, spec: Spec, handle: Any) -> Any:
        """There is nothing to read."""
        raise DeviceError("read", "the null device has no values", spec)

    def adopt(self, array: Any) -> tuple[Any, Any]:
        """Row-major strides and a handle that forgets ``array``."""
        spec = spec_of(self, array.shape, as_dtype(array.dtype))
        return spec.strides, NullHandle(spec=spec)

    def view(self, handle: Any, spec: Spec, offset: int) -> Any:
        """``handle`` shown in another geometry."""
        if handle.__class__ is not NullHandle:
            raise DeviceError("RudaTensor", "not memory of the null device", type(handle).__name__)
        return NullHandle(handle.root or handle) if offset else handle

    def alias(self, handle: Any) -> Any:
        """A view of all of ``handle``."""
        return NullHandle(handle.root or handle)

    def write(self, spec: Spec, handle: Any, value_spec: Spec, value: Any) -> None:
        """Nothing to overwrite."""

    def update(self, plan: Any, handles: Any) -> None:
        """Nothing to overwrite."""

    def base(self, handle: Any) -> Spec:
        """The spec that the memory of a base handle would have."""
        return handle.spec

    def extent(self, handle: Any) -> tuple[int, int]:
        """Nowhere, so that no two handles meet."""
        return 0, 0

    def writes(self, changes: Sequence[tuple[Any, Any, int]]) -> list[tuple[Any, ...]]:
        """Counting versions up is all there is to do."""
        return [(setattr, target, "version", target.version + n) for target, _, n in changes]

    def address(self, handle: Any) -> int:
        """There is no memory to point at."""
        raise DeviceError("data_ptr", "the null device has no memory")

    def synchronize(self) -> None:
        """Nothing is queued."""


def make(device: Device) -> NullClient:
    """The null client of ``device``."""
    return NullClient(device)
