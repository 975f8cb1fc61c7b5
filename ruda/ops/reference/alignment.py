"""NumPy meanings of sums over alignments: forward and backward variables in log space.

All examples of a batch and all places of a lattice are done at once; only time is a loop. Values
are float64, since thousands of logarithms add up. The logarithm of nothing is -inf.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any


def ladder(targets: Array, lengths: Array, blank: int) -> tuple[Array, Array]:
    """The labels [N, S] of a CTC lattice, blanks around each target, and where two may be skipped.

    Places behind the end of a target are blanks; S = 2 L + 1. A step may jump over a blank that
    stands between different labels.
    """
    count = int(lengths.max(initial=0))
    labels = np.full((len(targets), 2 * count + 1), blank, np.intp)
    inside = np.arange(count) < lengths[:, None]
    labels[:, 1::2] = np.where(inside, targets[:, :count], blank)
    skips = np.zeros(labels.shape, bool)
    skips[:, 2:] = (labels[:, 2:] != labels[:, :-2]) & (labels[:, 2:] != blank)
    return labels, skips


def emissions(log_probs: Array, labels: Array) -> Array:
    """``log_probs [T, N, C]`` of each place of the lattice: [T, N, S] in float64."""
    steps, batch, classes = log_probs.shape
    places = np.arange(batch)[:, None] * classes + labels
    # A row at a time: indexing two axes together would lay time innermost.
    picked = np.take(log_probs.reshape(steps, batch * classes), places.reshape(-1), axis=1)
    return picked.reshape(steps, *labels.shape).astype(np.float64, copy=False)


def _sum(stay: Array, near: Array, far: Array, out: Array) -> None:
    """The logarithm of the sum of three exponentials, into ``out``."""
    top = np.maximum(np.maximum(stay, near), far)
    top[np.isneginf(top)] = 0
    np.exp(stay - top, out=out)
    out += np.exp(near - top)
    out += np.exp(far - top)
    np.log(out, out=out)
    out += top


def ctc_forward(emitted: Array, skips: Array, frames: Array, lengths: Array) -> tuple[Array, Array]:
    """The forward variables [T, N, S] and the loss [N].

    Graves et al., "Connectionist temporal classification" (2006). ``frames`` and ``lengths`` [N]
    say how much of each example counts; its variables stay as they are behind its last frame.
    """
    steps, batch, places = emitted.shape
    alpha = np.full(emitted.shape, -np.inf)
    near = np.full((batch, places), -np.inf)
    far = near.copy()
    before = near.copy()
    for t in range(steps):
        if t == 0:
            # A path starts with the first blank or the first label.
            alpha[0, :, :2] = emitted[0, :, :2]
            alpha[0, lengths == 0, 1:] = -np.inf
            alpha[0, frames == 0] = -np.inf
        else:
            near[:, 1:] = before[:, :-1]
            far[:, 2:] = np.where(skips[:, 2:], before[:, :-2], -np.inf)
            _sum(before, near, far, alpha[t])
            alpha[t] += emitted[t]
            done = frames <= t
            alpha[t, done] = before[done]
        before = alpha[t]
    rows = np.arange(batch)
    last, behind = before[rows, 2 * lengths], before[rows, np.maximum(2 * lengths - 1, 0)]
    total = np.logaddexp(last, np.where(lengths > 0, behind, -np.inf))
    total[frames == 0] = np.where(lengths[frames == 0] == 0, 0.0, -np.inf)
    return alpha, -total


def ctc_occupancy(emitted: Array, skips: Array, frames: Array, lengths: Array) -> Array:
    """The probability [T, N, S] that each place is passed at each time, given the target."""
    alpha, loss = ctc_forward(emitted, skips, frames, lengths)
    steps, batch, places = emitted.shape
    ends = np.full((batch, places), -np.inf)
    rows = np.arange(batch)
    ends[rows, np.maximum(2 * lengths - 1, 0)] = 0
    ends[rows, 2 * lengths] = 0
    near = np.full((batch, places), -np.inf)
    far = near.copy()
    beta = ends.copy()
    # An impossible target has no paths to share out.
    level = np.where(np.isinf(loss), -np.inf, loss)[:, None]
    for t in range(steps - 1, -1, -1):
        if t + 1 < steps:
            after = beta + emitted[t + 1]
            near[:, :-1] = after[:, 1:]
            far[:, :-2] = np.where(skips[:, 2:], after[:, 2:], -np.inf)
            _sum(after, near, far, beta)
            beta[frames <= t + 1] = ends[frames <= t + 1]
        alpha[t] = np.exp(alpha[t] + beta + level)
        alpha[t, frames <= t] = 0
    return alpha


def ctc_gradient(shares: Array, labels: Array, shape: tuple[int, ...], blank: int) -> Array:
    """Minus the shares [T, N, S] of the places, added up by label: [T, N, C]."""
    out = np.zeros(shape)
    out[:, :, blank] = -shares[:, :, ::2].sum(axis=2)
    flat = out.reshape(shape[0], shape[1] * shape[2])
    rows = np.arange(len(labels)) * shape[2]
    # One place at a time, so that equal labels of an example never meet in one statement.
    for place in range(1, labels.shape[1], 2):
        flat[:, rows + labels[:, place]] -= shares[:, :, place]
    return out


def skewed(x: Array) -> Array:
    """``x [B, T, U]`` by diagonals: [T + U - 1, B, U] of ``x[b, d - u, u]``, -inf outside."""
    batch, steps, places = x.shape
    out = np.full((steps + places - 1, batch, places), -np.inf)
    for u in range(places):
        out[u : u + steps, :, u] = x[:, :, u].T
    return out


def straightened(x: Array, steps: int) -> Array:
    """Undo ``skewed``."""
    _, batch, places = x.shape
    out = np.empty((batch, steps, places))
    for u in range(places):
        out[:, :, u] = x[u : u + steps, :, u].T
    return out


def transducer_forward(
    blank: Array, label: Array, frames: Array, lengths: Array
) -> tuple[Array, Array]:
    """The forward variables by diagonals and the loss [B] of a transducer.

    ``blank``, ``label`` [B, T, U + 1]: logarithms of going on in time, and of the next label,
    from each place. Graves, "Sequence transduction with recurrent neural networks" (2012).
    """
    down, along = skewed(blank), skewed(label)
    alpha = np.full(down.shape, -np.inf)
    alpha[0, :, 0] = 0
    right = np.full(alpha.shape[1:], -np.inf)
    for d in range(1, len(alpha)):
        right[:, 1:] = (alpha[d - 1] + along[d - 1])[:, :-1]
        np.logaddexp(alpha[d - 1] + down[d - 1], right, out=alpha[d])
    rows = np.arange(len(blank))
    # The last blank is emitted at the last place.
    end = (np.maximum(frames - 1, 0) + lengths, rows, lengths)
    total = alpha[end] + down[end]
    total[frames == 0] = np.where(lengths[frames == 0] == 0, 0.0, -np.inf)
    return alpha, -total


def transducer_shares(
    blank: Array, label: Array, frames: Array, lengths: Array
) -> tuple[Array, Array]:
    """The probability that each step in time and each label is taken, given the target."""
    alpha, loss = transducer_forward(blank, label, frames, lengths)
    down, along = skewed(blank), skewed(label)
    rows = np.arange(len(blank))
    place = np.arange(alpha.shape[2])
    level = np.where(np.isinf(loss) | (frames == 0), -np.inf, loss)[:, None]
    beta = np.full(alpha.shape[1:], -np.inf)
    right = beta.copy()
    shares = np.empty((2, *alpha.shape))
    for d in range(len(alpha) - 1, -1, -1):
        # Outside of an example's own part nothing leads to its end.
        inside = (d - place < frames[:, None]) & (place <= lengths[:, None])
        right[:, :-1] = beta[:, 1:]
        below = beta
        ends = frames - 1 + lengths == d
        below[rows[ends], lengths[ends]] = 0
        onward, across = down[d] + below, along[d] + right
        onward[~inside] = across[~inside] = -np.inf
        shares[0, d] = np.exp(alpha[d] + onward + level)
        shares[1, d] = np.exp(alpha[d] + across + level)
        beta = np.logaddexp(onward, across)
    return straightened(shares[0], blank.shape[1]), straightened(shares[1], blank.shape[1])
