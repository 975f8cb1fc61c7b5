"""The loss of transducers: a fused row over all monotonic alignments of frames and labels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ruda.core.dtypes import FLOAT, INTEGER, compute_of, float64
from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from ruda.core.shapes import Shape, index
from ruda.core.spec import Spec
from ruda.ops.arith import maximum
from ruda.ops.cast import astype
from ruda.ops.compare import equal, less, less_equal, logical_and
from ruda.ops.create import arange, full, zeros
from ruda.ops.cross_entropy import check_reduction, reduced
from ruda.ops.ctc import NEVER, as_lengths, check_counts, check_lengths
from ruda.ops.explog import exp, logaddexp
from ruda.ops.gather import take_along_axis
from ruda.ops.join import concat, stack
from ruda.ops.movement import broadcast_to, expand_dims, moveaxis, reshape, squeeze
from ruda.ops.reduce import sum
from ruda.ops.reference import alignment as reference
from ruda.ops.rowwise import rounded, wide
from ruda.ops.rules import Specs
from ruda.ops.select import where
from ruda.ops.statistics import logsumexp
from ruda.ops.strides import span
from ruda.ops.table import FALLBACK, fused
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


def _check(op: Any, blank: Spec, label: Spec, frames: Spec, lengths: Spec) -> None:
    if blank.ndim != 3 or label.shape != blank.shape or 0 in blank.shape[1:]:
        got, expected = f"{blank.shape} and {label.shape}", "[B, T, U + 1] twice"
        raise ShapeError(op.name, "the steps do not fit", got, expected)
    check_counts(op, blank.shape[0], logit_lengths=frames, target_lengths=lengths)


def _cast(op: Any, specs: Specs) -> Any:
    dtypes = {s.dtype for s in specs if not s.dtype.is_integer}
    if len(dtypes) != 1 or not dtypes <= set(FLOAT):
        got = " and ".join(sorted(map(str, dtypes)))
        raise DTypeError(op.name, "the steps are of no one kind", got, "one float dtype")
    return tuple(None if s.dtype.is_integer else s.dtype for s in specs)


def _shape(op: Any, specs: Specs) -> Shape:
    _check(op, *specs)
    return specs[0].shape[:1]


def _forward(blank: Any, label: Any, frames: Any, lengths: Any) -> Any:
    frames, lengths = frames.astype(np.intp), lengths.astype(np.intp)
    check_lengths("rnnt_loss", "a logit length", frames, blank.shape[1])
    check_lengths("rnnt_loss", "a target length", lengths, blank.shape[2] - 1)
    return reference.transducer_forward(blank, label, frames, lengths)[1]


def _backward(dy: Any, blank: Any, label: Any, frames: Any, lengths: Any) -> Any:
    counts = frames.astype(np.intp), lengths.astype(np.intp)
    shares = reference.transducer_shares(blank, label, *counts)
    return tuple(share * -dy[:, None, None] for share in shares)


def _skewed(x: RudaTensor) -> RudaTensor:
    """``x [B, T, U]`` by diagonals, [T + U - 1, B, U]; NEVER where a diagonal leaves it."""
    batch, steps, places = x.shape
    x = maximum(astype(x, float64, copy=False), NEVER)
    gap = full((batch, places, places), NEVER, dtype=float64, device=x.device)
    # Rows one element longer than the diagonals: each starts one further to the right.
    rows = concat([moveaxis(x, 1, 2), gap], axis=2)
    cut = reshape(rows, (batch, places * (steps + places)))
    cut = span(cut, 1, 0, places * (steps + places - 1))
    return moveaxis(reshape(cut, (batch, places, steps + places - 1)), 2, 0)


def _straightened(x: RudaTensor, steps: int) -> RudaTensor:
    """Undo ``_skewed``."""
    diagonals, batch, places = x.shape
    rows = reshape(moveaxis(x, 0, 2), (batch, places * diagonals))
    gap = zeros((batch, places), dtype=x.dtype, device=x.device)
    rows = reshape(concat([rows, gap], axis=1), (batch, places, diagonals + 1))
    return moveaxis(span(rows, 2, 0, steps), 2, 1)


def _shifted(x: RudaTensor, by: int) -> RudaTensor:
    batch, places = x.shape
    gap = full((batch, 1), NEVER, dtype=x.dtype, device=x.device)
    if by > 0:
        return concat([gap, span(x, 1, 0, places - 1)], axis=1)
    return concat([span(x, 1, 1, places), gap], axis=1)


def _alphas(down: RudaTensor, along: RudaTensor) -> list[RudaTensor]:
    _, batch, places = down.shape
    place = arange(places, device=down.device)
    first = where(equal(place, 0), zeros((batch, 1), dtype=float64, device=down.device), NEVER)
    out = [first]
    for d in range(1, down.shape[0]):
        before = out[-1]
        out.append(logaddexp(before + down[d - 1], _shifted(before + along[d - 1], 1)))
    return out


def _total(
    alphas: list[RudaTensor], down: RudaTensor, frames: RudaTensor, lengths: RudaTensor
) -> RudaTensor:
    """The logarithm of the probability [B] of all alignments."""
    at_end = _end(down, frames, lengths)
    total = sum(where(at_end, stack(alphas) + down, 0), axis=(0, 2))
    return where(equal(frames, 0), where(equal(lengths, 0), 0.0, NEVER), total)


def _end(down: RudaTensor, frames: RudaTensor, lengths: RudaTensor) -> RudaTensor:
    """Where [D, B, U] the last blank is emitted."""
    diagonals, _, places = down.shape
    row = reshape(arange(diagonals, dtype="int64", device=down.device), (-1, 1, 1))
    place = arange(places, dtype="int64", device=down.device)
    counts = expand_dims(lengths, 1)
    return logical_and(equal(place, counts), equal(row, expand_dims(frames, 1) - 1 + counts))


@fused(
    "transducer_backward",
    "dy blank label logit_lengths target_lengths",
    outs="dblank dlabel",
    shape=lambda op, specs: (specs[1].shape, specs[2].shape),
    takes={"blank": FLOAT, "label": FLOAT, "logit_lengths": INTEGER, "target_lengths": INTEGER},
    dtype=lambda op, specs: (
        (None, *_cast(op, specs[1:])),
        (specs[1].dtype, specs[1].dtype),
    ),
    numpy=_backward,
    cast="high",
    cuda=FALLBACK("each diagonal of the lattice is one round of the body's operators"),
)
def _transducer_backward(
    dy: RudaTensor,
    blank: RudaTensor,
    label: RudaTensor,
    logit_lengths: RudaTensor,
    target_lengths: RudaTensor,
) -> Any:
    """Gradient of ``transducer``: minus the probability that each step is taken."""
    steps, dtype = blank.shape[1], blank.dtype
    frames, lengths = astype(logit_lengths, "int64"), astype(target_lengths, "int64")
    down, along = _skewed(blank), _skewed(label)
    alphas = _alphas(down, along)
    total = _total(alphas, down, frames, lengths)
    gone = logical_and(less(NEVER / 2, total), less(0, frames))
    level = expand_dims(where(gone, -total, 4 * NEVER), 1)
    at_end = _end(down, frames, lengths)
    place = arange(blank.shape[2], dtype="int64", device=frames.device)
    counts = expand_dims(lengths, 1)
    beta = full(alphas[0].shape, NEVER, dtype=float64, device=blank.device)
    taken: list[list[RudaTensor]] = [[], []]
    for d in range(down.shape[0] - 1, -1, -1):
        inside = logical_and(less(d - place, expand_dims(frames, 1)), less_equal(place, counts))
        onward = where(inside, down[d] + where(at_end[d], 0, beta), NEVER)
        across = where(inside, along[d] + _shifted(beta, -1), NEVER)
        for part, step in zip(taken, (onward, across), strict=True):
            part.append(exp(alphas[d] + step + level))
        beta = logaddexp(onward, across)
    scale = reshape(-astype(dy, float64), (-1, 1, 1))
    straight = [_straightened(stack(part[::-1]), steps) * scale for part in taken]
    return tuple(astype(part, dtype, copy=False) for part in straight)


def _vjp(g: Any, blank: Any, label: Any, logit_lengths: Any, target_lengths: Any) -> Any:
    pair = _transducer_backward(g, blank, label, logit_lengths, target_lengths)
    return *pair, None, None


@fused(
    "transducer",
    "blank label logit_lengths target_lengths",
    shape=_shape,
    takes={"blank": FLOAT, "label": FLOAT, "logit_lengths": INTEGER, "target_lengths": INTEGER},
    dtype=lambda op, specs: (_cast(op, specs), compute_of(specs[0].dtype)),
    numpy=_forward,
    vjp=_vjp,
    cast="high",
    cuda=FALLBACK("each diagonal of the lattice is one round of the body's operators"),
)
def _transducer(
    blank: RudaTensor, label: RudaTensor, logit_lengths: RudaTensor, target_lengths: RudaTensor
) -> RudaTensor:
    """``-log`` of the probability [B] of all ways through a lattice [B, T, U + 1] of steps."""
    frames, lengths = astype(logit_lengths, "int64"), astype(target_lengths, "int64")
    down, along = _skewed(blank), _skewed(label)
    total = _total(_alphas(down, along), down, frames, lengths)
    loss = where(less(total, NEVER / 2), math.inf, -total)
    return astype(loss, compute_of(blank.dtype), copy=False)


@given_tensors
def rnnt_loss(
    logits: RudaTensor,
    targets: RudaTensor,
    logit_lengths: Any,
    target_lengths: Any,
    blank: int = -1,
    *,
    reduction: str = "mean",
) -> RudaTensor:
    """``-log`` of the probability that a transducer spells ``targets``, over all alignments.

    ``logits [B, T, U + 1, V]`` of a float dtype (log-probabilities are as good: they are
    normalised here), ``targets [B, U]``, lengths [B] as tensors or sequences. At each frame labels
    are emitted until a blank goes on to the next; ``blank`` counts from the end if negative. An
    impossible target costs inf and has no gradient. Sums over alignments in float64. Graves,
    "Sequence transduction with recurrent neural networks" (2012).

    Raises ``ShapeError``, ``DTypeError``, ``ArgumentError`` and, for a label out of range,
    ``IndexRangeError``.

    >>> logits = ruda.zeros((1, 1, 2, 2))
    >>> round(ruda.exp(-rnnt_loss(logits, ruda.asarray([[0]]), [1], [1])).item(), 4)
    0.25
    """
    name = "rnnt_loss"
    check_reduction(name, reduction)
    _check_logits(logits, targets)
    classes, places = logits.shape[3], logits.shape[2]
    own = index(blank, name, "blank")
    if not -classes <= own < classes:
        raise ArgumentError(name, "blank is no class", blank, f"{-classes} to {classes - 1}")
    frames = as_lengths(name, "logit_lengths", logit_lengths, logits)
    lengths = as_lengths(name, "target_lengths", target_lengths, logits)
    x = wide(logits)
    level = logsumexp(x, axis=3)
    down = squeeze(span(x, 3, own % classes, own % classes + 1), 3) - level
    # Behind the last place there is no label: its step leads nowhere, whatever it costs.
    padding = zeros((targets.shape[0], 1), dtype="int64", device=targets.device)
    place = arange(places, dtype=lengths.dtype, device=lengths.device)
    padded = concat([astype(targets, "int64"), padding], axis=1)
    counted = where(less(place, expand_dims(lengths, 1)), _checked(padded, classes), 0)
    picks = broadcast_to(reshape(counted, (-1, 1, places, 1)), (*x.shape[:3], 1))
    along = squeeze(take_along_axis(x, picks, axis=3), 3) - level
    return rounded(reduced(_transducer(down, along, frames, lengths), reduction), logits)


def _checked(targets: RudaTensor, classes: int) -> RudaTensor:
    # A negative label would count from the end; the length itself is out of range everywhere.
    return where(less(targets, 0), classes, targets)


def _check_logits(logits: RudaTensor, targets: RudaTensor) -> None:
    name = "rnnt_loss"
    if logits.ndim != 4 or targets.ndim != 2:
        got, expected = f"{logits.shape} and {targets.shape}", "[B, T, U + 1, V] and [B, U]"
        raise ShapeError(name, "ranks do not fit", got, expected)
    expected_targets = (logits.shape[0], logits.shape[2] - 1)
    if targets.shape != expected_targets:
        raise ShapeError(name, "targets do not fit", targets.shape, expected_targets)
    if not logits.dtype.is_floating:
        raise DTypeError(name, "logits of another kind", logits.dtype, "a float dtype")
    if not targets.dtype.is_integer:
        raise DTypeError(name, "targets are no labels", targets.dtype, "integers")
