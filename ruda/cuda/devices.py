"""The GPUs of this machine: how many, what they are, waiting for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ruda.backends import probe
from ruda.core import devices
from ruda.core.devices import Device, default_gpu
from ruda.core.errors import DeviceError


def is_available() -> bool:
    """Whether a GPU can be used: the extra is installed and the driver lists one.

    >>> ruda.cuda.is_available() in (True, False)
    True
    """
    return probe.usable_gpus() > 0


def device_count() -> int:
    """How many GPUs can be used; 0 without the extra or without a driver.

    >>> ruda.cuda.device_count() >= 0
    True
    """
    return probe.usable_gpus()


def gpu(device: Any = None) -> Any:
    """The client of a GPU by name, index or tensor's device; None: the default one, or cuda:0.

    Raises ``DeviceError`` that says what is missing where there is none.
    """
    if device is None:
        device = default_gpu()
    where = Device.parse(f"cuda:{device}" if isinstance(device, int) else device)
    if where.kind != "cuda":
        raise DeviceError("cuda", "not a GPU", where, 'an index or a name such as "cuda:0"')
    return devices.client(where)


def current_device() -> int:
    """The index of the GPU that calls without a device mean."""
    return int(gpu().device.index)


@contextmanager
def device(index: Any) -> Iterator[None]:
    """Make new tensors on this GPU in the block, in the calling thread alone."""
    with devices.within(gpu(index).device):
        yield


class Properties(NamedTuple):
    """The facts of a GPU: memory in bytes, compute capability, multiprocessors, shared memory."""

    name: str
    total_memory: int
    capability: tuple[int, int]
    multiprocessors: int
    shared_memory_per_block: int
    arch: str


def device_properties(device: Any = None) -> Properties:
    """What the driver says of a GPU."""
    driver = gpu(device).driver
    facts = driver.properties()
    name = facts["name"]
    return Properties(
        name.decode() if isinstance(name, bytes) else str(name),
        int(facts["totalGlobalMem"]),
        (int(facts["major"]), int(facts["minor"])),
        driver.multiprocessors,
        driver.shared_memory,
        driver.arch,
    )


def get_device_name(device: Any = None) -> str:
    """The name of a GPU, as its maker calls it."""
    return device_properties(device).name


def can_access_peer(device: Any, other: Any) -> bool:
    """Whether one GPU reads the memory of another directly."""
    return bool(gpu(device).driver.peer(gpu(other).device.index))


def synchronize(device: Any = None) -> None:
    """Wait for all that is queued on a GPU, in every stream; raises what went wrong there."""
    gpu(device).synchronize_all()
