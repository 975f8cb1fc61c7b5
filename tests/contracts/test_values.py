"""What Python expects of a value: copying, pickling, comparing, iterating, showing, reading."""

from __future__ import annotations

import copy
import operator
import pickle
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core import dtypes


def made(dtype: Any) -> Any:
    return ruda.asarray(np.arange(12).reshape(3, 4) % 2, dtype=dtype)


LAYOUTS = {
    "itself": lambda x: x,
    "a slice": lambda x: x[1:, ::2],
    "transposed": lambda x: x.mT,
    "backwards": lambda x: x[::-1],
    "repeated": lambda x: x[:1].broadcast_to((5, 4)),
    "an element": lambda x: x[1, 1],
    "nothing": lambda x: x[:0],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_pickle_and_deepcopy_keep_values_dtype_and_shape(dtype: Any, layout: str) -> None:
    x = LAYOUTS[layout](made(dtype))
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(x, protocol))
        assert (again.dtype, again.shape, again.device) == (x.dtype, x.shape, x.device)
        assert again.numpy().tobytes() == x.numpy().tobytes() and not again.is_view
    deep = copy.deepcopy(x)
    assert deep.numpy().tobytes() == x.numpy().tobytes() and not deep.is_view
    assert (deep.is_contiguous() and deep.data_ptr() != x.data_ptr()) or not x.size
    deep.assign(False)


def test_only_what_a_view_shows_is_pickled() -> None:
    x = ruda.zeros(100_000)
    assert len(pickle.dumps(x[:3])) < 2000


def test_leaves_stay_leaves_and_deepcopy_keeps_the_gradient() -> None:
    x = ruda.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    for again in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), copy.copy(x)):
        assert again.requires_grad and again.is_leaf and again is not x
    deep = copy.deepcopy(x)
    assert deep.grad.tolist() == [2, 4] and deep.grad is not x.grad
    pair = copy.deepcopy([x, x])
    assert pair[0] is pair[1]
    assert copy.copy(x).data_ptr() == x.data_ptr()


def test_history_cannot_be_pickled_but_a_shallow_copy_shares_it() -> None:
    x = ruda.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    for call in (copy.deepcopy, pickle.dumps):
        with pytest.raises(ruda.GradientError, match=r"only leaves .*Try x\.detach"):
            call(y)
    copy.copy(y).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_dtypes_devices_and_errors_pickle() -> None:
    for dtype in dtypes.ALL:
        assert pickle.loads(pickle.dumps(dtype)) is dtype and copy.deepcopy(dtype) is dtype
    assert pickle.loads(pickle.dumps(ruda.Device("cuda", 1))) == "cuda:1"
    error = ruda.ShapeError("add", "shapes differ", (2,), (3,), "reshape")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_hash_is_identity_and_equality_is_elementwise() -> None:
    x, y = ruda.asarray([1, 2]), ruda.asarray([1, 3])
    assert {x: "x", y: "y"}[x] == "x" and len({x, y, x}) == 2
    assert (x == y).tolist() == [True, False] and (x != y).tolist() == [False, True]
    assert x in [x] and (x == None) is False  # noqa: E711
    with pytest.raises(ruda.ShapeError, match="bool: needs exactly one element"):
        assert y in [x]


def test_in_looks_for_a_value() -> None:
    x = ruda.asarray([[1, 2], [3, 4]])
    assert 3 in x and 5 not in x and 2.5 not in x and ruda.asarray(4) in x
    assert "a" not in x and None not in x and [1, 2] not in x
    assert float("nan") not in ruda.asarray([float("nan")])


def test_length_iteration_and_unpacking() -> None:
    x = ruda.asarray([[1, 2], [3, 4]])
    assert len(x) == 2 and [row.tolist() for row in x] == [[1, 2], [3, 4]]
    (a, b), c = x
    assert (a.item(), b.item(), c.tolist()) == (1, 2, [3, 4])
    assert [v.tolist() for v in reversed(x)] == [[3, 4], [1, 2]]
    assert list(ruda.zeros((0, 3))) == [] and len(ruda.zeros((0, 3))) == 0
    rows = list(ruda.tensor([1.0, 2.0], requires_grad=True))
    assert all(row.requires_grad for row in rows)


def test_a_value_decides_what_runs_next() -> None:
    x, steps = ruda.asarray(10.0), 0
    while x > 1:
        x, steps = x / 2, steps + 1
    assert steps == 4 and (1 if x < 1 else 2) == 1 and max(ruda.asarray([1, 3, 2])).item() == 3


def test_one_element_becomes_a_number() -> None:
    x = ruda.asarray([[2.5]])
    assert (float(x), int(x), complex(x), bool(x), x.item()) == (2.5, 2, 2.5, True, 2.5)
    assert operator.index(ruda.asarray(3)) == 3 and [0, 1, 2, 3][ruda.asarray(3)] == 3
    for bad in (ruda.asarray([3]), ruda.asarray(3.0), ruda.asarray(True)):
        with pytest.raises(TypeError, match="not an index"):
            operator.index(bad)
    for dtype in dtypes.ALL:
        value = ruda.ones((), dtype=dtype).item()
        kind = {"int": int, "uint": int, "bool": bool, "complex": complex}.get(dtype.kind, float)
        assert value.__class__ is kind and value == 1


def test_tolist_gives_python_numbers_of_every_dtype() -> None:
    for dtype in dtypes.ALL:
        assert made(dtype).tolist() == [[0, 1, 0, 1]] * 3
        assert ruda.zeros((2, 0), dtype=dtype).tolist() == [[], []]
    assert ruda.asarray(1.5).tolist() == 1.5
    assert ruda.asarray([2**64 - 1], dtype="uint64").tolist() == [2**64 - 1]


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_repr_shows_every_dtype_and_size(dtype: Any) -> None:
    for shape in ((), (1,), (0,), (2, 0), (3, 4), (2000,), (70, 80)):
        text = repr(ruda.ones(shape, dtype=dtype))
        assert text.startswith("tensor(") and ")" in text and len(text) < 2000
        assert (dtype.name in text) is (dtype.name not in ("float32", "bool"))
        assert ("..." in text) is (shape in ((2000,), (70, 80)))
    assert "shape=(2, 0)" in repr(ruda.ones((2, 0), dtype=dtype))


def test_repr_and_format() -> None:
    assert repr(ruda.asarray(2.5)) == "tensor(2.5)"
    assert repr(ruda.asarray([1, 2])) == "tensor([1, 2], dtype=int32)"
    assert "nan" in repr(ruda.asarray([float("nan")]))
    assert "requires_grad=True" in repr(ruda.tensor([1.0], requires_grad=True))
    x = ruda.asarray(2.0)
    assert f"{x:.2f}" == "2.00" and f"{ruda.asarray([[7]]):03d}" == "007"
    assert f"{ruda.asarray([1.0, 2.0])}" == str(ruda.asarray([1.0, 2.0]))
    with pytest.raises(ruda.ArgumentError, match=r"^format: "):
        f"{ruda.asarray([1.0, 2.0]):.2f}"
    assert "<" in ruda.ones(2)._repr_html_()


def test_numpy_shares_read_only_and_copies_on_demand() -> None:
    x = ruda.arange(4.0)
    shared, own = x.numpy(), x.numpy(copy=True)
    with pytest.raises(ValueError, match="read-only"):
        shared[0] = 1
    own[0] = 9
    x[1] = 7
    assert shared.tolist() == [0, 7, 2, 3] and own.tolist() == [9, 1, 2, 3]


def test_half_and_storage_types_read_through_ml_dtypes() -> None:
    for dtype in (ruda.bfloat16, *dtypes.STORAGE):
        values = ruda.ones(3, dtype=dtype).numpy()
        assert values.dtype == dtype.numpy and values.astype(np.float32).tolist() == [1, 1, 1]


def test_an_array_of_a_tracked_tensor_is_its_value() -> None:
    x = ruda.tensor([1.0, 2.0], requires_grad=True)
    assert np.asarray(x * 2).tolist() == [2, 4] and x.numpy().tolist() == [1, 2]


def test_the_namespace_is_ruda() -> None:
    x = ruda.ones(1)
    assert x.__array_namespace__() is ruda
    assert x.__array_namespace__(api_version="2024.12") is ruda
    assert ruda.__array_api_version__ == "2024.12"
