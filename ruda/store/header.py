"""The header of a safetensors file: strict parsing, checking and rendering.

A file is an 8-byte little-endian length, a JSON header of that length, and the tensors' bytes. The
parser accepts exactly the grammar of such a header instead of any JSON: a general parser turns 100
MB of ``[[],[],…`` into 2.5 GB of objects before it can be refused, nests without bound, and lets
duplicate keys, NaN and floats through.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Container, Iterator, Mapping
from typing import NamedTuple, NoReturn

import ml_dtypes
import numpy as np

from ruda.core.errors import StoreError
from ruda.store.errors import shown

MAX_HEADER = 100_000_000
METADATA = "__metadata__"
AGAIN = "fetching or saving the file again, it is damaged or not a safetensors file"

# Multi-byte values are little-endian in the file whatever the host.
DTYPES: dict[str, np.dtype] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "F8_E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "F8_E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "F32": np.dtype("<f4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F64": np.dtype("<f8"),
    "C64": np.dtype("<c8"),
}
CODES = {dtype.name: code for code, dtype in DTYPES.items()}

# Limits of ndarray: 64 axes, and sizes that fit a signed 64-bit integer.
_MAX_RANK = 64
_MAX_INTEGER = 2**63 - 1

_SPACE = re.compile(rb"[ \t\n\r]*+")
_STRING = re.compile(rb'[ \t\n\r]*+"([^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+)"')
_INTEGER = re.compile(rb"[ \t\n\r]*+(0|[1-9][0-9]{0,18}+)")
_MARKS = {mark: re.compile(rb"[ \t\n\r]*+" + re.escape(mark)) for mark in b"{ } [ ] , :".split()}
_HALF_PAIR = re.compile("[\ud800-\udfff]")


class Entry(NamedTuple):
    """One tensor's place: its dtype code, shape, and byte range ``start:stop`` in the data."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


class Header(NamedTuple):
    """What a safetensors file says of itself; ``data_start`` is where the tensors' bytes begin."""

    metadata: dict[str, str]
    tensors: dict[str, Entry]
    data_start: int


def parse_header(raw: bytes | bytearray, data_size: int, path: str) -> Header:
    """Parse header ``raw`` of a file that has ``data_size`` bytes after it.

    Raises ``StoreError`` unless the header is well formed and its tensors fill the data exactly,
    without overlap, hole or rest.
    """
    cursor = _Cursor(raw, path)
    metadata: dict[str, str] | None = None
    tensors: dict[str, Entry] = {}
    for _ in cursor.items(b"{}", "an object of tensors"):
        name = cursor.key(tensors)
        if name != METADATA:
            cursor.tensor = name
            tensors[name] = _parse_entry(cursor, data_size)
            cursor.tensor = None
        elif metadata is None:
            metadata = _parse_metadata(cursor)
        else:
            cursor.fail("a name occurs twice", shown(name), "every name once")
    cursor.end()
    _check_layout(tensors, data_size, cursor)
    return Header(metadata or {}, tensors, 8 + len(raw))


def render_header(
    arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str], path: str
) -> tuple[bytes, list[str]]:
    """Return the header's bytes, length field included, and the names in the order of the data.

    Wide items come first, so that every tensor is aligned to its item size.
    """
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    fields: dict[str, object] = {METADATA: dict(metadata)} if metadata else {}
    stop = 0
    for name in order:
        start, stop = stop, stop + arrays[name].nbytes
        fields[name] = {
            "dtype": CODES[arrays[name].dtype.name],
            "shape": arrays[name].shape,
            "data_offsets": [start, stop],
        }
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER:
        what = "the names and the metadata are too long"
        got, expected = f"a header of {len(text)} bytes", f"at most {MAX_HEADER}"
        raise StoreError("save", what, got, expected, "several files", path)
    return len(text).to_bytes(8, "little") + text, order


def is_unicode(text: str) -> bool:
    """Tell whether a text can be encoded: JSON escapes can name half a surrogate pair."""
    return _HALF_PAIR.search(text) is None


class _Cursor:
    """A position in a header, which only moves forward over what the format allows."""

    __slots__ = ("at", "path", "raw", "tensor")

    def __init__(self, raw: bytes | bytearray, path: str) -> None:
        self.raw = raw
        self.path = path
        self.at = 0
        self.tensor: str | None = None

    def fail(self, what: str, got: str, expected: str, hint: str = AGAIN) -> NoReturn:
        raise StoreError("load", what, got, expected, hint, self.path, self.tensor)

    def unexpected(self, expected: str) -> NoReturn:
        self.skip_space()
        found = bytes(self.raw[self.at : self.at + 20])
        got = f"{found!r} at byte {self.at}" if found else "its end"
        self.fail("the header is malformed", got, expected)

    def skip_space(self) -> None:
        self.at = _SPACE.match(self.raw, self.at).end()  # type: ignore[union-attr]

    def take(self, mark: bytes) -> bool:
        token = _MARKS[mark].match(self.raw, self.at)
        if token is None:
            return False
        self.at = token.end()
        return True

    def expect(self, mark: bytes, expected: str) -> None:
        if not self.take(mark):
            self.unexpected(expected)

    def end(self) -> None:
        self.skip_space()
        if self.at != len(self.raw):
            self.unexpected("only spaces after the last brace")

    def items(self, brackets: bytes, expected: str) -> Iterator[None]:
        """Yield once before each element of an array or object, which the caller then reads."""
        self.expect(brackets[:1], expected)
        if self.take(brackets[1:]):
            return
        while True:
            yield
            if self.take(brackets[1:]):
                return
            self.expect(b",", f"a comma or {brackets[1:].decode()}")

    def string(self) -> str:
        token = _STRING.match(self.raw, self.at)
        if token is None:
            self.unexpected("a string")
        try:
            text: str = token[1].decode()
            if "\\" in text:
                text = json.loads(f'"{text}"')
        except ValueError:
            self.unexpected("a string of valid escapes in UTF-8")
        if not is_unicode(text):
            self.unexpected("no half of a surrogate pair")
        self.at = token.end()
        return text

    def key(self, taken: Container[str]) -> str:
        key = self.string()
        if key in taken:
            self.fail("a name occurs twice", shown(key), "every name once")
        self.expect(b":", "a colon")
        return key

    def integers(self) -> tuple[int, ...]:
        found = []
        for _ in self.items(b"[]", "an array of integers"):
            token = _INTEGER.match(self.raw, self.at)
            if token is None or int(token[1]) > _MAX_INTEGER:
                self.unexpected(f"an integer from 0 to {_MAX_INTEGER}")
            found.append(int(token[1]))
            self.at = token.end()
            if len(found) > _MAX_RANK:
                self.fail("too many integers in one array", "more", f"at most {_MAX_RANK}")
        return tuple(found)


def _parse_metadata(cursor: _Cursor) -> dict[str, str]:
    metadata: dict[str, str] = {}
    for _ in cursor.items(b"{}", f"an object of strings as {METADATA}"):
        key = cursor.key(metadata)
        metadata[key] = cursor.string()
    return metadata


def _parse_entry(cursor: _Cursor, data_size: int) -> Entry:
    dtype: str | None = None
    lists: dict[str, tuple[int, ...]] = {}
    taken: set[str] = set()
    for _ in cursor.items(b"{}", "an object with dtype, shape and data_offsets"):
        key = cursor.key(taken)
        taken.add(key)
        if key == "dtype":
            dtype = cursor.string()
        elif key in ("shape", "data_offsets"):
            lists[key] = cursor.integers()
        else:
            # An unknown field may change what the bytes mean.
            cursor.fail("unknown field", shown(key), "dtype, shape and data_offsets")
    if dtype is None or len(lists) != 2:
        cursor.fail("missing field", f"{sorted(taken)}", "dtype, shape and data_offsets")
    return _checked_entry(cursor, dtype, lists["shape"], lists["data_offsets"], data_size)


def _checked_entry(
    cursor: _Cursor, dtype: str, shape: tuple[int, ...], offsets: tuple[int, ...], data_size: int
) -> Entry:
    if dtype not in DTYPES:
        hint = "converting the tensor to another dtype where the file was made"
        cursor.fail("unsupported dtype", shown(dtype), f"one of {', '.join(DTYPES)}", hint)
    if len(offsets) != 2 or not offsets[0] <= offsets[1] <= data_size:
        expected = f"[start, stop] with 0 <= start <= stop <= {data_size}"
        cursor.fail("data_offsets out of range", f"{list(offsets)}", expected)
    # ndarray refuses a shape whose axes other than the zeros overflow.
    widest = math.prod(n for n in shape if n) * DTYPES[dtype].itemsize
    if widest > _MAX_INTEGER:
        cursor.fail("the shape is too large", f"{list(shape)}", f"at most {_MAX_INTEGER} bytes")
    start, stop = offsets
    size = 0 if 0 in shape else widest
    if stop - start != size:
        got = f"{stop - start} bytes"
        cursor.fail("shape and data_offsets differ", got, f"{size} for {dtype} {list(shape)}")
    return Entry(dtype, shape, start, stop)


def _check_layout(tensors: dict[str, Entry], data_size: int, cursor: _Cursor) -> None:
    reached = 0
    for start, stop, name in sorted((e.start, e.stop, name) for name, e in tensors.items()):
        if start != reached:
            cursor.tensor = name
            what = "tensors overlap" if start < reached else "there is a hole before the data"
            cursor.fail(what, f"a start at {start}", f"{reached}, where the one before ends")
        reached = stop
    if reached != data_size:
        got = f"{data_size - reached} bytes after the last tensor"
        cursor.fail("data belongs to no tensor", got, "none")
