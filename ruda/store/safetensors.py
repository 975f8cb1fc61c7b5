"""Safetensors files as mappings from names to ndarrays."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from io import FileIO
from types import TracebackType

import numpy as np

from ruda.core.errors import StoreError
from ruda.store.atomic import replacing
from ruda.store.errors import shown
from ruda.store.header import (
    AGAIN,
    CODES,
    DTYPES,
    MAX_HEADER,
    METADATA,
    Entry,
    Header,
    is_unicode,
    parse_header,
    render_header,
)
from ruda.store.source import Path, check_booleans, opened, read_into, shrunk


def read_header(path: Path) -> Header:
    """Read names, dtypes, shapes and metadata of a file without its tensors.

    Raises ``MissingFileError`` or, for a file that is not whole and well formed, ``StoreError``.
    """
    with opened(path) as file:
        return _read_header(file)[0]


def load_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read a whole file: its arrays, which own their memory, and its metadata.

    Raises ``MissingFileError`` or, for a file that is not whole and well formed, ``StoreError``;
    never allocates more for the arrays than the file's size.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "a.safetensors")
    ...     save_arrays(path, {"x": np.arange(3, dtype=np.int32)}, {"step": "7"})
    ...     load_arrays(path)
    ({'x': array([0, 1, 2], dtype=int32)}, {'step': '7'})
    """
    with opened(path) as file:
        header, _ = _read_header(file)
        arrays: dict[str, np.ndarray] = {}
        for name, entry in sorted(header.tensors.items(), key=lambda item: item[1].start):
            flat = np.empty(entry.stop - entry.start, np.uint8)
            read_into(file, flat.data)
            arrays[name] = flat.view(DTYPES[entry.dtype]).reshape(entry.shape)
            check_booleans(arrays[name], "load", name, file.name)
    return {name: arrays[name] for name in header.tensors}, header.metadata


def open_file(path: Path) -> SafetensorsFile:
    """Map a file into memory: nothing is read until an item of the mapping is used.

    Raises as ``load_arrays`` does.
    """
    with opened(path) as file:
        header, size = _read_header(file)
        try:
            memory = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise shrunk(file.name, f"less than {size} bytes") from error
    return SafetensorsFile(file.name, header, memory)


def save_arrays(
    path: Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays and metadata to a file, atomically.

    Arrays of any layout and byte order are stored in C order, little-endian; those that share
    memory are written once each. Raises ``StoreError`` before anything is written for names or
    metadata that are not strings of valid Unicode, values that are not ndarrays, and dtypes the
    format does not have; an ``OSError`` from writing leaves the old file as it was.
    """
    where = os.fspath(path)
    arrays, metadata = dict(arrays), dict(metadata or {})
    for name, array in arrays.items():
        _check_savable(name, array, where)
    for text in (*metadata, *metadata.values()):
        _checked_text(text, "metadata", where)
    head, order = render_header(arrays, metadata, where)
    with replacing(path) as file:
        file.write(head)
        for name in order:
            file.write(_little_endian_bytes(arrays[name]))


class SafetensorsFile(Mapping[str, np.ndarray]):
    """An open file as a mapping from names to read-only ndarrays, which lie in the file's map.

    A tensor whose bytes are not aligned to its items, which only other writers make, comes as a
    read-only copy. Arrays outlive ``close`` and keep their map alive. Every access checks that the
    file is still as long as its tensors need; truncating it under an array in use is beyond any
    check and ends the process, as it does with every memory map.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "a.safetensors")
    ...     save_arrays(path, {"x": np.arange(3, dtype=np.int32)})
    ...     with open_file(path) as tensors:
    ...         print(tensors["x"].sum(), tensors.header.tensors["x"].shape)
    3 (3,)
    """

    def __init__(self, path: str, header: Header, memory: mmap.mmap) -> None:
        self.path = path
        self.header = header
        self._memory: mmap.mmap | None = memory

    @property
    def metadata(self) -> dict[str, str]:
        """The strings stored beside the tensors."""
        return self.header.metadata

    def __getitem__(self, name: str) -> np.ndarray:
        entry = self.header.tensors[name]
        if self._memory is None:
            expected, hint = "an open one", "taking arrays before close()"
            raise StoreError("load", "the file is closed", name, expected, hint, self.path, name)
        needed = self.header.data_start + entry.stop
        if self._memory.size() < needed:
            raise shrunk(self.path, f"{self._memory.size()} bytes, not {needed}")
        array = _view(self._memory, self.header.data_start, entry)
        check_booleans(array, "load", name, self.path)
        return array

    def __contains__(self, name: object) -> bool:
        return name in self.header.tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self.header.tensors)

    def __len__(self) -> int:
        return len(self.header.tensors)

    def __repr__(self) -> str:
        state = "closed" if self._memory is None else "open"
        return f"<SafetensorsFile {self.path!r}: {len(self)} tensors, {state}>"

    def __enter__(self) -> SafetensorsFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the map; it is unmapped with the last array that lies in it."""
        self._memory = None


def _read_header(file: FileIO) -> tuple[Header, int]:
    """Return the header and the size that the file had when it was checked."""
    size = os.fstat(file.fileno()).st_size
    if size < 8:
        raise StoreError("load", "cut off", f"{size} bytes", "at least 8", AGAIN, file.name)
    field = bytearray(8)
    read_into(file, memoryview(field))
    length = int.from_bytes(field, "little")
    limit = min(size - 8, MAX_HEADER)
    if length > limit:
        got, expected = f"a header of {length} bytes", f"at most {limit}"
        raise StoreError("load", "the header is too long", got, expected, AGAIN, file.name)
    raw = bytearray(length)
    read_into(file, memoryview(raw))
    return parse_header(raw, size - 8 - length, file.name), size


def _view(memory: mmap.mmap, data_start: int, entry: Entry) -> np.ndarray:
    offset = data_start + entry.start
    array: np.ndarray = np.ndarray(entry.shape, DTYPES[entry.dtype], memory, offset)
    if not array.flags.aligned:
        array = array.copy()
        array.flags.writeable = False
    return array


def _check_savable(name: object, array: object, path: str) -> None:
    name = _checked_text(name, "tensor name", path)
    if name == METADATA:
        expected, hint = "another name", "the argument metadata"
        raise StoreError("save", "reserved name", METADATA, expected, hint, path, name)
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        hint = "numpy.asarray(x), or x.filled(value) for a masked array"
        got = type(array).__name__
        raise StoreError("save", "no array", got, "an ndarray", hint, path, name)
    if array.dtype.name not in CODES:
        got, expected = f"{array.dtype}", f"one of {', '.join(CODES)}"
        raise StoreError("save", "unsupported dtype", got, expected, "x.astype", path, name)
    check_booleans(array, "save", name, path)


def _checked_text(text: object, role: str, path: str) -> str:
    if isinstance(text, str) and is_unicode(text):
        return text
    expected, hint = "a string of valid Unicode", "str() or json.dumps"
    raise StoreError("save", f"wrong {role}", shown(text), expected, hint, path)


def _little_endian_bytes(array: np.ndarray) -> memoryview:
    stored = array.astype(DTYPES[CODES[array.dtype.name]], order="C", copy=False)
    return stored.reshape(-1).view(np.uint8).data
