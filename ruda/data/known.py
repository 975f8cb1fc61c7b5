"""Well-known sets of small images that a machine may already have; nothing is ever downloaded."""

from __future__ import annotations

import gzip
import importlib.util
import math
import os
import zlib
from typing import Any

import numpy as np

from ruda.data.dataset import ArrayDataset
from ruda.data.errors import DataError, MissingDataError, MissingExtraError

FASHION_MNIST = "/usr/share/datasets/fashion-mnist"
FASHION_MNIST_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

_DIGITS = 1797


def digits() -> ArrayDataset:
    """1,797 handwritten digits, as scikit-learn installs them.

    Samples are an image, uint8 ``[8, 8]`` from 0 to 16, and a label, int64. scikit-learn is not
    imported, only its file read. Raises ``MissingExtraError`` without it, ``DataError`` for a file
    that is not this table.
    """
    path = _installed("sklearn", "datasets/data/digits.csv.gz")
    if path is None:
        raise MissingExtraError("digits", "scikit-learn")
    # 65 numbers of at most two digits a line.
    text = _unpacked("digits", path, _DIGITS * 65 * 5)
    try:
        table = np.array([line.split(b",") for line in text.split()]).astype(float)
    except ValueError as error:
        raise DataError("digits", "not a table of numbers", path=path) from error
    if table.shape != (_DIGITS, 65):
        raise DataError("digits", "not the table", table.shape, (_DIGITS, 65), path=path)
    images, labels = table[:, :-1], table[:, -1]
    if not (_within(images, 16) and _within(labels, 9)):
        raise DataError("digits", "values outside of 0 to 16, or labels of 0 to 9", path=path)
    return ArrayDataset(images.reshape(-1, 8, 8).astype(np.uint8), labels.astype(np.int64))


def fashion_mnist(
    folder: str | os.PathLike[str] | None = None,
) -> tuple[ArrayDataset, ArrayDataset]:
    """60,000 and 10,000 pictures of clothes, to train on and to test on.

    Samples are an image, uint8 ``[28, 28]``, and a label, int64, of ``FASHION_MNIST_CLASSES``
    (Xiao, Rasul, Vollgraf, "Fashion-MNIST", 2017). ``folder`` has the four files
    ``train-images-idx3-ubyte.gz`` and so on; without one it is where Debian's package
    dataset-fashion-mnist puts them. Raises ``MissingDataError`` for a file that is not there and
    ``DataError`` for one that is damaged. Files of the original MNIST are read as well.
    """
    root = os.fspath(FASHION_MNIST if folder is None else folder)
    if not os.path.isdir(root):
        hint = "folder=, or the package dataset-fashion-mnist of Debian"
        raise MissingDataError("fashion_mnist", root, hint)
    return _part(root, "train", 60_000), _part(root, "t10k", 10_000)


def read_idx(path: str | os.PathLike[str], shape: tuple[int | None, ...]) -> Any:
    """The bytes of an idx file, gzipped or not, as a uint8 ndarray of ``shape``; None is any size.

    Raises ``DataError`` unless magic number, sizes and length are what the format promises.
    """
    name = os.fspath(path)
    head = 4 + 4 * len(shape)
    start = _unpacked("read_idx", name, head, cut=True)
    if start[:4] != bytes([0, 0, 8, len(shape)]):
        expected = f"0x0000080{len(shape)}, bytes in {len(shape)} axes"
        raise DataError(
            "read_idx", "wrong magic number", f"0x{start[:4].hex()}", expected, path=name
        )
    if len(start) < head:
        raise DataError("read_idx", "the header is cut off", f"{len(start)} bytes", head, path=name)
    sizes = tuple(int(n) for n in np.frombuffer(start, ">u4", len(shape), 4))
    if any(wanted not in (None, size) for wanted, size in zip(shape, sizes, strict=True)):
        raise DataError("read_idx", "wrong sizes", sizes, shape, path=name)
    data = _unpacked("read_idx", name, head + math.prod(sizes))
    if len(data) != head + math.prod(sizes):
        what, expected = "the file is cut off", f"{head + math.prod(sizes)} for sizes {sizes}"
        raise DataError("read_idx", what, f"{len(data)} bytes", expected, path=name)
    return np.frombuffer(data, np.uint8, offset=head).reshape(sizes)


def _part(root: str, name: str, count: int) -> ArrayDataset:
    images = read_idx(os.path.join(root, f"{name}-images-idx3-ubyte.gz"), (count, 28, 28))
    path = os.path.join(root, f"{name}-labels-idx1-ubyte.gz")
    labels = read_idx(path, (count,))
    if not _within(labels, 9):
        raise DataError("fashion_mnist", "a label is too large", int(labels.max()), 9, path=path)
    return ArrayDataset(images, labels.astype(np.int64))


def _unpacked(op: str, path: str, most: int, *, cut: bool = False) -> bytes:
    """Up to ``most`` bytes of a file; more than that is an error, unless they are to be ``cut``."""
    try:
        with open(path, "rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            source: Any = gzip.GzipFile(fileobj=raw) if packed else raw
            data: bytes = source.read(most if cut else most + 1)
    except FileNotFoundError as error:
        raise MissingDataError(op, path) from error
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(op, f"damaged or cut off ({error})", path=path) from error
    if len(data) > most and not cut:
        raise DataError(op, "longer than it should be", expected=f"at most {most} bytes", path=path)
    return data


def _installed(package: str, name: str) -> str | None:
    # Looking for a top-level package does not import it.
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return path
    return None


def _within(values: Any, largest: int) -> bool:
    return bool(((values >= 0) & (values <= largest)).all())
