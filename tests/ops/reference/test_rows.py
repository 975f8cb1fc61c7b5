"""Row references against one formula per row in float64, finite differences, and PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ruda.ops.reference import rows
from ruda.ops.reference.windows import Array

SHAPES = [((3, 5), -1), ((2, 4, 3), 1), ((4, 3), 0), ((7,), 0), ((0, 4), 1), ((2, 3, 1), -1)]
each_shape = pytest.mark.parametrize(("shape", "axis"), SHAPES)


@pytest.fixture(autouse=True, params=[1, 1 << 18], ids=["row by row", "one block"])
def block_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_BLOCK_BYTES", request.param)


def normal(shape: tuple[int, ...], seed: int = 3) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def per_row(formula: Callable[[Array], Any], x: Array, axis: int) -> Array:
    return np.apply_along_axis(formula, axis, x) if x.size else x


def assert_slope(value: Callable[..., float], inputs: list[Array], grads: list[Array]) -> None:
    """Compare gradients with a central difference along one random direction."""
    steps = [normal(x.shape, 90 + i) for i, x in enumerate(inputs)]
    assert [x.shape for x in grads] == [x.shape for x in inputs]

    def along(step: float) -> float:
        return value(*(x + step * d for x, d in zip(inputs, steps, strict=True)))

    exact = sum(float((x * d).sum()) for x, d in zip(grads, steps, strict=True))
    assert exact == pytest.approx((along(1e-5) - along(-1e-5)) / 2e-5, rel=1e-7, abs=1e-7)


def standard(x: Array) -> Array:
    return (x - x.mean()) / math.sqrt(x.var() + 0.1)


@each_shape
def test_softmax_family_is_the_definition(shape: tuple[int, ...], axis: int) -> None:
    x = normal(shape)
    y = per_row(lambda r: np.exp(r) / np.exp(r).sum(), x, axis)
    np.testing.assert_allclose(rows.softmax(x, axis), y, rtol=1e-13)
    np.testing.assert_allclose(rows.log_softmax(x, axis), np.log(y), rtol=1e-12, atol=1e-14)
    lse = np.log(np.exp(x).sum(axis=axis, keepdims=True))
    np.testing.assert_allclose(rows.logsumexp(x, axis, keepdims=True), lse, rtol=1e-13)
    np.testing.assert_allclose(rows.logsumexp(x, axis), lse.squeeze(axis), rtol=1e-13)


@each_shape
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_backwards_are_the_slope(name: str, shape: tuple[int, ...], axis: int) -> None:
    forward, backward = getattr(rows, name), getattr(rows, f"{name}_backward")
    x, g = normal(shape), normal(shape, 4)
    grad = backward(g, forward(x, axis), axis)
    assert_slope(lambda x: float((forward(x, axis) * g).sum()), [x], [grad])


@each_shape
def test_norms_are_the_definition(shape: tuple[int, ...], axis: int) -> None:
    x = normal(shape)
    along = [1] * x.ndim
    along[axis] = shape[axis]
    w, b = normal((shape[axis],), 5), normal((shape[axis],), 6)
    wide, shift = w.reshape(along), b.reshape(along)
    y, mean, rstd = rows.layer_norm(x, w, b, 0.1, axis)
    close = {"rtol": 1e-12, "atol": 1e-13}
    np.testing.assert_allclose(y, per_row(standard, x, axis) * wide + shift, **close)
    np.testing.assert_allclose(mean, x.mean(axis=axis), **close)
    np.testing.assert_allclose(rstd, 1 / np.sqrt(x.var(axis=axis) + 0.1), **close)
    bare = rows.layer_norm(x, None, None, 0.1, axis)[0]
    np.testing.assert_allclose(bare, per_row(standard, x, axis), **close)
    z, rstd = rows.rms_norm(x, w, 0.1, axis)
    expected = 1 / np.sqrt((x * x).mean(axis=axis) + 0.1)
    np.testing.assert_allclose(rstd, expected, **close)
    np.testing.assert_allclose(z, x * np.expand_dims(expected, axis) * wide, **close)


@each_shape
def test_norm_backwards_are_the_slope(shape: tuple[int, ...], axis: int) -> None:
    x, g = normal(shape), normal(shape, 4)
    w, b = normal((shape[axis],), 5), normal((shape[axis],), 6)
    _, mean, rstd = rows.layer_norm(x, w, b, 0.1, axis)
    grads = rows.layer_norm_backward(g, x, w, mean, rstd, axis)
    assert_slope(
        lambda *a: float((rows.layer_norm(*a, 0.1, axis)[0] * g).sum()), [x, w, b], [*grads]
    )
    bare = rows.layer_norm_backward(g, x, None, mean, rstd, axis)[0]
    assert_slope(
        lambda x: float((rows.layer_norm(x, None, None, 0.1, axis)[0] * g).sum()), [x], [bare]
    )
    _, rstd = rows.rms_norm(x, w, 0.1, axis)
    assert_slope(
        lambda *a: float((rows.rms_norm(*a, 0.1, axis)[0] * g).sum()),
        [x, w],
        [*rows.rms_norm_backward(g, x, w, rstd, axis)],
    )


LOSSES = [
    {},
    {"label_smoothing": 0.3},
    {"z_loss": 0.2},
    {"weighted": True},
    {"weighted": True, "label_smoothing": 0.25, "z_loss": 0.1},
    {"ignore_index": 2, "weighted": True, "label_smoothing": 0.1},
]


def losses(options: dict[str, Any]) -> tuple[Array, Array, dict[str, Any]]:
    x, target = normal((6, 5)), np.array([0, 4, -100, 2, 1, 2])
    options = dict(options)
    if options.pop("weighted", False):
        options["weight"] = np.array([0.5, 1.0, 2.0, 0.25, 1.5])
    if "ignore_index" in options:
        target[2] = 3
    return x, target, options


@pytest.mark.parametrize("options", LOSSES)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_cross_entropy_is_the_definition(options: dict[str, Any], dtype: str) -> None:
    x, target, options = losses(options)
    loss, lse = rows.cross_entropy(x, target.astype(dtype), **options)
    weight = options.get("weight", np.ones(5))
    smooth = options.get("label_smoothing", 0.0)
    for row, label, cost, level in zip(x, target, loss, lse, strict=True):
        z = math.log(np.exp(row).sum())
        share = np.full(5, smooth / 5)
        share[label if label >= 0 else 0] += 1 - smooth
        expected = float((share * weight * (z - row)).sum()) + options.get("z_loss", 0.0) * z * z
        is_ignored = label == options.get("ignore_index", -100)
        assert level == pytest.approx(z, rel=1e-13)
        assert cost == pytest.approx(0.0 if is_ignored else expected, rel=1e-12)


@pytest.mark.parametrize("options", LOSSES)
def test_cross_entropy_backward_is_the_slope(options: dict[str, Any]) -> None:
    x, target, options = losses(options)
    g = normal((6,), 8)
    _, lse = rows.cross_entropy(x, target, **options)
    grad = rows.cross_entropy_backward(g, x, target, lse, **options)
    assert_slope(
        lambda x: float((rows.cross_entropy(x, target, **options)[0] * g).sum()), [x], [grad]
    )
    assert not grad[target == options.get("ignore_index", -100)].any()


def test_infinities_and_nans() -> None:
    inf = math.inf
    x = np.array([[-inf, -inf], [inf, 0.0], [math.nan, 0.0], [-inf, 1.0]])
    y = rows.softmax(x)
    assert np.isnan(y[:3]).all()
    assert y[3].tolist() == [0.0, 1.0]
    z = rows.log_softmax(x)
    assert np.isnan(z[:3]).all()
    assert z[3].tolist() == [-inf, 0.0]
    np.testing.assert_array_equal(rows.logsumexp(x), [-inf, inf, math.nan, 1.0])
    loss, _ = rows.cross_entropy(x[3:], np.array([0]))
    assert loss.tolist() == [inf]


def test_ignored_rows_stay_clean() -> None:
    x = np.array([[math.nan, 1.0], [0.0, 0.0]])
    target = np.array([-100, 1])
    loss, lse = rows.cross_entropy(x, target, z_loss=0.1)
    assert loss[0] == 0
    grad = rows.cross_entropy_backward(np.ones(2), x, target, lse, z_loss=0.1)
    assert not grad[0].any()
    assert rows.target_weights(target, None, -100, x.dtype).tolist() == [0, 1]
    assert rows.target_weights(target, np.array([3.0, 4.0]), -100, x.dtype).tolist() == [0, 4]


def test_long_rows_in_single_precision() -> None:
    x = (normal((2, 200_000)) + 100).astype("float32")
    exact = x.astype("float64")
    # Means are summed pairwise and squares in vector lanes: a few units in the last place of
    # 100, which standardising magnifies to 100 * eps.
    tolerance = 4 * 100 * float(np.finfo("float32").eps)
    y, _, _ = rows.layer_norm(x, None, None, 1e-5)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, rows.layer_norm(exact, None, None, 1e-5)[0], atol=tolerance)
    np.testing.assert_allclose(rows.softmax(x), rows.softmax(exact), rtol=tolerance)
    np.testing.assert_allclose(rows.softmax(x).sum(axis=1), 1, rtol=tolerance)
    np.testing.assert_allclose(rows.logsumexp(x), rows.logsumexp(exact), rtol=tolerance)


@each_shape
def test_softmax_family_matches_torch(shape: tuple[int, ...], axis: int) -> None:
    torch = pytest.importorskip("torch")
    x, g = normal(shape), normal(shape, 4)
    for name in ("softmax", "log_softmax"):
        tx = torch.tensor(x, requires_grad=True)
        ty = getattr(torch, name)(tx, axis)
        (dx,) = torch.autograd.grad(ty, tx, torch.tensor(g))
        y = getattr(rows, name)(x, axis)
        np.testing.assert_allclose(y, ty.detach().numpy(), rtol=1e-12, atol=1e-14)
        ours = getattr(rows, f"{name}_backward")(g, y, axis)
        np.testing.assert_allclose(ours, dx.numpy(), rtol=1e-11, atol=1e-14)


def test_special_rows_match_torch() -> None:
    torch = pytest.importorskip("torch")
    x = np.array([[-math.inf] * 3, [1.0, -math.inf, 2.0], [0.0, math.nan, 1.0]])
    for name in ("softmax", "log_softmax", "logsumexp"):
        theirs = getattr(torch, name)(torch.tensor(x), -1).numpy()
        np.testing.assert_allclose(getattr(rows, name)(x), theirs, rtol=1e-13)


def test_norms_match_torch() -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    x, g, w, b = normal((4, 6)), normal((4, 6), 4), normal((6,), 5), normal((6,), 6)
    tx, tw, tb = (torch.tensor(a, requires_grad=True) for a in (x, w, b))
    close = {"rtol": 1e-11, "atol": 1e-13}
    ty = functional.layer_norm(tx, (6,), tw, tb, 1e-3)
    y, mean, rstd = rows.layer_norm(x, w, b, 1e-3)
    np.testing.assert_allclose(y, ty.detach().numpy(), **close)
    theirs = torch.autograd.grad(ty, (tx, tw, tb), torch.tensor(g))
    grads = rows.layer_norm_backward(g, x, w, mean, rstd)
    for ours, grad in zip(grads, theirs, strict=True):
        np.testing.assert_allclose(ours, grad.numpy(), **close)
    ty = functional.rms_norm(tx, (6,), tw, 1e-3)
    y, rstd = rows.rms_norm(x, w, 1e-3)
    np.testing.assert_allclose(y, ty.detach().numpy(), **close)
    theirs = torch.autograd.grad(ty, (tx, tw), torch.tensor(g))
    for ours, grad in zip(rows.rms_norm_backward(g, x, w, rstd), theirs, strict=True):
        np.testing.assert_allclose(ours, grad.numpy(), **close)


@pytest.mark.parametrize("options", [o for o in LOSSES if "z_loss" not in o])
def test_cross_entropy_matches_torch(options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    x, target, options = losses(options)
    theirs = dict(options)
    if "weight" in options:
        theirs["weight"] = torch.tensor(options["weight"])
    tx = torch.tensor(x, requires_grad=True)
    mean = torch.nn.functional.cross_entropy(tx, torch.tensor(target), **theirs)
    (dx,) = torch.autograd.grad(mean, tx)
    loss, lse = rows.cross_entropy(x, target, **options)
    ignored = options.get("ignore_index", -100)
    total = rows.target_weights(target, options.get("weight"), ignored, x.dtype).sum()
    assert loss.sum() / total == pytest.approx(mean.item(), rel=1e-12)
    ours = rows.cross_entropy_backward(np.full(6, 1 / total), x, target, lse, **options)
    np.testing.assert_allclose(ours, dx.numpy(), rtol=1e-11, atol=1e-14)
