"""``x[key] = value`` against NumPy: values, dtypes, overlap, masks, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.errors import ArgumentError, DTypeError, GradientError, IntegerRangeError
from ruda.testing import gradcheck
from tests.ops.keys import random_case
from tests.ops.test_index import as_tensors


def random_value(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """A value that broadcasts to ``shape``: a scalar, or with some axes of length 1 or left out."""
    if rng.random() < 0.2:
        return 3.5
    kept = [1 if rng.random() < 0.2 else n for n in shape][int(rng.random() < 0.2) :]
    return rng.standard_normal(kept)


@pytest.mark.parametrize("block", range(8))
def test_setitem_is_numpys(block: int) -> None:
    for seed in range(block, 400, 8):
        array, key, rng = random_case(seed)
        try:
            value = random_value(rng, np.shape(array[key]))
        except IndexError:
            continue
        expected = array.copy()
        expected[key] = value
        for own in (key, as_tensors(key)):
            x = ruda.tensor(array)
            x[own] = value
            assert np.array_equal(x.numpy(), expected), (seed, key)


@pytest.mark.parametrize("seed", range(0, 400, 7))
def test_setitem_gradient(seed: int) -> None:
    array, key, rng = random_case(seed)
    try:
        value = random_value(rng, np.shape(array[key]))
    except IndexError:
        pytest.skip("not a key of this array")

    def call(x: Any, value: Any) -> Any:
        out = x * x
        out[as_tensors(key)] = value * value
        return out

    gradcheck(call, [array, np.asarray(value)])


def test_the_last_of_equal_places_wins_and_has_the_gradient() -> None:
    x = ruda.zeros(3)
    v = ruda.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x[[0, 2, 0]] = v
    assert x.tolist() == [3, 0, 2]
    x.sum().backward()
    assert v.grad is not None
    assert v.grad.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("to", "source"),
    [
        (np.s_[1:], np.s_[:-1]),
        (np.s_[:-1], np.s_[1:]),
        (np.s_[...], np.s_[::-1]),
        (np.s_[::2], np.s_[1::2]),
        (np.s_[[0, 1, 2]], np.s_[1:4]),
    ],
)
def test_overlap(to: Any, source: Any) -> None:
    array = np.arange(6.0)
    x, y = ruda.tensor(array), ruda.tensor(array, requires_grad=True) * 1
    expected = array.copy()
    expected[to] = array[source]
    for t in (x, y):
        t[to] = t[source]
        assert np.array_equal(t.numpy(), expected)
    gradcheck(lambda x: shifted(x * x, to, source), [array])


def shifted(x: Any, to: Any, source: Any) -> Any:
    x[to] = x[source]
    return x


def test_transposed_onto_itself() -> None:
    array = np.arange(9.0).reshape(3, 3)
    x = ruda.tensor(array)
    x[...] = x.mT
    assert np.array_equal(x.numpy(), array.T)


def test_values_of_other_kinds() -> None:
    x = ruda.zeros((2, 3))
    x[0] = [1, 2, 3]
    x[1, 0] = True
    x[1, 1:] = np.array([[7.0, 8.0]])
    assert x.tolist() == [[1, 2, 3], [1, 7, 8]]
    x[0] = ruda.asarray(4, dtype="int8")
    x[:, 1] = x[0, 0]
    assert x.tolist() == [[4, 4, 4], [1, 4, 8]]


@pytest.mark.parametrize("key", [0, [0], slice(None), [True, False]])
def test_a_value_keeps_its_kind(key: Any) -> None:
    x = ruda.zeros(2, dtype="int8")
    for value in (1.5, ruda.asarray(1.5), ruda.ones(1), 1j):
        with pytest.raises(DTypeError, match="kind"):
            x[key] = value
    assert x.tolist() == [0, 0]
    x[key] = ruda.asarray(7, dtype="int64")
    assert x[0].item() == 7


@pytest.mark.parametrize("key", [0, [0], slice(None)])
def test_an_integer_that_does_not_fit(key: Any) -> None:
    x = ruda.zeros(2, dtype="int8")
    with pytest.raises(IntegerRangeError, match="300"):
        x[key] = 300


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "bool", "complex64", "float8_e4m3"])
def test_other_dtypes(dtype: str) -> None:
    x = ruda.zeros((3, 2)).astype(dtype)
    one = ruda.ones((2,)).astype(dtype)
    x[1] = one
    x[[2]] = one
    x[:, 1] = x[0, 1]
    assert x.astype("complex64").tolist() == [[0, 0], [1, 0], [1, 0]]


def test_read_only_memory_is_not_written() -> None:
    array = np.zeros(3)
    array.flags.writeable = False
    for key in (0, [0]):
        with pytest.raises(ArgumentError, match="read-only"):
            ruda.asarray(array)[key] = 1.0


def test_in_place_operators_write_once() -> None:
    x = ruda.ones((2, 3))
    x[0] += 2
    assert x.handle.version == 1
    x[[0, 1], 1] *= 5
    assert x.tolist() == [[3, 15, 3], [1, 5, 1]]
    x[x > 4] -= 1
    assert x.tolist() == [[3, 14, 3], [1, 4, 1]]


def test_in_place_operators_have_gradients(rng: np.random.Generator) -> None:
    def call(x: Any, y: Any) -> Any:
        x = x * x
        x[0] += y
        x[:, 1] *= 3
        x[:, 1] += y[:2] * (x[1, 0] * 1)
        x[[1, 0], [2, 2]] -= y[0]
        return x

    gradcheck(call, [rng.standard_normal((2, 3)), rng.standard_normal(3)])


def test_a_mask_is_not_read_for_a_value_that_broadcasts(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(mask: Any) -> Any:
        raise AssertionError("the mask was read")

    x = ruda.asarray(np.arange(12.0).reshape(3, 4))
    monkeypatch.setattr("ruda.ops.getitem.true_places", read)
    x[x > 6] = 0.0
    x[ruda.asarray([True, False, False])] = ruda.asarray([9.0, 8.0, 7.0, 6.0])
    x[:, ruda.asarray([True, False, False, False])] = ruda.asarray([[1.0]])
    assert x.tolist() == [[1, 8, 7, 6], [1, 5, 6, 0], [1, 0, 0, 0]]


def test_index_changed_after_the_write(rng: np.random.Generator) -> None:
    x, index = ruda.tensor(rng.standard_normal(3), requires_grad=True), ruda.asarray([0, 1])
    y = x * 2
    y[index] = x[:2]
    index[0] = 2
    with pytest.raises(GradientError, match=r"index_put: .*changed in place"):
        y.sum().backward()
