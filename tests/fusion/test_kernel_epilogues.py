"""Small products of a step that is compiled for a GPU: what their kernels take over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn
from ruda.backends.cuda.blas import small
from tests.fusion.dry import dry, graph_of, names

ROWS, WIDTH, WIDE = 2048, 128, 512


@pytest.fixture(autouse=True)
def device() -> Iterator[Any]:
    with dry() as client:
        yield client


def on(*shape: int, dtype: str = "float32") -> Any:
    return ruda.asarray(np.ones(shape), dtype=dtype, device="cuda")


def nodes(step: Callable[..., Any], *args: Any) -> list[str]:
    return names(graph_of(ruda.compile(step), *args))


def gelu(x: Any) -> Any:
    return F.gelu(x, approximate="tanh")


X, W, B, R = (ROWS, WIDTH), (WIDE, WIDTH), (WIDE,), (ROWS, WIDE)
# Of each step: what it does to x, w, b and r, and what its only kernel's name has.
ENDS: dict[str, tuple[Callable[..., Any], str]] = {
    "an activation": (lambda x, w, b, r: gelu(F.linear(x, w, b)), "_gelu_tanh_"),
    "what is kept before it": (lambda x, w, b, r: ((h := F.linear(x, w, b)), gelu(h)), "_gelu_"),
    "relu": (lambda x, w, b, r: F.relu(F.linear(x, w, b)), "_relu_"),
    "a residual": (lambda x, w, b, r: F.linear(x, w, b) + r, "_add_"),
    "a chain": (lambda x, w, b, r: gelu(x @ w.T) * r - r, "_gelu_tanh_multiply_subtract_"),
}


@pytest.mark.parametrize("name", ENDS)
def test_what_follows_is_a_part_of_the_product(name: str) -> None:
    step, word = ENDS[name]
    found = nodes(step, on(*X), on(*W), on(*B), on(*R))
    assert len(found) == 1 and found[0].startswith("small_product") and word in found[0], found


def test_an_operand_of_another_dtype_stays_outside() -> None:
    found = nodes(lambda x, w, r: ruda.where(r > 0, x @ w.T, r), on(*X), on(*W), on(*R))
    assert len(found) == 2 and found[0].startswith("small_product"), found


def test_products_of_the_library_end_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "fits", lambda client, shape: False)
    found = nodes(lambda x, w, r: gelu(x @ w.T) * r, on(*X), on(*W), on(*R))
    assert len(found) == 2 and found[0].startswith("product"), found
    half = [on(*shape, dtype="bfloat16") for shape in (X, W)]
    assert nodes(lambda x, w: gelu(x @ w.T), *half)[0].startswith("product")


def test_a_layer_of_two_with_its_gradients_is_one_kernel_for_each_product() -> None:
    layers = nn.Sequential(nn.Linear(WIDTH, WIDE), nn.GELU("tanh"), nn.Linear(WIDE, WIDTH))
    model = layers.to("cuda")

    def step(x: Any, g: Any) -> Any:
        out = model(x)
        out.backward(g)
        grads = [p.grad for p in model.parameters()]
        for p in model.parameters():
            p.grad = None
        return out, grads

    found = nodes(step, on(*X), on(*X))
    assert len(found) == 5 and all(n.startswith("small_product") for n in found), found
    assert sum("_sums" in name for name in found) == 2
    assert sum("_gelu_tanh_" in name for name in found) == 1
