"""matplotlib takes tensors where it takes arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ruda
from tests.display.kinds import noise

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt: Any = pytest.importorskip("matplotlib.pyplot")

DTYPES = ["float32", "float64", "float16", "bfloat16", "float8_e4m3", "int32", "uint8", "bool"]


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    plt.close("all")


def tensor(dtype: str, *shape: int) -> Any:
    return ruda.asarray(np.abs(noise(*shape)) * 2).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_plot_draws_the_values(dtype: str) -> None:
    x = tensor(dtype, 12)
    (line,) = plt.plot(x)
    plt.gcf().canvas.draw()
    assert np.asarray(line.get_ydata(), np.float64).tolist() == np.float64(x.numpy()).tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_imshow_draws_the_values(dtype: str) -> None:
    x = tensor(dtype, 4, 5)
    image = plt.imshow(x)
    plt.gcf().canvas.draw()
    assert np.float64(image.get_array()).tolist() == np.float64(x.numpy()).tolist()


@pytest.mark.parametrize("draw", ["scatter", "bar", "fill_between", "step", "errorbar"])
def test_pairs_of_tensors(draw: str) -> None:
    getattr(plt, draw)(ruda.arange(6), tensor("float16", 6))
    plt.gcf().canvas.draw()


# `bar` makes a list of scalars of its heights, which ml_dtypes cannot read back.
@pytest.mark.parametrize("draw", ["scatter", "fill_between", "step", "errorbar"])
def test_pairs_in_bfloat16(draw: str) -> None:
    getattr(plt, draw)(tensor("bfloat16", 6), tensor("bfloat16", 6))
    plt.gcf().canvas.draw()


def test_a_histogram_counts_a_tensor() -> None:
    x = tensor("float16", 100)
    counts, _, _ = plt.hist(x, bins=7)
    assert counts.sum() == 100


def test_tensors_on_the_tape_and_views() -> None:
    x = ruda.tensor(noise(6, 6), requires_grad=True)
    plt.plot((x * 2)[:, 0])
    plt.imshow(x.T[::-1])
    plt.contour(x)
    plt.gcf().canvas.draw()
    assert x.grad is None
