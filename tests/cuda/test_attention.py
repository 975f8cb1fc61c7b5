"""Attention by kernels without tensor cores: every option of the row, and its gradients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.backends.cuda.dnn import attention as vendor
from ruda.backends.cuda.dnn import graph
from ruda.testing import assert_close

CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "grouped and causal": ((2, 4, 70, 24), (2, 2, 70, 24), {"is_causal": True}),
    "more keys": ((1, 2, 5, 16), (1, 2, 130, 16), {"is_causal": True, "scale": 0.3}),
    "more queries": ((1, 1, 9, 8), (1, 1, 4, 8), {"is_causal": True}),
    "window and softcap": ((1, 2, 90, 16), (1, 2, 90, 16), {"window": (7, 3), "softcap": 2.0}),
    "few and deep": ((2, 1, 20, 100), (2, 1, 30, 100), {"is_causal": True}),
    "one chunk of many": ((1, 3, 128, 34), (1, 1, 100, 34), {"window": (40, None)}),
    "long, grouped and causal": ((1, 4, 140, 24), (1, 2, 140, 24), {"is_causal": True}),
    "long window and softcap": (
        (1, 1, 130, 16),
        (1, 1, 150, 16),
        {"window": (7, 3), "softcap": 2.0},
    ),
}


def operands(where: str, q: Any, k: Any) -> list[ruda.Tensor]:
    rng = np.random.default_rng(0)
    arrays = (rng.standard_normal(shape).astype("f4") for shape in (q, k, k))
    return [ruda.asarray(a, device=where).requires_grad_() for a in arrays]


def run(where: str, q: Any, k: Any, **settings: Any) -> list[Any]:
    x = operands(where, q, k)
    if "mask" in settings:
        settings["mask"] = ruda.asarray(settings["mask"], device=where)
    out, lse = F.attention(*x, return_lse=True, **settings)
    ((out * out).sum() + ruda.where(lse > -1e30, lse, 0).sum()).backward()
    return [out.detach(), lse.detach(), *(t.grad for t in x)]


def same(device: str, q: Any, k: Any, **settings: Any) -> None:
    found = run(device, q, k, strategy="flash_unit", **settings)
    exact = run("cpu", q, k, **settings)
    for got, want in zip(found, exact, strict=True):
        wanted = want.numpy()
        scale = float(np.abs(wanted[np.isfinite(wanted)]).max())
        assert_close(got.to("cpu"), wanted, length=4 * k[2], scale=scale, name="attention")


@pytest.mark.parametrize("name", CASES)
def test_options_and_gradients(name: str, device: str) -> None:
    q, k, settings = CASES[name]
    same(device, q, k, **settings)


@pytest.mark.parametrize("length", [20, 130])
def test_a_mask_that_hides_whole_rows(length: int, device: str) -> None:
    mask = np.random.default_rng(1).random((2, 1, length, 20)) < 0.5
    mask[0, 0, 3] = False
    same(device, (2, 2, length, 16), (2, 2, 20, 16), mask=mask)


@pytest.mark.parametrize("length", [33, 129])
def test_dropout_draws_the_numbers_of_the_cpu(length: int, device: str) -> None:
    found, shape = [], (1, 2, length, 16)
    for where in (device, "cpu"):
        generator = ruda.random.Generator(5)
        found.append(run(where, shape, shape, dropout_p=0.3, generator=generator))
    for got, want in zip(*found, strict=True):
        assert_close(got.to("cpu"), want.numpy(), length=200, scale=float(want.abs().max()))


def test_views_are_read_where_they_lie(device: str) -> None:
    x = np.random.default_rng(2).standard_normal((2, 20, 3, 2, 16)).astype("f4")
    both = []
    for where in (device, "cpu"):
        q, k, v = ruda.unstack(ruda.asarray(x, device=where).permute_dims((2, 0, 3, 1, 4)))
        both.append(F.attention(q, k, v, is_causal=True).numpy())
    np.testing.assert_allclose(*both, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("length", [40, 129])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_compute_in_float(dtype: str, length: int, device: str) -> None:
    rng, shape = np.random.default_rng(3), (1, 2, length, 24)
    arrays = [rng.standard_normal(shape).astype("f4") for _ in range(4)]
    both = []
    for where in (device, "cpu"):
        q, k, v, dy = (ruda.asarray(a, dtype=dtype, device=where) for a in arrays)
        q, k, v = (x.requires_grad_() for x in (q, k, v))
        out = F.attention(q, k, v, softcap=5.0, strategy="auto" if where == "cpu" else "flash_unit")
        out.backward(dy)
        both.append([out.detach(), *(x.grad for x in (q, k, v))])
    for got, want in zip(*both, strict=True):
        exact = want.astype("float32").numpy()
        assert_close(got.to("cpu"), exact, length=2 * length, scale=float(np.abs(exact).max()))


def test_the_strategy_says_when_it_cannot(device: str) -> None:
    x = ruda.zeros((1, 1, 4, 512), device=device, dtype="float64")
    with pytest.raises(ruda.core.errors.StrategyError, match="more memory than a block has"):
        F.attention(x, x, x, strategy="flash_unit")
    assert "flash_unit" in str(ruda.explain("attention", x, x, x))
    assert ruda.explain("attention", x, x, x).chosen == "composite"
    assert ruda.explain("attention", *[x[..., :8]] * 3).chosen == "flash_unit"


def packed(x: Any, weight: Any, heads: int) -> Any:
    """Attention of q, k and v that are columns of [B, S, 3, H, D]."""
    batch, time, width = x.shape[0], x.shape[1], x.shape[2] // 3
    split = (x * weight).reshape((batch, time, 3, heads, width // heads))
    q, k, v = ruda.unstack(split.permute_dims((2, 0, 3, 1, 4)))
    out = F.attention(q, k, v, is_causal=True)
    return out.permute_dims((0, 2, 1, 3)).reshape((batch, time, width))


def apart(x: Any, weight: Any, heads: int) -> Any:
    """The same from parts of the columns."""
    batch, time, width = x.shape[0], x.shape[1], x.shape[2] // 3
    parts = ruda.split(x * weight, width, axis=-1)
    shape = batch, time, heads, width // heads
    q, k, v = (p.reshape(shape).permute_dims((0, 2, 1, 3)) for p in parts)
    out = F.attention(q, k, v, dropout_p=0.25)
    return out.permute_dims((0, 2, 1, 3)).reshape((batch, time, width))


def one_head(x: Any, weight: Any, heads: int) -> Any:
    """Attention whose result stays as it is, and leaves the step."""
    q = (x * weight).reshape((x.shape[0], 1, *x.shape[1:]))
    return F.attention(q, q, q, window=(2, 1))


@pytest.mark.parametrize("layer", [packed, apart, one_head])
def test_compiled_layers_have_the_bits_of_eager_ones(layer: Any, device: str) -> None:
    rng = np.random.default_rng(4)
    x, weight = (
        ruda.asarray(rng.standard_normal(s).astype("f4"), device=device).requires_grad_()
        for s in ((2, 9, 96), (96,))
    )

    def step(x: Any) -> Any:
        out = layer(x, weight, 2)
        (out * out).sum().backward()
        grads = x.grad, weight.grad
        x.grad = weight.grad = None
        return out, *grads

    found = []
    for run in (step, ruda.compile(step)):
        ruda.random.seed(3)
        for _ in range(3):
            outs = run(x)
        found.append([o.detach().numpy() for o in outs])
    for got, want in zip(*found, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("compiled", [False, True])
def test_cudnn_is_asked_once_for_what_runs(
    device: str, monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    """A plan has no graph before it runs, or its step is bound, and then as it was asked for."""
    asked: list[tuple[str, bool]] = []

    def into(client: Any, plan: Any) -> None:
        asked.append((plan.op.name, plan.ordered))

    monkeypatch.setattr(vendor, "missing", lambda: None)
    monkeypatch.setattr(vendor, "forward_into", into)
    monkeypatch.setattr(vendor, "backward_into", into)
    ruda.deterministic(False)
    ruda.tensor.dispatch.clear_plans()
    x = ruda.astype(ruda.asarray(np.ones((1, 1, 8, 8), "f4")), "bfloat16").to(device)
    w = x * 2
    x.requires_grad_()

    def step(x: ruda.Tensor) -> Any:
        (F.attention(x, x, x) * w).sum().backward()
        grad = x.grad
        x.grad = None
        return grad

    with ruda.deterministic():
        want = step(x)
    assert asked == [("attention", True), ("attention_backward", True)]
    asked.clear()
    run = ruda.compile(step) if compiled else step
    for _ in range(3):
        assert np.array_equal(run(x).to("cpu").numpy(), want.to("cpu").numpy())
    assert asked == [("attention", False), ("attention_backward", False)]


def test_the_price_of_ordered_sums_is_told_where_cudnn_is_there(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ruda.default_device()
    ruda.set_default_device(device)
    try:
        for reason, told in ((None, True), ("cuDNN is not installed", False)):
            monkeypatch.setattr(graph, "missing", lambda reason=reason: reason)
            with ruda.deterministic() as switched:
                assert ("attention_backward" in switched.prices) is told
                assert ("which costs nothing" in repr(switched)) is not told
    finally:
        ruda.set_default_device(before)


def test_cudnn_is_asked_for_what_was_bound() -> None:
    """Sums are in order where that was wanted when the plan was made."""
    asked: list[bool] = []
    plan = SimpleNamespace(op=None, specs=(), attrs=(), out=())

    def into(_: Any, plan: Any) -> None:
        asked.append(plan.ordered)

    with ruda.deterministic():
        run = vendor._once_run(None, plan, into, lambda *_: lambda: "own")
    assert asked == [] and run() == run() == "own" and asked == [True]
