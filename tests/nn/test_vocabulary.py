"""Losses that hold the map to the classes, beside PyTorch's adaptive softmax and the plain loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn
from ruda.core.errors import ArgumentError, IndexRangeError, ShapeError
from ruda.testing import assert_close
from tests.ops.peer import assert_near, torch

X = np.random.default_rng(0).standard_normal((6, 8))
TARGET = np.array([0, 19, 5, 3, 12, 4])
SETTINGS: dict[str, Any] = {"div_value": 2.0, "head_bias": True, "dtype": "float64"}


def adaptive() -> nn.AdaptiveLogSoftmaxWithLoss:
    ruda.random.seed(3)
    return nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], **SETTINGS)


def test_the_adaptive_softmax_is_that_of_pytorch() -> None:
    mine = adaptive()
    settings = SETTINGS | {"dtype": torch().float64}
    theirs = torch().nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], **settings)
    state = {name: torch().tensor(v.numpy(copy=True)) for name, v in mine.state_dict().items()}
    theirs.load_state_dict(state)
    out, expected = (
        mine(ruda.asarray(X), ruda.asarray(TARGET)),
        theirs(torch().tensor(X), torch().tensor(TARGET)),
    )
    out.loss.backward()
    expected.loss.backward()
    assert_near(out.output.detach(), expected.output)
    for (name, p), (other, q) in zip(
        mine.named_parameters(), theirs.named_parameters(), strict=True
    ):
        assert name == other
        assert_near(p.grad, q.grad)
    assert_near(mine.log_prob(ruda.asarray(X)).detach(), theirs.log_prob(torch().tensor(X)))
    best = theirs.predict(torch().tensor(X)).tolist()
    assert mine.predict(ruda.asarray(X)).tolist() == best


def test_its_probabilities_sum_to_one_and_one_row_is_a_row() -> None:
    softmax, x = adaptive(), ruda.asarray(X)
    logs = softmax.log_prob(x)
    assert_close(ruda.sum(ruda.exp(logs), axis=1), np.ones(6), length=20)
    one = softmax(x[1], ruda.asarray(TARGET)[1])
    assert one.output.shape == ()
    assert_close(one.output, logs[1, 19], length=20)


def test_the_layer_is_the_loss_of_its_linear_map() -> None:
    ruda.random.seed(4)
    settings: dict[str, Any] = {"label_smoothing": 0.1, "ignore_index": 19, "reduction": "sum"}
    layer = nn.LinearCrossEntropyLoss(8, 20, bias=True, dtype="float64", **settings)
    x, target = ruda.asarray(X), ruda.asarray(TARGET)
    assert_close(layer(x, target), F.cross_entropy(layer.linear(x), target, **settings), length=20)
    assert [name for name, _ in layer.named_parameters()] == ["linear.weight", "linear.bias"]
    assert "reduction='sum'" in repr(layer)


def test_mistakes_are_named() -> None:
    for cutoffs in ([], [4, 4], [0, 4], [20], [10, 4]):
        with pytest.raises(ArgumentError, match=r"^AdaptiveLogSoftmaxWithLoss: cutoffs"):
            nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs)
    softmax, x = adaptive(), ruda.asarray(X)
    with pytest.raises(IndexRangeError, match=r"no such class. Got values from 0 to 20"):
        softmax(x, ruda.asarray([0, 20, 1, 1, 1, 1]))
    with pytest.raises(ShapeError, match="the target does not fit"):
        softmax(x, ruda.asarray([0]))
    with pytest.raises(ruda.CaptureError, match=r"AdaptiveLogSoftmaxWithLoss|nonzero|int"):
        ruda.compile(softmax)(x, ruda.asarray(TARGET))
    with pytest.raises(ArgumentError, match="unknown reduction"):
        nn.LinearCrossEntropyLoss(8, 20, reduction="all")
