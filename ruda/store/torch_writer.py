"""Writing tensors as torch.save does, without PyTorch."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Mapping

import numpy as np

from ruda.core.errors import StoreError
from ruda.store.atomic import replacing
from ruda.store.errors import shown
from ruda.store.header import is_unicode
from ruda.store.source import Path, check_booleans
from ruda.store.torch_file import STORAGES, UNTYPED

_ROOT = "archive"
_STORAGE_NAMES = {dtype.name: name for name, dtype in STORAGES.items()}
_UNTYPED_NAMES = {dtype.name: name for name, dtype in UNTYPED.items()}


def save_torch(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write named arrays as a ``.pt`` file that torch.load reads as a dict of tensors, atomically.

    Arrays that are the same memory stay so. Raises ``StoreError`` before anything is written for
    names that are no strings, values that are not ndarrays, and dtypes that PyTorch has not; an
    ``OSError`` from writing leaves the old file as it was.

    >>> import tempfile
    >>> from ruda.store.torch_file import load_torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "x.pt")
    ...     save_torch(path, {"x": np.arange(3, dtype=np.int32)})
    ...     load_torch(path)
    {'x': array([0, 1, 2], dtype=int32)}
    """
    where, arrays = os.fspath(path), dict(arrays)
    for name, array in arrays.items():
        _check_savable(name, array, where)
    storages: dict[tuple[object, ...], tuple[int, np.ndarray]] = {}
    parts = []
    for name, array in arrays.items():
        # The storage lives until the file is written, so no other array can get its address.
        key = (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.name)
        if key not in storages:
            storages[key] = (len(storages), _native(array))
        number, stored = storages[key]
        parts += [_text(name), _tensor(stored, number)]
    body = pickle.MARK + b"".join(parts) + pickle.SETITEMS
    raw = pickle.PROTO + b"\x02" + pickle.EMPTY_DICT + body + pickle.STOP
    members = {"data.pkl": raw, "byteorder": b"little", "version": b"3\n"}
    with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(f"{_ROOT}/{name}"), content)
        for number, array in storages.values():
            info = zipfile.ZipInfo(f"{_ROOT}/data/{number}")
            info.file_size = array.nbytes
            with archive.open(info, "w") as member:
                member.write(array.reshape(-1).view(np.uint8).data)


def _native(array: np.ndarray) -> np.ndarray:
    """Return an array in row-major order and little-endian."""
    plain = array.dtype.type.__module__ == "numpy"
    dtype = array.dtype.newbyteorder("<") if plain else array.dtype
    return array.astype(dtype, order="C", copy=False)


def _tensor(array: np.ndarray, number: int) -> bytes:
    untyped = array.dtype.name in _UNTYPED_NAMES
    kind = ("torch.storage", "UntypedStorage")
    if not untyped:
        kind = ("torch", _STORAGE_NAMES[array.dtype.name])
    length = array.nbytes if untyped else array.size
    identity = _tuple(
        _text("storage"), _name(*kind), _text(str(number)), _text("cpu"), _integer(length)
    )
    strides = (stride // array.itemsize for stride in array.strides)
    hooks = _name("collections", "OrderedDict") + pickle.EMPTY_TUPLE + pickle.REDUCE
    facts = [
        identity + pickle.BINPERSID,
        _integer(0),
        _tuple(*map(_integer, array.shape)),
        _tuple(*map(_integer, strides)),
        pickle.NEWFALSE,
        hooks,
    ]
    if untyped:
        facts.append(_name("torch", _UNTYPED_NAMES[array.dtype.name]))
    function = _name("torch._utils", f"_rebuild_tensor_v{3 if untyped else 2}")
    return function + _tuple(*facts) + pickle.REDUCE


def _name(module: str, name: str) -> bytes:
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()


def _tuple(*items: bytes) -> bytes:
    return pickle.MARK + b"".join(items) + pickle.TUPLE


def _text(text: str) -> bytes:
    raw = text.encode()
    return pickle.BINUNICODE + len(raw).to_bytes(4, "little") + raw


def _integer(number: int) -> bytes:
    if number < 2**31:
        return pickle.BININT + number.to_bytes(4, "little")
    return pickle.LONG1 + b"\x09" + number.to_bytes(9, "little")


def _check_savable(name: object, array: object, path: str) -> None:
    if not isinstance(name, str) or not is_unicode(name):
        expected = "a string of valid Unicode"
        raise StoreError("save", "wrong tensor name", shown(name), expected, "str(name)", path)
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        got, hint = type(array).__name__, "numpy.asarray(x)"
        raise StoreError("save", "no array", got, "an ndarray", hint, path, name)
    if array.dtype.name not in _STORAGE_NAMES | _UNTYPED_NAMES:
        expected = f"one of {', '.join(_STORAGE_NAMES | _UNTYPED_NAMES)}"
        raise StoreError(
            "save", "unsupported dtype", f"{array.dtype}", expected, "x.astype", path, name
        )
    check_booleans(array, "save", name, path)
