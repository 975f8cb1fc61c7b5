"""PyTorch's files without PyTorch; where it is there, it is asked both ways."""

from __future__ import annotations

import io
import os
import pickle
import sys
import tracemalloc
import zipfile

import ml_dtypes
import numpy as np
import pytest

import ruda
from ruda.core.errors import StoreError
from ruda.store import MissingFileError, load_torch, save_torch
from ruda.store.torch_file import STORAGES, UNTYPED
from tests.store.mutations import COUNTS, mutated

DTYPES = {dtype.name: dtype for dtype in (*STORAGES.values(), *UNTYPED.values())}
SHAPES = [(), (0,), (7,), (3, 0, 2), (2, 3), (1, 1, 5)]
ONE = b"\x80\x02}X\x01\x00\x00\x00x"


def sample(dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    count = int(np.prod(shape, dtype=np.int64))
    bits = np.random.default_rng(0).integers(0, 256, count * dtype.itemsize, np.uint8)
    return (bits % 2 if dtype == np.bool_ else bits).view(dtype).reshape(shape)


def assert_same(actual: np.ndarray, expected: np.ndarray) -> None:
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    assert actual.tobytes() == expected.tobytes()


def integer(number: int) -> bytes:
    return b"\x8a\x0c" + number.to_bytes(12, "little", signed=True)


def tensor(
    offset: int = 0,
    shape: tuple[int, ...] = (4,),
    strides: tuple[int, ...] = (1,),
    length: int = 4,
    kind: str = "FloatStorage",
    key: str = "0",
) -> bytes:
    """The pickle of one tensor, of numbers that need not fit each other."""
    name = key.encode()
    storage = b"(X\x07\0\0\0storagectorch\n" + kind.encode() + b"\nX"
    storage += len(name).to_bytes(4, "little") + name + b"X\3\0\0\0cpu" + integer(length) + b"tQ"
    sizes = b"".join(b"(" + b"".join(map(integer, part)) + b"t" for part in (shape, strides))
    hooks = b"\x89ccollections\nOrderedDict\n)R"
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + integer(offset) + sizes + hooks + b"tR"
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.pt"


def write(path, raw: bytes, data: bytes = bytes(16), **others: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", raw)
        archive.writestr("m/data/0", data)
        for name, content in others.items():
            archive.writestr(f"m/{name}", content)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=list(DTYPES))
def test_round_trip(path, dtype):
    arrays = {f"layer.{i}": sample(dtype, shape) for i, shape in enumerate(SHAPES)}
    base = sample(dtype, (4, 6))
    arrays |= {"t": base.T, "s": base[::-2, 1:4], "e": np.broadcast_to(base[0], (3, 6))}
    save_torch(path, arrays)
    loaded = load_torch(path)
    assert list(loaded) == list(arrays)
    for name, array in arrays.items():
        assert_same(loaded[name], array)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=list(DTYPES))
def test_torch_reads_and_writes_the_same(path, dtype):
    torch = pytest.importorskip("torch")
    name = {"bool": "bool"}.get(dtype.name, dtype.name)
    arrays = {f"{i}": sample(dtype, shape) for i, shape in enumerate(SHAPES)}
    save_torch(path, arrays)
    theirs = torch.load(path, weights_only=True)
    for key, array in arrays.items():
        assert theirs[key].dtype is getattr(torch, name)
        assert tuple(theirs[key].shape) == array.shape
        assert bytes(theirs[key].contiguous().untyped_storage()) == array.tobytes()
    torch.save(theirs, path)
    for key, array in load_torch(path).items():
        assert_same(array, arrays[key])


def test_views_parameters_and_ties_of_torch(path):
    torch = pytest.importorskip("torch")
    base = torch.arange(24.0).reshape(2, 3, 4)
    linear = torch.nn.Linear(3, 3)
    tied = torch.nn.Sequential(linear, linear)
    tensors = {
        "base": base,
        "transposed": base.mT,
        "offset": base[1, :, 1:],
        "stepped": base[:, ::2, 3],
        "expanded": torch.ones(3).expand(4, 3),
        "parameter": torch.nn.Parameter(base),
        "half": base.bfloat16().mT,
        **tied.state_dict(),
    }
    torch.save(tensors, path)
    loaded = load_torch(path)
    assert loaded.keys() == tensors.keys()
    for name, theirs in tensors.items():
        expected = theirs.detach().float().numpy()
        np.testing.assert_array_equal(loaded[name].astype(np.float32), expected)
    assert loaded["half"].dtype == ml_dtypes.bfloat16
    assert np.shares_memory(loaded["base"], loaded["offset"])
    assert np.shares_memory(loaded["0.weight"], loaded["1.weight"])
    ours = ruda.load(path)
    assert ours["transposed"].is_contiguous()
    assert ours["offset"].tolist() == base[1, :, 1:].tolist()
    save_torch(path, loaded)
    again = torch.load(path, weights_only=True)
    assert again["0.weight"].data_ptr() == again["1.weight"].data_ptr()
    assert torch.equal(again["stepped"], base[:, ::2, 3])


def test_a_training_checkpoint_of_torch(path):
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    opt = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    opt.step()
    state = {
        "model": model.state_dict(),
        "opt": opt.state_dict(),
        "epoch": 3,
        "size": model[0].weight.shape,
    }
    for protocol in (2, 4, 5):
        torch.save(state, path, pickle_protocol=protocol)
        found = load_torch(path)
        assert (found["epoch"], found["size"]) == (3, (3, 3))
        assert found["opt"]["param_groups"][0]["betas"] == (0.9, 0.999)
        expected = opt.state_dict()["state"][0]["exp_avg"].numpy()
        np.testing.assert_array_equal(found["opt"]["state"][0]["exp_avg"], expected)
    with pytest.raises(StoreError, match=r"'model'.*Try ruda\.store\.load_torch"):
        ruda.load(path)


def test_old_formats_and_programs_are_named(path):
    torch = pytest.importorskip("torch")
    torch.save({"x": torch.ones(2)}, path, _use_new_zipfile_serialization=False)
    with pytest.raises(StoreError, match=r"before PyTorch 1\.6.*torch\.save"):
        load_torch(path)
    write(path, ONE + tensor() + b"s.", **{"constants.pkl": b"x"})
    with pytest.raises(StoreError, match="TorchScript"):
        load_torch(path)


def test_tar_files_and_other_files(path):
    path.write_bytes(b"name".ljust(257, b"\0") + b"ustar\x0000".ljust(255, b"\0"))
    with pytest.raises(StoreError, match=r"before PyTorch 1\.6"):
        load_torch(path)
    path.write_bytes(b"hello")
    with pytest.raises(StoreError, match="unsupported file format"):
        load_torch(path)
    path.unlink()
    with pytest.raises(MissingFileError):
        load_torch(path)


@pytest.mark.parametrize("kind", ["FloatStorage", "ComplexFloatStorage", "BFloat16Storage"])
def test_big_endian_files(path, kind):
    dtype = STORAGES[kind]
    width = {"FloatStorage": 4, "ComplexFloatStorage": 4, "BFloat16Storage": 2}[kind]
    values = np.array([1.0, -2.5, 3.0, 4.0]).astype(dtype)
    swapped = values.view(f"u{width}").byteswap().tobytes()
    raw = ONE + tensor(kind=kind) + b"s."
    write(path, raw, swapped if sys.byteorder == "little" else values.tobytes(), byteorder=b"big")
    assert_same(load_torch(path)["x"], values)
    write(path, raw, swapped, byteorder=b"middle")
    with pytest.raises(StoreError, match="unknown byte order"):
        load_torch(path)


HOSTILE = {
    "offset past the end": (tensor(offset=1), "reaches out"),
    "far offset": (tensor(offset=2**62, shape=(1,)), "reaches out"),
    "negative offset": (tensor(offset=-1), "not an offset"),
    "negative stride": (tensor(offset=3, strides=(-1,)), "not strides"),
    "negative size": (tensor(shape=(-4,)), "not a shape"),
    "large stride": (tensor(shape=(2, 2), strides=(1, 2**62)), "reaches out"),
    "large shape": (tensor(shape=(2**62, 4), strides=(0, 1)), "too large|expands"),
    "large shape with zero": (tensor(shape=(2**62, 0, 2**62), strides=(1, 1, 1)), "too large"),
    "expanded": (tensor(shape=(1 << 40,), strides=(0,)), "expands too much"),
    "ranks": (tensor(strides=(1, 1)), "differ"),
    "65 axes": (tensor(shape=(1,) * 65, strides=(1,) * 65), "not a shape"),
    "length": (tensor(length=5), "cut off or too long"),
    "huge length": (tensor(length=2**64), "cut off or too long"),
    "negative length": (tensor(length=-4), "cut off or too long"),
    "other width": (tensor(kind="DoubleStorage"), "cut off or too long"),
    "quantized": (tensor(kind="QInt8Storage"), "names something"),
    "untyped": (tensor(kind="UntypedStorage", length=16), "untyped bytes"),
    "missing storage": (tensor(key="1"), "storage is missing"),
    "escaping storage": (tensor(key="../data.pkl"), "storage is missing"),
    "run": (b"cposix\nsystem\nX\4\0\0\0true\x85R", "names something"),
    "builtins": (b"cbuiltins\neval\n", "names something"),
    "nested name": (b"\x8c\5torch\x8c\x0e_utils.os.path\x93", "names something"),
    "name of numbers": (b"K\1K\1\x93", "names something"),
    "instance": (b"(iposix\nsystem\n", "what weights do not"),
    "new object": (b"ccollections\nOrderedDict\n)\x81", "what weights do not"),
    "attributes": (tensor() + b"}b", "attributes"),
    "attributes of a function": (b"ctorch\nSize\n}b", "attributes"),
    "call of a tensor": (tensor() + b")R", "malformed"),
    "call without a tuple": (b"ctorch\nSize\n]R", "malformed"),
    "few arguments": (b"ctorch._utils\n_rebuild_tensor_v2\n)R", "not a tensor"),
    "no parameter": (b"ctorch._utils\n_rebuild_parameter\n)R", "not a parameter"),
    "mapping of something": (b"ccollections\nOrderedDict\n(]tR", "a mapping is made"),
    "no storage": (b"K\1Q", "not a storage"),
    "key of tuples": (b"}(K\1\x85K\1u", "unsupported key"),
    "odd items": (b"}(K\1u", "malformed"),
    "empty stack": (b"000", "what weights do not"),
    "pop below the mark": (b"K\1(\x85", "malformed"),
    "memo": (b"h\7", "value in the memo"),
    "huge memo index": (b"K\1r\xff\xff\xff\xff0", "what weights do not"),
    "huge string": (b"X\xff\xff\xff\xffabc", "malformed"),
    "not UTF-8": (b"X\1\0\0\0\xff", "malformed"),
    "protocol 9": (b"\x80\x09", "unknown pickle protocol"),
    "extension": (b"\x82\1", "what weights do not"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles(path, name):
    raw, match = HOSTILE[name]
    write(path, ONE + raw + b"s.")
    tracemalloc.start()
    with pytest.raises(StoreError, match=match):
        load_torch(path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 22
    tracemalloc.stop()


def test_the_hostile_samples_differ_from_a_sound_one(path):
    write(path, ONE + tensor() + b"s.")
    assert_same(load_torch(path)["x"], np.zeros(4, np.float32))
    write(path, ONE + tensor(offset=1, shape=(3,)) + b"s.")
    assert load_torch(path)["x"].shape == (3,)
    write(path, ONE + tensor(shape=(1,), strides=(2**62,)) + b"s.")
    assert load_torch(path)["x"].shape == (1,)
    write(path, ONE + tensor() + b"s.x")
    with pytest.raises(StoreError, match="malformed"):
        load_torch(path)
    write(path, ONE + tensor() + b"s.", b"\2" * 16)
    assert ruda.load(path)["x"].shape == (4,)
    write(path, ONE + tensor(kind="BoolStorage", length=16) + b"s.", b"\2" * 16)
    with pytest.raises(StoreError, match="not booleans"):
        load_torch(path)


def test_nothing_a_file_names_is_run(path, tmp_path):
    class Harmful:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harm"),)

    for protocol in (0, 2, 4):
        write(path, pickle.dumps({"x": Harmful()}, protocol))
        with pytest.raises(StoreError, match="weights do not"):
            load_torch(path)
    assert not (tmp_path / "harm").exists()


def test_sharing_that_would_grow_without_bound_is_not_followed(path):
    levels = b"K\1" + b"q\0h\0\x86" * 60
    write(path, b"\x80\x02}" + levels + b"K\1s.")
    with pytest.raises(StoreError, match="unsupported key"):
        load_torch(path)
    write(path, b"\x80\x02}X\x01\x00\x00\x00x" + levels + b"s.")
    with pytest.raises(StoreError, match="not a state dict"):
        ruda.load(path)


def test_what_cannot_be_saved_leaves_the_file(path):
    save_torch(path, {"x": np.arange(3)})
    before = path.read_bytes()
    bad = [
        ({3: np.zeros(1)}, "wrong tensor name"),
        ({"x": [1]}, "no array"),
        ({"x": np.zeros(1, ml_dtypes.float4_e2m1fn)}, "unsupported dtype"),
        ({"x": np.array(["a"])}, "unsupported dtype"),
    ]
    for arrays, match in bad:
        with pytest.raises(StoreError, match=match):
            save_torch(path, {"y": np.zeros(2), **arrays})
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("count", COUNTS)
def test_mutations_raise_or_load(path, count):
    save_torch(path, {"a": np.arange(9.0), "b": np.ones((2, 2), ml_dtypes.float8_e5m2)})
    refused = 0
    for raw in mutated(path.read_bytes(), count):
        path.write_bytes(raw)
        refused += not loads(path)
    assert refused > count // 3


@pytest.mark.parametrize("count", COUNTS)
def test_mutated_pickles_in_sound_archives_raise_or_load(path, count):
    save_torch(path, {"a": np.arange(9.0), "b": np.ones((2, 2), ml_dtypes.bfloat16).T})
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    refused = 0
    for raw in mutated(members["archive/data.pkl"], count):
        whole = io.BytesIO()
        with zipfile.ZipFile(whole, "w") as archive:
            for name, content in (members | {"archive/data.pkl": raw}).items():
                archive.writestr(name, content)
        path.write_bytes(whole.getvalue())
        refused += not loads(path)
    assert refused > count // 3


def loads(path) -> bool:
    try:
        ruda.load(path)
    except StoreError:
        return False
    return True
