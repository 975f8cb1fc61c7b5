"""The cross-entropy of a linear map beside the two apart, and what it keeps in memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.core.errors import GradientError, ShapeError
from ruda.ops import linear_cross_entropy_rows as module
from ruda.ops.table import TABLE
from ruda.testing import assert_close

TARGET = np.array([[0, 6, -100], [3, 3, 1]])
OPTIONS: list[dict[str, Any]] = [
    {},
    {"reduction": "none", "label_smoothing": 0.1},
    {"reduction": "sum", "z_loss": 0.01, "ignore_index": 3},
]


def inputs(dtype: str = "float64") -> list[ruda.Tensor]:
    """Values that bfloat16 holds exactly."""
    rng = np.random.default_rng(0)
    drawn = [rng.integers(-8, 8, s) / 4 for s in ((2, 3, 4), (7, 4), (7,))]
    return [ruda.tensor(x, dtype=dtype, requires_grad=True) for x in drawn]


def together(hidden: Any, weight: Any, bias: Any, target: Any, **options: Any) -> Any:
    return F.linear_cross_entropy(hidden, weight, target, bias=bias, **options)


def apart(hidden: Any, weight: Any, bias: Any, target: Any, **options: Any) -> Any:
    return F.cross_entropy(F.linear(hidden, weight, bias), target, **options)


def step(loss_of: Any, dtype: str, options: dict[str, Any]) -> list[Any]:
    """The loss and the gradients of hidden states, weight and bias."""
    given = inputs(dtype)
    target = np.where(TARGET == -100, options.get("ignore_index", -100), TARGET)
    loss = loss_of(*given, ruda.asarray(target), **options)
    loss.sum().backward()
    return [loss, *(x.grad for x in given)]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("elements", [1 << 22, 14], ids=["one block", "blocks of two"])
def test_it_is_the_two_apart(
    options: dict[str, Any], elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ELEMENTS", elements)
    monkeypatch.setattr(module, "DEVICE_ELEMENTS", elements)
    mine = step(together, "float64", options)
    for got, expected in zip(mine, step(apart, "float64", options), strict=True):
        assert_close(got, expected)


def test_half_types_see_logits_in_float32() -> None:
    exact = step(together, "float64", {})
    for got, expected in zip(step(together, "bfloat16", {}), exact, strict=True):
        assert got.dtype == "bfloat16"
        assert_close(got, expected.astype("bfloat16"))


def test_blocks_keep_the_second_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEVICE_ELEMENTS", 14)
    target = ruda.asarray(TARGET)
    hidden, weight, bias = (x.detach() for x in inputs())
    hessians = [
        ruda.hessian(lambda w, f=f: f(hidden, w, bias, target))(weight) for f in (together, apart)
    ]
    assert_close(*hessians)


def test_autocast_lowers_the_product_and_not_the_loss() -> None:
    given = inputs("float32")
    with ruda.autocast("bfloat16"):
        loss = together(*given, ruda.asarray(TARGET))
    assert loss.dtype == "float32"
    loss.backward()
    assert {x.grad.dtype.name for x in given} == {"float32"}


def test_a_compiled_step_is_the_eager_one() -> None:
    target = ruda.asarray(TARGET)
    hidden, weight, bias = (x.detach() for x in inputs())

    def gradient(h: Any, w: Any, b: Any) -> Any:
        return ruda.grad(lambda x: together(x, w, b, target))(h)

    expected = gradient(hidden, weight, bias)
    assert_close(ruda.compile(gradient)(hidden, weight, bias), expected)


def test_the_logits_never_exist_together() -> None:
    rows, classes = 2048, 16384
    hidden = ruda.ones((rows, 8), dtype="float32").requires_grad_()
    weight = ruda.full((classes, 8), 0.1, dtype="float32").requires_grad_()
    target = ruda.arange(rows)
    tracemalloc.start()
    try:
        F.linear_cross_entropy(hidden, weight, target).backward()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # A block and its gradient, with what their formulas keep beside them.
    assert peak < 8 * 4 * module.ELEMENTS < 4 * rows * classes * 1.01


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_gradients_that_are_scaled(reduction: str) -> None:
    losses = []
    for f in (together, apart):
        given = inputs()
        loss = f(*given, ruda.asarray(TARGET), reduction=reduction)
        (loss * loss + 3 * loss).backward()
        losses.append([x.grad for x in given])
    for got, expected in zip(*losses, strict=True):
        assert_close(got, expected)


def test_a_graph_that_is_kept_gives_the_same_twice() -> None:
    given = inputs()
    loss = together(*given, ruda.asarray(TARGET)) * 2
    loss.backward(retain_graph=True)
    first = [x.grad.numpy().copy() for x in given]
    loss.backward()
    for x, once in zip(given, first, strict=True):
        np.testing.assert_array_equal(x.grad.numpy(), 2 * once)


def test_frozen_operands_have_no_gradients_made() -> None:
    hidden, weight, bias = inputs()
    frozen = weight.detach(), bias.detach()
    loss = together(hidden, *frozen, ruda.asarray(TARGET))
    loss.backward()
    expected = inputs()
    apart(*expected, ruda.asarray(TARGET)).backward()
    assert_close(hidden.grad, expected[0].grad)
    assert [s.shape for s in loss.node.node.plan.out] == [(), (6, 4), (0,), (0,)]


def test_nothing_is_made_without_a_tape() -> None:
    row = TABLE["linear_cross_entropy_sum"]
    row.clear()
    with ruda.no_grad():
        together(*inputs(), ruda.asarray(TARGET))
    together(*(x.detach() for x in inputs()), ruda.asarray(TARGET))
    # One row's upstream differs from another's, and small gradients of float16 are scaled first.
    together(*inputs(), ruda.asarray(TARGET), reduction="none")
    together(*inputs("float16"), ruda.asarray(TARGET))
    assert not row.hot and not row.cold


def test_autocast_keeps_the_count() -> None:
    rows = 259
    rng = np.random.default_rng(0)
    hidden, weight = (rng.standard_normal(s).astype("float32") for s in ((rows, 4), (7, 4)))
    given = [ruda.tensor(x, requires_grad=True) for x in (hidden, weight)]
    target = ruda.asarray(rng.integers(0, 7, rows))
    with ruda.autocast("bfloat16"):
        got = together(*given, None, target)
        with ruda.no_grad():
            expected = together(*given, None, target)
    assert_close(got, expected)


def test_all_targets_ignored() -> None:
    given = inputs()
    loss = together(*given, ruda.full((2, 3), -100, dtype="int64"))
    assert np.isnan(loss.item())
    loss.backward()
    assert not any(x.grad.numpy().any() for x in given)


def test_gradients_have_none_of_their_own() -> None:
    hidden, weight, bias = inputs()
    rows, target = hidden.reshape((6, 4)), ruda.asarray(TARGET.reshape(-1))
    attrs = (-100, 0.0, 0.0, (True, True, True))
    made = TABLE["linear_cross_entropy_sum"].call(rows, weight, target, bias, None, *attrs)
    with pytest.raises(GradientError, match="for the tape alone"):
        made[1].sum().backward()


def test_a_gradient_is_scaled_by_one_number() -> None:
    scaled = TABLE["linear_cross_entropy_scaled"].call
    with pytest.raises(ShapeError, match=r"not one number\. Got \(5,\)\. Expected \(\)"):
        scaled(ruda.ones((3, 5)), ruda.ones(5), False)
