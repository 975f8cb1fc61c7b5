"""`repr`: small tensors whole, large ones by their corners and true facts, all of them quickly."""

from __future__ import annotations

import pickle
import time
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.display.text import EDGES, corners
from tests.display.kinds import KINDS, noise, with_specials


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_has_a_repr_that_names_its_dtype(name: str) -> None:
    x = KINDS[name]()
    text = repr(x)
    assert text.startswith("tensor(") and text == str(x)
    assert (f"dtype={x.dtype}" in text) == (x.dtype.name not in ("float32", "bool"))
    assert ("requires_grad=True" in text) == x.requires_grad
    assert (f"shape={x.shape}" in text) == (x.size > 1000 or x.shape == (0, 3))
    assert ("\n# " in text) == (x.size > 1000)


def test_an_unpickled_tensor_prints_as_before() -> None:
    for dtype in ("int32", "bool", "float16", "bfloat16", "complex64"):
        x = ruda.asarray([0, 1], dtype=dtype)
        assert repr(pickle.loads(pickle.dumps(x))) == repr(x)


def test_small_tensors_are_printed_whole() -> None:
    assert repr(ruda.asarray(np.float32(2.5))) == "tensor(2.5)"
    assert repr(ruda.zeros(0)) == "tensor([])"
    assert repr(ruda.asarray([[1, 2], [3, 4]], dtype="int8")) == (
        "tensor([[1, 2],\n        [3, 4]], dtype=int8)"
    )
    assert repr(ruda.tensor([1.5], dtype="bfloat16", requires_grad=True)) == (
        "tensor([1.5], dtype=bfloat16, requires_grad=True)"
    )


@pytest.mark.parametrize("shape", [(1001,), (40, 50), (7, 5, 40), (11, 3, 6, 6), (9, 2, 4, 5, 6)])
def test_corners_print_as_the_whole_does(shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape)).reshape(shape)
    edge = EDGES[len(shape)]
    ours = np.array2string(corners(ruda.asarray(values), edge), threshold=0, edgeitems=edge)
    assert ours == np.array2string(values, threshold=0, edgeitems=edge)


def test_facts_count_what_is_not_finite() -> None:
    text = repr(ruda.asarray(with_specials(noise(100, 100))))
    assert "10,000 elements, 39.1 KiB" in text
    assert text.endswith("1 NaN, 1 inf, 1 -inf")


def test_facts_of_integers_and_of_true_are_exact() -> None:
    assert "min 0, max 4,999, mean 2500" in repr(ruda.arange(5000))
    assert "25 % True" in repr(ruda.arange(4000) < 1000)


def test_a_sample_is_called_one() -> None:
    assert "from a sample of " in repr(ruda.zeros((1100, 1000)))
    assert "sample" not in repr(ruda.zeros((1000, 1000)))


def test_layouts_are_named() -> None:
    assert "transposed, axes in memory (1, 0)" in repr(KINDS["transposed"]())
    assert "reversed" in repr(KINDS["reversed"]())
    assert "expanded from 1,000 elements" in repr(KINDS["expanded"]())


def test_a_view_of_the_middle_prints_its_own_corners() -> None:
    values = noise(120, 90)
    part, expected = ruda.asarray(values)[10:110, 20:80], values[10:110, 20:80]
    assert (corners(part, 3)[:4, :4] == expected[:4, :4]).all()
    assert (corners(part, 3)[-3:, -3:] == expected[-3:, -3:]).all()


def test_a_tensor_without_values_says_so() -> None:
    x = ruda.zeros((2, 3), device="null")
    assert repr(x) == "tensor(<no values>, float32[2, 3]@null)"
    assert "no values" in x._repr_html_()


def test_a_traced_tensor_says_so_in_text_and_html() -> None:
    def step(x: Any) -> Any:
        y = x * 2
        assert repr(y) == "tensor(<traced>, float32[3]@cpu)"
        card = y._repr_html_()
        assert "traced" in card and "<img" not in card
        return y

    assert ruda.compile(step)(ruda.ones(3)).tolist() == [2, 2, 2]


@pytest.mark.parametrize("name", ["expanded", "large"])
def test_a_huge_tensor_takes_milliseconds(name: str) -> None:
    x = KINDS["expanded"]() if name == "expanded" else ruda.zeros(120_000_000, dtype="uint8")
    assert x.size > 10**8
    repr(x)
    start = time.perf_counter()
    repr(x)
    # About 2 ms on an idle machine; reading all elements would take more than this.
    assert time.perf_counter() - start < 0.1
