"""Methods that move a tensor between devices, or fill it from another."""

from __future__ import annotations

from typing import Any

from ruda.core.devices import Device, default_gpu
from ruda.core.devices import client as client_of
from ruda.core.errors import ArgumentError, DeviceError
from ruda.ops.cast import to
from ruda.tensor.host import address
from ruda.tensor.mutation import assign
from ruda.tensor.tensor import RudaTensor


def cpu(x: RudaTensor, /) -> RudaTensor:
    """``x`` on the CPU: itself if it is there already."""
    return to(x, "cpu")


def cuda(x: RudaTensor, device: Any = "cuda", /, *, non_blocking: bool = False) -> RudaTensor:
    """``x`` on a GPU, the first one unless ``device`` names it by index or name."""
    where = Device.parse(f"cuda:{device}" if isinstance(device, int) else device)
    if where.kind != "cuda":
        raise DeviceError("cuda", "not a GPU", where, 'an index or a name such as "cuda:0"')
    return to(x, where, non_blocking=non_blocking)


def to_device(x: RudaTensor, device: Any, /, *, stream: Any = None) -> RudaTensor:
    """The name of ``to`` in the Array API. Raises ``ArgumentError`` for a stream: ruda orders work.

    The copy waits in the queue of the device, so that no stream has to be named.
    """
    if stream is not None:
        raise ArgumentError("to_device", "takes no stream", stream, "stream=None")
    return to(x, device)


def copy_(x: RudaTensor, src: Any, /) -> RudaTensor:
    """Overwrite ``x`` with ``src``, a tensor of any device or an array, broadcast; returns ``x``.

    The dtype of ``x`` stays; raises ``DTypeError`` where that would lose the kind of a value.
    """
    if src.__class__ is RudaTensor:
        src = to(src, x.device)
    return assign(x, src)


def pin_memory(x: RudaTensor, /) -> RudaTensor:
    """A copy of ``x`` in page-locked memory, from which any GPU copies without waiting.

    Raises ``DeviceError`` for a tensor that is not on the CPU, or where there is no GPU.
    """
    if x.device.kind != "cpu":
        raise DeviceError("pin_memory", "not on the CPU", x.device, hint="x.cpu() first")
    gpu: Any = client_of(default_gpu())
    return gpu.pinned(x)


def data_ptr(x: RudaTensor, /) -> int:
    """The address of the first element, for handing memory to other libraries."""
    return address(x, "data_ptr")
