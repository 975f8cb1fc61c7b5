"""Exchange with other libraries by DLPack, without a copy.

NumPy makes and reads the capsules of the CPU. It knows no bfloat16, so such a tensor travels as
uint16 through NumPy while the type field of the capsule says bfloat16. Layout: DLPack 1.0,
``dlpack.h``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ruda.core import dtypes
from ruda.core.devices import Device, default_gpu
from ruda.core.devices import client as client_of
from ruda.core.errors import ArgumentError, DeviceError, DTypeError
from ruda.core.mode import MODE
from ruda.core.shapes import contiguous_strides
from ruda.core.spec import spec_of
from ruda.tensor import capsules, host

_CPU = 1
_UINT, _BFLOAT = 1, 4


def _type_field(capsule: Any) -> capsules.Type:
    """The dtype field inside a capsule, to be read and written in place."""
    for name, kind in capsules.NAMES:
        if capsules.is_valid(capsule, name):
            return kind.from_address(capsules.pointer(capsule, name)).tensor.dtype  # type: ignore[no-any-return]
    raise ArgumentError("from_dlpack", "not a DLPack capsule, or one that was already used")


def export(tensor: Any, **options: Any) -> Any:
    """The capsule of ``tensor``; ``options`` are those of ``__dlpack__``."""
    if tensor.node is not None and not tensor.is_leaf:
        tensor = tensor.detach()
    if MODE.get().tracer is not None:
        host.read(tensor, "__dlpack__")
    if tensor.spec.client.device.kind == "cuda":
        return _export_of_device(tensor, **options)
    if tensor.spec.client.device.kind != "cpu":
        raise DeviceError("__dlpack__", "not on the CPU", tensor.spec.client.device)
    if tensor.dtype.kind == "storage":
        raise DTypeError("__dlpack__", "has no DLPack type here", tensor.dtype, hint="astype")
    if options.get("stream") is not None:
        raise ArgumentError("__dlpack__", "the CPU has no streams", options["stream"], "None")
    array = tensor.handle.array
    if not array.flags.writeable and options.get("max_version") is None:
        # Only versioned capsules can say that memory is read-only.
        options = {**options, "copy": True}
    if tensor.dtype is not dtypes.bfloat16:
        return array.__dlpack__(**options)
    capsule = array.view(np.uint16).__dlpack__(**options)
    _type_field(capsule).code = _BFLOAT
    return capsule


def device_of(tensor: Any) -> tuple[int, int]:
    """DLPack's number for the kind of device, and the index."""
    device = tensor.spec.client.device
    if device.kind == "cuda":
        return capsules.CUDA, device.index
    if device.kind != "cpu":
        raise DeviceError("__dlpack_device__", "no DLPack device", device)
    return _CPU, 0


def _export_of_device(
    tensor: Any,
    stream: Any = None,
    max_version: Any = None,
    dl_device: Any = None,
    copy: bool | None = None,
) -> Any:
    """A capsule over a GPU's memory that is ready in the consumer's ``stream``."""
    spec, where = tensor.spec, device_of(tensor)
    if dl_device is not None and tuple(map(int, dl_device)) != where:
        if int(dl_device[0]) != _CPU or copy is False:
            hint = f"x.to(...) before the exchange, from {spec.client.device}"
            raise ArgumentError("__dlpack__", "not on that device", dl_device, where, hint)
        return export(tensor.to("cpu"), max_version=max_version)
    tensor = tensor.copy() if copy else tensor
    handle, client = tensor.handle, spec.client
    capsules.type_of(spec.dtype)
    queue = client.lend(handle, stream)
    versioned = max_version is not None and max_version[0] >= 1
    # The capsule keeps the handle by this function alone.
    return capsules.make(
        client.address(handle),
        where,
        spec.shape,
        tensor.spec.strides,
        spec.dtype,
        versioned,
        lambda: client.returned(handle, queue),
    )


def cuda_interface(tensor: Any) -> dict[str, Any]:
    """What ``__cuda_array_interface__`` says of a tensor; no attribute of tensors elsewhere."""
    spec = tensor.spec
    if spec.client.device.kind != "cuda":
        raise AttributeError(f"a tensor on {spec.client.device} has no __cuda_array_interface__")
    if tensor.node is not None:
        what = "a tensor that requires grad would lose its history"
        raise ArgumentError("__cuda_array_interface__", what, spec, hint="x.detach()")
    if spec.dtype.kind == "storage" or spec.dtype is dtypes.bfloat16:
        what = "has no type code there"
        raise DTypeError("__cuda_array_interface__", what, spec.dtype, hint="DLPack")
    size = spec.dtype.itemsize
    return {
        "shape": spec.shape,
        "typestr": spec.dtype.numpy.str,
        "data": (host.address(tensor, "__cuda_array_interface__"), False),
        "strides": None if spec.contiguous else tuple(s * size for s in spec.strides),
        "stream": spec.client.queue_of(tensor.handle),
        "version": 3,
    }


def of_device(source: Any) -> Any:
    """Spec and handle over the memory of ``source`` on a GPU; None where it is not on one.

    The producer is told ruda's stream, so the values are ready when ruda's work reads them.
    """
    if hasattr(source, "__dlpack_device__"):
        kind, index = (int(n) for n in source.__dlpack_device__())
        if kind not in (capsules.CUDA, capsules.CUDA_MANAGED):
            return None
        client: Any = client_of(f"cuda:{index}")
        # Producers record their events on the current device.
        client.order.current()
        try:
            capsule = source.__dlpack__(stream=client.now.stream, max_version=(1, 0))
        except TypeError:
            # Producers older than DLPack 1.0 take a stream alone.
            capsule = source.__dlpack__(stream=client.now.stream)
        shown = capsules.take(capsule)
    elif hasattr(source, "__cuda_array_interface__"):
        client, shown = _of_interface(source)
    else:
        return None
    spec = spec_of(client, shown.shape, shown.dtype, shown.strides)
    return spec, client.borrow(shown.address, spec, shown.owner, shown.read_only)


def _holder(source: Any, address: int) -> Any:
    """The client of the GPU that ``address`` belongs to, which the interface does not tell."""
    index = getattr(getattr(source, "device", None), "id", None)
    if not isinstance(index, int) and address:
        gpu: Any = client_of(default_gpu())
        index = gpu.driver.owner(address)
        if index < 0:
            raise ArgumentError("asarray", "not memory of a GPU", f"{address:#x}")
    return client_of(default_gpu() if index is None else Device("cuda", int(index)))


def _of_interface(source: Any) -> tuple[Any, capsules.Shown]:
    facts = source.__cuda_array_interface__
    address, read_only = facts["data"]
    client = _holder(source, address)
    client.await_stream(facts.get("stream"))
    dtype = dtypes.as_dtype(np.dtype(facts["typestr"]), "asarray")
    shape = tuple(facts["shape"])
    steps = facts.get("strides")
    if steps is None or 0 in shape:
        strides = contiguous_strides(shape)
    else:
        strides = tuple(s // dtype.itemsize for s in steps)
    return client, capsules.Shown(address, shape, strides, dtype, bool(read_only), source)


def to_array(source: Any, copy: bool | None = None) -> Any:
    """The ndarray over the memory of ``source``, anything on the CPU that speaks DLPack."""
    kind, index = source.__dlpack_device__()
    if int(kind) != _CPU:
        hint = "a device= that is on this machine, or a copy on the CPU"
        raise DeviceError(
            "from_dlpack", "the memory is not the CPU's", (int(kind), index), hint=hint
        )
    carrier = _Carrier(source)
    array = np.from_dlpack(carrier, copy=copy)
    return array.view(dtypes.bfloat16.numpy) if carrier.is_bfloat else array


class _Carrier:
    """``source`` with bfloat16 capsules renamed to uint16 on the way to NumPy."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.is_bfloat = False

    def __dlpack_device__(self) -> Any:
        return self.source.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        try:
            capsule = self.source.__dlpack__(**options)
        except TypeError:
            # Producers older than DLPack 1.0 take a stream alone.
            capsule = self.source.__dlpack__()
        field = _type_field(capsule)
        self.is_bfloat = field.code == _BFLOAT
        if self.is_bfloat:
            field.code = _UINT
        return capsule
