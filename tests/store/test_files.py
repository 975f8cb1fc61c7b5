from __future__ import annotations

import gc
import os

import ml_dtypes
import numpy as np
import pytest

from ruda.core import dtypes
from ruda.core.errors import DeviceError, DTypeError, StoreError
from ruda.store import load, load_metadata, save, save_arrays
from ruda.tensor.tensor import RudaTensor, from_array

STORABLE = [d for d in dtypes.ALL if d.name not in ("complex128", "float4_e2m1")]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("dtype", STORABLE, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3), (1,) * 9], ids=str)
def test_round_trip(path, dtype, shape):
    count = int(np.prod(shape))
    values = (np.arange(count) % 2 if dtype is dtypes.bool_ else np.arange(count)).reshape(shape)
    tensor = from_array(values.astype(dtype.numpy), "cpu")
    save(path, {"x": tensor, "y": tensor}, {"step": "7"})
    loaded = load(path, "cpu")
    assert list(loaded) == ["x", "y"]
    assert load_metadata(path) == {"step": "7"}
    for result in loaded.values():
        assert isinstance(result, RudaTensor)
        assert (result.dtype, result.shape, result.device) == (dtype, shape, "cpu")
        assert result.numpy().tobytes() == tensor.numpy().tobytes()
        assert not result.requires_grad


def test_strided_tensors_and_leaves_are_stored_by_value(path):
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    tensors = {
        "transposed": from_array(values.T, "cpu"),
        "reversed": from_array(values[::-1], "cpu"),
        "expanded": from_array(np.broadcast_to(values[0], (5, 4)), "cpu"),
        "leaf": from_array(values, "cpu").requires_grad_(),
    }
    save(str(path), tensors)
    for name, tensor in load(str(path)).items():
        assert tensor.is_contiguous()
        np.testing.assert_array_equal(tensor.numpy(), tensors[name].numpy())


def test_loaded_tensors_own_their_memory(path):
    save(path, {"x": from_array(np.arange(1000), "cpu")})
    loaded = load(path, "cpu")
    os.truncate(path, 0)
    gc.collect()
    np.testing.assert_array_equal(loaded["x"].numpy(), np.arange(1000))


@pytest.mark.parametrize("name", ["model.txt", "model.npy", "model.safetensors.tmp", "model.onnx"])
def test_other_endings_say_what_is_supported(tmp_path, name):
    for call in (
        lambda path: save(path, {}),
        load,
        load_metadata,
    ):
        with pytest.raises(StoreError, match=r"unsupported file format .*Expected \.safetensors"):
            call(str(tmp_path / name))
    assert os.listdir(tmp_path) == []


def test_what_is_no_plain_tensor_is_refused(path):
    quantized = from_array(np.zeros(2, np.int8), "cpu")
    quantized.qparams = object()
    for value, words in (
        (np.zeros(2), "Got ndarray. Expected a ruda tensor"),
        (3.0, "Got float"),
        (quantized, "Got a quantized tensor"),
        (from_array(np.zeros(2, np.complex128), "cpu"), "Got complex128"),
        (from_array(np.zeros(2, ml_dtypes.float4_e2m1fn), "cpu"), "Got float4"),
    ):
        with pytest.raises(StoreError, match=words) as caught:
            save(path, {"good": from_array(np.zeros(2), "cpu"), "bad": value})
        assert caught.value.tensor == "bad"
        assert os.listdir(path.parent) == []


def test_arguments_the_other_way_round_and_single_tensors_say_what_to_do(path):
    x = from_array(np.ones(2), "cpu")
    with pytest.raises(DTypeError, match=r"save: not a path. Got RudaTensor.*the path comes first"):
        save(x, path)
    with pytest.raises(
        DTypeError, match=r"save: not named tensors. Got RudaTensor.*state_dict\(\)"
    ):
        save(path, x)
    assert not path.exists()


def test_dtypes_that_only_the_format_has_are_named(path):
    save_arrays(path, {"x": np.zeros(2, ml_dtypes.float8_e8m0fnu)})
    with pytest.raises(StoreError, match=r"no such dtype for tensor 'x'.*float8_e8m0fnu") as caught:
        load(path, "cpu")
    assert caught.value.tensor == "x"


def test_missing_files_and_devices_raise(path):
    with pytest.raises(FileNotFoundError) as caught:
        load(path)
    assert isinstance(caught.value, StoreError)
    with pytest.raises(DeviceError):
        load(path, "cpu:5")
