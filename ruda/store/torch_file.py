"""PyTorch's ``.pt`` files, in the zip format of torch.save since version 1.6: weights only.

An archive holds a pickle, which names tensors by storage, offset, shape and strides, and a member
with the bytes of each storage. Neither direction needs PyTorch.
"""

from __future__ import annotations

import math
import os
import sys
from typing import Any, NamedTuple, NoReturn

import ml_dtypes
import numpy as np

from ruda.core.errors import StoreError
from ruda.store.archive import Archive, check_expansion, open_archive
from ruda.store.errors import shown
from ruda.store.header import AGAIN
from ruda.store.source import Path, check_booleans, opened
from ruda.store.unpickler import Function, Mark, unpickled

_MAX_PICKLE = 1 << 24
_MAX_RANK = 64
_MAX_INTEGER = 2**63 - 1
_RESAVE = "torch.load and torch.save where the file was made, or .safetensors"

STORAGES: dict[str, np.dtype] = {
    "BoolStorage": np.dtype(np.bool_),
    "ByteStorage": np.dtype(np.uint8),
    "CharStorage": np.dtype(np.int8),
    "ShortStorage": np.dtype("i2"),
    "IntStorage": np.dtype("i4"),
    "LongStorage": np.dtype("i8"),
    "HalfStorage": np.dtype("f2"),
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "FloatStorage": np.dtype("f4"),
    "DoubleStorage": np.dtype("f8"),
    "ComplexFloatStorage": np.dtype("c8"),
    "ComplexDoubleStorage": np.dtype("c16"),
}
# Dtypes younger than the typed storages: their tensors lie in untyped bytes.
UNTYPED: dict[str, np.dtype] = {
    "uint16": np.dtype("u2"),
    "uint32": np.dtype("u4"),
    "uint64": np.dtype("u8"),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "float8_e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "float8_e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "float8_e8m0fnu": np.dtype(ml_dtypes.float8_e8m0fnu),
}


def load_torch(path: Path, *, limit: int | None = None) -> Any:
    """Read what torch.save wrote: mappings, lists, tuples, numbers, strings and ndarrays.

    Tensors and parameters come as ndarrays with the strides they had; those that shared a storage
    share memory. Raises ``MissingFileError``, and ``StoreError`` for anything that weights do not
    need (nothing that a file names is imported or run), for files before PyTorch 1.6, TorchScript,
    tensors outside of their storage, and tensors of more than ``limit`` bytes together, by default
    1 GiB or 32 times the size of the file, whichever is more.
    """
    _check_format(path)
    with open_archive(path) as archive:
        return _Reader(archive, limit).value()


class _Storage(NamedTuple):
    """A member with the bytes of tensors; ``dtype`` is None where each tensor says it."""

    key: str
    dtype: np.dtype | None


class _Reader:
    def __init__(self, archive: Archive, limit: int | None) -> None:
        self.archive, self.path, self.limit = archive, archive.path, limit
        pickles = [name for name in archive.members if name.split("/")[1:] == ["data.pkl"]]
        if len(pickles) != 1:
            self.fail("not weights of PyTorch", f"{len(pickles)} pickles", "one data.pkl")
        self.pickle, self.root = pickles[0], pickles[0].removesuffix("data.pkl")
        if f"{self.root}constants.pkl" in archive.members:
            got, hint = "TorchScript", "torch.save(module.state_dict(), path)"
            self.fail("a program, not weights", got, "a state_dict", hint=hint)
        check_expansion(archive.expanded, archive.size, limit, self.path)
        self.order = self.byte_order()
        self.total = 0
        self.raw: dict[str, np.ndarray] = {}
        self.items: dict[tuple[str, str], np.ndarray] = {}

    def fail(self, what: str, got: str, expected: str, hint: str = AGAIN) -> NoReturn:
        raise StoreError("load", what, got, expected, hint, self.path)

    def byte_order(self) -> str:
        name = f"{self.root}byteorder"
        if name not in self.archive.members:
            return "little"
        found = self.archive.read(name)[:20].tobytes()
        if found not in (b"little", b"big"):
            self.fail("unknown byte order", shown(found), "little or big")
        return found.decode()

    def value(self) -> Any:
        size = self.archive.members[self.pickle].file_size
        if size > _MAX_PICKLE:
            self.fail("the pickle is too long", f"{size} bytes", f"at most {_MAX_PICKLE}")
        raw = self.archive.read(self.pickle).tobytes()
        return unpickled(raw, self.names(), self.storage, self.path)

    def names(self) -> dict[str, Function | Mark]:
        dtypes = STORAGES | UNTYPED
        names: dict[str, Function | Mark] = {f"torch.{n}": Mark(d) for n, d in dtypes.items()}
        untyped = Mark(None)
        return names | {
            "torch.storage.UntypedStorage": untyped,
            "torch.UntypedStorage": untyped,
            "collections.OrderedDict": Function(self.mapping),
            "torch.Size": Function(self.shape),
            "torch._utils._rebuild_tensor_v2": Function(self.tensor),
            "torch._utils._rebuild_tensor_v3": Function(self.tensor),
            "torch._utils._rebuild_parameter": Function(self.parameter),
        }

    def storage(self, identity: Any) -> _Storage:
        """Make a storage of its persistent id: ("storage", type, key, location, length)."""
        parts = identity if type(identity) is tuple and len(identity) == 5 else (None,) * 5
        kind, mark, key, _, length = parts
        if not (kind == "storage" and isinstance(mark, Mark) and type(key) is str):
            self.fail("not a storage", type(identity).__name__, "type, key and length")
        if type(length) is not int:
            self.fail("not a length", type(length).__name__, "an integer")
        name = f"{self.root}data/{key}"
        if name not in self.archive.members:
            self.fail("a storage is missing", shown(key), "a member of the archive")
        size = length * (1 if mark.value is None else mark.value.itemsize)
        found = self.archive.members[name].file_size
        if size != found:
            got = f"{found} bytes in storage {shown(key)}"
            self.fail("cut off or too long", got, f"{size}")
        if key not in self.raw:
            self.raw[key] = self.archive.read(name)
        return _Storage(key, mark.value)

    def view(self, key: str, dtype: np.dtype) -> np.ndarray:
        """The items of a storage as this machine orders their bytes, one array for all tensors."""
        found = self.items.get((key, dtype.name))
        if found is not None:
            return found
        raw = self.raw[key]
        if len(raw) % dtype.itemsize:
            self.fail("not a whole number of items", f"{len(raw)} bytes", f"{dtype.name} items")
        if self.order != sys.byteorder:
            width = dtype.itemsize // (2 if dtype.kind == "c" else 1)
            raw = raw.reshape(-1, width)[:, ::-1].reshape(-1)
        items = raw.view(dtype)
        check_booleans(items, "load", f"storage {key}", self.path)
        self.items[key, dtype.name] = items
        return items

    def mapping(self, *pairs: Any) -> dict[Any, Any]:
        if pairs:
            self.fail("a mapping is made of something", type(pairs[0]).__name__, "nothing")
        return {}

    def shape(self, *sizes: Any) -> tuple[int, ...]:
        return self.integers(sizes[0] if len(sizes) == 1 else None, "a shape")

    def integers(self, found: Any, role: str) -> tuple[int, ...]:
        if type(found) not in (tuple, list) or len(found) > _MAX_RANK:
            self.fail(f"not {role}", type(found).__name__, f"at most {_MAX_RANK} integers")
        if any(type(n) is not int or not 0 <= n <= _MAX_INTEGER for n in found):
            self.fail(f"not {role}", shown(str(found[:8])), f"integers from 0 to {_MAX_INTEGER}")
        return tuple(found)

    def tensor(self, *parts: Any) -> np.ndarray:
        """Make an array of (storage, offset, shape, strides, requires_grad, hooks[, dtype])."""
        if not 6 <= len(parts) <= 8 or not isinstance(parts[0], _Storage):
            self.fail("not a tensor", f"{len(parts)} parts", "a storage and how to read it")
        storage = parts[0]
        dtype = storage.dtype or self.untyped_dtype(parts[6:7])
        (offset,) = self.integers(parts[1:2], "an offset")
        shape, strides = self.integers(parts[2], "a shape"), self.integers(parts[3], "strides")
        items = self.view(storage.key, dtype)
        self.check_bounds(offset, shape, strides, items)
        if not math.prod(shape):
            return np.empty(shape, dtype)
        # The stride of an axis of one item means nothing and may be anything.
        steps = (0 if n == 1 else s * dtype.itemsize for n, s in zip(shape, strides, strict=True))
        start = offset * dtype.itemsize
        return np.ndarray(shape, dtype, items.view(np.uint8), start, tuple(steps))

    def untyped_dtype(self, found: tuple[Any, ...]) -> np.dtype:
        given = found[0].value if found and isinstance(found[0], Mark) else None
        fitting: list[np.dtype] = [dtype for dtype in UNTYPED.values() if dtype is given]
        if not fitting:
            self.fail("untyped bytes", f"{given}", f"one of {', '.join(UNTYPED)}")
        return fitting[0]

    def check_bounds(
        self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], items: np.ndarray
    ) -> None:
        if len(shape) != len(strides):
            self.fail("shape and strides differ", f"{len(strides)} strides", f"{len(shape)}")
        count = math.prod(shape)
        last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        if count and last >= len(items):
            expected = f"at most {len(items) - 1}"
            self.fail("a tensor reaches out of its storage", f"item {last}", expected)
        if math.prod(n for n in shape if n) * items.itemsize > _MAX_INTEGER:
            self.fail("the shape is too large", shown(str(shape)), f"{_MAX_INTEGER} bytes")
        self.total += count * items.itemsize
        check_expansion(self.total, self.archive.size, self.limit, self.path)

    def parameter(self, *parts: Any) -> np.ndarray:
        if len(parts) != 3 or not isinstance(parts[0], np.ndarray):
            self.fail("not a parameter", f"{len(parts)} parts", "a tensor and two facts")
        return parts[0]


def _check_format(path: Path) -> None:
    """Raise for the formats that came before the archive, which would need real unpickling."""
    with opened(path) as file:
        head = file.read(512) or b""
    if head[:4] == b"PK\x03\x04":
        return
    where, old = os.fspath(path), "a file from before PyTorch 1.6"
    is_old = head[:2] in (b"\x80\x02", b"\x80\x04") or head[257:262] == b"ustar"
    got = old if is_old else shown(head[:8])
    raise StoreError("load", "unsupported file format", got, "a zip archive", _RESAVE, where)
