"""What slices send back: beside each other where they tile an axis, else added up."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import ruda
from ruda.autodiff import pieces
from ruda.core.errors import GradientError

SHAPE = (3, 4, 6)
VALUES = np.random.default_rng(0).standard_normal(SHAPE)


def gradient(loss: Callable[[ruda.Tensor], ruda.Tensor]) -> np.ndarray:
    x = ruda.asarray(VALUES).requires_grad_()
    loss(x).backward()
    assert x.grad is not None
    return x.grad.numpy()


def weighted(parts: tuple[ruda.Tensor, ...]) -> ruda.Tensor:
    out = ruda.zeros((), dtype="float64")
    for i, part in enumerate(parts):
        out = out + (i + 1.0) * ruda.sum(part * part)
    return out


@pytest.fixture
def padded(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The slices that were sent back as zeros with a part."""
    found: list[object] = []
    real = pieces.Pieces._padded

    def noted(self: pieces.Pieces, part: tuple[object, ...]) -> object:
        found.append(part)
        return real(self, part)  # type: ignore[arg-type]

    monkeypatch.setattr(pieces.Pieces, "_padded", noted)
    return found


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_unstacked(axis: int, padded: list[object]) -> None:
    got = gradient(lambda x: weighted(ruda.unstack(x, axis=axis)))
    shape = [1, 1, 1]
    shape[axis] = SHAPE[axis]
    np.testing.assert_array_equal(got, 2 * VALUES * np.arange(1.0, SHAPE[axis] + 1).reshape(shape))
    assert not padded


@pytest.mark.parametrize("turn", [(2, 0, 1), (1, 0, 2), (0, 1, 2)])
def test_parts_of_a_large_turned_tensor_lie_as_it_does(
    turn: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "_LARGE", 0)
    for axis in range(3):
        for parts in (
            ruda.unstack,
            lambda y, axis: ruda.split(y, [1, y.shape[axis] - 1], axis=axis),
        ):
            x, seen = ruda.asarray(VALUES).requires_grad_(), []
            y = x.permute_dims(turn)
            y.register_hook(lambda g, seen=seen: seen.append(g.strides))
            weighted(parts(y, axis=axis)).backward()
            assert seen == [y.strides]
            shape = [1, 1, 1]
            shape[turn[axis]] = SHAPE[turn[axis]]
            scale = np.arange(1.0, shape[turn[axis]] + 1)
            if parts is not ruda.unstack:
                scale = np.minimum(scale, 2)
            np.testing.assert_array_equal(x.grad.numpy(), 2 * VALUES * scale.reshape(shape))


def test_parts_in_any_order_beside_another_use(padded: list[object]) -> None:
    def loss(x: ruda.Tensor) -> ruda.Tensor:
        before = ruda.sum(x * x * x)
        first, second = ruda.split(x, [1, 3], axis=1)
        return weighted((second, first)) + before + ruda.sum(x)

    scale = np.array([2.0, 1, 1, 1])[None, :, None]
    want = 2 * VALUES * scale + 3 * VALUES * VALUES + 1
    np.testing.assert_allclose(gradient(loss), want, rtol=1e-14)
    assert not padded


def test_parts_that_leave_gaps_or_overlap(padded: list[object]) -> None:
    def loss(x: ruda.Tensor) -> ruda.Tensor:
        some = 2.0 * ruda.sum(x[1:]) + 3.0 * ruda.sum(x[:2])
        return some + 5.0 * ruda.sum(x[..., ::2]) + ruda.sum(x[:, 1]) + ruda.sum(x[0])

    want = np.zeros(SHAPE)
    want[1:] += 2
    want[:2] += 3
    want[..., ::2] += 5
    want[:, 1] += 1
    want[0] += 1
    np.testing.assert_array_equal(gradient(loss), want)
    assert padded


def test_one_part_without_gradient(padded: list[object]) -> None:
    want = np.zeros(SHAPE)
    want[1] = 1
    np.testing.assert_array_equal(gradient(lambda x: ruda.sum(ruda.unstack(x)[1])), want)
    assert len(padded) == 1


def test_a_second_order() -> None:
    x = ruda.asarray(VALUES[0, 0]).requires_grad_()
    first, second = ruda.split(x, 3)
    ruda.sum(first * first * second).backward(create_graph=True)
    inner = x.grad
    x.grad = None
    ruda.sum(inner * inner).backward()
    a, b = VALUES[0, 0, :3], VALUES[0, 0, 3:]
    # inner is (2ab, a²): the derivative of 4a²b² + a⁴.
    want = np.concatenate([8 * a * b * b + 4 * a**3, 8 * a * a * b])
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-13)


def test_leaves_of_slices_have_hooks() -> None:
    x = ruda.asarray(VALUES).requires_grad_()
    y = x * 1.0
    seen = []
    y.register_hook(lambda g: seen.append(g.shape))
    weighted(ruda.unstack(y)).backward()
    assert seen == [SHAPE]


def test_what_was_freed_is_named() -> None:
    x = ruda.asarray(VALUES).requires_grad_()
    out = ruda.sum(ruda.sum(ruda.unstack(x)[0]) * 1.0)
    out.backward()
    with pytest.raises(GradientError, match="already freed"):
        out.backward()
