"""Names of devices, and the one lazy door from a name to the client that serves it."""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from ruda.core import config
from ruda.core.errors import DeviceError

if TYPE_CHECKING:
    from ruda.core.contracts import Client


class Device:
    """A device by kind and index; equal to its name, so ``x.device == "cpu"`` reads well.

    >>> Device.parse("cuda:1").index
    1
    """

    __slots__ = ("index", "kind")

    def __init__(self, kind: str, index: int = 0) -> None:
        self.kind = kind
        self.index = index

    @classmethod
    def parse(cls, value: Any) -> Device:
        """The device that ``value`` (a Device or a name such as ``"cuda:1"``) means."""
        if isinstance(value, Device):
            return value
        if isinstance(value, str):
            kind, _, index = value.partition(":")
            if kind in KINDS and (index == "" or index.isdecimal()):
                return cls(kind, int(index or 0))
        expected = 'a ruda.Device or a name such as "cpu", "cuda" or "cuda:1"'
        raise DeviceError("device", "unknown device", got=repr(value), expected=expected)

    def __str__(self) -> str:
        return self.kind if self.kind in ("cpu", "null") else f"{self.kind}:{self.index}"

    def __repr__(self) -> str:
        return f"ruda.Device({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            if other.partition(":")[0] not in KINDS:
                return False
            other = Device.parse(other)
        if not isinstance(other, Device):
            return NotImplemented
        return self.kind == other.kind and self.index == other.index

    def __hash__(self) -> int:
        return hash((self.kind, self.index))


DeviceLike: TypeAlias = "Device | str"

KINDS = ("cpu", "cuda", "null")
_clients: dict[Device, Client] = {}
_default: Device | None = None
_making = threading.RLock()


class _Block(threading.local):
    """The device of the block that a thread is in, if it is in one."""

    device: Device | None = None


_block = _Block()


def client(device: Any = None) -> Client:
    """The client that serves ``device`` (None: the default device), made on first use."""
    where = default_device() if device is None else Device.parse(device)
    found = _clients.get(where)
    if found is None:
        backends = importlib.import_module("ruda.backends")
        # One client for a device, whichever threads ask for it first.
        with _making:
            found = _clients.get(where)
            if found is None:
                found = _clients[where] = backends.make_client(where)
    return found


def default_device() -> Device:
    """Where new tensors are made: the override, else ``RUDA_DEVICE``, else a GPU, else the CPU.

    A block of ``ruda.cuda.device`` comes before all of these, in its own thread. A GPU counts if
    the driver lists it and the extra for it is installed; that is looked up once, when the first
    tensor is made.
    """
    chosen = _block.device or _default
    if chosen is not None:
        return chosen
    named = config.value("RUDA_DEVICE")
    return Device.parse(named) if named else _automatic_device()


def default_gpu() -> Device:
    """The GPU that is meant where nobody names one: the default device if it is one, or cuda:0."""
    chosen = default_device()
    return chosen if chosen.kind == "cuda" else Device("cuda")


@functools.cache
def _automatic_device() -> Device:
    probe = importlib.import_module("ruda.backends.probe")
    return Device("cuda" if probe.usable_gpus() else "cpu")


_named = config.watch("RUDA_DEVICE")


def choice() -> tuple[Any, ...]:
    """What the default device follows from: while it is the same, so is the device."""
    return _block.device or _default, _named()


def known_clients() -> list[Client]:
    """The clients that were made so far."""
    return list(_clients.values())


@contextmanager
def within(device: Device) -> Iterator[None]:
    """The calling thread makes new tensors on ``device`` in the block, and no other thread does."""
    before, _block.device = _block.device, device
    try:
        yield
    finally:
        _block.device = before


def set_default_device(device: Any) -> None:
    """Make ``device`` the place of new tensors; None returns to ``RUDA_DEVICE`` or the choice.

    Raises ``DeviceError`` for a device that is not there.
    """
    global _default
    _default = None if device is None else client(device).device
