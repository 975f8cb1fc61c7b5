"""NumPy's files: ``.npy`` for one array, ``.npz`` for a zip archive of named ones.

NumPy stores the dtypes of ml_dtypes as unnamed bytes. Here they are stored as a structure of one
field that has the dtype's name, which NumPy reads too; unnamed two-byte items can only be bfloat16
and are read as such.
"""

from __future__ import annotations

import math
import os
import re
import zipfile
from collections.abc import Mapping
from typing import IO, NoReturn

import ml_dtypes
import numpy as np

from ruda.core.errors import StoreError
from ruda.store.archive import check_expansion, is_escaping, open_archive
from ruda.store.atomic import replacing
from ruda.store.errors import shown
from ruda.store.header import AGAIN, DTYPES, is_unicode
from ruda.store.source import Path, check_booleans, opened, read_into

_MAGIC = b"\x93NUMPY"
# Version 1 has a length field of two bytes, 2 and 3 one of four; 3 is UTF-8.
_LENGTH_SIZES = {1: 2, 2: 4, 3: 4}
_MAX_HEADER = 10_000
_MAX_RANK = 64
_MAX_BYTES = 2**63 - 1
_MAX_NAME = 60_000

_FIELD = re.compile(
    r"""\s*['"](descr|fortran_order|shape)['"]\s*:\s*"""
    r"""('[^']*'|"[^"]*"|True|False|\([0-9,\sL]*\)|\[[^\]]*\])\s*(?:,\s*|(?=\}))"""
)
_SHAPE = re.compile(r"\((?:\s*[0-9]{1,19}L?\s*,)*(?:\s*[0-9]{1,19}L?)?\s*\)")
_PLAIN = re.compile(r"['\"]([<>|=]?)([biufc][0-9]{1,2})['\"]")
_UNNAMED = re.compile(r"['\"][<>|=]?V2['\"]")
_NAMED = re.compile(r"\[\(\s*['\"](\w+)['\"]\s*,\s*['\"][<>|=]?V([0-9])['\"]\s*\)\s*,?\s*\]")
_OBJECTS = re.compile(r"['\"][<>|=]?O[0-9]*['\"]")

_NUMBERS = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
_FOREIGN: dict[str, np.dtype] = {
    dtype.name: dtype
    for dtype in (*DTYPES.values(), np.dtype(ml_dtypes.float4_e2m1fn))
    if dtype.type.__module__ == "ml_dtypes"
}


def load_npy(path: Path) -> np.ndarray:
    """Read the array of a ``.npy`` file.

    Raises ``MissingFileError``, and ``StoreError`` for a file that is not whole and well formed,
    arrays of Python objects, and dtypes that are no numbers.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "x.npy")
    ...     save_npy(path, np.array([1.5, 2.0], ml_dtypes.bfloat16))
    ...     load_npy(path)
    array([1.5, 2], dtype=bfloat16)
    """
    with opened(path) as file:
        raw = np.empty(os.fstat(file.fileno()).st_size, np.uint8)
        read_into(file, raw.data)
        return _parsed(raw, file.name, None)


def save_npy(path: Path, array: np.ndarray) -> None:
    """Write one array to a ``.npy`` file, atomically; raises as ``save_npz`` does."""
    _check_savable(array, os.fspath(path), None)
    with replacing(path) as file:
        _write(file, array)


def load_npz(path: Path, *, limit: int | None = None) -> dict[str, np.ndarray]:
    """Read all arrays of a ``.npz`` file.

    Raises as ``load_npy`` does, and ``StoreError`` for members with names that escape the archive,
    that overlap, or that expand to more than ``limit`` bytes, by default 1 GiB or 32 times the size
    of the file, whichever is more.
    """
    with open_archive(path) as archive:
        check_expansion(archive.expanded, archive.size, limit, archive.path)
        for name in archive.members:
            if not name.endswith(".npy"):
                expected, hint = "members that end in .npy", "ruda.store.load_torch for .pt files"
                raise StoreError("load", "no array", shown(name), expected, hint, archive.path)
        return {
            name.removesuffix(".npy"): _parsed(archive.read(name), archive.path, name)
            for name in archive.members
        }


def save_npz(path: Path, arrays: Mapping[str, np.ndarray], *, compress: bool = False) -> None:
    """Write named arrays to a ``.npz`` file, atomically.

    Raises ``StoreError`` before anything is written for names that are no strings or escape the
    archive, values that are not ndarrays, and dtypes that are no numbers; an ``OSError`` from
    writing leaves the old file as it was.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "x.npz")
    ...     save_npz(path, {"x": np.arange(3, dtype=np.int32)})
    ...     load_npz(path)
    {'x': array([0, 1, 2], dtype=int32)}
    """
    where, arrays = os.fspath(path), dict(arrays)
    for name, array in arrays.items():
        _check_name(name, where)
        _check_savable(array, where, name)
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            # Without a time of its own, so that equal arrays make equal files.
            info = zipfile.ZipInfo(f"{name}.npy")
            info.compress_type = method
            # What the archive needs to know to choose the form for members beyond 2 GiB.
            info.file_size = array.nbytes + _MAX_HEADER
            with archive.open(info, "w") as member:
                _write(member, array)


def _parsed(raw: np.ndarray, path: str, name: str | None) -> np.ndarray:
    """Return the array that the bytes of a ``.npy`` file hold, which lies in them."""
    text, start = _header_text(raw, path, name)
    dtype, fortran, shape = _header(text, path, name)
    size = math.prod(shape) * dtype.itemsize
    widest = math.prod(n for n in shape if n) * dtype.itemsize
    if len(shape) > _MAX_RANK or widest > _MAX_BYTES:
        expected = f"at most {_MAX_RANK} axes and {_MAX_BYTES} bytes"
        _fail("the shape is too large", shown(str(shape)), expected, path, name)
    if size != len(raw) - start:
        _fail("cut off or too long", f"{len(raw) - start} bytes", f"{size}", path, name)
    data = raw[start:].view(dtype) if start % 16 == 0 else raw[start:].copy().view(dtype)
    array = data.reshape(shape[::-1]).T if fortran else data.reshape(shape)
    check_booleans(data, "load", name or "", path)
    return array if dtype.isnative else array.astype(dtype.newbyteorder("="))


def _header_text(raw: np.ndarray, path: str, name: str | None) -> tuple[str, int]:
    head = raw[: _MAX_HEADER + 12].tobytes()
    field = _LENGTH_SIZES.get(head[6], 0) if len(head) > 8 else 0
    if not head.startswith(_MAGIC) or not field:
        _fail("not a .npy file", shown(head[:8]), f"{_MAGIC!r} and version 1, 2 or 3", path, name)
    stop = 8 + field + int.from_bytes(head[8 : 8 + field], "little")
    if stop > min(len(raw), _MAX_HEADER):
        _fail("the header is too long", f"{stop} bytes", f"at most {_MAX_HEADER}", path, name)
    return head[8 + field : stop].decode("latin-1"), stop


def _header(text: str, path: str, name: str | None) -> tuple[np.dtype, bool, tuple[int, ...]]:
    text = text.strip()
    fields: dict[str, str] = {}
    at = 1
    while text.startswith("{") and (found := _FIELD.match(text, at)):
        if found[1] in fields:
            _fail("a field occurs twice", found[1], "every field once", path, name)
        fields[found[1]] = found[2]
        at = found.end()
    if text[at:] != "}" or len(fields) != 3:
        expected = "descr, fortran_order and shape"
        _fail("the header is malformed", shown(text), expected, path, name)
    order = fields["fortran_order"]
    if order not in ("True", "False") or not _SHAPE.fullmatch(fields["shape"]):
        expected = "a bool and a tuple of integers"
        _fail("the header is malformed", shown(text), expected, path, name)
    shape = tuple(int(n) for n in re.findall("[0-9]+", fields["shape"]))
    return _dtype(fields["descr"], path, name), order == "True", shape


def _dtype(text: str, path: str, name: str | None) -> np.dtype:
    plain, named = _PLAIN.fullmatch(text), _NAMED.fullmatch(text)
    if plain and plain[2] in _NUMBERS:
        # Without an order, or with "|", an item is in this machine's.
        return np.dtype(plain[1].replace("|", "=") + plain[2])
    if _UNNAMED.fullmatch(text):
        return _FOREIGN["bfloat16"]
    if named and named[1] in _FOREIGN and _FOREIGN[named[1]].itemsize == int(named[2]):
        return _FOREIGN[named[1]]
    if _OBJECTS.fullmatch(text):
        hint = "saving the parts as arrays of numbers"
        what, expected = "pickled Python objects are never loaded", "numbers"
        raise StoreError("load", what, text, expected, hint, path, name)
    hint = "saving as bfloat16, a NumPy number, or with ruda, which keeps the name"
    raise StoreError("load", "unsupported dtype", shown(text), "numbers", hint, path, name)


def _write(file: IO[bytes], array: np.ndarray) -> None:
    dtype = array.dtype.newbyteorder("<")
    foreign = array.dtype.name in _FOREIGN
    descr = [(array.dtype.name, f"|V{dtype.itemsize}")] if foreign else dtype.str
    facts = {"descr": descr, "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_1_0(file, facts)
    stored = array.astype(array.dtype if foreign else dtype, order="C", copy=False)
    file.write(stored.reshape(-1).view(np.uint8).data)


def _check_name(name: object, path: str) -> None:
    plain = isinstance(name, str) and is_unicode(name) and not is_escaping(name)
    if plain and len(str(name).encode()) <= _MAX_NAME:
        return
    expected = "a string without '..', backslashes, zero bytes or a root"
    raise StoreError("save", "wrong tensor name", shown(name), expected, "another name", path)


def _check_savable(array: object, path: str, name: str | None) -> None:
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        got, hint = type(array).__name__, "numpy.asarray(x)"
        raise StoreError("save", "no array", got, "an ndarray", hint, path, name)
    known = f"{array.dtype.kind}{array.dtype.itemsize}" in _NUMBERS
    if not known and array.dtype.name not in _FOREIGN:
        expected = "a dtype of numbers"
        raise StoreError(
            "save", "unsupported dtype", f"{array.dtype}", expected, "x.astype", path, name
        )
    check_booleans(array, "save", name or "", path)


def _fail(what: str, got: str, expected: str, path: str, name: str | None) -> NoReturn:
    raise StoreError("load", what, got, expected, AGAIN, path, name)
