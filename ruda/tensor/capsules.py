"""DLPack capsules over memory of a device: made and taken apart by hand.

Layout: DLPack 1.0, ``dlpack.h``. A capsule owns what it shows until its consumer calls the deleter
inside, from any thread and perhaps long after the tensor is gone.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from ruda.core import dtypes
from ruda.core.dtypes import ALL, DType
from ruda.core.errors import ArgumentError, DTypeError
from ruda.core.shapes import Shape, contiguous_strides

CUDA, CUDA_MANAGED = 2, 13
_READ_ONLY = 1
_KINDS = {"int": 0, "uint": 1, "float": 2, "complex": 5, "bool": 6}
_BFLOAT = 4


class Type(ctypes.Structure):
    """The dtype of a capsule."""

    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class Content(ctypes.Structure):
    """The tensor in a capsule."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_kind", ctypes.c_int32),
        ("device_index", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", Type),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    """A capsule before version 1."""

    _fields_ = (
        ("tensor", Content),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class Versioned(ctypes.Structure):
    """A capsule of version 1."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Content),
    )


NAMES: tuple[tuple[bytes, Any], ...] = ((b"dltensor_versioned", Versioned), (b"dltensor", Managed))

_api = ctypes.pythonapi
pointer = _api.PyCapsule_GetPointer
pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
is_valid = _api.PyCapsule_IsValid
is_valid.restype, is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_new = _api.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_rename = _api.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
# The destructor gets a capsule that is being deleted: an address, which must not become an object.
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
_is_valid_at = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api)
)
_Function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
# What each capsule that is still out keeps alive, by the address of its structure.
_out: dict[int, tuple[Any, ...]] = {}


def _delete(
    address: int,
    out: dict[int, tuple[Any, ...]] = _out,
    ending: Callable[[], bool] = sys.is_finalizing,
) -> None:
    kept = out.pop(address, None)
    # The last capsules may go when Python does: then there is nobody left to tell.
    if kept is not None and not ending():
        kept[-1]()


def _destroy(capsule: int, ending: Callable[[], bool] = sys.is_finalizing) -> None:
    # Nor are there the names that are looked up here.
    for name, _ in () if ending() else NAMES:
        if _is_valid_at(capsule, name):
            _delete(_pointer_of(capsule, name))


_deleter, _destructor = _Function(_delete), _Function(_destroy)
for _function in (_deleter, _destructor):
    # A capsule holds its address alone, and may go when this module has gone: it never does.
    _api.Py_IncRef(ctypes.py_object(_function))


def type_of(dtype: DType) -> Type:
    """The type field of ``dtype``; raises ``DTypeError`` for one that DLPack does not know."""
    if dtype is dtypes.bfloat16:
        return Type(_BFLOAT, 16, 1)
    if dtype.kind not in _KINDS:
        raise DTypeError("__dlpack__", "has no DLPack type here", dtype, hint="astype")
    return Type(_KINDS[dtype.kind], 8 * dtype.itemsize, 1)


def make(
    address: int,
    device: tuple[int, int],
    shape: Shape,
    strides: Shape,
    dtype: DType,
    versioned: bool,
    done: Callable[[], None],
) -> Any:
    """A capsule over memory at ``address``; ``done`` is called when its consumer lets go."""
    sizes = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    steps = (ctypes.c_int64 * max(len(strides), 1))(*strides)
    name, kind = NAMES[0] if versioned else NAMES[1]
    made = kind()
    if versioned:
        made.major, made.minor, made.flags = 1, 0, 0
    made.context, made.deleter = None, ctypes.cast(_deleter, ctypes.c_void_p)
    made.tensor = Content(
        address,
        *device,
        len(shape),
        type_of(dtype),
        ctypes.addressof(sizes),
        ctypes.addressof(steps),
        0,
    )
    place = ctypes.addressof(made)
    _out[place] = (made, sizes, steps, done)
    return _new(place, name, ctypes.cast(_destructor, ctypes.c_void_p))


class Taken:
    """The memory of a capsule that is ours now; its deleter runs with the last reference."""

    __slots__ = ("_address", "_deleter")

    def __init__(self, address: int, deleter: int | None) -> None:
        self._address = address
        self._deleter = _Function(deleter) if deleter else None

    def __del__(self) -> None:
        if self._deleter is not None:
            self._deleter(self._address)


class Shown(NamedTuple):
    """What a capsule shows: where, in which geometry, and who owns it."""

    address: int
    shape: Shape
    strides: Shape
    dtype: DType
    read_only: bool
    owner: Any


def take(capsule: Any) -> Shown:
    """Consume ``capsule``; raises ``ArgumentError`` for one that was used already."""
    for name, kind in NAMES:
        if is_valid(capsule, name):
            place = pointer(capsule, name)
            found = kind.from_address(place)
            dtype = _dtype_of(found.tensor.dtype)
            # Consumers own the name they write; it must outlive the capsule.
            _rename(capsule, _USED[name])
            read_only = kind is Versioned and bool(found.flags & _READ_ONLY)
            return _shown(found.tensor, dtype, read_only, Taken(place, found.deleter))
    raise ArgumentError("from_dlpack", "not a DLPack capsule, or one that was already used")


_USED = {name: b"used_" + name for name, _ in NAMES}


def _shown(content: Content, dtype: DType, read_only: bool, owner: Taken) -> Shown:
    shape = _numbers(content.shape, content.ndim)
    strides = _numbers(content.strides, content.ndim) if content.strides else None
    if strides is None or 0 in shape:
        strides = contiguous_strides(shape)
    address = (content.data or 0) + content.byte_offset
    return Shown(address, shape, strides, dtype, read_only, owner)


def _numbers(address: int | None, count: int) -> Shape:
    return tuple((ctypes.c_int64 * count).from_address(address)) if address and count else ()


def _dtype_of(field: Type) -> DType:
    for dtype in ALL:
        if dtype.kind in _KINDS and dtype is not dtypes.bfloat16:
            known = type_of(dtype)
            if (known.code, known.bits) == (field.code, field.bits) and field.lanes == 1:
                return dtype
    if (field.code, field.bits, field.lanes) == (_BFLOAT, 16, 1):
        return dtypes.bfloat16
    got = f"code {field.code}, {field.bits} bits, {field.lanes} lanes"
    raise DTypeError("from_dlpack", "a type that ruda does not know", got)
