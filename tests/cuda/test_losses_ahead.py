"""Eager losses that make their gradient going forward: the numbers, and when it is handed out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.core.errors import IndexRangeError, RudaError, VersionError
from ruda.ops import cross_entropy_ahead
from ruda.ops.table import TABLE
from ruda.testing import assert_close
from tests.cuda.test_joint_losses import labels
from tests.cuda.test_regions import launched, normal


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Nobody has asked for a gradient before."""
    cross_entropy_ahead._PULLED.clear()
    yield
    cross_entropy_ahead._PULLED.clear()


def kinds(names: list[str]) -> list[str]:
    """What is launched of a cross-entropy: "joint", "parted", "backward" or the "losses" alone."""
    found = [n.removeprefix("cross_entropy_") for n in names if n.startswith("cross_entropy")]
    known = ("joint", "parted", "backward")
    return [next((k for k in known if n.startswith(k)), "losses") for n in found]


def pulled(x: Any, target: Any, scale: Any = None, **options: Any) -> tuple[Any, Any, list[str]]:
    """Loss, gradient and launches of a step."""
    retain = options.pop("retain_graph", False)

    def step() -> Any:
        loss = F.cross_entropy(x, target, **options)
        x.grad = None
        (loss if scale is None else loss * scale).backward(retain_graph=retain)
        return loss.numpy(), x.grad.numpy()

    (loss, grad), names = launched(step)
    return loss, grad, kinds(names)


@pytest.mark.parametrize(
    ("rows", "classes", "dtype", "options"),
    [
        (9, 40, "float32", {"reduction": "sum", "label_smoothing": 0.1, "z_loss": 0.01}),
        (9, 512, "bfloat16", {}),
        (3, 20000, "bfloat16", {}),
        (3, 20001, "float32", {}),
    ],
)
def test_bits_are_the_same_whenever_the_gradient_is_made(
    device: str, rows: int, classes: int, dtype: str, options: dict[str, Any]
) -> None:
    x, target = normal(rows, classes, dtype=dtype).requires_grad_(), labels(rows, classes, (1,))
    loss, grad, first = pulled(x, target, **options)
    assert first == ["parted", "backward"]
    ways = []
    for retain in (False, True, False, False):
        again, same, way = pulled(x, target, retain_graph=retain, **options)
        np.testing.assert_array_equal(again, loss)
        np.testing.assert_array_equal(same, grad)
        ways.append(way)
    assert ways == [["joint"], ["joint", "backward"], ["parted", "backward"], ["joint"]]
    there = x.detach().to("cpu").requires_grad_()
    F.cross_entropy(there, target.to("cpu"), **options).backward()
    assert_close(ruda.asarray(grad, dtype=dtype), there.grad, length=classes)


def test_another_factor_makes_another_gradient_and_none_ahead(device: str) -> None:
    x, target = normal(6, 40).requires_grad_(), labels(6, 40)
    _, grad, _ = pulled(x, target)
    _, twice, way = pulled(x, target, 2.0)
    assert way == ["joint", "backward"]
    np.testing.assert_array_equal(twice, 2 * grad)
    assert pulled(x, target, 2.0)[2] == ["parted", "backward"]


def test_a_loss_that_nobody_pulls_makes_no_gradient_again(device: str) -> None:
    x, target = normal(6, 40).requires_grad_(), labels(6, 40)
    pulled(x, target)
    ways = [kinds(launched(lambda: F.cross_entropy(x, target))[1]) for _ in range(3)]
    assert ways == [["joint"], ["parted"], ["parted"]]


def test_two_losses_of_one_walk(device: str) -> None:
    x, y, target = normal(6, 40).requires_grad_(), normal(6, 40, seed=1), labels(6, 40)
    wanted = [pulled(t.detach().requires_grad_(), target)[1] for t in (x, y)]

    def step() -> None:
        x.grad = y.grad = None
        (F.cross_entropy(x, target) + F.cross_entropy(y, target)).backward()

    y = y.requires_grad_()
    assert kinds(launched(step)[1]) == ["joint", "parted", "backward"]
    for found, want in zip((x.grad, y.grad), wanted, strict=True):
        np.testing.assert_array_equal(found.numpy(), want)


def test_gradients_without_backward(device: str) -> None:
    x, target = normal(6, 40), labels(6, 40)
    both = ruda.value_and_grad(lambda x: F.cross_entropy(x, target))
    (_, first), (_, second) = both(x), both(x)
    assert kinds(launched(lambda: both(x))[1]) == ["joint"]
    np.testing.assert_array_equal(first.numpy(), second.numpy())


def test_what_is_handed_out_is_the_callers(device: str) -> None:
    x, target = normal(6, 40).requires_grad_(), labels(6, 40)
    _, grad, _ = pulled(x, target)
    pulled(x, target)
    x.grad *= 3.0
    np.testing.assert_array_equal(pulled(x, target)[1], grad)
    F.cross_entropy(x, target).backward()
    assert_close(x.grad, 2 * grad, length=40)


def test_a_seed_that_was_changed_is_no_one(device: str) -> None:
    x, target = normal(6, 40).requires_grad_(), labels(6, 40)
    _, grad, _ = pulled(x, target)

    def tripled(g: Any) -> None:
        g *= 3.0

    loss = F.cross_entropy(x, target)
    loss.register_hook(tripled)
    x.grad = None
    loss.backward()
    assert_close(x.grad, 3 * grad, length=40)


def test_logits_that_changed_since_are_refused(device: str) -> None:
    x, target = normal(6, 40).requires_grad_(), labels(6, 40)
    pulled(x, target)
    logits = x * 1.0
    loss = F.cross_entropy(logits, target)
    logits += 1.0
    with pytest.raises(VersionError, match="changed in place"):
        loss.backward()


def test_gradients_of_order_2(device: str) -> None:
    def twice(where: str) -> Any:
        x, target = normal(4, 12, device=where), labels(4, 12, (1,)).to(where)
        ramp = ruda.arange(48, device=where).reshape((4, 12)) % 5
        grad = ruda.grad(lambda x: F.cross_entropy(x, target, z_loss=0.1))
        grad(x)
        return ruda.grad(lambda x: (grad(x) * ramp).sum())(x)

    assert_close(twice(device), twice("cpu"), length=48)


def test_under_autocast_and_of_more_axes(device: str) -> None:
    x, target = normal(2, 3, 40, dtype="bfloat16").requires_grad_(), labels(6, 40).reshape((2, 3))
    with ruda.autocast("bfloat16"):
        loss, grad, first = pulled(x, target)
        again, same, second = pulled(x, target)
    assert (first, second) == (["parted", "backward"], ["joint"])
    assert loss.dtype == np.float32
    np.testing.assert_array_equal(again, loss)
    np.testing.assert_array_equal(same, grad)


def test_what_stays_with_losses_alone(device: str) -> None:
    x, target = normal(6, 40).requires_grad_(), labels(6, 40)
    weight = ruda.ones(40, device="cuda")
    assert pulled(x, target, weight=weight)[2] == ["losses", "backward"]
    with ruda.no_grad():
        assert kinds(launched(lambda: F.cross_entropy(x, target))[1]) == ["losses"]
    turned = normal(4, 40, 3).requires_grad_()
    assert pulled(turned, labels(12, 40).reshape((4, 3)), axis=1)[2] == ["losses", "backward"]


def test_a_target_that_is_no_class(device: str) -> None:
    x, target = normal(6, 40).requires_grad_(), labels(6, 40)
    pulled(x, target)
    for _ in range(2):
        with pytest.raises(IndexRangeError, match=r"cross_entropy: no such class.* Got 45 at"):
            F.cross_entropy(x, target * 0 + 45).item()


def test_inside_a_checkpoint_both_runs_make_the_same_nodes(device: str) -> None:
    x, target = normal(6, 40).requires_grad_(), labels(6, 40)
    _, grad, _ = pulled(x, target)
    for _ in range(2):
        x.grad = None
        ruda.checkpoint(lambda x: F.cross_entropy(x * 1.0, target), x).backward()
        assert_close(x.grad, grad, length=40)


def test_what_does_not_fit_is_told_of_as_without_gradients(device: str) -> None:
    x, target = normal(6, 40), labels(6, 40)
    wrong = [(x, target.to("cpu")), (normal(6, 0), target), (x.astype("complex64"), target)]
    for logits, places in wrong:
        said = []
        for given in (logits, logits.detach().requires_grad_()):
            with pytest.raises(RudaError) as caught:
                F.cross_entropy(given, places)
            said.append(str(caught.value))
        assert said[0] == said[1] and said[0].startswith("cross_entropy:")


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
@pytest.mark.parametrize("made", [False, True])
def test_shapes_and_dtypes_of_the_four_results(device: str, dtype: str, made: bool) -> None:
    kind = "float64" if dtype == "float64" else "float32"
    for where in ("cpu", device):
        x = normal(6, 40, dtype=dtype).reshape((2, 3, 40)).to(where)
        target = labels(6, 40, (1,)).reshape((2, 3)).to(where)
        found = TABLE["cross_entropy_ahead"].call(x, target, -100, 0.0, 0.0, True, made)
        assert [y.shape for y in found] == [(), (2, 3), (), (2, 3, 40) if made else (0,)]
        assert [y.dtype.name for y in found] == [dtype, kind, kind, dtype]
        assert found[2].item() == pytest.approx(1 / 5, rel=1e-6)
