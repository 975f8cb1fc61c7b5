"""Pools and pads of each rank, and other layers without parameters, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn
from tests.ops.peer import assert_near, assert_same, torch

RANKS = (1, 2, 3)
# What ``test_layers.py`` has in other ranks: name, arguments, and how many axes of length 6 follow
# batch and channels.
LAYERS: list[tuple[str, tuple[Any, ...], int]] = [
    ("AdaptiveAvgPool1d", (4,), 1),
    ("AdaptiveMaxPool1d", (4,), 1),
    ("AdaptiveMaxPool2d", ((4, 5),), 2),
    ("AvgPool1d", (3, 2, 1), 1),
    ("ZeroPad1d", (2,), 1),
    ("ZeroPad3d", ((1, 0, 2, 1, 0, -1),), 3),
    ("CircularPad1d", ((1, 2),), 1),
    ("CircularPad3d", (2,), 3),
]


@pytest.mark.parametrize(
    ("name", "args", "rank"), LAYERS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_layers_are_those_of_pytorch(name: str, args: Any, rank: int) -> None:
    x = np.random.default_rng(rank).standard_normal((2, 3, *(6,) * rank))
    assert_same(getattr(nn, name)(*args), getattr(torch().nn, name)(*args), x)


@pytest.mark.parametrize("rank", RANKS)
def test_functions_of_adaptive_pools_are_those_of_pytorch(rank: int) -> None:
    x = np.random.default_rng(rank).standard_normal((2, 3, *(7,) * rank))
    for name in (f"adaptive_avg_pool{rank}d", f"adaptive_max_pool{rank}d"):
        theirs = getattr(torch().nn.functional, name)(torch().tensor(x), 3)
        assert_near(getattr(F, name)(ruda.asarray(x), 3), theirs)


def test_log_of_sigmoid_and_binary_cross_entropy() -> None:
    rng = np.random.default_rng(0)
    x, p, y = rng.standard_normal((4, 5)), rng.uniform(0.1, 0.9, (4, 5)), rng.uniform(size=(4, 5))
    assert_same(F.logsigmoid, torch().nn.functional.logsigmoid, x)
    mine = nn.BCELoss(weight=ruda.asarray(y), reduction="sum")
    theirs = torch().nn.BCELoss(weight=torch().tensor(y), reduction="sum")
    own, other = ruda.tensor(p, requires_grad=True), torch().tensor(p, requires_grad=True)
    # Not to order 2: PyTorch adds 1e-12 to a divisor in its backward.
    for layer, given, target in ((mine, own, ruda.asarray(y)), (theirs, other, torch().tensor(y))):
        layer(given, target).backward()
    assert_near(own.grad, other.grad)
    assert_near(mine(own.detach(), ruda.asarray(y)), theirs(other, torch().tensor(y)))


@pytest.mark.parametrize("rank", RANKS)
def test_dropout_of_channels_drops_them_whole(rank: int) -> None:
    ruda.random.seed(rank)
    layer = getattr(nn, f"Dropout{rank}d")(0.25)
    x = ruda.ones((8, 16, *(3,) * rank))
    y = layer(x).numpy().reshape(8 * 16, -1)
    assert ((y == 0).all(axis=1) | np.isclose(y, 1 / 0.75).all(axis=1)).all()
    assert 0 < (y[:, 0] == 0).sum() < 64
    assert layer.eval()(x) is x or (layer(x).numpy() == 1).all()
