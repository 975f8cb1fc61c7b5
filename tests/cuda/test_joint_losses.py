"""Losses whose gradient comes with them, in compiled steps: one kernel, the numbers of two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.core.errors import IndexRangeError
from ruda.testing import assert_close
from tests.cuda.test_regions import launched, normal
from tests.cuda.test_row_regions import same

IGNORED = -100


def labels(rows: int, classes: int, ignored: tuple[int, ...] = ()) -> Any:
    places = np.random.default_rng(7).integers(0, classes, rows)
    places[list(ignored)] = IGNORED
    return ruda.asarray(places, device="cuda")


def both(loss_of: Any) -> Any:
    """A loss and its gradient in the first operand."""
    return lambda x, *rest: ruda.value_and_grad(lambda x: loss_of(x, *rest))(x)


def joint(names: list[str]) -> bool:
    """Whether the losses come with their gradient."""
    found = [name for name in names if name.startswith("cross_entropy")]
    return len(found) == 1 and found[0].startswith("cross_entropy_joint")


def close(plain: Any, *args: Any, length: int) -> list[str]:
    """Compare a compiled call with an eager one, whose sums may be in another order."""
    step = ruda.compile(plain)
    step(*args)
    found, names = launched(lambda: step(*args))
    for got, wanted in zip(found, plain(*args), strict=True):
        assert got.dtype is wanted.dtype
        assert_close(got, wanted, length=length)
    return names


@pytest.mark.parametrize(("classes", "dtype"), [(96, "float32"), (512, "bfloat16")])
def test_a_mean_over_those_that_count(device: str, classes: int, dtype: str) -> None:
    x, target = normal(9, classes, dtype=dtype), labels(9, classes, (1, 4))
    kernels = 3 + (dtype != "float32")
    assert joint(same(both(F.cross_entropy), x, target, kernels=kernels))


def test_weights_smoothing_and_levels(device: str) -> None:
    x, target, weight = normal(6, 40), labels(6, 40, (3,)), ruda.abs(normal(40, seed=2)) + 0.5

    def loss(x: Any, target: Any, weight: Any) -> Any:
        options: dict[str, Any] = {"weight": weight, "label_smoothing": 0.1, "z_loss": 0.01}
        return F.cross_entropy(x, target, **options)

    def smooth(x: Any, target: Any) -> Any:
        return F.cross_entropy(x, target, label_smoothing=0.1, reduction="sum")

    assert joint(close(both(loss), x, target, weight, length=40))
    assert joint(close(both(smooth), x, target, length=40))


def test_examples_that_are_masked_by_the_caller(device: str) -> None:
    x, target, mask = normal(6, 3, 40), labels(18, 40).reshape((6, 3)), normal(6, 3, seed=3) > 0

    def loss(x: Any, target: Any, mask: Any) -> Any:
        losses = F.cross_entropy(x, target, reduction="none")
        return ruda.where(mask, losses, 0).sum() / mask.sum()

    assert joint(close(both(loss), x, target, mask, length=40))


def test_all_ignored_is_no_number_and_no_gradient(device: str) -> None:
    x, target = normal(5, 40), labels(5, 40, (0, 1, 2, 3, 4))
    same(both(F.cross_entropy), x, target, kernels=3)
    loss, dx = ruda.compile(both(F.cross_entropy))(x, target)
    assert np.isnan(loss.item())
    assert not dx.numpy().any()


def test_a_scale_of_the_loss_keeps_gradients_of_float16(device: str) -> None:
    x, target = normal(64, 96, dtype="float16"), labels(64, 96)
    x = x - 8 * ruda.ones_like(x)
    x[:, 0] = 8.0
    scale = ruda.asarray(2.0**15, device="cuda")

    def loss(x: Any, target: Any, scale: Any) -> Any:
        return F.cross_entropy(x.astype("float32"), target) * scale

    step = ruda.compile(both(loss))
    step(x, target, scale)
    (_, dx), names = launched(lambda: step(x, target, scale))
    assert joint(names), names
    np.testing.assert_array_equal(dx.numpy(), both(loss)(x, target, scale)[1].numpy())
    # exp(-16) / 64 is no number of float16, its product with the scale is one.
    assert np.count_nonzero(dx.numpy()) == dx.size


def test_steps_in_front_and_behind_are_the_same_kernel(device: str) -> None:
    x, target = normal(9, 96, dtype="bfloat16"), labels(9, 96)

    def loss(x: Any, target: Any) -> Any:
        return F.cross_entropy(30 * ruda.tanh(x / 30), target, reduction="sum")

    names = close(both(loss), x, target, length=96)
    assert joint(names) and len(names) == 2, names


@pytest.mark.parametrize(
    ("classes", "dtype", "kind"),
    [(20000, "bfloat16", "cluster2"), (20001, "float32", "skewed"), (1000, "float64", "held256")],
)
def test_rows_longer_than_a_block_holds(device: str, classes: int, dtype: str, kind: str) -> None:
    x, target = normal(3, classes, dtype=dtype), labels(3, classes, (2,))
    names = close(both(F.cross_entropy), x, target, length=classes)
    assert joint(names), names
    assert any(kind in name for name in names), names


def test_rows_that_nobody_can_keep_are_read_by_two_kernels(device: str) -> None:
    x, target = normal(2, 20001, dtype="float64"), labels(2, 20001)
    names = close(both(F.cross_entropy), x, target, length=20001)
    assert not joint(names) and sum(name.startswith("cross_entropy") for name in names) == 2, names


@pytest.mark.parametrize(("classes", "dtype"), [(40000, "bfloat16"), (20003, "float32")])
def test_gradients_of_long_rows_are_made_by_pieces(device: str, classes: int, dtype: str) -> None:
    x, target = normal(3, classes, dtype=dtype), labels(3, classes, (1,))

    def slope(x: Any, target: Any) -> Any:
        return ruda.grad(lambda x: F.cross_entropy(x, target, label_smoothing=0.1))(x)

    found, names = launched(lambda: slope(x, target))
    assert any("backward" in name and "_apart" in name for name in names), names
    assert_close(found, slope(x.to("cpu"), target.to("cpu")), length=classes)


def test_a_factor_that_the_losses_make_is_too_late(device: str) -> None:
    x, target = normal(6, 40), labels(6, 40)
    names = close(both(lambda x, t: F.cross_entropy(x, t) ** 2), x, target, length=40)
    assert not joint(names), names


def test_gradients_of_order_2(device: str) -> None:
    x, target = normal(6, 40), labels(6, 40, (2,))

    def slope(x: Any, target: Any) -> Any:
        return (ruda.grad(lambda x: F.cross_entropy(x, target))(x) ** 2).sum()

    close(both(slope), x, target, length=40)


def test_weights_of_classes_have_gradients_too(device: str) -> None:
    x, target, weight = normal(6, 40), labels(6, 40, (2,)), ruda.abs(normal(40, seed=2)) + 0.5

    def plain(x: Any, weight: Any) -> Any:
        return ruda.grad(lambda x, w: F.cross_entropy(x, target, weight=w), (0, 1))(x, weight)

    close(plain, x, weight, length=40)


def test_a_target_that_is_no_class(device: str) -> None:
    x, target = normal(3, 40), ruda.asarray(np.array([1, 40, 3]), device="cuda")
    step = ruda.compile(both(F.cross_entropy))
    fine = labels(3, 40)
    step(x, fine)
    loss, _ = step(x, target)
    with pytest.raises(IndexRangeError, match="cross_entropy: no such class"):
        loss.item()
