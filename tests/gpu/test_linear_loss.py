"""Cross-entropy of a linear map with its gradients made going forward, in sizes with many parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.backends.cuda.prim import linear_groups, linear_parts, linear_places
from ruda.tensor.dispatch import clear_plans
from ruda.testing import assert_close

ROWS, HIGH, CLASSES = 1536, 384, 9001


def step(device: str, dtype: str, **options: Any) -> list[Any]:
    """The loss and the gradients of hidden states, weight and bias."""
    rng = np.random.default_rng(0)
    shapes = ((ROWS, HIGH), (CLASSES, HIGH), (CLASSES,))
    # bfloat16 holds them, and the logits are of the order of one.
    drawn = [rng.integers(-8, 8, s) / 64 for s in shapes]
    target = rng.integers(0, CLASSES, ROWS)
    target[::7] = -100
    given = [ruda.tensor(x, dtype=dtype, device=device, requires_grad=True) for x in drawn]
    labels = ruda.asarray(target, device=device)
    loss = F.linear_cross_entropy(*given[:2], labels, bias=given[2], **options)
    (loss * 3).backward()
    return [x.detach().to("cpu").astype("float64") for x in (loss, *(x.grad for x in given))]


def check(device: str, dtype: str, **options: Any) -> None:
    expected = step("cpu", "float32", **options)
    for got, want in zip(step(device, dtype, **options), expected, strict=True):
        scale = float(abs(want).max().item())
        assert_close(got.astype(dtype), want.astype(dtype), length=ROWS * CLASSES, scale=scale)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Rooms that these sizes fill several times."""
    groups = {"_ROOM": 4 * CLASSES * 256, "_FEWEST": 64}
    # Some classes are kept in the gradient of the weight, some beside it, some not at all.
    places = {"_ALL": 4 * ROWS * HIGH + 2 * ROWS * 1000, "_CHUNK": 64, "_AGAIN": 1 << 20}
    places |= {"_FIRST": 256, "_FEWEST": 512}
    # All products take the kernels that large ones do.
    named = {"_LARGE": 0}
    for module, rooms in ((linear_groups, groups), (linear_places, places), (linear_parts, named)):
        for name, room in rooms.items():
            monkeypatch.setattr(module, name, room)
    clear_plans()
    yield
    clear_plans()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_in_one_part(device: str, dtype: str) -> None:
    check(device, dtype, label_smoothing=0.1, z_loss=0.01)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("rounds", [False, True])
def test_in_parts(device: str, dtype: str, rounds: bool, parts: Any) -> None:
    with ruda.precision(half_reduction=rounds):
        check(device, dtype)


def test_results_repeat_bit_by_bit(device: str, parts: Any) -> None:
    for first, again in zip(step(device, "bfloat16"), step(device, "bfloat16"), strict=True):
        np.testing.assert_array_equal(first.numpy(), again.numpy())


def test_float16_scales_before_it_rounds(device: str) -> None:
    check(device, "float16")
