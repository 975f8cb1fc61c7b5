"""Arrays in files, mapped into memory: read where they are touched, shared between workers."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ruda.core.errors import ArgumentError, ShapeError
from ruda.data.dataset import place
from ruda.data.errors import DataError, MissingDataError
from ruda.tensor.tensor import RudaTensor, from_array


class MappedDataset:
    """``.npy`` files of one length; sample i is the tuple of their rows i, as tensors.

    Rows are read from disk when they are asked for. A pickled copy opens the files anew, so that
    worker processes share the system's one cache of them. Files must not change meanwhile.

    Raises ``DataError`` for a file that is no ``.npy`` file of numbers or is cut off.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "x.npy")
    ...     np.save(path, np.arange(6).reshape(3, 2))
    ...     MappedDataset(path)[1][0].tolist()
    [2, 3]
    """

    def __init__(self, *paths: str | os.PathLike[str]) -> None:
        if not paths:
            raise ArgumentError("MappedDataset", "there are no files")
        self.paths = tuple(os.path.abspath(os.fspath(path)) for path in paths)
        self.arrays = tuple(_mapped(path) for path in self.paths)
        lengths = [len(a) for a in self.arrays]
        if len(set(lengths)) != 1:
            raise ShapeError("MappedDataset", "the lengths differ", lengths)

    def __repr__(self) -> str:
        return f"MappedDataset({', '.join(map(repr, self.paths))})"

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, index: int) -> tuple[RudaTensor, ...]:
        i = place(index, len(self), "MappedDataset")
        return tuple(from_array(np.array(a[i]), "cpu") for a in self.arrays)

    def batch(self, indices: Any) -> tuple[RudaTensor, ...]:
        """The rows ``indices`` of each file, stacked."""
        return tuple(from_array(np.asarray(a[indices]), "cpu") for a in self.arrays)

    def __reduce__(self) -> Any:
        return MappedDataset, self.paths


class TokenDataset:
    """A file of nothing but numbers of one dtype, such as token ids, cut into blocks.

    Sample i is the tensor of ``size`` numbers from ``i * stride`` on, ``stride`` being ``size``
    unless given; a rest too short is left out. Language models train on blocks of context + 1 with
    a stride of context. Numbers are little-endian. Raises ``DataError`` for a file that ends in the
    middle of a number.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "tokens.bin")
    ...     _ = path.write_bytes(np.arange(10, dtype="<u2").tobytes())
    ...     [block.tolist() for block in TokenDataset(path, "uint16", 4, stride=3)]
    [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
    """

    def __init__(
        self, path: str | os.PathLike[str], dtype: Any, size: int, stride: int | None = None
    ) -> None:
        self.path = os.path.abspath(os.fspath(path))
        self.dtype = np.dtype(dtype)
        self.size = size
        self.stride = size if stride is None else stride
        if self.dtype.kind not in "iufb":
            raise ArgumentError("TokenDataset", "not a dtype of numbers", self.dtype)
        if self.size < 1 or self.stride < 1:
            got = f"size={size}, stride={stride}"
            raise ArgumentError("TokenDataset", "size or stride is too small", got, "at least 1")
        self.tokens = _numbers(self.path, self.dtype)

    def __repr__(self) -> str:
        return f"TokenDataset({self.path!r})"

    def __len__(self) -> int:
        return max(len(self.tokens) - self.size, -1) // self.stride + 1

    def __getitem__(self, index: int) -> RudaTensor:
        start = place(index, len(self), "TokenDataset") * self.stride
        block = self.tokens[start : start + self.size]
        return from_array(np.array(block, self.dtype.newbyteorder("=")), "cpu")

    def batch(self, indices: Any) -> RudaTensor:
        """The blocks ``indices``, stacked."""
        places = np.asarray(indices)[:, None] * self.stride + np.arange(self.size)
        return from_array(self.tokens[places].astype(self.dtype.newbyteorder("=")), "cpu")

    def __reduce__(self) -> Any:
        return TokenDataset, (self.path, self.dtype, self.size, self.stride)


def _mapped(path: str) -> Any:
    op = "MappedDataset"
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise MissingDataError(op, path) from error
    except (ValueError, EOFError, SyntaxError, TypeError, OverflowError) as error:
        raise DataError(op, f"no whole .npy file of numbers ({error})", path=path) from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise DataError(op, "an archive, not one array", path=path, hint="ruda.load")
    if array.ndim == 0 or array.dtype.kind not in "biufc":
        got = f"{array.dtype} {array.shape}"
        raise DataError(op, "not rows of numbers", got, path=path)
    return array


def _numbers(path: str, dtype: Any) -> Any:
    op = "TokenDataset"
    try:
        length = os.path.getsize(path)
        if length % dtype.itemsize:
            what, got = "the file ends inside of a number", f"{length} bytes of {dtype}"
            raise DataError(op, what, got, path=path)
        # An empty file cannot be mapped.
        little = dtype.newbyteorder("<")
        return np.memmap(path, little, "r") if length else np.zeros(0, little)
    except FileNotFoundError as error:
        raise MissingDataError(op, path) from error
