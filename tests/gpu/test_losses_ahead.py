"""Eager losses that make their gradient going forward: the same bits as where it is made later."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.ops import cross_entropy_ahead
from ruda.testing import assert_close
from tests.gpu.test_joint_losses import operands

CLASSES = [10, 96, 1000, 1001, 20000, 32000, 50257, 50304, 100000, 128256]


def step(x: Any, target: Any, retain: bool = False, **options: Any) -> tuple[Any, Any]:
    x.grad = None
    loss = F.cross_entropy(x, target, **options)
    loss.backward(retain_graph=retain)
    return loss.detach(), x.grad


@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_bits_are_the_same(device: Any, classes: int, dtype: str) -> None:
    x, target = operands(device, min(2000, 1 + 10_000_000 // classes), classes, dtype)
    x = x.requires_grad_()
    cross_entropy_ahead._PULLED.clear()
    later = [each.numpy() for each in step(x, target)]
    assert cross_entropy_ahead._PULLED
    for retain in (False, True):
        for got, want in zip(step(x, target, retain), later, strict=True):
            np.testing.assert_array_equal(got.numpy(), want)
    there = x.detach().to("cpu").requires_grad_()
    for got, want in zip(later, step(there, target.to("cpu")), strict=True):
        assert_close(ruda.asarray(got, dtype=dtype), want, length=classes)


def test_with_smoothing_and_the_level(device: Any) -> None:
    x, target = operands(device, 300, 50304, "bfloat16", spread=4.0)
    options: dict[str, Any] = {"label_smoothing": 0.1, "z_loss": 0.01, "reduction": "sum"}
    x = x.requires_grad_()
    cross_entropy_ahead._PULLED.clear()
    (loss, grad), (again, same) = step(x, target, **options), step(x, target, **options)
    np.testing.assert_array_equal(again.numpy(), loss.numpy())
    np.testing.assert_array_equal(same.numpy(), grad.numpy())


def test_what_it_keeps_is_free_after_the_walk(device: Any) -> None:
    x, target = operands(device, 2000, 50304, "bfloat16")
    x = x.requires_grad_()
    for _ in range(2):
        loss, _ = step(x, target)
    x.grad = None
    before = ruda.cuda.memory_allocated(device)
    for _ in range(3):
        loss, _ = step(x, target)
        x.grad = None
    assert ruda.cuda.memory_allocated(device) <= before + 4096, loss
