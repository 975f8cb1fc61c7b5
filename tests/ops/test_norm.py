"""Softmax and norms against PyTorch: values, two orders of derivatives, half types, autocast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from tests.ops.peer import assert_near, assert_same, torch


def values(*shape: int) -> Any:
    return np.random.default_rng(np.prod(shape, dtype=int)).standard_normal(shape)


def theirs() -> Any:
    return torch().nn.functional


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name: str, axis: int) -> None:
    peer = getattr(theirs(), name)
    assert_same(lambda x: getattr(F, name)(x, axis), lambda x: peer(x, axis), values(3, 4, 5))


def test_softmax_of_hidden_and_huge_logits() -> None:
    x = ruda.asarray([[1e30, 0.0], [-np.inf, 0.0], [-np.inf, -np.inf]])
    out = F.softmax(x)
    np.testing.assert_array_equal(out.numpy(), [[1, 0], [0, 1], [np.nan, np.nan]])


@pytest.mark.parametrize("affine", [0, 1, 2], ids=["plain", "weight", "weight and bias"])
def test_layer_norm(affine: int) -> None:
    params = [values(6), values(6) + 1][:affine]
    assert_same(
        lambda x, *p: F.layer_norm(x, *p, eps=1e-5),
        lambda x, *p: theirs().layer_norm(x, (6,), *p),
        values(3, 4, 6),
        *params,
    )


def test_layer_norm_with_a_bias_alone() -> None:
    assert_same(
        lambda x, b: F.layer_norm(x, bias=b),
        lambda x, b: theirs().layer_norm(x, (6,)) + b,
        values(3, 6),
        values(6),
    )


def test_layer_norm_of_another_axis_and_of_two() -> None:
    x = values(3, 4, 6)
    swapped = F.layer_norm(ruda.asarray(x.swapaxes(1, 2).copy()), axis=-1).mT
    assert_near(F.layer_norm(ruda.asarray(x), axis=1), swapped)
    assert_same(
        lambda x, w, b: F.layer_norm(x, w, b, axis=(-2, -1)),
        lambda x, w, b: theirs().layer_norm(x, (4, 6), w, b),
        x,
        values(4, 6),
        values(6, 4).reshape(4, 6),
    )


@pytest.mark.parametrize("affine", [0, 1], ids=["plain", "weight"])
def test_rms_norm(affine: int) -> None:
    assert_same(
        lambda x, *p: F.rms_norm(x, *p, eps=1e-6),
        lambda x, *p: theirs().rms_norm(x, (6,), *p, eps=1e-6),
        values(3, 4, 6),
        *[values(6)][:affine],
    )


@pytest.mark.parametrize("shape", [(5, 4), (3, 4, 5), (3, 4, 2, 3)], ids=str)
def test_batch_norm_in_training(shape: tuple[int, ...]) -> None:
    mine = [ruda.zeros(4, dtype="float64"), ruda.ones(4, dtype="float64")]
    peer = [torch().zeros(4, dtype=torch().float64), torch().ones(4, dtype=torch().float64)]
    assert_same(
        lambda x, w, b: F.batch_norm(x, *mine, w, b, True, 0.3),
        lambda x, w, b: theirs().batch_norm(x, *peer, w, b, True, 0.3),
        values(*shape),
        values(4),
        values(2, 2).reshape(4),
    )
    assert_near(mine[0], peer[0])
    assert_near(mine[1], peer[1])


def test_batch_norm_in_evaluation() -> None:
    mean, var = values(4), values(4) ** 2
    assert_same(
        lambda x, w, b: F.batch_norm(x, ruda.asarray(mean), ruda.asarray(var), w, b),
        lambda x, w, b: theirs().batch_norm(x, torch().tensor(mean), torch().tensor(var), w, b),
        values(3, 4, 5),
        values(4),
        values(2, 2).reshape(4),
    )


def test_running_statistics_are_off_the_tape() -> None:
    mean, var = ruda.zeros(2), ruda.ones(2)
    x = ruda.asarray(values(8, 2).astype(np.float32)).requires_grad_()
    for _ in range(2):
        ruda.sum(F.batch_norm(x, mean, var, training=True) ** 3).backward()
    assert not mean.requires_grad
    assert x.grad is not None


def test_instance_norm() -> None:
    mine = [ruda.zeros(4, dtype="float64"), ruda.ones(4, dtype="float64")]
    peer = [torch().zeros(4, dtype=torch().float64), torch().ones(4, dtype=torch().float64)]
    assert_same(
        lambda x, w, b: F.instance_norm(x, *mine, w, b),
        lambda x, w, b: theirs().instance_norm(x, *peer, w, b),
        values(3, 4, 5),
        values(4),
        values(2, 2).reshape(4),
    )
    assert_near(mine[0], peer[0])
    assert_near(mine[1], peer[1])


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_group_norm(groups: int) -> None:
    assert_same(
        lambda x, w, b: F.group_norm(x, groups, w, b),
        lambda x, w, b: theirs().group_norm(x, groups, w, b),
        values(3, 4, 5),
        values(4),
        values(2, 2).reshape(4),
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_inputs_keep_float32_parameters(dtype: str) -> None:
    x = ruda.asarray(values(3, 8)).astype(dtype).requires_grad_()
    w = ruda.asarray(values(8).astype(np.float32)).requires_grad_()
    out = F.layer_norm(x, w)
    wide = F.layer_norm(x.detach().astype("float32"), w.detach())
    np.testing.assert_array_equal(out.detach().numpy(), wide.astype(dtype).numpy())
    ruda.sum(out * out).backward()
    assert (x.grad.dtype, w.grad.dtype) == (dtype, "float32")  # type: ignore[union-attr]


def test_statistics_of_half_inputs_do_not_overflow() -> None:
    x = ruda.full((2, 4096), 60000.0, dtype="float16")
    np.testing.assert_array_equal(F.rms_norm(x).numpy(), np.ones((2, 4096), np.float16))


def test_autocast_runs_norms_in_float32() -> None:
    x = ruda.ones((2, 4), dtype="bfloat16")
    with ruda.autocast("bfloat16"):
        assert F.layer_norm(x).dtype == "float32"
        assert F.softmax(x).dtype == "float32"
        assert F.group_norm(x, 2).dtype == "float32"


def test_autocast_leaves_batch_norm_in_half() -> None:
    x, weight = ruda.ones((2, 4), dtype="bfloat16"), ruda.ones(4)
    mean, var = ruda.zeros(4), ruda.ones(4)
    with ruda.autocast("bfloat16"):
        assert F.batch_norm(x, weight=weight, training=True).dtype == "bfloat16"
        assert F.batch_norm(x, mean, var, weight).dtype == "bfloat16"
    assert mean.dtype is var.dtype is ruda.float32


def test_offset_does_not_drown_the_variance() -> None:
    x = values(2, 64).astype(np.float32)
    shifted = F.layer_norm(ruda.asarray(x + np.float32(4096)))
    exact = F.layer_norm(ruda.asarray((x + np.float32(4096)).astype(np.float64)))
    # The variance is taken about the mean: the error stays that of the rounded mean, eps * 4096.
    assert_near(shifted.astype("float64"), exact, 4096 * float(np.finfo(np.float32).eps))


def test_empty_batches() -> None:
    x = ruda.ones((0, 4))
    assert F.layer_norm(x).shape == F.rms_norm(x).shape == F.softmax(x).shape == (0, 4)
