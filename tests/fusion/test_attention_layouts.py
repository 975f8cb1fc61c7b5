"""Attention in a compiled step writes its results where the products around it want them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from tests.fusion.dry import dry, graph_of, names

SHAPE = BATCH, TIME, HEADS, DEPTH = 2, 9, 2, 16
WIDTH = HEADS * DEPTH


@pytest.fixture(autouse=True)
def device() -> Iterator[Any]:
    with dry() as client:
        yield client


def on(*shape: int) -> Any:
    return ruda.asarray(np.ones(shape, "f4"), device="cuda").requires_grad_()


def unstacked(x: Any) -> Any:
    return ruda.unstack(x.reshape((BATCH, TIME, 3, HEADS, DEPTH)).permute_dims((2, 0, 3, 1, 4)))


def by_head(x: Any) -> Any:
    return x.reshape(SHAPE).permute_dims((0, 2, 1, 3))


def parted(x: Any) -> Any:
    return map(by_head, ruda.split(x, WIDTH, axis=-1))


def interleaved(x: Any) -> Any:
    return ruda.unstack(x.reshape((BATCH, TIME, HEADS, 3, DEPTH)).permute_dims((3, 0, 2, 1, 4)))


def joined(out: Any) -> Any:
    return out.permute_dims((0, 2, 1, 3)).reshape((BATCH, TIME, WIDTH))


def nodes(cut: Any, *more: Any) -> list[str]:
    """The nodes of a step of a layer: a product, attention, a product, and their gradients."""
    x, inner, outer = on(BATCH, TIME, WIDTH), on(WIDTH, 3 * WIDTH), on(WIDTH, WIDTH)

    def step(x: Any) -> Any:
        out = F.attention(*cut(x @ inner), is_causal=True)
        (joined(out) @ outer).backward(on(BATCH, TIME, WIDTH).detach())
        grads = inner.grad, outer.grad
        inner.grad = outer.grad = None
        return grads

    return names(graph_of(ruda.compile(step), x))


@pytest.mark.parametrize("cut", [unstacked, parted, interleaved])
def test_nothing_is_copied_between_products_and_attention(cut: Any) -> None:
    found = nodes(cut)
    assert sum(name.startswith("product") for name in found) == 5
    assert sum(name.startswith("attention") for name in found) == 2
    assert len(found) == 7, found


def test_what_leaves_the_step_keeps_its_layout() -> None:
    q = on(BATCH, HEADS, TIME, DEPTH)

    def step(q: Any) -> Any:
        out = F.attention(q, q, q)
        return out, joined(out)

    found = names(graph_of(ruda.compile(step), q))
    assert [name.split("_")[0] for name in found] == ["attention", "reshape"]


def test_a_gradient_that_is_read_twice_is_copied() -> None:
    x = on(BATCH, TIME, WIDTH)

    def step(x: Any) -> Any:
        F.attention(*(by_head(x * n) for n in (1.0, 2.0, 3.0))).sum().backward()
        found, x.grad = x.grad, None
        return found

    found = names(graph_of(ruda.compile(step), x))
    assert sum(name.startswith("attention") for name in found) == 2
