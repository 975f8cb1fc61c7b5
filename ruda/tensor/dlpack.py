"""Exchange with other libraries by DLPack, without a copy.

NumPy makes and reads the capsules of the CPU. It knows no bfloat16, so such a tensor travels as
uint16 through NumPy while the type field of the capsule says bfloat16. Layout: DLPack 1.0,
``dlpack.h``.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ruda.core import dtypes
from ruda.core.errors import ArgumentError, DeviceError, DTypeError
from ruda.core.mode import MODE
from ruda.tensor import host

_CPU = 1
_UINT, _BFLOAT = 1, 4


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_kind", ctypes.c_int32),
        ("device_index", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)


def _type_field(capsule: Any) -> _Type:
    """The dtype field inside a capsule, to be read and written in place."""
    for name, kind in ((b"dltensor_versioned", _Versioned), (b"dltensor", _Tensor)):
        if _is_valid(capsule, name):
            content = kind.from_address(_pointer(capsule, name))
            return content.tensor.dtype if kind is _Versioned else content.dtype  # type: ignore[no-any-return]
    raise ArgumentError("from_dlpack", "not a DLPack capsule, or one that was already used")


def export(tensor: Any, **options: Any) -> Any:
    """The capsule of ``tensor``; ``options`` are those of ``__dlpack__``."""
    if tensor.node is not None and not tensor.is_leaf:
        tensor = tensor.detach()
    if tensor.spec.client.device.kind != "cpu":
        raise DeviceError("__dlpack__", "not on the CPU", tensor.spec.client.device)
    if MODE.get().tracer is not None:
        host.read(tensor, "__dlpack__")
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
    if tensor.spec.client.device.kind != "cpu":
        raise DeviceError("__dlpack_device__", "no DLPack device", tensor.spec.client.device)
    return _CPU, 0


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
