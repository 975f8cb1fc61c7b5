"""Attention references against the formula row by row, finite differences, and PyTorch."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest

from ruda.ops.reference import attention as module
from ruda.ops.reference.attention import attention, attention_backward
from ruda.ops.reference.windows import Array


class Case(NamedTuple):
    q: tuple[int, int, int, int]
    kv_heads: int
    keys: int
    values: int
    options: dict[str, Any]
    mask: tuple[int, ...] | None = None
    bias: tuple[int, ...] | None = None
    keeps: float | None = None


CASES = {
    "plain": Case((2, 2, 4, 3), 2, 5, 3, {}),
    "grouped": Case((2, 6, 4, 3), 2, 5, 2, {"scale": 0.7}),
    "causal": Case((1, 2, 5, 4), 1, 5, 4, {"is_causal": True}),
    "causal, more keys": Case((1, 2, 3, 4), 2, 7, 4, {"is_causal": True}),
    "causal, more queries": Case((1, 2, 6, 4), 2, 3, 4, {"is_causal": True}),
    "window": Case((1, 2, 9, 4), 2, 9, 4, {"window": (2, 1)}),
    "window to the left": Case((1, 2, 6, 4), 2, 9, 4, {"window": (2, None), "is_causal": True}),
    "window behind": Case((1, 1, 4, 2), 1, 6, 2, {"window": (3, -2)}),
    "softcap": Case((2, 2, 4, 3), 2, 5, 3, {"softcap": 0.8, "is_causal": True}),
    "mask": Case((2, 4, 4, 3), 2, 5, 3, {}, mask=(2, 1, 4, 5)),
    "mask per key": Case((2, 2, 4, 3), 2, 5, 3, {}, mask=(5,)),
    "bias": Case((2, 4, 4, 3), 2, 5, 3, {}, bias=(2, 4, 4, 5)),
    "bias per head": Case((2, 4, 4, 3), 2, 5, 3, {"softcap": 1.5}, bias=(4, 1, 1)),
    "bias per query": Case((2, 2, 4, 3), 2, 5, 3, {}, mask=(4, 5), bias=(2, 1, 4, 1)),
    "bias per key": Case((2, 2, 4, 3), 2, 5, 3, {"is_causal": True}, bias=(5,)),
    "dropout": Case((2, 4, 4, 3), 2, 5, 3, {"is_causal": True}, bias=(4, 5), keeps=0.6),
    "no key": Case((2, 2, 4, 3), 2, 0, 3, {}),
    "no query": Case((2, 2, 0, 3), 2, 4, 3, {"is_causal": True}),
    "no batch": Case((0, 2, 3, 3), 2, 4, 3, {}),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def draw(case: Case) -> tuple[list[Array], dict[str, Any]]:
    """Draw q, k, v and the keyword arguments; the mask hides everything from its first row."""
    rng = np.random.default_rng(11)
    batch, _, _, depth = case.q
    shapes = case.q, *((batch, case.kv_heads, case.keys, d) for d in (depth, case.values))
    options = dict(case.options)
    if case.mask is not None:
        options["mask"] = rng.random(case.mask) < 0.6
        options["mask"][(..., *(0, slice(None))[-len(case.mask) :])] &= len(case.mask) == 1
    if case.bias is not None:
        options["bias"] = rng.standard_normal(case.bias)
    if case.keeps is not None:
        options["dropout"] = rng.random((*case.q[:3], case.keys)) < case.keeps, 1 / case.keeps
    return [rng.standard_normal(shape) for shape in shapes], options


def by_rows(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    bias: Array | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float | None = None,
    window: tuple[int | None, int | None] | None = None,
    dropout: tuple[Array, float] | None = None,
) -> tuple[Array, Array]:
    """Apply the definition to one query after another."""
    full = (*q.shape[:3], k.shape[2])
    group = q.shape[1] // k.shape[1]
    left, right = (math.inf if side is None else side for side in window or (None, None))
    right = min(right, 0) if is_causal else right
    hidden = ~np.broadcast_to(True if mask is None else mask, full)
    added = np.broadcast_to(0.0 if bias is None else bias, full)
    out, lse = np.zeros((*q.shape[:3], v.shape[3])), np.full(q.shape[:3], -np.inf)
    for b, h, i in np.ndindex(*q.shape[:3]):
        at = i + full[3] - full[2]
        keys = [
            j for j in range(full[3]) if not hidden[b, h, i, j] and at - left <= j <= at + right
        ]
        if not keys:
            continue
        s = (k[b, h // group, keys] @ q[b, h, i]) * (scale or 1 / math.sqrt(q.shape[3]))
        s = softcap * np.tanh(s / softcap) if softcap else s
        weights = np.exp(s + added[b, h, i, keys])
        lse[b, h, i] = np.log(weights.sum())
        total = weights.sum()
        if dropout is not None:
            weights = weights * dropout[0][b, h, i, keys] * dropout[1]
        out[b, h, i] = weights @ v[b, h // group, keys] / total
    return out, lse


@each_case
@pytest.mark.parametrize("block_bytes", [1, 100, 1 << 18])
def test_forward_is_the_definition(
    case: Case, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", block_bytes)
    inputs, options = draw(case)
    out, lse = attention(*inputs, **options)
    expected, level = by_rows(*inputs, **options)
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(lse, level, rtol=1e-12, atol=1e-13)


@each_case
@pytest.mark.parametrize("block_bytes", [100, 1 << 18])
def test_backward_is_the_slope(
    case: Case, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", block_bytes)
    inputs, options = draw(case)
    rng = np.random.default_rng(5)
    out, lse = attention(*inputs, **options)
    g, g_lse = rng.standard_normal(out.shape), rng.standard_normal(lse.shape)
    *grads, db = attention_backward(*inputs, out, lse, g, **options, g_lse=g_lse)
    assert (db is None) == (case.bias is None)
    if db is not None:
        inputs, grads = [*inputs, options.pop("bias")], [*grads, db]
    steps = [rng.standard_normal(x.shape) for x in inputs]

    def value(step: float) -> float:
        moved = [x + step * d for x, d in zip(inputs, steps, strict=True)]
        extra = {"bias": moved[3]} if case.bias is not None else {}
        result, level = attention(*moved[:3], **options, **extra)
        return float((result * g).sum() + (np.where(level == -np.inf, 0, level) * g_lse).sum())

    # The central difference errs by h ** 2 times a third derivative of order 100.
    numeric = (value(1e-5) - value(-1e-5)) / 2e-5
    assert [x.shape for x in grads] == [x.shape for x in inputs]
    exact = sum(float((d * x).sum()) for d, x in zip(grads, steps, strict=True))
    assert exact == pytest.approx(numeric, rel=1e-7, abs=1e-7)


def test_row_that_sees_nothing_is_zero() -> None:
    inputs, options = draw(CASES["mask"])
    out, lse = attention(*inputs, **options)
    assert not out[:, :, 0].any()
    assert np.isneginf(lse[:, :, 0]).all()
    g = np.ones_like(out)
    dq, dk, dv, _ = attention_backward(*inputs, out, lse, g, **options)
    assert not dq[:, :, 0].any()
    assert np.isfinite(dk).all()
    assert np.isfinite(dv).all()


def test_bias_of_minus_infinity_hides() -> None:
    inputs, options = draw(CASES["mask"])
    bias = np.where(options["mask"], 0.0, -np.inf)
    for ours, expected in zip(
        attention(*inputs, bias=bias), attention(*inputs, **options), strict=True
    ):
        np.testing.assert_array_equal(ours, expected)


def test_nan_is_not_mistaken_for_hidden() -> None:
    (q, k, v), _ = draw(CASES["plain"])
    q[0, 0, 1, 0] = np.nan
    out, lse = attention(q, k, v)
    assert np.isnan(out[0, 0, 1]).all()
    assert np.isnan(lse[0, 0, 1])
    assert np.isnan(out).sum() == v.shape[3]


def test_large_scores_and_single_precision() -> None:
    inputs, _ = draw(CASES["causal"])
    q, k, v = (x.astype("float32") for x in inputs)
    out, lse = attention(q * 1000, k, v, is_causal=True)
    assert out.dtype == lse.dtype == np.float32
    exact, _ = attention(*(x.astype("float64") for x in (q * 1000, k, v)), is_causal=True)
    # Scores near 2 ** 11 are rounded to 2 ** -13 before the exponential.
    np.testing.assert_allclose(out, exact, atol=1e-3)


@each_case
def test_matches_torch(case: Case) -> None:
    torch = pytest.importorskip("torch")
    ours = {"is_causal", "window", "softcap"} & case.options.keys()
    if ours or 0 in case.q or case.keys == 0 or case.mask:
        pytest.skip("PyTorch has no such attention, or other corners")
    inputs, options = draw(case)
    leaves = [torch.tensor(x, requires_grad=True) for x in inputs]
    bias = torch.tensor(options["bias"], requires_grad=True) if case.bias else None
    y = torch.nn.functional.scaled_dot_product_attention(
        *leaves, attn_mask=bias, scale=case.options.get("scale"), enable_gqa=True
    )
    out, lse = attention(*inputs, **options)
    g = np.random.default_rng(2).standard_normal(out.shape)
    grads = attention_backward(*inputs, out, lse, g, **options)
    leaves += [] if bias is None else [bias]
    theirs = torch.autograd.grad(y, leaves, torch.tensor(g))
    np.testing.assert_allclose(out, y.detach().numpy(), rtol=1e-12, atol=1e-13)
    for ours_grad, theirs_grad in zip(grads, theirs, strict=False):
        np.testing.assert_allclose(ours_grad, theirs_grad.numpy(), rtol=1e-11, atol=1e-13)


def test_causal_matches_torch() -> None:
    torch = pytest.importorskip("torch")
    inputs, _ = draw(CASES["causal"])
    leaves = [torch.tensor(x) for x in inputs]
    y = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True, enable_gqa=True)
    out, _ = attention(*inputs, is_causal=True)
    np.testing.assert_allclose(out, y.numpy(), rtol=1e-12, atol=1e-13)
