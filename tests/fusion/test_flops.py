"""How many operations products take, and what `explain` makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.core.dtypes import bfloat16, float32, float64
from ruda.fusion.flops import operations
from ruda.fusion.report import Use


def of(fn: Callable[..., Any], *shapes: tuple[int, ...], grads: bool = False) -> dict[str, int]:
    """By operator, of a compiled step of ones, with its gradients where these are asked for."""
    given = [ruda.ones(shape).requires_grad_() if grads else ruda.ones(shape) for shape in shapes]

    def step(*xs: Any) -> Any:
        out = fn(*xs)
        if grads:
            out.sum().backward()
            return [x.grad for x in xs]
        return out

    compiled = ruda.compile(step)
    compiled.memory(*given)
    (program,) = compiled._all()
    plans = [i.plan for i in program.graph.instructions if i.plan is not None]
    return {plan.op.name: operations(plan) for plan in plans if operations(plan)}


LONG, TOKENS = (2, 3, 10, 4), (7, 4)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, int]]] = {
    "a product": (ruda.matmul, ((5, 8, 4), (4, 3)), {"matmul": 2 * 5 * 8 * 4 * 3}),
    "a row by a matrix": (ruda.matmul, ((4,), (4, 3)), {"matmul": 2 * 4 * 3}),
    "a layer": (F.linear, ((5, 8, 4), (3, 4), (3,)), {"linear": 2 * 40 * 4 * 3}),
    "a convolution": (
        lambda x, w: F.conv2d(x, w, stride=2, groups=2),
        ((2, 4, 9, 9), (6, 2, 3, 3)),
        {"conv": 2 * (2 * 6 * 4 * 4) * (2 * 9)},
    ),
    "attention": (F.attention, (LONG, LONG, (2, 3, 10, 6)), {"attention": 2 * 600 * (4 + 6)}),
    "causal attention": (
        lambda q, k, v: F.attention(q, k, v, is_causal=True),
        (LONG, LONG, LONG),
        {"attention": 2 * 300 * 8},
    ),
    "no product": (F.softmax, ((5, 8),), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_operations_of_products(name: str) -> None:
    fn, shapes, wanted = CASES[name]
    assert of(fn, *shapes) == wanted


def test_gradients_take_as_many_as_the_product_each() -> None:
    found = of(F.linear, (5, 8, 4), (3, 4), (3,), grads=True)
    assert found["linear_weight_backward"] == 2 * 40 * 4 * 3
    found = of(lambda x, w: F.conv2d(x, w, padding=1), (2, 4, 9, 9), (6, 4, 3, 3), grads=True)
    (forward,) = of(lambda x, w: F.conv2d(x, w, padding=1), (2, 4, 9, 9), (6, 4, 3, 3)).values()
    assert set(found.values()) == {forward} and len(found) >= 2
    found = of(F.attention, LONG, LONG, LONG, grads=True)
    assert found["attention_backward"] == 2 * 600 * 20


def test_a_loss_behind_a_product() -> None:
    target = ruda.asarray(np.arange(7) % 5)
    found = of(lambda x, w: F.linear_cross_entropy(x, w, target, reduction="none"), TOKENS, (5, 4))
    assert found == {"linear_cross_entropy": 2 * 7 * 4 * 5}


def test_what_is_printed_of_a_product() -> None:
    busy = Use("linear", None, (), 1 << 20, 2 * 10**9, 1e-5, 4e-6, computes=True)
    assert str(busy) == (
        "linear: a library, 1.0 MiB, 10.0 us (200 TFLOP/s, 40 % of the operations of the device)"
    )
    thin = busy._replace(computes=False, floor=9e-6)
    assert str(thin).endswith("10.0 us (200 TFLOP/s, 90 % of the bandwidth)")
    assert str(busy._replace(operations=0, floor=None)).endswith("10.0 us")


def test_rates_follow_from_the_device() -> None:
    from types import SimpleNamespace

    from ruda.backends.cuda.clock import Clock

    clock = object.__new__(Clock)
    clock.driver = SimpleNamespace(arch="sm_90a", multiprocessors=132, hertz=1_830_000_000)
    assert clock.operations(bfloat16) == pytest.approx(989e12, rel=1e-3)
    assert clock.operations(float64) == pytest.approx(62e12, rel=1e-2)
    assert clock.operations(float32) is None
    clock.driver.arch = "sm_70"
    assert clock.operations(bfloat16) is None
