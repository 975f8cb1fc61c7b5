"""Sets a machine may have: read where they are, checked, never fetched."""

from __future__ import annotations

import gzip
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.data import DataError, MissingDataError, MissingExtraError, known

HEAD = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3])


def idx(folder: Path, content: bytes, packed: bool = True) -> Path:
    path = folder / "file.gz"
    path.write_bytes(gzip.compress(content) if packed else content)
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_idx_files(tmp_path: Path, packed: bool) -> None:
    path = idx(tmp_path, HEAD + bytes(range(12)), packed)
    array = known.read_idx(path, (None, 2, 3))
    np.testing.assert_array_equal(array, np.arange(12, dtype=np.uint8).reshape(2, 2, 3))


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", r"wrong magic number in .* Got 0x\. Expected 0x00000803"),
        (b"\0\0\x08\x01" + HEAD[4:] + bytes(12), "wrong magic number in .* Got 0x00000801"),
        (HEAD[:9], "the header is cut off"),
        (HEAD + bytes(11), r"cut off.*Got 27 bytes. Expected 28 for sizes \(2, 2, 3\)"),
        (HEAD + bytes(13), "longer than it should be"),
        (HEAD[:12] + b"\xff\xff\xff\xff", r"wrong sizes.*Got \(2, 2, 4294967295\)"),
    ],
)
def test_hostile_idx_files(tmp_path: Path, content: bytes, match: str) -> None:
    for packed in (False, True):
        with pytest.raises(DataError, match=match):
            known.read_idx(idx(tmp_path, content, packed), (None, 2, 3))


def test_damaged_gzip(tmp_path: Path) -> None:
    whole = gzip.compress(HEAD + bytes(range(12)))
    flipped = whole[:-20] + bytes([whole[-20] ^ 255]) + whole[-19:]
    for content in (whole[:-9], whole[:20], flipped, whole[:-5] + b"\0" + whole[-4:]):
        with pytest.raises(DataError, match="damaged or cut off"):
            known.read_idx(idx(tmp_path, content, packed=False), (None, 2, 3))


def test_fashion_mnist_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "FASHION_MNIST", str(tmp_path / "none"))
    with pytest.raises(MissingDataError, match="Try folder=, or the package dataset-fashion-mnist"):
        known.fashion_mnist()
    with pytest.raises(MissingDataError, match=r"train-images-idx3-ubyte\.gz"):
        known.fashion_mnist(tmp_path)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(HEAD))
    with pytest.raises(DataError, match=r"wrong sizes.*Expected \(60000, 28, 28\)"):
        known.fashion_mnist(tmp_path)


@pytest.mark.skipif(not os.path.isdir(known.FASHION_MNIST), reason="needs dataset-fashion-mnist")
def test_fashion_mnist() -> None:
    train, test = known.fashion_mnist()
    assert (len(train), len(test)) == (60_000, 10_000)
    image, label = train[0]
    assert (image.shape, image.dtype, label.dtype) == ((28, 28), ruda.uint8, ruda.int64)
    assert known.FASHION_MNIST_CLASSES[label.item()] == "Ankle boot"
    assert np.bincount(test.arrays[1]).tolist() == [1000] * 10


def fake_sklearn(folder: Path, rows: Any) -> None:
    data = folder / "sklearn" / "datasets" / "data"
    data.mkdir(parents=True, exist_ok=True)
    (folder / "sklearn" / "__init__.py").write_text("raise ImportError('not to be imported')")
    text = "\n".join(",".join(map(str, row)) for row in rows) + "\n"
    (data / "digits.csv.gz").write_bytes(gzip.compress(text.encode()))


def test_digits_are_read_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    # A package that another test has imported is found without looking at the path.
    monkeypatch.delitem(sys.modules, "sklearn", raising=False)
    with pytest.raises(MissingExtraError, match=r"scikit-learn is not installed.*ruda\[examples\]"):
        known.digits()
    table = np.arange(1797 * 65).reshape(1797, 65) % 10
    fake_sklearn(tmp_path, table)
    importlib.invalidate_caches()
    data = known.digits()
    assert len(data) == 1797
    image, label = data[5]
    assert (image.shape, image.dtype, label.dtype) == ((8, 8), ruda.uint8, ruda.int64)
    assert [*image.numpy().ravel().tolist(), label.item()] == table[5].tolist()
    for wrong, match in (
        (table[:, :-1], "not the table"),
        (table[:-1], "not the table"),
        (table + 10, "values outside of 0 to 16"),
        ([[1, 2], [3]], "not a table of numbers"),
        ([["x"]], "not a table of numbers"),
    ):
        fake_sklearn(tmp_path, wrong)
        with pytest.raises(DataError, match=match):
            known.digits()


@pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="needs scikit-learn")
def test_digits() -> None:
    data = known.digits()
    assert data[0][1].item() == 0
    counts = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert np.bincount(data.arrays[1]).tolist() == counts
