"""Losses that come with their gradient in compiled steps, against eager code with one each.

Rows of all ways to keep them: parts of a warp, blocks, clusters of 2 to 8 blocks, and not at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.testing import assert_close

# Long rows of float64 are too large to keep; those of 50257 classes do not begin at whole packs.
APART = [("float64", n) for n in (32000, 50257, 50304, 100000, 128256)]
CLASSES = [10, 96, 1000, 1001, 32000, 50257, 50304, 100000, 128256]


def operands(device: Any, rows: int, classes: int, dtype: str, spread: float = 1.0) -> Any:
    rng = np.random.default_rng(classes)
    logits = rng.standard_normal((rows, classes)).astype("f4") * spread
    target = rng.integers(0, classes, rows)
    target[::7] = -100
    x = ruda.asarray(logits, dtype=dtype, device=device)
    return x, ruda.asarray(target, device=device)


def compare(loss_of: Any, x: Any, *rest: Any) -> list[Any]:
    """A compiled loss and gradient, one kernel where rows can be kept, against eager ones."""
    both = ruda.value_and_grad(loss_of)
    step = ruda.compile(both)
    for _ in range(3):
        found = step(x, *rest)
    (program,) = step._all()
    made = [i.op for i in program.graph.instructions]
    apart = (x.dtype.name, x.shape[-1]) in APART
    assert any("cross_entropy_joint" in op for op in made) is not apart, made
    wanted = both(x, *rest)
    for got, want in zip(found, wanted, strict=True):
        assert_close(got, want, length=x.shape[-1])
    return list(found)


@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_loss_and_gradient(device: Any, classes: int, dtype: str) -> None:
    x, target = operands(device, 1 + 40_000_000 // (classes * 8), classes, dtype)
    first = compare(F.cross_entropy, x[:4000], target[:4000])
    again = ruda.compile(ruda.value_and_grad(F.cross_entropy))(x[:4000], target[:4000])
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


@pytest.mark.parametrize("classes", [1000, 50304])
def test_options_and_steps_around(device: Any, classes: int) -> None:
    x, target = operands(device, 300, classes, "bfloat16")
    weight = ruda.asarray(np.linspace(0.5, 1.5, classes, dtype="f4"), device=device)
    options: dict[str, Any] = {"label_smoothing": 0.1, "z_loss": 1e-3}
    compare(lambda x, t: F.cross_entropy(30 * ruda.tanh(x / 30), t), x, target)
    compare(lambda x, t: F.cross_entropy(x, t, reduction="sum", **options), x, target)
    compare(lambda x, t, w: F.cross_entropy(x, t, weight=w, **options), x, target, weight)


def test_a_scale_of_the_loss_keeps_gradients_of_float16(device: Any) -> None:
    x, target = operands(device, 512, 32000, "float16")
    scale = ruda.asarray(2.0**14, device=device)

    def loss(x: Any, target: Any, scale: Any) -> Any:
        return F.cross_entropy(x.astype("float32"), target) * scale

    _, dx = compare(loss, x, target, scale)
    counted = target.numpy() != -100
    # Most are below what float16 tells from 0 before they are scaled.
    assert np.count_nonzero(dx.numpy()[counted]) > 0.999 * counted.sum() * 32000


def test_all_ignored(device: Any) -> None:
    x, target = operands(device, 64, 128256, "bfloat16")
    step = ruda.compile(ruda.value_and_grad(F.cross_entropy))
    for _ in range(3):
        loss, dx = step(x, target * 0 - 100)
    assert np.isnan(loss.item()) and not dx.numpy().any()


def test_infinities_are_what_they_are_one_by_one(device: Any) -> None:
    x, target = operands(device, 70, 50304, "float32")
    x[3, 5], x[10, 7], x[20] = -np.inf, np.inf, -np.inf
    x[30, 9] = np.nan
    compare(lambda x, t: F.cross_entropy(x, t, reduction="sum"), x, target)
