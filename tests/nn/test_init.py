"""Initial values: moments, bounds, reproducibility and errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import nn
from ruda.core.errors import ArgumentError, ShapeError
from ruda.nn import init

SHAPE = (200, 100, 2, 2)
FAN_IN, FAN_OUT = 400, 800


@pytest.mark.parametrize(
    ("fill", "std"),
    [
        (init.kaiming_uniform_, math.sqrt(2 / FAN_IN)),
        (init.kaiming_normal_, math.sqrt(2 / FAN_IN)),
        (lambda t, **k: init.kaiming_normal_(t, mode="fan_out", **k), math.sqrt(2 / FAN_OUT)),
        (lambda t, **k: init.kaiming_uniform_(t, nonlinearity="tanh", **k), 5 / 3 / 20),
        (init.xavier_uniform_, math.sqrt(2 / (FAN_IN + FAN_OUT))),
        (init.xavier_normal_, math.sqrt(2 / (FAN_IN + FAN_OUT))),
        (init.normal_, 1.0),
        (lambda t, **k: init.uniform_(t, -1.0, 1.0, **k), 1 / math.sqrt(3)),
        (init.trunc_normal_, 0.8796),
    ],
)
def test_moments(fill: Any, std: float) -> None:
    weight = ruda.zeros(SHAPE).requires_grad_()
    assert fill(weight, generator=ruda.random.Generator(1)) is weight
    values = weight.numpy()
    # 80,000 draws: five standard errors of the mean and of the standard deviation.
    assert abs(values.mean()) < 5 * std / math.sqrt(values.size)
    assert values.std() == pytest.approx(std, rel=5 / math.sqrt(2 * values.size))
    again = fill(ruda.zeros(SHAPE), generator=ruda.random.Generator(1))
    np.testing.assert_array_equal(again.numpy(), values)


def test_constants() -> None:
    weight = ruda.zeros(3).requires_grad_()
    assert init.ones_(weight).tolist() == [1.0] * 3
    assert init.constant_(weight, 2.5).tolist() == [2.5] * 3
    assert init.zeros_(weight).tolist() == [0.0] * 3


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes_stay(dtype: str) -> None:
    weight = init.kaiming_uniform_(ruda.zeros((64, 64), dtype=dtype))
    assert weight.dtype == dtype
    assert abs(weight.astype("float64").numpy()).max() <= math.sqrt(6 / 64)


def test_truncation_holds() -> None:
    values = init.trunc_normal_(ruda.zeros(10_000), std=2.0, a=-1.0, b=3.0).numpy()
    assert values.min() >= -1.0
    assert values.max() <= 3.0


def test_layers_start_inside_the_bounds_of_pytorch() -> None:
    for layer in (nn.Linear(16, 300), nn.Conv2d(4, 300, 2)):
        for values in (layer.weight.numpy(), layer.bias.numpy()):
            assert np.abs(values).max() <= 0.25
            assert np.abs(values).max() > 0.24
    padded = nn.Embedding(5, 3, padding_idx=-1)
    assert padded.weight[4].tolist() == [0.0] * 3
    assert nn.Linear(0, 2)(ruda.ones((1, 0))).tolist() == [[0.0, 0.0]]


def test_a_seed_repeats_a_model() -> None:
    ruda.random.seed(3)
    one = nn.Linear(4, 4)
    ruda.random.seed(3)
    two = nn.Linear(4, 4)
    np.testing.assert_array_equal(one.weight.numpy(), two.weight.numpy())


def test_errors() -> None:
    with pytest.raises(ShapeError, match="a vector has no fan-in"):
        init.xavier_normal_(ruda.zeros(3))
    with pytest.raises(ArgumentError, match=r"unknown mode. Got 'fan'"):
        init.kaiming_normal_(ruda.zeros((3, 3)), mode="fan")
    with pytest.raises(ArgumentError, match=r"calculate_gain: unknown nonlinearity. Got swish"):
        init.calculate_gain("swish")


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 2, 3), (4, 4)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    weight = init.orthogonal_(ruda.zeros(shape, dtype="float64"), 2.0, ruda.random.Generator(1))
    matrix = weight.numpy().reshape(shape[0], -1)
    product = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-14)
    again = init.orthogonal_(ruda.zeros(shape, dtype="float64"), 2.0, ruda.random.Generator(1))
    np.testing.assert_array_equal(again.numpy(), weight.numpy())
    assert init.orthogonal_(ruda.zeros(shape, dtype="bfloat16")).dtype == "bfloat16"


def test_identities() -> None:
    torch = pytest.importorskip("torch")
    assert init.eye_(ruda.ones((2, 3))).tolist() == [[1, 0, 0], [0, 1, 0]]
    for shape, groups in (((4, 2, 3), 1), ((4, 2, 3, 4), 2), ((2, 3, 1, 2, 3), 2)):
        expected = torch.nn.init.dirac_(torch.empty(shape), groups)
        got = init.dirac_(ruda.ones(shape).requires_grad_(), groups)
        np.testing.assert_array_equal(got.numpy(), expected.numpy())


def test_sparse() -> None:
    weight = init.sparse_(ruda.ones((10, 50)), 0.25, std=2.0, generator=ruda.random.Generator(1))
    assert ((weight.numpy() == 0).sum(0) == 3).all()
    # 350 draws: five standard errors.
    assert weight.numpy()[weight.numpy() != 0].std() == pytest.approx(2, rel=5 / math.sqrt(700))


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: init.orthogonal_(ruda.ones(3)), ShapeError, "fan-in"),
        (lambda: init.eye_(ruda.ones(3)), ShapeError, "not a matrix"),
        (lambda: init.dirac_(ruda.ones((2, 2))), ShapeError, "no weight of a convolution"),
        (lambda: init.dirac_(ruda.ones((3, 2, 1)), 2), ArgumentError, "do not divide"),
        (lambda: init.sparse_(ruda.ones((3, 2)), 1.5), ArgumentError, "no fraction"),
    ],
)
def test_errors_of_structured_values(call: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()
