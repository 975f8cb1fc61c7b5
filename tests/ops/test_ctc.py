"""CTC against PyTorch, transducers against all of their alignments, written out."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.core.errors import CaptureError, IndexRangeError, ShapeError
from ruda.testing import gradcheck
from tests.ops.peer import assert_near, assert_same, backward, leaves, torch


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def theirs(x: Any, targets: Any, frames: Any, lengths: Any, **options: Any) -> Any:
    function = torch().nn.functional
    logs = function.log_softmax(x, -1)
    counts = [torch().tensor(np.asarray(v)) for v in (targets, frames, lengths)]
    return function.ctc_loss(logs, *counts, **options)


def mine(x: Any, targets: Any, frames: Any, lengths: Any, **options: Any) -> Any:
    return F.ctc_loss(
        F.log_softmax(x, -1), ruda.asarray(np.asarray(targets)), frames, lengths, **options
    )


def assert_as_pytorch(x: Any, *arguments: Any, **options: Any) -> None:
    """Values, and gradients through ``log_softmax``: PyTorch's own are right there alone."""
    ours, judges = leaves(x)
    out, expected = mine(ours[0], *arguments, **options), theirs(judges[0], *arguments, **options)
    assert_near(out, expected, 1e-12)
    backward(ours, judges, out, expected)


TARGETS = np.array([[1, 2, 2, 3], [4, 4, 9, 9], [9, 9, 9, 9]])


@pytest.mark.parametrize("blank", [0, 5])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_padded_targets(reduction: str, blank: int) -> None:
    options = {"reduction": reduction, "blank": blank}
    assert_as_pytorch(random(8, 3, 6), TARGETS, [8, 5, 3], [4, 2, 0], **options)


def test_concatenated_targets() -> None:
    targets = np.array([1, 2, 2, 3, 4, 4])
    assert_as_pytorch(random(8, 3, 6), targets, [8, 5, 3], [4, 2, 0])
    assert_as_pytorch(random(4, 2, 6), targets[:0], [4, 3], [0, 0])


def test_lengths_are_tensors_or_sequences() -> None:
    x = ruda.asarray(random(8, 3, 6))
    targets = ruda.asarray(TARGETS)
    expected = F.ctc_loss(x, targets, [8, 5, 3], [4, 2, 0])
    counts = [ruda.asarray(v, dtype="int32") for v in ([8, 5, 3], [4, 2, 0])]
    assert F.ctc_loss(x, targets, *counts).item() == expected.item()
    flat = ruda.asarray([1, 2, 2, 3, 4, 4])
    assert F.ctc_loss(x, flat, *counts).item() == expected.item()


def test_one_example_without_a_batch() -> None:
    x, target = random(6, 5), np.array([1, 1, 3])
    assert_as_pytorch(x, target, 6, 3, reduction="none")
    assert_as_pytorch(x, target, 6, 3)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint16"])
def test_many_labels(dtype: str) -> None:
    targets = np.random.default_rng(3).integers(1, 1000, (2, 40))
    x = random(120, 2, 1000)
    logs = F.log_softmax(ruda.asarray(x), -1)
    got = F.ctc_loss(logs, ruda.asarray(targets.astype(dtype)), [120, 100], [40, 33])
    assert_near(got, theirs(torch().tensor(x), targets, [120, 100], [40, 33]), 1e-12)


def test_long_sequences_of_float32_keep_their_digits() -> None:
    x = random(2000, 2, 30).astype(np.float32)
    targets = np.random.default_rng(4).integers(1, 30, (2, 200))
    logs = F.log_softmax(ruda.asarray(x), -1)
    got = F.ctc_loss(logs, ruda.asarray(targets), [2000, 1500], [200, 150], reduction="none")
    wide = F.ctc_loss(
        logs.astype("float64"), ruda.asarray(targets), [2000, 1500], [200, 150], reduction="none"
    )
    assert_near(got, wide.astype("float32"), 2e-7)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_is_rounded_once(dtype: str) -> None:
    logs = F.log_softmax(ruda.asarray(random(8, 3, 6)), -1).astype(dtype)
    arguments = ruda.asarray(TARGETS), [8, 5, 3], [4, 2, 0]
    wide = F.ctc_loss(logs.astype("float32"), *arguments)
    assert F.ctc_loss(logs, *arguments).item() == wide.astype(dtype).item()


def test_impossible_targets_cost_infinity_or_nothing() -> None:
    # Two equal labels need a blank between them: three frames.
    x = ruda.asarray(random(2, 2, 4)).requires_grad_()
    arguments = ruda.asarray([[1, 1], [1, 2]]), [2, 2], [2, 2]
    loss = F.ctc_loss(F.log_softmax(x, -1), *arguments, reduction="none")
    assert loss[0].item() == math.inf
    assert math.isfinite(loss[1].item())
    F.ctc_loss(F.log_softmax(x, -1), *arguments).backward()
    assert not x.grad.numpy()[:, 0].any()
    assert x.grad.numpy()[:, 1].any()
    assert_as_pytorch(random(2, 2, 4), *[np.asarray(a) for a in arguments], zero_infinity=True)


def test_no_frames_at_all() -> None:
    logs = ruda.asarray(random(3, 2, 4))
    loss = F.ctc_loss(logs, ruda.asarray([[1], [1]]), [0, 0], [0, 1], reduction="none")
    assert loss.tolist() == [0.0, math.inf]
    empty = F.ctc_loss(ruda.zeros((0, 1, 4)), ruda.asarray([[1]]), [0], [0])
    assert empty.item() == 0.0


def test_a_probability_of_zero_is_no_nan() -> None:
    logs = np.full((2, 1, 3), math.log(0.5))
    logs[..., 2] = -np.inf
    x = ruda.tensor(logs, requires_grad=True)
    loss = F.ctc_loss(x, ruda.asarray([[1]]), [2], [1])
    assert loss.item() == pytest.approx(-math.log(0.75))
    loss.backward(create_graph=True)
    np.testing.assert_allclose(-x.grad.numpy()[:, 0], [[1 / 3, 2 / 3, 0]] * 2)
    ruda.sum(x.grad * x.grad).backward()
    assert np.isfinite(x.grad.numpy()).all()


def test_padding_is_never_read() -> None:
    x = random(6, 2, 5)
    clean, dirty = np.array([[1, 2, 3], [4, 1, 1]]), np.array([[1, 2, 3], [4, -7, 99]])
    got = [mine(ruda.asarray(x), t, [6, 6], [3, 1]).item() for t in (clean, dirty)]
    assert got[0] == got[1]
    with pytest.raises(IndexRangeError, match="Got -7 at"):
        mine(ruda.asarray(x), dirty, [6, 6], [3, 2])


def test_captured_with_padded_targets() -> None:
    targets = ruda.asarray(TARGETS)
    frames, lengths = ruda.asarray([8, 5, 3]), ruda.asarray([4, 2, 0])

    def loss(x: Any, t: Any, n: Any) -> Any:
        return F.ctc_loss(F.log_softmax(x, -1), t, frames, n)

    x = ruda.asarray(random(8, 3, 6))
    assert ruda.compile(loss)(x, targets, lengths).item() == loss(x, targets, lengths).item()
    with pytest.raises(CaptureError):
        ruda.compile(loss)(x, ruda.asarray([1, 2, 2, 3, 4, 4]), lengths)


def alignments(logs: Any, target: Any, blank: int) -> float:
    """``-log`` of the sum over all orders of blanks and labels of one transducer."""
    frames, count = logs.shape[0], len(target)
    total = -math.inf
    # The last step is a blank; the labels stand anywhere before it.
    for places in itertools.combinations(range(frames + count - 1), count):
        t = u = 0
        score = 0.0
        for step in range(frames + count):
            if step in places:
                score += logs[t, u, target[u]]
                u += 1
            else:
                score += logs[t, u, blank]
                t += 1
        total = float(np.logaddexp(total, score))
    return -total


@pytest.mark.parametrize("blank", [0, -1, 2])
def test_transducer_sums_all_alignments(blank: int) -> None:
    x = random(3, 4, 4, 5)
    targets, frames, lengths = np.array([[1, 3, 1], [3, 3, 0], [1, 9, 9]]), [4, 3, 2], [3, 2, 1]
    logs = x - np.log(np.exp(x).sum(-1, keepdims=True))
    expected = [
        alignments(logs[b, : frames[b], : lengths[b] + 1], targets[b, : lengths[b]], blank)
        for b in range(3)
    ]
    arguments = ruda.asarray(targets), frames, lengths, blank
    got = F.rnnt_loss(ruda.asarray(x), *arguments, reduction="none")
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12)
    same = F.rnnt_loss(ruda.asarray(logs), *arguments)
    assert same.item() == pytest.approx(np.mean(expected), rel=1e-12)
    gradcheck(lambda v: F.rnnt_loss(v, *arguments), [x])


def test_transducer_without_frames_or_labels() -> None:
    x = ruda.asarray(random(3, 2, 3, 4))
    loss = F.rnnt_loss(x, ruda.zeros((3, 2), dtype="int64"), [0, 0, 2], [0, 1, 0], reduction="none")
    logs = F.log_softmax(x, -1).numpy()
    assert loss.tolist()[:2] == [0.0, math.inf]
    assert loss[2].item() == pytest.approx(-logs[2, 0, 0, 3] - logs[2, 1, 0, 3])


def test_transducer_labels_are_checked_where_they_count() -> None:
    x = ruda.zeros((1, 2, 3, 4))
    assert math.isfinite(F.rnnt_loss(x, ruda.asarray([[1, -5]]), [2], [1]).item())
    with pytest.raises(IndexRangeError, match="out of range"):
        F.rnnt_loss(x, ruda.asarray([[1, -5]]), [2], [2])
    with pytest.raises(ShapeError, match="logit_lengths"):
        F.rnnt_loss(x, ruda.asarray([[1, 2]]), [2, 2], [2])


def test_second_order_is_that_of_pytorch_without_kernels() -> None:
    """A CTC of two frames, written out by its three alignments."""

    def by_hand(x: Any) -> Any:
        p = torch().softmax(x, -1)
        a, b = p[:, :, 1].unbind(0)
        n, m = p[:, :, 0].unbind(0)
        return -torch().log(a * b + a * m + n * b).mean()

    assert_same(lambda x: mine(x, [[1], [1]], [2, 2], [1, 1]), by_hand, random(2, 2, 3))
