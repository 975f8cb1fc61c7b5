"""Datasets in files: their contents, and what they say of hostile ones."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ruda
from ruda.core.errors import ArgumentError, ShapeError
from ruda.data import (
    CsvDataset,
    DataError,
    DataLoader,
    ImageFolder,
    JsonlDataset,
    MappedDataset,
    MissingDataError,
    TextDataset,
    TokenDataset,
    lines,
)
from ruda.data.lines import LineIndex


def write(folder: Path, content: bytes | str, name: str = "data") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_mapped_arrays(tmp_path: Path, rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((5, 3)).astype(np.float32), np.arange(5, dtype=np.uint8)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    data = MappedDataset(tmp_path / "x.npy", tmp_path / "y.npy")
    np.testing.assert_array_equal(data[-1][0].numpy(), x[4])
    again = pickle.loads(pickle.dumps(data))
    assert len(pickle.dumps(data)) < 1000
    images, labels = next(iter(DataLoader(again, 5, shuffle=True, num_workers=2)))
    np.testing.assert_array_equal(images.numpy(), x[labels.numpy()])
    images += 1
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), x)


def test_tokens(tmp_path: Path) -> None:
    path = write(tmp_path, np.arange(11, dtype="<u2").tobytes())
    data = TokenDataset(path, "uint16", 4)
    assert len(data) == 2 and data[1].dtype is ruda.uint16
    again = pickle.loads(pickle.dumps(TokenDataset(path, np.uint16, 4, stride=3)))
    assert again.batch([0, 2]).tolist() == [[0, 1, 2, 3], [6, 7, 8, 9]]
    assert len(TokenDataset(write(tmp_path, b"", "empty"), np.uint16, 4)) == 0


def npy(folder: Path, array: Any) -> Path:
    np.save(folder / "a.npy", array)
    return folder / "a.npy"


@pytest.mark.parametrize("cut", [0, 3, 9, 50, 130, 167])
def test_cut_arrays(tmp_path: Path, cut: int) -> None:
    whole = npy(tmp_path, np.arange(5)).read_bytes()
    assert len(whole) == 168
    with pytest.raises(DataError, match=r"no whole \.npy file") as found:
        MappedDataset(write(tmp_path, whole[:cut]))
    assert found.value.path == str(tmp_path / "data")


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda folder: MappedDataset(), ArgumentError, "there are no files"),
        (lambda folder: MappedDataset(folder / "no"), MissingDataError, "no such file.*no'"),
        (lambda folder: MappedDataset(npy(folder, np.ones(()))), DataError, "not rows of numbers"),
        (lambda folder: MappedDataset(npy(folder, np.array(["a"]))), DataError, "not rows of num"),
        (
            lambda folder: MappedDataset(npy(folder, np.array([{}], object))),
            DataError,
            "no whole .npy file of numbers",
        ),
        (
            lambda folder: TokenDataset(write(folder, b"abc"), "uint16", 2),
            DataError,
            "ends inside of a number in .* Got 3 bytes of uint16",
        ),
        (lambda folder: TokenDataset(folder / "no", "uint16", 2), MissingDataError, "no such"),
        (lambda folder: TokenDataset("x", "uint16", 0), ArgumentError, "size or stride"),
        (lambda folder: TokenDataset("x", "U3", 1), ArgumentError, "not a dtype of numbers"),
        (lambda folder: TextDataset(folder / "no"), FileNotFoundError, "TextDataset: no such"),
        (lambda folder: TextDataset(folder), DataError, "a folder, not a file"),
        (lambda folder: CsvDataset(folder / "no"), MissingDataError, "no such file"),
        (lambda folder: CsvDataset(folder), DataError, "a folder, not a file"),
        (lambda folder: ImageFolder(folder / "no"), MissingDataError, "no such file or folder"),
        (lambda folder: ImageFolder(folder), DataError, "there are no images"),
        (lambda folder: ImageFolder(folder, mode="CMYK"), ArgumentError, "unknown mode"),
    ],
)
def test_errors(tmp_path: Path, call: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call(tmp_path)


def test_lengths_must_agree(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(2))
    with pytest.raises(ShapeError, match=r"the lengths differ. Got \[2, 3\]"):
        MappedDataset(tmp_path / "x.npy", npy(tmp_path, np.ones(3)))


LINES = st.lists(st.text(st.characters(exclude_characters="\r\n"), max_size=6), max_size=9)


@settings(deadline=None)
@given(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_lines(tmp_path_factory: Any, texts: list[str], end: str, closed: bool) -> None:
    folder = tmp_path_factory.mktemp("lines")
    content = "".join(text + end for text in texts)
    data = TextDataset(write(folder, content if closed or not texts else content + "rest"))
    assert list(data) == (texts if closed or not texts else [*texts, "rest"])


def test_lines_are_read_by_workers(tmp_path: Path) -> None:
    path = write(tmp_path, "".join(f'{{"n": {n}}}\n' for n in range(40)))
    for mode in ({"num_workers": 3}, {"num_workers": 1, "processes": True}):
        loader = DataLoader(JsonlDataset(path, index=True), 7, **mode)
        assert [n for batch in loader for n in batch["n"].tolist()] == list(range(40))


def test_an_index_is_kept_and_extended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "one\ntwo\nthr")
    assert list(TextDataset(path, index=True)) == ["one", "two", "thr"]
    saved = Path(f"{path}.index")
    first = saved.read_bytes()
    read: list[int] = []
    monkeypatch.setattr(lines.np, "flatnonzero", lambda a: read.append(len(a)) or a.nonzero()[0])
    assert len(TextDataset(path, index=True)) == 3
    assert read == [3] and saved.read_bytes() == first
    with path.open("a") as file:
        file.write("ee\nfour\n")
    assert list(TextDataset(path, index=True)) == ["one", "two", "three", "four"]
    assert read == [3, len("three\nfour\n")]


def test_an_interrupted_scan_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(write(tmp_path, b"ab\n" * 100))
    saved = str(tmp_path / "index")
    monkeypatch.setattr(lines, "_CHUNK", 30)
    scanned: list[int] = []

    def scan(chunk: Any) -> Any:
        scanned.append(len(chunk))
        if len(scanned) == 8:
            raise KeyboardInterrupt
        return chunk.nonzero()[0]

    monkeypatch.setattr(lines.np, "flatnonzero", scan)
    with pytest.raises(KeyboardInterrupt):
        LineIndex(path, saved, save_every=60)
    index = LineIndex(path, saved, save_every=60)
    assert index.ends.tolist() == list(range(3, 301, 3))
    # Seven chunks were read, of which six were saved; the eighth call ended the first scan.
    assert len(scanned) == 8 + 4


@pytest.mark.parametrize("change", ["rewritten", "shorter", "garbage", "cut", "flipped"])
def test_an_index_of_something_else_is_made_anew(tmp_path: Path, change: str) -> None:
    path = write(tmp_path, "one\ntwo\nthree\n")
    TextDataset(path, index=True)
    saved = Path(f"{path}.index")
    data = saved.read_bytes()
    if change == "rewritten":
        write(tmp_path, "o\nne\ntwothree\n")
        os.utime(path, ns=(1, 1))
    elif change == "shorter":
        write(tmp_path, "one\n")
    else:
        flipped = data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]
        saved.write_bytes({"garbage": b"\xff{}\n", "cut": data[:-5], "flipped": flipped}[change])
    assert list(TextDataset(path, index=True)) == path.read_text().splitlines()
    assert list(TextDataset(path, index=True)) == path.read_text().splitlines()


def test_text_says_which_line_is_not_text(tmp_path: Path) -> None:
    data = TextDataset(write(tmp_path, b"good\nb\xffd\n"))
    assert data[0] == "good"
    with pytest.raises(
        DataError, match=r"not utf-8 at byte 1 of the line in '.*', line 2"
    ) as found:
        data[1]
    assert found.value.line == 2
    assert str(pickle.loads(pickle.dumps(found.value))) == str(found.value)
    latin = TextDataset(write(tmp_path, b"b\xe4r\n"), encoding="latin-1")
    assert latin[0] == "bär"


def test_a_line_may_be_too_long_and_a_file_may_shrink(tmp_path: Path) -> None:
    path = write(tmp_path, "x" * 50 + "\nshort\n")
    data = TextDataset(path, longest=20)
    with pytest.raises(DataError, match=r"too long in '.*', line 1. Got 51 bytes"):
        data[0]
    os.truncate(path, 53)
    with pytest.raises(DataError, match="the file became shorter since it was opened"):
        data[1]


@pytest.mark.parametrize(
    "line",
    ["", "{", '{"a": 1', "[1] 2", "NaN", "'a'", "[" * 100_000, "1" * 5000, '"\ttab"'],
)
def test_bad_json_lines(tmp_path: Path, line: str) -> None:
    data = JsonlDataset(write(tmp_path, f'{{"a": 1}}\n{line}\n[2]\n'))
    assert (data[0], data[2]) == ({"a": 1}, [2])
    with pytest.raises(DataError, match=r"not a JSON value \(.*\) in '.*', line 2") as found:
        data[1]
    assert len(str(found.value)) < 500


@given(st.lists(st.recursive(st.integers() | st.text() | st.none(), st.lists, max_leaves=5)))
@settings(deadline=None, max_examples=30)
def test_json_values(tmp_path_factory: Any, values: list[Any]) -> None:
    content = "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)
    assert list(JsonlDataset(write(tmp_path_factory.mktemp("json"), content))) == values


def test_csv(tmp_path: Path) -> None:
    text = '\ufeffid,size,name\n1,2.5,"ox, ""big"""\n\n2,-3e2,"two\nlines"\n'
    data = CsvDataset(write(tmp_path, text))
    assert data[0] == {"id": 1, "size": 2.5, "name": 'ox, "big"'}
    batch = next(iter(DataLoader(data, 2)))
    assert batch["id"].dtype is ruda.int64 and batch["id"].tolist() == [1, 2]
    assert batch["size"].dtype is ruda.float64
    assert batch["name"] == ['ox, "big"', "two\nlines"]
    some = CsvDataset(
        tmp_path / "data", columns=["size", "id"], types={"size": "float32", "id": str}
    )
    assert list(some[1]) == ["size", "id"] and some[1]["id"] == "2"
    assert some.batch(np.array([1]))["size"].dtype is ruda.float32
    plain = CsvDataset(write(tmp_path, "1;2\n3;4\n"), header=["a", "b"], delimiter=";")
    assert [row["b"] for row in plain] == [2, 4]
    assert len(CsvDataset(write(tmp_path, "a,b\n"))) == 0


@pytest.mark.parametrize(
    ("text", "settings", "match"),
    [
        ("", {}, "there is no row of names"),
        ("a,b\n1,2\n1\n", {}, "another length in '.*', line 3. Got 1 cells. Expected 2"),
        ("a,b\n1,2,3\n", {}, "another length in '.*', line 2. Got 3 cells"),
        ("a,a\n", {}, r"two columns have one name in '.*', line 1. Got \['a'\]"),
        ('a\n"open\n', {}, "not comma-separated values .* line 2"),
        ('a\n"x"y\n', {}, "not comma-separated values .* line 2"),
        (b"a\n\xff\n", {}, "not utf-8 at byte 0 of the line in '.*', line 2"),
        (
            "a\n1\nx\n",
            {"types": {"a": "int32"}},
            "a cell of column 'a' is no int32.*line 3. Got 'x'",
        ),
        ("a\n300\n", {"types": {"a": "uint8"}}, "a cell of column 'a' is no uint8.*line 2"),
        ("a\n" + "x" * 200_000 + "\n", {}, "not comma-separated values .*field larger"),
    ],
)
def test_hostile_csv(
    tmp_path: Path, text: bytes | str, settings: dict[str, Any], match: str
) -> None:
    with pytest.raises(DataError, match=match):
        CsvDataset(write(tmp_path, text), **settings)


def test_columns_must_be_there(tmp_path: Path) -> None:
    path = write(tmp_path, "a\n1\n")
    for choice in ({"columns": ["b"]}, {"types": {"b": int}}):
        with pytest.raises(ArgumentError, match=r"no such column. Got 'b'. Expected \['a'\]"):
            CsvDataset(path, **choice)


def test_images(tmp_path: Path) -> None:
    images = pytest.importorskip("PIL.Image")
    for label, name in enumerate(("cat", "dog")):
        (tmp_path / name / "deep").mkdir(parents=True)
        for i in range(2):
            pixels = np.full((4, 6, 3), 100 * label + i, np.uint8)
            images.fromarray(pixels).save(tmp_path / name / "deep" / f"{i}.PNG")
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    data = ImageFolder(tmp_path)
    assert data.classes == ["cat", "dog"] and len(data) == 4
    image, label = data[3]
    assert (image.shape, image.dtype, label) == ((3, 4, 6), ruda.uint8, 1)
    assert image[0, 0, 0].item() == 101
    small = ImageFolder(tmp_path, mode="L", size=(2, 5))
    batch, labels = next(iter(DataLoader(small, 4, num_workers=2)))
    assert batch.shape == (4, 1, 2, 5) and labels.tolist() == [0, 0, 1, 1]
    assert ImageFolder(tmp_path, classes=["dog"])[0][1] == 0
    with pytest.raises(DataError, match=r"the image is too large.*Got 6 × 4 pixels"):
        ImageFolder(tmp_path, largest=20)[0]
    with pytest.raises(MissingDataError, match="cow"):
        ImageFolder(tmp_path, classes=["cow"])


def test_damaged_images(tmp_path: Path, rng: np.random.Generator) -> None:
    images = pytest.importorskip("PIL.Image")
    (tmp_path / "a").mkdir()
    path = tmp_path / "a" / "x.png"
    images.fromarray(rng.integers(0, 255, (20, 20, 3), np.uint8)).save(path)
    data, whole = ImageFolder(tmp_path), path.read_bytes()
    for content in (b"", b"hello", whole[:20], whole[:600]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"cannot be decoded .* in '.*x.png'"):
            data[0]
    path.unlink()
    with pytest.raises(MissingDataError, match=r"x\.png"):
        data[0]
