"""Activations: their definitions, far ends, kinks and gradients, and PyTorch where it is there."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.testing import assert_close, gradcheck

NAMES = [
    "relu",
    "relu6",
    "leaky_relu",
    "elu",
    "celu",
    "selu",
    "gelu",
    "silu",
    "softplus",
    "mish",
    "hardtanh",
    "hardsigmoid",
    "hardswish",
    "softsign",
    "tanhshrink",
    "softshrink",
    "hardshrink",
]
LINE = np.linspace(-8, 8, 403)


def grad(function: Any, values: Any) -> Any:
    x = ruda.tensor(np.asarray(values, np.float64), requires_grad=True)
    function(x).sum().backward()
    assert x.grad is not None
    return x.grad.numpy()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gelu(dtype: str) -> None:
    x = LINE.astype(dtype)
    cdf = [0.5 * math.erfc(-v / math.sqrt(2)) for v in x.tolist()]
    got = ruda.gelu(ruda.asarray(x)).numpy()
    # In float32 the cdf comes from 1 + erf: absolutely right to a rounding of 1, not relatively.
    eps = np.finfo(dtype).eps
    # In float64 a rounding of x / sqrt(2) counts x² times in the tail, 64 at the end of the line.
    np.testing.assert_allclose(got, x * cdf, rtol=80 * eps, atol=16 * eps * (dtype == "float32"))
    approximate = ruda.gelu(ruda.asarray(x), approximate="tanh").numpy()
    inner = math.sqrt(2 / math.pi) * (LINE + 0.044715 * LINE**3)
    assert_close(approximate, 0.5 * LINE * (1 + np.tanh(inner)), rtol=4 * eps)
    assert 1e-5 < np.abs(approximate - got).max() < 5e-3


@pytest.mark.parametrize("name", ["relu", "silu", "gelu", "softplus", "mish", "elu", "selu"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_far_ends(name: str, dtype: str) -> None:
    """No overflow on the way, in the value or in the gradient."""
    x = ruda.tensor([-1e4, -200.0, 200.0, 1e4], dtype=dtype, requires_grad=True)
    out = getattr(ruda, name)(x)
    out.sum().backward()
    assert x.grad is not None
    scale = 1.0507009873554805 if name == "selu" else 1.0
    np.testing.assert_allclose(out.numpy()[2:], scale * np.array([200, 1e4]), rtol=1e-6)
    np.testing.assert_allclose(x.grad.numpy(), [0, 0, scale, scale], rtol=1e-6, atol=1e-30)


def test_values_at_the_kinks() -> None:
    assert ruda.relu(ruda.asarray([-1.0, -0.0, math.inf])).tolist() == [0.0, 0.0, math.inf]
    assert math.isnan(ruda.relu(ruda.asarray(math.nan)).item())
    assert ruda.relu(ruda.asarray([-3, 4])).dtype is ruda.int32
    assert grad(ruda.relu, [-1, 0, 1]).tolist() == [0, 0, 1]
    assert grad(ruda.relu6, [-1, 0, 3, 6, 7]).tolist() == [0, 1, 1, 1, 0]
    assert grad(ruda.elu, [0.0]).tolist() == [1.0]
    assert grad(ruda.leaky_relu, [-1, 0, 1]).tolist() == [0.01, 0.01, 1]


def test_gradient_of_relu_drops_what_is_not_finite() -> None:
    x = ruda.tensor(np.linspace(-1, 1, 5000), requires_grad=True)
    ruda.relu(x).backward(ruda.full(5000, math.inf, dtype="float64"))
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), np.where(x.numpy() > 0, np.inf, 0))


@pytest.mark.parametrize("name", [*NAMES, "sigmoid", "log_sigmoid"])
def test_gradients(name: str) -> None:
    gradcheck(getattr(ruda, name), [np.array([-7.3, -2.1, -0.7, 0.3, 1.1, 5.9])])


def test_gated_units(rng: np.random.Generator) -> None:
    x = rng.standard_normal((4, 6))
    sigmoid = 1 / (1 + np.exp(-x))
    assert_close(ruda.glu(ruda.asarray(x)), x[:, :3] * sigmoid[:, 3:])
    assert_close(ruda.glu(ruda.asarray(x), axis=0), x[:2] * sigmoid[2:])
    gate, up = ruda.asarray(x[:, :3]), ruda.asarray(x[:, 3:])
    assert_close(ruda.swiglu(gate, up), (x * sigmoid)[:, :3] * x[:, 3:])
    gradcheck(ruda.swiglu, [x[:, :3], x[0, 3:]])


def test_prelu_has_one_slope_per_channel() -> None:
    x = ruda.asarray([[[-1.0], [-2.0]], [[3.0], [-4.0]]])
    assert ruda.prelu(x, ruda.asarray([0.1, 0.5])).tolist() == [
        [[pytest.approx(-0.1)], [-1.0]],
        [[3.0], [-2.0]],
    ]
    assert ruda.prelu(x, ruda.asarray([0.5])).tolist() == [[[-0.5], [-1.0]], [[3.0], [-2.0]]]


def test_softplus_with_beta() -> None:
    x = ruda.asarray(LINE)
    assert_close(ruda.softplus(x, 2.0), np.log1p(np.exp(2 * LINE)) / 2)
    assert_close(ruda.softplus(x, -1.0), -np.log1p(np.exp(-LINE)))


@pytest.mark.parametrize("name", NAMES)
def test_against_torch(name: str, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    # At the ends of its interval torch's hardtanh has slope 0, and so has its relu6.
    values = LINE[LINE != 0] if name == "relu6" else LINE
    g = rng.standard_normal(values.size)
    theirs = torch.tensor(values, requires_grad=True)
    want = getattr(torch.nn.functional, name)(theirs)
    want.backward(torch.tensor(g))
    ours = ruda.tensor(values, requires_grad=True)
    got = getattr(ruda, name)(ours)
    got.backward(ruda.asarray(g))
    assert ours.grad is not None
    assert_close(got, want.detach().numpy())
    # The slope of torch's hardsigmoid is 1 / 6 rounded to float32.
    rtol = 1e-7 if name == "hardsigmoid" else 1e-14
    assert_close(ours.grad, theirs.grad.numpy(), rtol=rtol)
