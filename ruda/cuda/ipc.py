"""Tensors of a GPU in several processes: a handle is sent, the memory stays where it is."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from ruda.core.dtypes import as_dtype
from ruda.core.errors import ArgumentError, DeviceError
from ruda.core.spec import spec_of
from ruda.cuda.devices import gpu
from ruda.tensor.tensor import RudaTensor, wrap


class MemoryHandle(NamedTuple):
    """What another process opens a tensor with; send it by any means, such as a queue."""

    memory: bytes
    event: bytes
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: int
    process: int


class _Segment:
    """An allocation of another process, open here while a tensor shows a part of it."""

    def __init__(self, client: Any, memory: bytes) -> None:
        self.client = client
        with client.failures("open_memory"):
            self.address = client.driver.open_memory(memory)

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending() and hasattr(self, "address"):
            self.client.driver.close_memory(self.address)


_open: weakref.WeakValueDictionary[tuple[Any, bytes], _Segment] = weakref.WeakValueDictionary()


def share_memory(x: RudaTensor) -> MemoryHandle:
    """A handle to the memory of ``x``, which must be kept alive until the other side is done.

    Raises ``DeviceError`` for a tensor that is not on a GPU or whose memory is not ruda's own.
    """
    client = x.client
    if x.device.kind != "cuda":
        raise DeviceError("share_memory", "not on a GPU", x.device, hint='x.to("cuda")')
    start, size = client.pool.segment_of(x.data_ptr())
    if not size:
        raise DeviceError(
            "share_memory", "the memory is another library's", x.spec, hint="x.copy()"
        )
    with client.failures("share_memory"):
        event = client.driver.new_event(shared=True)
        client.driver.record(event, client.queue_of(x.handle))
        memory, signal = client.driver.share_memory(start), client.driver.share_event(event)
    ended = weakref.finalize(x.handle.root or x.handle, client.driver.release_event, event)
    # At exit the driver frees all, and the bindings may be gone before.
    ended.atexit = False
    place = x.data_ptr() - start
    strides = tuple(x.strides)
    return MemoryHandle(
        memory, signal, place, x.shape, strides, x.dtype.name, x.device.index, os.getpid()
    )


def open_memory(handle: MemoryHandle, device: Any = None) -> RudaTensor:
    """The tensor behind ``handle``, in the memory of the process that shared it.

    Work that made the values is waited for on the device. Raises ``ArgumentError`` in the process
    that shared it, which has the tensor itself.
    """
    if handle.process == os.getpid():
        raise ArgumentError("open_memory", "this process shared it", hint="the tensor itself")
    client = gpu(handle.device if device is None else device)
    key = (client, handle.memory)
    segment = _open.get(key)
    if segment is None:
        segment = _open.setdefault(key, _Segment(client, handle.memory))
    with client.failures("open_memory"):
        event = client.driver.open_event(handle.event)
        client.driver.stream_wait(client.now.stream, event)
        client.driver.release_event(event)
    spec = spec_of(client, handle.shape, as_dtype(handle.dtype), handle.strides)
    return wrap(spec, client.borrow(segment.address + handle.offset, spec, segment))
