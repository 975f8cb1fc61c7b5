"""NumPy's files, written and read, and everything a hostile one may try."""

from __future__ import annotations

import io
import os
import struct
import tracemalloc
import zipfile

import ml_dtypes
import numpy as np
import pytest

import ruda
from ruda.core.errors import StoreError
from ruda.store import MissingFileError, load_npy, load_npz, save_npy, save_npz
from tests.store.mutations import COUNTS, mutated

NUMBERS = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
FOREIGN = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn"]
DTYPES = [np.dtype(code) for code in NUMBERS] + [np.dtype(getattr(ml_dtypes, n)) for n in FOREIGN]
SHAPES = [(), (0,), (5,), (3, 0, 2), (2, 3), (1,) * 64]


def sample(dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    count = int(np.prod(shape, dtype=np.int64))
    bits = np.random.default_rng(0).integers(0, 256, count * dtype.itemsize, np.uint8)
    return (bits % 2 if dtype == np.bool_ else bits).view(dtype).reshape(shape)


def assert_same(actual: np.ndarray, expected: np.ndarray) -> None:
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    assert actual.tobytes() == expected.tobytes()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "arrays.npz"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_round_trip(path, tmp_path, dtype):
    arrays = {f"layer/{i}.w": sample(dtype, shape) for i, shape in enumerate(SHAPES)}
    for compress in (False, True):
        save_npz(path, arrays, compress=compress)
        loaded = load_npz(path)
        assert list(loaded) == list(arrays)
        for name, array in arrays.items():
            assert_same(loaded[name], array)
            assert loaded[name].flags.writeable and loaded[name].flags.aligned
    for array in arrays.values():
        save_npy(tmp_path / "x.npy", array)
        assert_same(load_npy(tmp_path / "x.npy"), array)


@pytest.mark.parametrize("code", NUMBERS)
@pytest.mark.parametrize("order", "<>")
def test_numpy_reads_and_writes_the_same(path, code, order):
    base = sample(np.dtype(code), (4, 6)).astype(np.dtype(code).newbyteorder(order))
    arrays = {"c": base, "f": np.asfortranarray(base), "t": base.T, "s": base[::2, ::-3]}
    np.savez(path, **arrays)
    for name, array in load_npz(path).items():
        assert array.dtype.isnative
        assert_same(array, arrays[name].astype(np.dtype(code)))
    save_npz(path, arrays)
    with np.load(path) as theirs:
        for name in arrays:
            assert theirs[name].tobytes() == arrays[name].astype(np.dtype(code)).tobytes()


def test_half_types_keep_their_names_and_numpy_reads_their_bits(path):
    array = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    save_npz(path, {"x": array})
    with np.load(path) as theirs:
        assert theirs["x"].dtype.names == ("bfloat16",)
        assert_same(theirs["x"].view(ml_dtypes.bfloat16), array)
    np.savez(path, x=array)
    assert_same(load_npz(path)["x"], array)
    np.savez(path, x=array.astype(ml_dtypes.float8_e5m2))
    with pytest.raises(StoreError, match=r"unsupported dtype.*f1"):
        load_npz(path)


def test_ruda_save_and_load_go_by_the_ending(path):
    tensors = {"a": ruda.ones((2, 3)).mT, "b": ruda.ones(2, dtype="bfloat16")}
    ruda.save(path, tensors)
    loaded = ruda.load(path)
    assert loaded["a"].tolist() == tensors["a"].tolist() and loaded["a"].is_contiguous()
    assert loaded["b"].dtype is ruda.bfloat16
    with pytest.raises(ValueError, match="metadata need safetensors"):
        ruda.save(path, tensors, {"a": "b"})


def test_files_are_equal_for_equal_arrays(path):
    save_npz(path, {"x": np.arange(3)})
    first = path.read_bytes()
    save_npz(path, {"x": np.arange(3)})
    assert path.read_bytes() == first


def test_what_cannot_be_saved_leaves_the_file(path):
    save_npz(path, {"x": np.arange(3)})
    before = path.read_bytes()
    bad = [
        ({"../x": np.zeros(1)}, "wrong tensor name"),
        ({"/x": np.zeros(1)}, "wrong tensor name"),
        ({"a\\b": np.zeros(1)}, "wrong tensor name"),
        ({"a\0": np.zeros(1)}, "wrong tensor name"),
        ({3: np.zeros(1)}, "wrong tensor name"),
        ({"x": [1, 2]}, "no array"),
        ({"x": np.array(["a"])}, "unsupported dtype"),
        ({"x": np.array([object()])}, "unsupported dtype"),
        ({"x": np.array([2], np.uint8).view(np.bool_)}, "not booleans"),
    ]
    for arrays, match in bad:
        with pytest.raises(StoreError, match=match):
            save_npz(path, {"y": np.zeros(2), **arrays})
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_missing_files_and_folders(path, tmp_path):
    with pytest.raises(MissingFileError):
        load_npz(path)
    with pytest.raises(StoreError, match="a folder"):
        load_npy(tmp_path)


def npy(header: str, data: bytes = b"", version: int = 1) -> bytes:
    raw = header.encode() + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(raw)) + raw + data


def head(descr: str = "'<f4'", shape: str = "(2,)", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


HOSTILE = {
    "empty": (b"", "not a .npy"),
    "other magic": (b"\x93NUMPZ\x01\0" + bytes(20), "not a .npy"),
    "version 9": (npy(head(), bytes(8), 9), "not a .npy"),
    "header past the end": (b"\x93NUMPY\x01\0\xff\xff", "too long"),
    "cut off": (npy(head(), bytes(7)), "cut off or too long"),
    "too long": (npy(head(), bytes(9)), "cut off or too long"),
    "huge": (npy(head(shape="(4611686018427387904,)")), "too large"),
    "huge with a zero": (npy(head(shape=f"(0,{', '.join(['9999999999'] * 4)})")), "too large"),
    "65 axes": (npy(head(shape=f"({'1,' * 65})"), bytes(4)), "too large"),
    "negative": (npy(head(shape="(-1,)"), bytes(8)), "malformed"),
    "code": (npy("{'descr': __import__('os').getcwd(), 'fortran_order': 0}"), "malformed"),
    "unknown field": (npy("{'descr': '<f4', 'shape': (), 'x': 1}"), "malformed"),
    "twice": (npy("{'shape': (), 'shape': (), 'descr': '<f4'}"), "twice"),
    "missing": (npy("{'descr': '<f4', 'shape': ()}"), "malformed"),
    "rest": (npy(head() + "#", bytes(8)), "malformed"),
    "objects": (npy(head("'|O'"), bytes(16)), "pickled Python objects"),
    "text": (npy(head("'<U2'"), bytes(16)), "unsupported dtype"),
    "time": (npy(head("'<M8[s]'"), bytes(16)), "unsupported dtype"),
    "long double": (npy(head("'<f16'"), bytes(32)), "unsupported dtype"),
    "structure": (npy(head("[('a', '<f4')]"), bytes(8)), "unsupported dtype"),
    "wrong width": (npy(head("[('bfloat16', '|V1')]"), bytes(2)), "unsupported dtype"),
    "not booleans": (npy(head("'|b1'"), b"\1\2"), "not booleans"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_arrays(tmp_path, path, name):
    raw, match = HOSTILE[name]
    (tmp_path / "x.npy").write_bytes(raw)
    with pytest.raises(StoreError, match=match):
        load_npy(tmp_path / "x.npy")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", raw)
    with pytest.raises(StoreError, match=match):
        load_npz(path)


def test_pickles_in_arrays_are_never_run(path, tmp_path):
    class Harmful:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harm"),)

    np.savez(path, x=np.array([Harmful()], object))
    with pytest.raises(StoreError, match="never loaded"):
        load_npz(path)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("name", ["../x.npy", "a/../../x.npy", "/etc/x.npy", "C:x.npy", "a\\b.npy"])
def test_names_that_escape_are_refused(path, name):
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("o" * len(name), npy(head(), bytes(8)))
    path.write_bytes(whole.getvalue().replace(b"o" * len(name), name.encode()))
    with pytest.raises(StoreError, match="escapes"):
        load_npz(path)


def test_bombs_are_refused_before_they_grow(path):
    size = 3 << 30
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", npy(head("'|u1'", f"({size},)")) + bytes(8 << 20))
    assert load_fails_small(path, "cut off or too long", limit=1 << 40)
    np.savez_compressed(path, x=np.zeros(1 << 22, np.uint8))
    assert load_fails_small(path, r"expands too much.*Try limit=\d+", limit=1 << 20)
    assert load_npz(path)["x"].shape == (1 << 22,)


def load_fails_small(path, match, limit):
    tracemalloc.start()
    with pytest.raises(StoreError, match=match):
        load_npz(path, limit=limit)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak < 32 << 20


def test_overlapping_and_repeated_members_are_refused(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", npy(head("'|u1'", "(2000,)"), bytes(2000)))
        archive.writestr("b.npy", npy(head("'|u1'", "(2000,)"), bytes(2000)))
    raw = bytearray(path.read_bytes())
    second = raw.rindex(b"PK\x01\x02")
    raw[second + 42 : second + 46] = struct.pack("<I", 100)
    path.write_bytes(raw)
    with pytest.raises(StoreError, match=r"overlap|damaged"):
        load_npz(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", npy(head(), bytes(8)))
        archive.writestr("b.npy", npy(head(), bytes(8)))
    path.write_bytes(path.read_bytes().replace(b"b.npy", b"a.npy"))
    with pytest.raises(StoreError, match="twice"):
        load_npz(path)


def test_a_changed_byte_is_found(path):
    save_npz(path, {"x": np.arange(1000)})
    raw = bytearray(path.read_bytes())
    raw[5000] ^= 1
    path.write_bytes(raw)
    with pytest.raises(StoreError, match=r"damaged archive.*CRC"):
        load_npz(path)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("ending", ["npz", "npy"])
def test_mutations_raise_or_load(tmp_path, count, ending):
    path = tmp_path / f"x.{ending}"
    if ending == "npy":
        save_npy(path, np.arange(20, dtype=np.float32).reshape(4, 5))
    else:
        save_npz(path, {"a": np.arange(9), "b": np.ones((2, 2), ml_dtypes.bfloat16)}, compress=True)
    refused = 0
    for raw in mutated(path.read_bytes(), count):
        path.write_bytes(raw)
        try:
            load_npz(path) if ending == "npz" else load_npy(path)
        except StoreError:
            refused += 1
    assert refused > count // 3
