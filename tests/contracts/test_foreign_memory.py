"""Arrays from elsewhere: borrowed, read-only, strided, empty, swapped, huge, or not arrays."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
import pytest

import ruda


def unaligned() -> Any:
    return np.frombuffer(bytearray(b"\0" + np.arange(4, dtype=np.float32).tobytes()), np.uint8)[
        1:
    ].view(np.float32)


def field() -> Any:
    records = np.zeros(4, [("code", "i1"), ("value", "f4")])
    records["value"] = np.arange(4)
    return records["value"]


SOURCES = {
    "owned": lambda: np.arange(4, dtype=np.float32),
    "a slice": lambda: np.arange(8, dtype=np.float32)[::2] / 2,
    "not owned": lambda: np.arange(9, dtype=np.float32)[2:6] - 2,
    "read-only": lambda: np.frombuffer(np.arange(4, dtype=np.float32).tobytes(), np.float32),
    "backwards": lambda: np.arange(3, -1, -1, dtype=np.float32)[::-1],
    "unaligned": unaligned,
    "big-endian": lambda: np.arange(4, dtype=">f4"),
    "a field of records": field,
    "a subclass": lambda: np.arange(4, dtype=np.float32).view(type("Sub", (np.ndarray,), {})),
    "masked nowhere": lambda: np.ma.array(np.arange(4, dtype=np.float32)),
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_array_is_taken_over(name: str) -> None:
    source = SOURCES[name]()
    for tensor in (ruda.asarray(source), ruda.tensor(source), ruda.asarray(source, copy=True)):
        assert tensor.dtype is ruda.float32 and tensor.tolist() == [0, 1, 2, 3]
        assert (tensor + 1).tolist() == [1, 2, 3, 4] and tensor.sum().item() == 6
        assert tensor.reshape((2, 2)).mT.tolist() == [[0, 2], [1, 3]]


@pytest.mark.parametrize("name", SOURCES)
def test_every_array_is_an_operand(name: str) -> None:
    source, x = SOURCES[name](), ruda.ones(4)
    for result in (x + source, source + x, ruda.add(source, x), ruda.add(source, source) / 2 + 1):
        assert result.tolist() == [1, 2, 3, 4] and result.dtype is ruda.float32
    assert x.assign(source).tolist() == [0, 1, 2, 3]
    x[::-1] = source
    assert x.tolist() == [3, 2, 1, 0]


@pytest.mark.parametrize("name", SOURCES)
def test_copy_false_shares_or_raises(name: str) -> None:
    source = SOURCES[name]()
    if name in ("unaligned", "big-endian", "a field of records"):
        with pytest.raises(ruda.ArgumentError, match="asarray: needs a copy"):
            ruda.asarray(source, copy=False)
    else:
        assert ruda.asarray(source, copy=False).data_ptr() == source.ctypes.data


@pytest.mark.parametrize("copies", [ruda.tensor, lambda s: ruda.asarray(s, copy=True)])
@pytest.mark.parametrize(
    "make",
    [lambda: np.zeros(2, np.uint8), lambda: bytearray(2), lambda: array.array("B", [0, 0])],
)
def test_a_copy_does_not_see_later_changes(make: Any, copies: Any) -> None:
    source = make()
    tensor, shared = copies(source), ruda.asarray(source)
    source[0] = 7
    assert tensor.tolist() == [0, 0] and shared.tolist() == [7, 0]
    shared[1] = 9
    assert source[1] == 9


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.assign(1),
        lambda x: x[1:].assign(1),
        lambda x: x.__setitem__(0, 1),
        lambda x: x.__setitem__([0], 1),
        lambda x: x.__setitem__(x > 1, 1),
        lambda x: x.__iadd__(1),
        lambda x: ruda.add(x, 1, out=x),
    ],
)
def test_read_only_memory_is_not_written_to(write: Any) -> None:
    source = np.arange(3.0)
    source.flags.writeable = False
    x = ruda.asarray(source)
    with pytest.raises(ruda.ArgumentError, match="read-only"):
        write(x)
    assert source.tolist() == [0, 1, 2]
    assert ruda.tensor(source).assign(1).tolist() == [1, 1, 1]


def test_masked_elements_have_no_values() -> None:
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    for call in (lambda: ruda.asarray(masked), lambda: ruda.ones(2) + masked):
        with pytest.raises(ruda.DTypeError, match="masked"):
            call()


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3)])
def test_axes_of_size_zero(shape: Any) -> None:
    source = np.zeros(shape)[..., ::-1]
    x = ruda.asarray(source)
    assert x.shape == shape and x.size == 0 and x.tolist() == source.tolist()
    assert (x + 1).shape == shape and ruda.flip(x).shape == shape
    assert x.sum().item() == 0 and x.prod().item() == 1 and x.reshape((0, 5)).shape == (0, 5)
    assert ruda.concat([x, x], axis=0).shape == (2 * shape[0], *shape[1:])
    assert repr(x).startswith("tensor([]")
    x.assign(3.0)
    x[...] = 1


def test_rank_zero() -> None:
    x = ruda.asarray(np.float32(3))
    assert x.shape == () and x.strides == () and x[()].item() == x[...].item() == 3
    assert (x + 1).shape == () and x.sum().item() == 3 and x.reshape((1, 1)).shape == (1, 1)
    assert x[None].shape == (1,) and ruda.permute_dims(x, ()).item() == 3
    x[...] = 4
    x[()] += 1
    assert x.item() == 5


@pytest.mark.parametrize("rank", [9, 20, 33, 64])
def test_ranks_up_to_64(rank: int) -> None:
    shape = (2, *(1,) * (rank - 2), 3)
    source = np.arange(6.0).reshape(shape)
    x = ruda.tensor(source, requires_grad=True)
    order = tuple(reversed(range(rank)))
    y = (x.permute_dims(order) * 2 + ruda.permute_dims(x, order)).sum(axis=0, keepdims=True)
    assert y.detach().numpy().ravel().tolist() == (3 * source.sum(rank - 1)).ravel().tolist()
    y.sum().backward()
    assert x.grad.shape == shape and set(x.grad.numpy().ravel().tolist()) == {3.0}
    assert x[(0,) * rank].item() == 0 and x[..., ::-1].shape == shape and x.reshape((6,)).ndim == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: ruda.zeros((1,) * 65),
        lambda: ruda.zeros((1,) * 64)[None],
        lambda: ruda.zeros((1,) * 64).expand_dims(0),
        lambda: ruda.zeros((2**40, 2**40)),
        lambda: ruda.zeros((2**62,)),
        lambda: ruda.ones(1).broadcast_to((2**62,)),
        lambda: ruda.ones(1).broadcast_to((2**40, 2**40)),
        lambda: ruda.zeros((2**63, 0)),
        lambda: ruda.arange(10**400),
    ],
)
def test_what_no_memory_can_hold_raises_before_any_is_asked_for(call: Any) -> None:
    with pytest.raises(ruda.RudaError, match=r"too many|does not fit"):
        call()


def test_more_than_two_to_the_31_elements_through_a_view() -> None:
    size = 2**40
    for x in (
        ruda.ones(1).broadcast_to((size,)),
        ruda.asarray(np.broadcast_to(np.float32(1), (size,))),
    ):
        assert x.size == size and x.nbytes == 4 * size and x.strides == (0,)
        assert x[size - 1].item() == 1 and x[-size].item() == 1
        assert x[:: 2**38].shape == (4,) and x[2**33 : 2**33 + 3].sum().item() == 3
        assert x[[0, size - 1, -1]].tolist() == [1, 1, 1]
        assert ruda.take(x, ruda.asarray([2**35], dtype="int64")).item() == 1
        assert x.reshape((2**20, 2**20))[7, ::-1][:3].tolist() == [1, 1, 1]
        assert "..." in repr(x)
        with pytest.raises(ruda.IndexRangeError):
            x[size]
        with pytest.raises(ruda.ShapeError, match="repeats memory"):
            x.assign(0)


@pytest.mark.parametrize("dtype", ["M8[D]", "m8[s]", "U3", "S3", "O", "g", "V4", [("a", "f4")]])
def test_what_holds_no_numbers_is_refused(dtype: Any) -> None:
    source = np.zeros(2, dtype)
    with pytest.raises(ruda.DTypeError, match="asarray: "):
        ruda.asarray(source)
    with pytest.raises(ruda.DTypeError, match="add: "):
        ruda.ones(2) + source
