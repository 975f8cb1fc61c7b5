"""Losses against PyTorch: reductions, weights, ignored targets, two orders of derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.core.errors import DTypeError, ShapeError
from ruda.ops import cross_entropy_joint, cross_entropy_rows
from ruda.ops.table import TABLE
from tests.ops.peer import assert_near, assert_same, torch

REDUCTIONS = ("none", "mean", "sum")
TARGET = np.array([1, -100, 6, 0, 3])
WEIGHT = np.random.default_rng(9).uniform(0.5, 2.0, 7)


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def shares(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).uniform(0.05, 0.95, shape)


def theirs() -> Any:
    return torch().nn.functional


@pytest.mark.parametrize("weighted", [False, True], ids=["even", "weighted"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_cross_entropy(reduction: str, smoothing: float, weighted: bool) -> None:
    options: dict[str, Any] = {"reduction": reduction, "label_smoothing": smoothing}
    mine = {"weight": ruda.asarray(WEIGHT)} if weighted else {}
    peer = {"weight": torch().tensor(WEIGHT)} if weighted else {}
    assert_same(
        lambda x: F.cross_entropy(x, ruda.asarray(TARGET), **mine, **options),
        lambda x: theirs().cross_entropy(x, torch().tensor(TARGET), **peer, **options),
        values(5, 7),
    )


def test_cross_entropy_along_axis_1_with_z_loss() -> None:
    target = np.random.default_rng(1).integers(0, 4, (2, 3, 5))

    def peer(x: Any) -> Any:
        level = torch().logsumexp(x, 1)
        return theirs().cross_entropy(x, torch().tensor(target)) + 0.1 * (level**2).mean()

    assert_same(
        lambda x: F.cross_entropy(x, ruda.asarray(target), axis=1, z_loss=0.1),
        peer,
        values(2, 4, 3, 5),
    )


def test_cross_entropy_of_probabilities() -> None:
    assert_same(
        lambda x, p: F.cross_entropy(x, p, weight=ruda.asarray(WEIGHT), label_smoothing=0.2),
        lambda x, p: theirs().cross_entropy(
            x, p, weight=torch().tensor(WEIGHT), label_smoothing=0.2
        ),
        values(5, 7),
        shares(5, 7),
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nll_loss(reduction: str) -> None:
    assert_same(
        lambda x: F.nll_loss(x, ruda.asarray(TARGET), ruda.asarray(WEIGHT), reduction=reduction),
        lambda x: theirs().nll_loss(
            x, torch().tensor(TARGET), torch().tensor(WEIGHT), reduction=reduction
        ),
        values(5, 7),
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mse_loss", {}),
        ("l1_loss", {}),
        ("smooth_l1_loss", {"beta": 0.5}),
        ("huber_loss", {"delta": 0.7}),
        ("kl_div", {"log_target": True}),
        ("binary_cross_entropy_with_logits", {}),
    ],
)
def test_pairs(name: str, options: dict[str, Any], reduction: str) -> None:
    mine, peer = getattr(F, name), getattr(theirs(), name)
    if (name, reduction) == ("kl_div", "mean"):
        options, reduction = options, "batchmean"
    assert_same(
        lambda x, y: mine(x, y, reduction=reduction, **options),
        lambda x, y: peer(x, y, reduction=reduction, **options),
        values(3, 4),
        values(3, 4, seed=1),
    )


def test_kl_div_of_probabilities() -> None:
    assert_same(F.kl_div, lambda x, p: theirs().kl_div(x, p, reduction="mean"), *two_shares())


def two_shares() -> tuple[Any, Any]:
    return np.log(shares(3, 4)), shares(3, 4, seed=1)


def test_binary_cross_entropy_with_weights() -> None:
    weight = shares(4)
    target = shares(3, 4, seed=1)
    assert_same(
        lambda x: F.binary_cross_entropy_with_logits(
            x, ruda.asarray(target), ruda.asarray(weight), pos_weight=ruda.asarray(weight)
        ),
        lambda x: theirs().binary_cross_entropy_with_logits(
            x, torch().tensor(target), torch().tensor(weight), pos_weight=torch().tensor(weight)
        ),
        values(3, 4),
    )
    p = shares(3, 4)
    expected = theirs().binary_cross_entropy(torch().tensor(p), torch().tensor(target))
    assert_near(F.binary_cross_entropy(ruda.asarray(p), ruda.asarray(target)), expected)


def test_extreme_predictions_give_finite_losses() -> None:
    ends = ruda.asarray([0.0, 1.0])
    assert F.binary_cross_entropy(ends, 1 - ends).item() == 100.0
    logits = ruda.asarray([1e4, -1e4])
    huge = float(np.float32(1e30))
    assert F.binary_cross_entropy_with_logits(logits, ends).item() == 1e4
    assert F.cross_entropy(ruda.asarray([[1e30, 0.0]]), ruda.asarray([1])).item() == huge


def test_nothing_counted_has_no_mean() -> None:
    ignored = ruda.full((2,), -100, dtype="int64")
    logits = ruda.ones((2, 3)).requires_grad_()
    assert np.isnan(F.cross_entropy(logits, ignored).item())
    assert F.cross_entropy(logits, ignored, reduction="sum").item() == 0


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64"])
def test_any_integer_dtype_of_the_target(dtype: str) -> None:
    logits = ruda.asarray(values(3, 4))
    expected = F.cross_entropy(logits, ruda.asarray([0, 3, 1]))
    assert_near(F.cross_entropy(logits, ruda.asarray([0, 3, 1], dtype=dtype)), expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_logits_round_once(dtype: str) -> None:
    logits = ruda.asarray(values(64, 9)).astype(dtype)
    target = ruda.asarray(np.arange(64) % 9)
    wide = F.cross_entropy(logits.astype("float32"), target)
    assert F.cross_entropy(logits, target).item() == wide.astype(dtype).item()
    with ruda.autocast(dtype):
        assert F.cross_entropy(logits, target).dtype == "float32"


def test_a_target_for_axis_1_is_told_so() -> None:
    with pytest.raises(ShapeError, match=r"Try axis=1"):
        F.cross_entropy(ruda.ones((2, 5, 4)), ruda.zeros((2, 4), dtype="int64"))
    with pytest.raises(ShapeError, match=r"Try axis=1"):
        F.nll_loss(ruda.ones((2, 5, 4)), ruda.zeros((2, 4), dtype="int64"))


def test_classes_as_floats_are_told_to_be_integers() -> None:
    with pytest.raises(ShapeError, match=r"Expected \(3, 5\)\. Try target\.astype\('int64'\)"):
        F.cross_entropy(ruda.ones((3, 5)), ruda.zeros(3))


def gradient(name: str, dy: Any, dtype: str = "float32") -> Any:
    """What a row makes of ``dy``, the gradient in the losses of five examples."""
    given = [dy, ruda.ones((5, 7), dtype=dtype), ruda.asarray(TARGET)]
    if name == f"{cross_entropy_rows.NAME}_backward":
        given.append(ruda.ones(5, dtype=dtype))
    return TABLE[name].call(*given, None, 1, -100, 0.0, 0.0)


BOTH = f"{cross_entropy_rows.NAME}_backward", cross_entropy_joint.ROW.name


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("dtype", ["int64", "float64", "bfloat16"])
def test_gradients_of_losses_have_their_dtype(name: str, dtype: str) -> None:
    with pytest.raises(
        DTypeError, match=rf"{name}: dy does not fit .* Got {dtype}\. Expected floa"
    ):
        gradient(name, ruda.ones(5, dtype=dtype))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", BOTH)
def test_gradients_beside_halves_may_be_wide(name: str, dtype: str) -> None:
    made = gradient(name, ruda.ones(5, dtype=dtype), "bfloat16")
    dx = made[0] if isinstance(made, tuple) else made
    assert dx.dtype == "bfloat16"


def test_a_gradient_with_the_losses_has_one_number_each() -> None:
    with pytest.raises(ShapeError, match=r"dy does not fit\. Got \(4,\)\. Expected \(5,\)"):
        gradient(cross_entropy_joint.ROW.name, ruda.ones(4))
