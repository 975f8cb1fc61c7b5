"""NumPy meanings of recurrent layers: one product per step, everything else for all steps at once.

``gx [T, N, G]`` are the gates' shares of the input, biases included; ``order`` says in which order
the steps are walked; ``active [T, N]`` (or None) where a sequence still runs: elsewhere the state
stays. ``y [T, N, H]`` is the state after each step, so a step's state before is the ``y`` of the
step walked before it. Sigmoids are taken as (1 + tanh(x / 2)) / 2, which cannot overflow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any


def activity(lengths: Array | None, steps: int) -> Array | None:
    """Where [T, N] a step lies inside its sequence."""
    return None if lengths is None else np.arange(steps)[:, None] < lengths


def order(steps: int, reverse: bool) -> range:
    """The steps as they are walked."""
    return range(steps - 1, -1, -1) if reverse else range(steps)


def before(states: Array, first: Array, reverse: bool) -> Array:
    """The state [T, N, H] before each step."""
    out = np.empty_like(states)
    if len(out):
        out[-1 if reverse else 0] = first
        if reverse:
            out[:-1] = states[1:]
        else:
            out[1:] = states[:-1]
    return out


def _walk(steps: int, reverse: bool) -> Iterator[tuple[int, int | None]]:
    """Each step with the one walked before it."""
    previous = None
    for t in order(steps, reverse):
        yield t, previous
        previous = t


def _sigmoid(x: Array) -> None:
    x *= 0.5
    np.tanh(x, out=x)
    x *= 0.5
    x += 0.5


def _product(states: Array, w: Array) -> Array:
    """``states [T, N, H]`` times ``w [G, H]`` transposed, in one product."""
    steps, batch, size = states.shape
    return (states.reshape(steps * batch, size) @ w.T).reshape(steps, batch, len(w))


def _hold(out: Array, states: Array, active: Array | None, t: int) -> None:
    """Where a sequence has ended its state stays."""
    if active is not None:
        np.copyto(out, states, where=~active[t][:, None])


def rnn(gx: Array, h0: Array, w: Array, lengths: Array | None, relu: bool, reverse: bool) -> Array:
    """``h = tanh(gx + h w.T)``, or its positive part. Elman, "Finding structure in time" (1990)."""
    active = activity(lengths, len(gx))
    y = np.empty_like(gx)
    h = h0
    for t in order(len(gx), reverse):
        np.matmul(h, w.T, out=y[t])
        y[t] += gx[t]
        np.maximum(y[t], 0, out=y[t]) if relu else np.tanh(y[t], out=y[t])
        _hold(y[t], h, active, t)
        h = y[t]
    return y


def rnn_backward(
    dy: Array,
    h0: Array,
    y: Array,
    w: Array,
    lengths: Array | None,
    relu: bool,
    reverse: bool,
) -> tuple[Array, Array]:
    """Gradients of ``gx`` and ``h0``, by backpropagation through time."""
    active = activity(lengths, len(y))
    dgx = (y > 0).astype(y.dtype) if relu else 1 - y * y
    dh = np.zeros_like(h0)
    for t in order(len(y), not reverse):
        dh = dh + dy[t]
        dgx[t] *= dh
        carried = dh
        if active is not None:
            dgx[t] *= active[t][:, None]
        dh = dgx[t] @ w
        _hold(dh, carried, active, t)
    return dgx, dh


def lstm(
    gx: Array,
    h0: Array,
    c0: Array,
    w: Array,
    p: Array | None,
    lengths: Array | None,
    reverse: bool,
) -> tuple[Array, Array]:
    """Outputs ``y [T, N, H]`` and cells ``c [T, N, C]``; the gates are i, f, g, o.

    Hochreiter and Schmidhuber, "Long short-term memory" (1997); ``p [H, C]`` projects the output:
    Sak et al. (2014).
    """
    steps, batch, size = len(gx), len(h0), c0.shape[1]
    active = activity(lengths, steps)
    y = np.empty((steps, *h0.shape), gx.dtype)
    c = np.empty((steps, *c0.shape), gx.dtype)
    a: Array = np.empty((batch, 4 * size), gx.dtype)
    i, f, g, o = (a[:, k * size : (k + 1) * size] for k in range(4))
    for t, previous in _walk(steps, reverse):
        h, cell = (h0, c0) if previous is None else (y[previous], c[previous])
        np.matmul(h, w.T, out=a)
        a += gx[t]
        _gates(a, size)
        np.multiply(f, cell, out=c[t])
        i *= g
        c[t] += i
        _hold(c[t], cell, active, t)
        np.tanh(c[t], out=g)
        if p is None:
            np.multiply(o, g, out=y[t])
        else:
            np.matmul(np.multiply(o, g, out=o), p.T, out=y[t])
        _hold(y[t], h, active, t)
    return y, c


def _gates(a: Array, size: int) -> None:
    """Sigmoid of i, f and o, tanh of g, in place: a tanh of everything, scaled for three."""
    g = a[..., 2 * size : 3 * size]
    a *= 0.5
    g *= 2
    np.tanh(a, out=a)
    a *= 0.5
    a += 0.5
    g -= 0.5
    g *= 2


def lstm_backward(
    dy: Array | None,
    dc: Array | None,
    gx: Array,
    h0: Array,
    c0: Array,
    y: Array,
    c: Array,
    w: Array,
    p: Array | None,
    lengths: Array | None,
    reverse: bool,
) -> tuple[Array, Array, Array, Array]:
    """Gradients of ``gx`` and of each step's output, then of ``h0`` and ``c0``.

    The gates are made again in one product, since all states are known.
    """
    steps, size = len(gx), c0.shape[1]
    active = activity(lengths, steps)
    a = _product(before(y, h0, reverse), w)
    a += gx
    _gates(a, size)
    i, f, g, o = (a[..., k * size : (k + 1) * size] for k in range(4))
    squashed = np.tanh(c)
    # What a gradient of the cell, or of what leaves it, becomes for each gate.
    slope = np.empty_like(a)
    slope[..., :size] = g * i * (1 - i)
    slope[..., size : 2 * size] = before(c, c0, reverse) * f * (1 - f)
    slope[..., 2 * size : 3 * size] = i * (1 - g * g)
    slope[..., 3 * size :] = squashed * o * (1 - o)
    leaving = o * (1 - squashed * squashed)
    outputs = np.zeros_like(y)
    dh, dcell = np.zeros_like(h0), np.zeros_like(c0)
    for t in order(steps, not reverse):
        dh = dh if dy is None else dh + dy[t]
        dcell = dcell if dc is None else dcell + dc[t]
        dm = dh if p is None else dh @ p
        total = dcell + dm * leaving[t]
        gates = slope[t].reshape(len(h0), 4, size)
        gates[:, :3] *= total[:, None]
        gates[:, 3] *= dm
        outputs[t] = dh
        if active is not None:
            slope[t] *= active[t][:, None]
            outputs[t] *= active[t][:, None]
        held = dh, dcell
        dh, dcell = slope[t] @ w, total * f[t]
        _hold(dh, held[0], active, t)
        _hold(dcell, held[1], active, t)
    return slope, outputs, dh, dcell


def gru(
    gx: Array,
    h0: Array,
    w: Array,
    b: Array | None,
    lengths: Array | None,
    reverse: bool,
) -> Array:
    """``h = (1 - z) n + z h``; the gates are r, z, n, and r scales what n sees of the state.

    Cho et al., "Learning phrase representations using RNN encoder-decoder" (2014), in the form
    whose reset acts behind the product.
    """
    steps, (batch, size) = len(gx), h0.shape
    active = activity(lengths, steps)
    y = np.empty((steps, *h0.shape), gx.dtype)
    a: Array = np.empty((batch, 3 * size), gx.dtype)
    rz, n = a[:, : 2 * size], a[:, 2 * size :]
    r, z = a[:, :size], a[:, size : 2 * size]
    h = h0
    for t in order(steps, reverse):
        np.matmul(h, w.T, out=a)
        if b is not None:
            a += b
        rz += gx[t, :, : 2 * size]
        _sigmoid(rz)
        n *= r
        n += gx[t, :, 2 * size :]
        np.tanh(n, out=n)
        np.subtract(h, n, out=y[t])
        y[t] *= z
        y[t] += n
        _hold(y[t], h, active, t)
        h = y[t]
    return y


def gru_backward(
    dy: Array,
    gx: Array,
    h0: Array,
    y: Array,
    w: Array,
    b: Array | None,
    lengths: Array | None,
    reverse: bool,
) -> tuple[Array, Array, Array]:
    """Gradients of ``gx``, of the gates' shares of the state, and of ``h0``."""
    steps, size = len(gx), h0.shape[1]
    active = activity(lengths, steps)
    state = before(y, h0, reverse)
    a = _product(state, w)
    if b is not None:
        a += b
    rz = a[..., : 2 * size]
    rz += gx[..., : 2 * size]
    _sigmoid(rz)
    r, z, inner = (a[..., k * size : (k + 1) * size] for k in range(3))
    n = np.tanh(gx[..., 2 * size :] + r * inner)
    dgx, dgh = np.empty_like(gx), np.empty_like(gx)
    pass_on = (1 - z) * (1 - n * n)
    reset = inner * r * (1 - r)
    update = (state - n) * z * (1 - z)
    dh = np.zeros_like(h0)
    for t in order(steps, not reverse):
        dh = dh + dy[t]
        dn = dh * pass_on[t]
        dgx[t, :, 2 * size :] = dn
        dgx[t, :, :size] = dn * reset[t]
        dgx[t, :, size : 2 * size] = dh * update[t]
        if active is not None:
            dgx[t] *= active[t][:, None]
        dgh[t] = dgx[t]
        dgh[t, :, 2 * size :] *= r[t]
        held = dh
        dh = dgh[t] @ w + dh * z[t]
        _hold(dh, held, active, t)
    return dgx, dgh, dh
