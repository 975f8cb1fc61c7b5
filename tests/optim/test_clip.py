"""Clipping beside PyTorch and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

import ruda
from ruda.core.errors import ArgumentError
from ruda.optim import clip_grad_norm_, clip_grad_value_


def with_grad(values: np.ndarray, dtype: str = "float64") -> ruda.Tensor:
    weight = ruda.zeros(values.shape, dtype=dtype).requires_grad_()
    weight.grad = ruda.asarray(values.astype(dtype) if dtype == "float64" else values).astype(dtype)
    return weight


@pytest.mark.parametrize("kind", [2.0, 1.0, 3.0, math.inf])
@pytest.mark.parametrize("limit", [0.5, 100.0])
def test_norms_are_those_of_pytorch(kind: float, limit: float, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    values = [rng.standard_normal(shape) for shape in ((3, 4), (5,), ())]
    own = [with_grad(v) for v in map(np.asarray, values)]
    other = [torch.zeros(np.shape(v), dtype=torch.float64, requires_grad=True) for v in values]
    for weight, value in zip(other, values, strict=True):
        weight.grad = torch.from_numpy(np.array(value))
    norm = clip_grad_norm_(own, limit, kind)
    expected = torch.nn.utils.clip_grad_norm_(other, limit, kind)
    assert norm.item() == pytest.approx(expected.item(), rel=1e-14)
    for mine, theirs in zip(own, other, strict=True):
        np.testing.assert_allclose(mine.grad.numpy(), theirs.grad.numpy(), rtol=1e-13)


def test_half_gradients_are_summed_wide() -> None:
    weight = with_grad(np.full(100_000, 1.0), "float16")
    # The sum of squares, 100,000, is beyond float16.
    assert clip_grad_norm_([weight], 1.0).item() == pytest.approx(math.sqrt(100_000), rel=1e-6)
    assert weight.grad.dtype is ruda.float16


def test_a_gradient_that_is_not_finite_shows_in_the_norm() -> None:
    assert math.isinf(clip_grad_norm_(with_grad(np.array([1.0, math.inf])), 1.0).item())
    assert math.isnan(clip_grad_norm_(with_grad(np.array([1.0, math.nan])), 1.0).item())


def test_values_are_held_in_place() -> None:
    weight = with_grad(np.array([-3.0, 0.5, 2.0]))
    grad = weight.grad
    clip_grad_value_([weight, ruda.zeros(2).requires_grad_()], 1.0)
    assert grad.tolist() == [-1.0, 0.5, 1.0]


def test_nothing_to_clip_has_norm_zero() -> None:
    assert clip_grad_norm_([ruda.zeros(2).requires_grad_()], 1.0).item() == 0.0


def test_a_norm_of_order_zero_raises() -> None:
    with pytest.raises(ArgumentError, match=r"norm_type is not positive. Got 0"):
        clip_grad_norm_([], 1.0, 0)
