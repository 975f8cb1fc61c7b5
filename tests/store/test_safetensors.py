from __future__ import annotations

import gc
import os
import pickle

import ml_dtypes
import numpy as np
import pytest

from ruda.core.errors import RudaError, StoreError
from ruda.store.errors import MissingFileError
from ruda.store.header import DTYPES
from ruda.store.safetensors import load_arrays, open_file, read_header, save_arrays

SHAPES = [(), (0,), (1,), (7,), (3, 0, 2), (2, 3), (1, 1, 5), (2,) * 9, (1,) * 64]


def sample(dtype: np.dtype, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Random bits, so NaN payloads, infinities and subnormals are among the values."""
    count = int(np.prod(shape, dtype=np.int64))
    bits = np.random.default_rng(seed).integers(0, 256, count * dtype.itemsize, np.uint8)
    return (bits % 2 if dtype == np.bool_ else bits).view(dtype).reshape(shape)


def assert_same(actual: np.ndarray, expected: np.ndarray) -> None:
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    assert actual.tobytes() == expected.tobytes()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("code", DTYPES)
def test_round_trip(path, code):
    arrays = {str(shape): sample(DTYPES[code], shape, i) for i, shape in enumerate(SHAPES)}
    save_arrays(path, arrays, {"format": "pt", "ключ": 'värde \n\0\\"'})
    loaded, metadata = load_arrays(path)
    assert metadata == {"format": "pt", "ключ": 'värde \n\0\\"'}
    assert loaded.keys() == arrays.keys()
    header = read_header(path)
    with open_file(path) as lazy:
        for name, array in arrays.items():
            assert_same(loaded[name], array)
            assert_same(lazy[name], array)
            assert header.tensors[name].dtype == code
            assert header.tensors[name].shape == array.shape


@pytest.mark.parametrize("code", DTYPES)
def test_reference_reads_and_writes_the_same(path, code):
    reference = pytest.importorskip("safetensors")
    written = pytest.importorskip("safetensors.numpy")
    shapes = [shape for shape in SHAPES if len(shape) < 10]
    arrays = {f"t{i}": sample(DTYPES[code], shape, i) for i, shape in enumerate(shapes)}
    save_arrays(path, arrays, {"a": "b"})
    theirs = dict(reference.deserialize(path.read_bytes()))
    assert theirs.keys() == arrays.keys()
    for name, array in arrays.items():
        assert theirs[name]["dtype"] == code
        assert tuple(theirs[name]["shape"]) == array.shape
        assert bytes(theirs[name]["data"]) == array.tobytes()
    path.write_bytes(written.save(arrays, {"a": "b"}))
    loaded, metadata = load_arrays(path)
    assert metadata == {"a": "b"}
    for name, array in arrays.items():
        assert_same(loaded[name], array)


def test_bytes_equal_the_reference_for_mixed_dtypes(path):
    written = pytest.importorskip("safetensors.numpy")
    arrays = {
        "b": np.zeros(3, np.uint8),
        "a": np.arange(2, dtype=np.float32),
        "c": np.array(3.0),
        "z": np.zeros((0, 3), np.float32),
        "h": np.ones(5, ml_dtypes.bfloat16),
    }
    save_arrays(path, arrays, {"k": "v"})
    assert path.read_bytes() == written.save(arrays, {"k": "v"})


def test_empty_file_and_names_with_path_parts(path, tmp_path):
    save_arrays(path, {})
    assert load_arrays(path) == ({}, {})
    names = [
        "",
        "../up",
        "/etc/passwd",
        "a/b",
        "日本",
        "\U0001f600",
        "nul\0",
        '"',
        "{",
        "__metadata",
    ]
    save_arrays(path, {name: np.array(i) for i, name in enumerate(names)})
    loaded, _ = load_arrays(str(path))
    assert {name: int(array) for name, array in loaded.items()} == dict(zip(names, range(10)))
    assert os.listdir(tmp_path) == [path.name]


def test_every_layout_and_byte_order_is_stored_in_order(path):
    base = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    arrays = {
        "transposed": base.T,
        "reversed": base[:, ::-1],
        "every other": np.arange(9, dtype=np.float32)[::2],
        "expanded": np.broadcast_to(base[0, 0], (5, 4)),
        "fortran": np.asfortranarray(base),
        "big endian": base.astype(">f4"),
        "shared": base,
        "shared again": base,
    }
    base.flags.writeable = False
    save_arrays(path, arrays)
    loaded, _ = load_arrays(path)
    for name, array in arrays.items():
        assert_same(loaded[name], np.ascontiguousarray(array, dtype="<f4"))
    assert not np.shares_memory(loaded["shared"], loaded["shared again"])
    assert all(array.flags.writeable and array.flags.aligned for array in loaded.values())


def test_data_is_aligned_whatever_the_names(path):
    for length in range(9):
        arrays = {"n" * length + str(i): np.ones(3, DTYPES[c]) for i, c in enumerate(DTYPES)}
        save_arrays(path, arrays)
        header = read_header(path)
        assert header.data_start % 8 == 0
        for entry in header.tensors.values():
            assert entry.start % DTYPES[entry.dtype].itemsize == 0


def test_mapped_arrays_are_read_only_views_that_outlive_the_file(path):
    array = np.arange(1000, dtype=np.int64)
    save_arrays(path, {"x": array, "y": array})
    with open_file(path) as lazy:
        view = lazy["x"]
        assert not view.flags.owndata
        assert not view.flags.writeable
        assert (len(lazy), list(lazy), "x" in lazy, "q" in lazy) == (2, ["x", "y"], True, False)
        assert lazy.get("q") is None
        assert "2 tensors, open" in repr(lazy)
    with pytest.raises(StoreError, match="closed"):
        lazy["y"]
    gc.collect()
    assert_same(view, array)


def test_a_file_may_be_saved_over_while_it_is_mapped(path):
    save_arrays(path, {"x": np.arange(5000)})
    with open_file(path) as lazy:
        save_arrays(path, lazy, {"saved": "over"})
        assert_same(lazy["x"], np.arange(5000))
    loaded, metadata = load_arrays(path)
    assert_same(loaded["x"], np.arange(5000))
    assert metadata == {"saved": "over"}


def test_unaligned_tensors_of_other_writers_are_copied(path):
    head = b'{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    head += b" " * ((3 - len(head)) % 4)
    values = np.array([1.5, -2], np.float32)
    path.write_bytes(len(head).to_bytes(8, "little") + head + values.tobytes())
    with open_file(path) as lazy:
        assert lazy["x"].flags.aligned
        assert not lazy["x"].flags.writeable
        assert_same(lazy["x"], values)
    assert_same(load_arrays(path)[0]["x"], values)


def test_the_header_may_list_tensors_in_another_order_than_the_data(path):
    head = b"""{"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},
                "a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"""
    path.write_bytes(len(head).to_bytes(8, "little") + head + b"\1\2\3")
    loaded, _ = load_arrays(path)
    assert {name: array.tolist() for name, array in loaded.items()} == {"b": [2, 3], "a": [1]}
    assert list(loaded) == ["b", "a"]


@pytest.mark.parametrize(
    ("arrays", "metadata", "words"),
    [
        ({1: np.zeros(2)}, None, "wrong tensor name"),
        ({"\ud800": np.zeros(2)}, None, "wrong tensor name"),
        ({"__metadata__": np.zeros(2)}, None, "reserved name"),
        ({"x": np.float64(1)}, None, "Got float64. Expected an ndarray"),
        ({"x": [1.0, 2.0]}, None, "Got list. Expected an ndarray"),
        ({"x": np.ma.masked_array([1.0], [True])}, None, "Got MaskedArray"),
        ({"x": np.zeros(2, np.complex128)}, None, "Got complex128. Expected one of bool"),
        ({"x": np.array(["a"])}, None, "Got <U1"),
        ({"x": np.array([None])}, None, "Got object"),
        ({"x": np.zeros(2, ml_dtypes.int4)}, None, "Got int4"),
        ({"x": np.array([0, 2], np.uint8).view(np.bool_)}, None, "not booleans"),
        ({}, {"step": 3}, "wrong metadata"),
        ({}, {3: "step"}, "wrong metadata"),
        ({}, {"step": "\udfff"}, "wrong metadata"),
    ],
)
def test_what_cannot_be_stored_is_refused_before_writing(path, arrays, metadata, words):
    path.write_bytes(b"before")
    with pytest.raises(StoreError, match=words) as caught:
        save_arrays(path, arrays, metadata)
    assert str(caught.value).startswith("save: ")
    assert caught.value.path == str(path)
    assert path.read_bytes() == b"before"
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("read", [read_header, load_arrays, open_file])
def test_paths_that_are_no_file(tmp_path, read):
    with pytest.raises(MissingFileError, match=r"load: no such file as .*Try checking") as caught:
        read(tmp_path / "none")
    assert isinstance(caught.value, FileNotFoundError | ValueError | RudaError)
    assert caught.value.filename == caught.value.path == str(tmp_path / "none")
    with pytest.raises(StoreError, match="Got a folder"):
        read(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="pipe or device"):
        read(tmp_path / "pipe")
    with pytest.raises(StoreError, match="pipe or device"):
        read("/dev/zero")
    with pytest.raises(TypeError):
        read(0)


def test_errors_pass_through_pickle(path):
    path.write_bytes(b"\2\0\0\0\0\0\0\0[]")
    for where in (path, path.with_name("none")):
        with pytest.raises(StoreError) as caught:
            load_arrays(where)
        copy = pickle.loads(pickle.dumps(caught.value))
        assert type(copy) is type(caught.value)
        assert str(copy) == str(caught.value)
        assert copy.path == str(where)


def test_a_file_that_shrinks_after_opening_raises(path):
    save_arrays(path, {"x": np.arange(10_000), "y": np.zeros(3, np.uint8)})
    with open_file(path) as lazy:
        os.truncate(path, 4096)
        with pytest.raises(StoreError, match="became shorter"):
            lazy["x"]
        with pytest.raises(StoreError, match="became shorter"):
            lazy["y"]


def test_a_file_that_shrinks_while_it_is_read_raises(path, monkeypatch):
    save_arrays(path, {"x": np.arange(10_000)})
    header = read_header(path)

    def parse_and_shrink(*_):
        os.truncate(path, 4096)
        return header

    monkeypatch.setattr("ruda.store.safetensors.parse_header", parse_and_shrink)
    with pytest.raises(StoreError, match="became shorter"):
        load_arrays(path)


def test_a_file_that_shrinks_before_it_is_mapped_raises(path, monkeypatch):
    save_arrays(path, {"x": np.arange(10_000)})
    header = read_header(path)

    def parse_and_shrink(*_):
        os.truncate(path, 4096)
        return header

    monkeypatch.setattr("ruda.store.safetensors.parse_header", parse_and_shrink)
    with pytest.raises(StoreError, match="became shorter"):
        open_file(path)


def test_open_files_leave_no_descriptors(path):
    save_arrays(path, {"x": np.arange(10)})
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        with open_file(path) as lazy:
            assert lazy["x"][3] == 3
        with pytest.raises(StoreError):
            load_arrays(path.parent)
    assert len(os.listdir("/proc/self/fd")) == before
