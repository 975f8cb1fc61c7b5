"""Connectionist temporal classification: a fused row over all alignments of a batch.

The lattice of an example has 2 L + 1 places, blanks around its labels. Forward variables are made
again in backward, so the tape keeps the log-probabilities alone. Graves et al., "Connectionist
temporal classification" (2006).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ruda.core.dtypes import FLOAT, INTEGER, float64
from ruda.core.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
from ruda.core.shapes import Shape, index
from ruda.core.spec import Spec
from ruda.ops.arith import maximum
from ruda.ops.cast import astype
from ruda.ops.compare import equal, greater, less, less_equal, logical_and, not_equal
from ruda.ops.conversion import asarray
from ruda.ops.create import arange, full, zeros
from ruda.ops.cross_entropy import check_reduction, reduced
from ruda.ops.explog import exp, logaddexp
from ruda.ops.gather import one_hot, take, take_along_axis
from ruda.ops.join import concat, stack
from ruda.ops.matmul import matmul
from ruda.ops.movement import broadcast_to, expand_dims, permute_dims, reshape, squeeze
from ruda.ops.reference import alignment as reference
from ruda.ops.rowwise import rounded, statistics_dtype
from ruda.ops.rules import Specs
from ruda.ops.select import where
from ruda.ops.strides import span
from ruda.ops.table import FALLBACK, fused
from ruda.tensor.given import given_tensors
from ruda.tensor.operands import as_scalar
from ruda.tensor.tensor import RudaTensor

# The logarithm of nothing in the bodies: finite, so that differences of two are numbers, and far
# below any sum of real logarithms.
NEVER = -1e30


def check_lengths(name: str, what: str, lengths: Any, longest: int) -> None:
    """Raise unless all ``lengths``, an ndarray, lie between 0 and ``longest``."""
    bad = (lengths < 0) | (lengths > longest)
    if bad.any():
        place = int(np.argmax(bad))
        got = f"{int(lengths[place])} for example {place}"
        raise ArgumentError(name, f"{what} does not fit", got, f"0 to {longest}")


def check_labels(name: str, targets: Any, lengths: Any, classes: int, blank: int) -> None:
    """Raise unless the labels that count are classes other than ``blank``."""
    inside = np.arange(targets.shape[1]) < lengths[:, None]
    bad = inside & ((targets < 0) | (targets >= classes) | (targets == blank))
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        expected = f"0 to {classes - 1}, and not the blank {blank}"
        raise IndexRangeError(name, "no such label", f"{targets[place]} at {place}", expected)


def check_counts(op: Any, batch: int, **counts: Spec) -> None:
    """Raise unless each of ``counts`` holds one integer per example."""
    for name, spec in counts.items():
        if spec.shape != (batch,):
            raise ShapeError(op.name, f"{name} does not fit", spec.shape, (batch,))
        if not spec.dtype.is_integer:
            raise DTypeError(op.name, f"{name} are no integers", spec.dtype, "integers")


def _check(op: Any, specs: Specs, blank: int) -> None:
    log_probs, targets, frames, lengths = specs
    if log_probs.ndim != 3 or targets.ndim != 2:
        got, expected = f"{log_probs.shape} and {targets.shape}", "[T, N, C] and [N, L]"
        raise ShapeError(op.name, "ranks do not fit", got, expected)
    if targets.shape[0] != log_probs.shape[1]:
        got, expected = f"{targets.shape[0]} targets", f"{log_probs.shape[1]}, one per example"
        raise ShapeError(op.name, "batches differ", got, expected)
    if not 0 <= blank < log_probs.shape[2]:
        expected = f"0 to {log_probs.shape[2] - 1}"
        raise ArgumentError(op.name, "blank is no class", blank, expected)
    check_counts(op, log_probs.shape[1], input_lengths=frames, target_lengths=lengths)


def _cast(op: Any, specs: Specs, at: int) -> Any:
    x, targets = specs[at], specs[at + 1]
    if x.dtype not in FLOAT:
        raise DTypeError(op.name, "log_probs of another kind", x.dtype, "a float dtype")
    if not targets.dtype.is_integer:
        raise DTypeError(op.name, "targets are no labels", targets.dtype, "integers")
    return tuple(None if s.dtype.is_integer else s.dtype for s in specs)


def _shape(op: Any, specs: Specs, blank: int) -> Shape:
    _check(op, specs, blank)
    return (specs[0].shape[1],)


def _lattice(log_probs: Any, targets: Any, frames: Any, lengths: Any, blank: int) -> Any:
    """Labels, and what ``reference.ctc_forward`` takes, of operands that are checked here."""
    frames, lengths = frames.astype(np.intp), lengths.astype(np.intp)
    check_lengths("ctc_loss", "an input length", frames, len(log_probs))
    check_lengths("ctc_loss", "a target length", lengths, targets.shape[1])
    check_labels("ctc_loss", targets, lengths, log_probs.shape[2], blank)
    labels, skips = reference.ladder(targets, lengths, blank)
    return labels, (reference.emissions(log_probs, labels), skips, frames, lengths)


def _forward(*operands: Any) -> Any:
    _, lattice = _lattice(*operands)
    return reference.ctc_forward(*lattice)[1]


def _backward(dy: Any, log_probs: Any, targets: Any, frames: Any, lengths: Any, blank: int) -> Any:
    labels, lattice = _lattice(log_probs, targets, frames, lengths, blank)
    shares = reference.ctc_occupancy(*lattice)
    shares *= dy[:, None]
    return reference.ctc_gradient(shares, labels, log_probs.shape, blank)


def _ladder(targets: RudaTensor, lengths: RudaTensor, blank: int) -> tuple[RudaTensor, RudaTensor]:
    """What ``reference.ladder`` makes, in operators, for the whole width of ``targets``."""
    targets = astype(targets, "int64", copy=False)
    batch, count = targets.shape
    integers: dict[str, Any] = {"dtype": targets.dtype, "device": targets.device}
    inside = less(arange(count, **integers), expand_dims(lengths, 1))
    blanks = full((batch, count), blank, **integers)
    pairs = stack([blanks, where(inside, targets, blank)], axis=2)
    end = full((batch, 1), blank, **integers)
    labels = concat([reshape(pairs, (batch, 2 * count)), end], axis=1)
    place = arange(2 * count + 1, **integers)
    ahead = _shifted(labels, 2, blank)
    skips = logical_and(not_equal(labels, ahead), not_equal(labels, blank))
    return labels, logical_and(skips, greater(place, 1))


def _shifted(x: RudaTensor, by: int, fill: Any) -> RudaTensor:
    """``x`` moved along the last axis, to higher places for a positive ``by``."""
    batch, places = x.shape
    count = min(abs(by), places)
    gap = full((batch, count), fill, dtype=x.dtype, device=x.device)
    if by > 0:
        return concat([gap, span(x, 1, 0, places - count)], axis=1)
    return concat([span(x, 1, count, places), gap], axis=1)


def _emitted(log_probs: RudaTensor, labels: RudaTensor) -> RudaTensor:
    x = astype(log_probs, float64, copy=False)
    places = broadcast_to(labels, (x.shape[0], *labels.shape))
    return maximum(take_along_axis(x, places, axis=2), NEVER)


def _alphas(
    emitted: RudaTensor, skips: RudaTensor, frames: RudaTensor, lengths: RudaTensor
) -> list[RudaTensor]:
    """The forward variables [N, S] of each time, held behind an example's last frame."""
    place = arange(emitted.shape[2], device=emitted.device)
    opens = logical_and(less(place, 2), less_equal(place, 2 * expand_dims(lengths, 1)))
    out = [where(opens, emitted[0], NEVER)]
    for t in range(1, emitted.shape[0]):
        before = out[-1]
        far = where(skips, _shifted(before, 2, NEVER), NEVER)
        after = logaddexp(logaddexp(before, _shifted(before, 1, NEVER)), far) + emitted[t]
        out.append(where(expand_dims(greater(frames, t), 1), after, before))
    return out


def _ends(places: int, lengths: RudaTensor) -> RudaTensor:
    """Which places [N, S] a path may end at: the last label and the blank behind it."""
    place, last = arange(places, device=lengths.device), 2 * expand_dims(lengths, 1)
    return logical_and(less_equal(place, last), greater(place, last - 2))


def _betas(
    emitted: RudaTensor, skips: RudaTensor, frames: RudaTensor, lengths: RudaTensor
) -> list[RudaTensor]:
    """For each time and place, the logarithm of the ways to go on: [N, S] each."""
    steps, _, places = emitted.shape
    ends = where(_ends(places, lengths), zeros((), dtype=float64, device=emitted.device), NEVER)
    out = [ends]
    for t in range(steps - 1, 0, -1):
        after = out[-1] + emitted[t]
        # A jump is allowed by the place that it leads to.
        far = _shifted(where(skips, after, NEVER), -2, NEVER)
        before = logaddexp(logaddexp(after, _shifted(after, -1, NEVER)), far)
        out.append(where(expand_dims(greater(frames, t), 1), before, ends))
    return out[::-1]


def _total(alphas: list[RudaTensor], frames: RudaTensor, lengths: RudaTensor) -> RudaTensor:
    """The logarithm of the probability [N] of all paths; far below zero where there is none."""
    last = alphas[-1]
    ended = where(_ends(last.shape[1], lengths), last, NEVER)
    place = 2 * expand_dims(lengths, 1)
    label = where(greater(place, 0), take_along_axis(ended, maximum(place - 1, 0), axis=1), NEVER)
    total = squeeze(logaddexp(take_along_axis(ended, place, axis=1), label), 1)
    return where(equal(frames, 0), where(equal(lengths, 0), 0.0, NEVER), total)


@fused(
    "ctc_backward",
    "dy log_probs targets input_lengths target_lengths",
    "blank",
    shape=lambda op, specs, blank: specs[1].shape,
    takes={
        "log_probs": FLOAT,
        "targets": INTEGER,
        "input_lengths": INTEGER,
        "target_lengths": INTEGER,
    },
    dtype=lambda op, specs, blank: (_cast(op, specs, 1), specs[1].dtype),
    numpy=_backward,
    cast="high",
    cuda=FALLBACK("each step of time is one round of the body's operators"),
)
def _ctc_backward(
    dy: RudaTensor,
    log_probs: RudaTensor,
    targets: RudaTensor,
    input_lengths: RudaTensor,
    target_lengths: RudaTensor,
    blank: int,
) -> RudaTensor:
    """Gradient of ``ctc``: minus the probability that a label is emitted at a time."""
    steps = log_probs.shape[0]
    if not steps:
        return astype(log_probs, log_probs.dtype)
    lengths, frames = astype(target_lengths, "int64"), astype(input_lengths, "int64")
    labels, skips = _ladder(targets, lengths, blank)
    emitted = _emitted(log_probs, labels)
    alphas = _alphas(emitted, skips, frames, lengths)
    total = _total(alphas, frames, lengths)
    level = where(less(total, NEVER / 2), 4 * NEVER, -total)
    scores = stack(alphas) + stack(_betas(emitted, skips, frames, lengths))
    time = arange(steps, dtype="int64", device=frames.device)
    passed = less(expand_dims(time, 1), frames)
    shares = where(expand_dims(passed, 2), exp(scores + expand_dims(level, 1)), 0)
    shares = shares * expand_dims(astype(dy, float64), 1)
    hot = one_hot(labels, log_probs.shape[2], dtype=float64)
    # [N, T, S] times [N, S, C]
    dx = -permute_dims(matmul(permute_dims(shares, (1, 0, 2)), hot), (1, 0, 2))
    return astype(dx, log_probs.dtype, copy=False)


@fused(
    "ctc",
    "log_probs targets input_lengths target_lengths",
    "blank",
    shape=_shape,
    takes={
        "log_probs": FLOAT,
        "targets": INTEGER,
        "input_lengths": INTEGER,
        "target_lengths": INTEGER,
    },
    dtype=lambda op, specs, blank: (_cast(op, specs, 0), statistics_dtype(specs[0])),
    numpy=_forward,
    vjp=(
        lambda g, log_probs, targets, input_lengths, target_lengths, blank: _ctc_backward(
            g, log_probs, targets, input_lengths, target_lengths, blank
        ),
        None,
        None,
        None,
    ),
    cast="high",
    cuda=FALLBACK("each step of time is one round of the body's operators"),
)
def _ctc(
    log_probs: RudaTensor,
    targets: RudaTensor,
    input_lengths: RudaTensor,
    target_lengths: RudaTensor,
    blank: int,
) -> RudaTensor:
    """``-log`` of the probability [N] of all paths of ``log_probs [T, N, C]`` to a target."""
    dtype = statistics_dtype(log_probs.spec)
    lengths, frames = astype(target_lengths, "int64"), astype(input_lengths, "int64")
    if not log_probs.shape[0]:
        return astype(where(equal(lengths, 0), 0.0, math.inf), dtype)
    labels, skips = _ladder(targets, lengths, blank)
    alphas = _alphas(_emitted(log_probs, labels), skips, frames, lengths)
    total = _total(alphas, frames, lengths)
    return astype(where(less(total, NEVER / 2), math.inf, -total), dtype, copy=False)


def as_lengths(name: str, what: str, lengths: Any, like: RudaTensor) -> RudaTensor:
    """``lengths``, a tensor, a sequence or one integer, as a tensor of one axis on the device."""
    if not isinstance(lengths, RudaTensor):
        one = as_scalar(lengths) is not None
        counts = [index(n, name, what) for n in ([lengths] if one else lengths)]
        return asarray(np.array(counts, np.int64), device=like.device)
    return reshape(lengths, (1,)) if lengths.ndim == 0 else lengths


def _padded(targets: RudaTensor, lengths: Any) -> RudaTensor:
    """Concatenated targets as [N, L], the end of each row filled with what follows."""
    counts = np.asarray(lengths.tolist(), np.int64)
    if (counts < 0).any() or counts.sum() != targets.shape[0]:
        got, expected = f"{targets.shape[0]} labels", f"{counts.sum()}, the sum of target_lengths"
        raise ShapeError("ctc_loss", "concatenated targets do not fit", got, expected)
    if not targets.shape[0]:
        return reshape(targets, (len(counts), 0)) if len(counts) else zeros((0, 0), dtype="int64")
    starts = np.cumsum(counts) - counts
    places = starts[:, None] + np.arange(counts.max())
    places = np.minimum(places, targets.shape[0] - 1)
    flat = take(targets, asarray(places.reshape(-1), device=targets.device))
    return reshape(flat, places.shape)


@given_tensors
def ctc_loss(
    log_probs: RudaTensor,
    targets: RudaTensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> RudaTensor:
    """``-log`` of the probability that frames spell ``targets``, summed over all alignments.

    ``log_probs [T, N, C]`` of a float dtype, as ``log_softmax`` gives them; ``targets [N, L]``
    padded, or all labels ``[sum(target_lengths)]`` in a row; lengths are tensors, sequences or,
    for a single example ``[T, C]``, integers. A path through the first ``input_lengths`` frames
    becomes the target when repeats are merged and then blanks removed. The ``"mean"`` divides each
    loss by its target's length first. An impossible target costs inf, or 0 with
    ``zero_infinity``, and has no gradient. Computed in float64. Graves et al. (2006).

    Concatenated targets with lengths in a tensor are read by the host. Raises ``ShapeError``,
    ``DTypeError``, ``ArgumentError`` and, for a label out of range, ``IndexRangeError``.

    >>> frames = ruda.log(ruda.full((2, 1, 2), 0.5))
    >>> round(ruda.exp(-ctc_loss(frames, ruda.asarray([[1]]), [2], [1])).item(), 4)
    0.75
    """
    name = "ctc_loss"
    check_reduction(name, reduction)
    single = log_probs.ndim == 2
    x = expand_dims(log_probs, 1) if single else log_probs
    frames = as_lengths(name, "input_lengths", input_lengths, log_probs)
    lengths = as_lengths(name, "target_lengths", target_lengths, log_probs)
    if targets.ndim == 1:
        targets = expand_dims(targets, 0) if single else _padded(targets, lengths)
    loss = _ctc(x, targets, frames, lengths, index(blank, name, "blank"))
    if zero_infinity:
        loss = where(equal(loss, math.inf), 0, loss)
    if reduction == "mean":
        loss = loss / astype(maximum(lengths, 1), loss.dtype)
    if single and reduction == "none":
        loss = squeeze(loss, 0)
    return rounded(reduced(loss, reduction), log_probs)
