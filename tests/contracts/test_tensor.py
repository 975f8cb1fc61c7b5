"""What is promised of the device tensor: storage, views, defaults, moves, ``out=``, exchange."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ruda
from ruda.core import dtypes
from ruda.tensor.tensor import Metadata


@pytest.fixture
def x() -> ruda.Tensor:
    return ruda.asarray(np.arange(12, dtype=np.float32).reshape(3, 4))


def test_the_constructor_takes_five_parts_and_device_follows_from_the_client(x: Any) -> None:
    made = ruda.RudaTensor(x.client, x.handle, x.metadata, x.dtype, x.qparams)
    assert made.tolist() == x.tolist()
    assert (made.client, made.metadata, made.dtype, made.qparams) == (
        x.client,
        Metadata((3, 4), (4, 1), 0),
        ruda.float32,
        None,
    )
    assert made.device == "cpu" and ruda.Tensor is ruda.RudaTensor


@pytest.mark.parametrize("name", ["device", "client", "shape", "strides", "dtype", "metadata"])
def test_facts_are_read_only(x: Any, name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(x, name, getattr(x, name))


CONSTRUCTIONS = {
    "a name for the client": (lambda x: ("cpu", x.handle, (12,), x.dtype), ruda.DeviceError),
    "no client": (lambda x: (None, x.handle, (12,), x.dtype), ruda.DeviceError),
    "no handle": (lambda x: (x.client, None, (12,), x.dtype), ruda.DeviceError),
    "an array as handle": (lambda x: (x.client, x.numpy(), (12,), x.dtype), ruda.DeviceError),
    "memory of another device": (
        lambda x: (x.client, ruda.zeros(12, device="null").handle, (12,), x.dtype),
        ruda.DeviceError,
    ),
    "memory of the CPU for another": (
        lambda x: (ruda.zeros(1, device="null").client, x.handle, (12,), x.dtype),
        ruda.DeviceError,
    ),
    "too many elements": (lambda x: (x.client, x.handle, (13,), x.dtype), ruda.ShapeError),
    "a negative size": (lambda x: (x.client, x.handle, (-1,), x.dtype), ruda.ShapeError),
    "a negative size beside an offset": (
        lambda x: (x.client, x.handle, Metadata((-1,), (1,), 2), x.dtype),
        ruda.ShapeError,
    ),
    "an offset beyond the end": (
        lambda x: (x.client, x.handle, Metadata((2,), (1,), 11), x.dtype),
        ruda.ShapeError,
    ),
    "an offset before the start": (
        lambda x: (x.client, x.handle, Metadata((2,), (1,), -1), x.dtype),
        ruda.ShapeError,
    ),
    "strides that leave the memory": (
        lambda x: (x.client, x.handle, Metadata((2,), (2**62,), 0), x.dtype),
        ruda.ShapeError,
    ),
    "one stride too many": (
        lambda x: (x.client, x.handle, Metadata((2,), (1, 1), 0), x.dtype),
        ruda.ShapeError,
    ),
    "a stride of one and a half": (
        lambda x: (x.client, x.handle, Metadata((2,), (1.5,), 0), x.dtype),  # type: ignore[arg-type]
        ruda.DTypeError,
    ),
    "half an offset": (
        lambda x: (x.client, x.handle, Metadata((2,), None, 0.5), x.dtype),  # type: ignore[arg-type]
        ruda.DTypeError,
    ),
    "another dtype": (lambda x: (x.client, x.handle, (12,), ruda.int32), ruda.DTypeError),
    "no dtype": (lambda x: (x.client, x.handle, (12,), None), ruda.DTypeError),
}


@pytest.mark.parametrize("case", CONSTRUCTIONS)
def test_the_constructor_checks(x: Any, case: str) -> None:
    parts, error = CONSTRUCTIONS[case]
    with pytest.raises(error, match="RudaTensor: "):
        ruda.RudaTensor(*parts(x))


def test_the_constructor_shows_memory_in_another_geometry(x: Any) -> None:
    back = ruda.RudaTensor(x.client, x.handle, Metadata((4,), (-3,), 9), "float32")
    assert back.tolist() == [9, 6, 3, 0] and back.is_view
    x[0, 0] = 100
    assert back[-1].item() == 100


def test_a_view_shares_the_handle_and_a_copy_does_not(x: Any) -> None:
    transposed, materialised = x.mT, ruda.copy(x.mT)
    assert transposed.handle.root is x.handle and transposed.is_view
    assert not transposed.is_contiguous() and transposed.contiguous().is_contiguous()
    assert materialised.is_contiguous() and not materialised.is_view
    assert x.contiguous() is x
    x[0, 1] = -1
    assert transposed[1, 0].item() == -1 and materialised[1, 0].item() == 1


def test_share_count_counts_the_living(x: Any) -> None:
    assert x.share_count == 1
    views = [x[0], x.mT, x.detach()]
    assert x.share_count == 4 and views[0].share_count == 4
    del views
    assert x.share_count == 1


def test_operands_on_two_devices_raise(x: Any) -> None:
    other = ruda.zeros((3, 4), device="null")
    for call in (
        lambda: x + other,
        lambda: other + x,
        lambda: x @ other.mT,
        lambda: ruda.where(x > 0, x, other),
        lambda: ruda.concat([x, other]),
        lambda: x.assign(other),
        lambda: other + x.numpy(),
        lambda: x[ruda.zeros(2, dtype="int32", device="null")],
    ):
        with pytest.raises(ruda.DeviceError):
            call()


def test_default_dtypes_and_those_of_arrays() -> None:
    assert [ruda.asarray(v).dtype for v in (1.5, 1, True, 1j)] == [
        ruda.float32,
        ruda.int32,
        ruda.bool,
        ruda.complex64,
    ]
    assert ruda.asarray([range(2), (2, 3)]).dtype is ruda.int32
    for dtype in (np.float64, np.int8, np.uint64, np.complex128, np.float16, ml_dtypes.bfloat16):
        assert ruda.asarray(np.zeros(2, dtype)).dtype == np.dtype(dtype)


def test_bool_is_one_byte_of_zero_or_one() -> None:
    mask = ruda.asarray([0.5, 0.0, -2.0]).astype("bool")
    assert mask.itemsize == 1 and mask.numpy().view(np.uint8).tolist() == [1, 0, 1]


def test_reshape_is_a_view_where_strides_allow_and_else_a_copy(x: Any) -> None:
    assert x.reshape((2, 6)).is_view and x[:, ::2].reshape((3, 2, 1)).is_view
    assert not x.mT.reshape((12,)).is_view
    assert x.mT.reshape((12,)).tolist() == x.numpy().T.reshape(12).tolist()
    with pytest.raises(ruda.ShapeError, match="reshape: needs a copy"):
        x.mT.reshape((12,), copy=False)
    copied = x.reshape((12,), copy=True)
    x.assign(0)
    assert copied[5].item() == 5


def test_permute_is_a_view(x: Any) -> None:
    assert x.permute(1, 0).is_view and x.permute((1, 0)).strides == (1, 4)


def test_moves_that_change_nothing_return_the_tensor_itself(x: Any) -> None:
    assert x.to("cpu") is x and x.cpu() is x and x.to(ruda.float32) is x
    assert x.to("cpu", non_blocking=True) is x and x.to_device("cpu") is x


def test_moving_to_a_device_gives_a_tensor_of_that_device(x: Any) -> None:
    moved = x.to("null")
    assert moved.device == "null" and moved.shape == x.shape and x.device == "cpu"
    with pytest.raises(ruda.DeviceError, match="no values"):
        moved.cpu()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.cuda(),
        lambda x: x.cuda(1),
        lambda x: x.cuda("cpu"),
        lambda x: x.to("cuda:3"),
        lambda x: x.pin_memory(),
        lambda x: ruda.empty((2,), pin=True),
        lambda x: ruda.zeros((2,), device="cuda"),
        lambda x: x.to("cpu:1"),
        lambda x: x.to("gpu"),
    ],
)
def test_what_needs_a_gpu_says_so_without_one(x: Any, call: Any) -> None:
    with pytest.raises(ruda.DeviceError, match=r"^[\w.]+: .*\. Got "):
        call(x)


def test_copy_fills_in_place_and_keeps_the_dtype(x: Any) -> None:
    assert x.copy_(np.ones(4)) is x and x.dtype is ruda.float32
    assert x.numpy().tolist() == np.ones((3, 4)).tolist()
    with pytest.raises(ruda.DTypeError, match="kind"):
        x.copy_(ruda.asarray(1j))


def test_data_ptr_is_the_address_of_the_first_element(x: Any) -> None:
    array = np.arange(4.0)
    shared = ruda.asarray(array)
    assert shared.data_ptr() == array.ctypes.data
    assert shared[1:].data_ptr() == array.ctypes.data + 8


OUT = {
    "matmul": lambda x, out: ruda.matmul(x, x.mT, out=out),
    "add": lambda x, out: ruda.add(x[:, :3], 1, out=out),
    "exp": lambda x, out: ruda.exp(x[:, :3], out=out),
    "where": lambda x, out: ruda.where(x[:, :3] > 4, x[:, :3], 0.0, out=out),
    "clip": lambda x, out: ruda.clip(x[:, :3], 1, 5, out=out),
    "sum": lambda x, out: ruda.sum(ruda.stack([x[:, :3], x[:, 1:]]), axis=0, out=out),
    "pow": lambda x, out: ruda.pow(x[:, :3], 3, out=out),
}


@pytest.mark.parametrize("name", OUT)
def test_out_is_written_and_returned(x: Any, name: str) -> None:
    expected = OUT[name](x, None)
    out = ruda.zeros((3, 3))
    strided = ruda.zeros((3, 6))[:, ::2]
    assert OUT[name](x, out) is out and OUT[name](x, strided) is strided
    assert out.tolist() == strided.tolist() == expected.tolist()


@pytest.mark.parametrize("out", [np.zeros((3, 3), np.float32), [0], 5, "out"])
def test_out_is_a_tensor(x: Any, out: Any) -> None:
    for call in OUT.values():
        with pytest.raises(ruda.DTypeError, match="out is not a tensor"):
            call(x, out)


def test_out_may_be_an_operand_or_a_view_of_one() -> None:
    def fresh() -> Any:
        return ruda.arange(5.0)

    x = fresh()
    assert ruda.add(x, x[::-1], out=x).tolist() == [4] * 5
    x = fresh()
    assert ruda.multiply(x[:-1], x[1:], out=x[1:]).tolist() == [0, 2, 6, 12]
    m = ruda.arange(4.0).reshape((2, 2))
    assert ruda.matmul(m, m, out=m.mT).tolist() == [[2, 3], [6, 11]]
    assert m.tolist() == [[2, 6], [3, 11]]


@pytest.mark.parametrize("dtype", dtypes.STORAGE, ids=str)
def test_storage_types_hold_codes_and_refuse_arithmetic(dtype: Any) -> None:
    x = ruda.asarray([0.5, 1.0], dtype=dtype)
    assert x.astype("float32").tolist() == [0.5, 1.0] and x[::-1].tolist() == [1.0, 0.5]
    for call in (lambda: x + x, lambda: x * 2, lambda: x.sum(), lambda: x == x):
        with pytest.raises(ruda.DTypeError):
            call()


def test_dlpack_goes_both_ways_without_a_copy() -> None:
    array = np.arange(6.0).reshape(2, 3)
    tensor = ruda.from_dlpack(array)
    assert tensor.data_ptr() == array.ctypes.data
    again = np.from_dlpack(tensor.mT)
    assert again.ctypes.data == array.ctypes.data and again.shape == (3, 2)
    assert tensor.__dlpack_device__() == (1, 0)


def test_dlpack_with_torch_shares_memory_of_every_dtype_both_have() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool):
        theirs = torch.zeros(4, dtype=dtype)
        mine = ruda.from_dlpack(theirs)
        assert mine.data_ptr() == theirs.data_ptr()
        assert torch.from_dlpack(mine).dtype is dtype
        assert ruda.asarray(theirs).data_ptr() == theirs.data_ptr()


def test_array_protocol_and_numpy_give_the_same_read_only_memory(x: Any) -> None:
    for array in (np.asarray(x), x.numpy(), np.asarray(x.mT)):
        assert array.ctypes.data == x.data_ptr() and not array.flags.writeable
    assert x.numpy(copy=True).flags.writeable and np.array(x).flags.writeable
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    with pytest.raises(ruda.ArgumentError, match="cast"):
        np.asarray(x, dtype=np.float64, copy=False)
    assert not hasattr(x, "__cuda_array_interface__")


def test_out_is_not_broadcast_into() -> None:
    with pytest.raises(ruda.ShapeError, match="sum: out= does not fit"):
        ruda.sum(ruda.ones((2, 3)), out=ruda.zeros(3))
