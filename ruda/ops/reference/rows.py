"""Row formulas: softmax, norms and cross-entropy, along one axis.

Each walks blocks of rows small enough for the cache and works in place there. An axis other than
the last is brought there by a copy. Infinities and NaNs follow from the formulas: a softmax row
with only -inf, with +inf or with NaN becomes NaN. The dtype is that of ``x``, float32 or float64.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ruda.ops.reference.windows import Array, row_blocks, volume

_BLOCK_BYTES = 1 << 18


def softmax(x: Array, axis: int = -1) -> Array:
    """Normalise exp(x) along ``axis``; the shape is preserved.

    >>> softmax(np.array([[0.0, 0.0]]))
    array([[0.5, 0.5]])
    """
    rows = _as_rows(x, axis)
    out = np.empty(rows.shape, x.dtype)
    for block in _blocks(rows):
        y = out[block]
        np.subtract(rows[block], rows[block].max(axis=1, keepdims=True), out=y)
        np.exp(y, out=y)
        y /= y.sum(axis=1, keepdims=True)
    return _from_rows(out, x, axis)


def softmax_backward(g: Array, y: Array, axis: int = -1) -> Array:
    """Differentiate ``softmax`` from its output ``y``: y * (g - sum(g * y))."""
    grads, rows = _as_rows(g, axis), _as_rows(y, axis)
    out = np.empty(rows.shape, y.dtype)
    for block in _blocks(rows):
        dx = out[block]
        np.subtract(grads[block], np.vecdot(grads[block], rows[block])[:, None], out=dx)
        dx *= rows[block]
    return _from_rows(out, y, axis)


def log_softmax(x: Array, axis: int = -1) -> Array:
    """Subtract the log-sum-exp along ``axis``; the shape is preserved."""
    rows = _as_rows(x, axis)
    out = np.empty(rows.shape, x.dtype)
    for block in _blocks(rows):
        y = out[block]
        np.subtract(rows[block], rows[block].max(axis=1, keepdims=True), out=y)
        y -= np.log(np.exp(y).sum(axis=1, keepdims=True))
    return _from_rows(out, x, axis)


def log_softmax_backward(g: Array, y: Array, axis: int = -1) -> Array:
    """Differentiate ``log_softmax`` from its output ``y``: g - exp(y) * sum(g)."""
    grads, rows = _as_rows(g, axis), _as_rows(y, axis)
    out = np.empty(rows.shape, y.dtype)
    for block in _blocks(rows):
        dx = out[block]
        np.exp(rows[block], out=dx)
        dx *= -grads[block].sum(axis=1, keepdims=True)
        dx += grads[block]
    return _from_rows(out, y, axis)


def logsumexp(x: Array, axis: int = -1, keepdims: bool = False) -> Array:
    """Compute log(sum(exp(x))) along ``axis``: -inf for a row of -inf or without elements."""
    rows = _as_rows(x, axis)
    out = np.full(len(rows), -np.inf, x.dtype)
    for block in _blocks(rows):
        top = rows[block].max(axis=1, keepdims=True)
        top[np.isinf(top)] = 0
        total = np.exp(rows[block] - top).sum(axis=1)
        out[block] = np.log(total) + top[:, 0]
    return _per_row(out, x, axis, keepdims)


def layer_norm(
    x: Array, weight: Array | None, bias: Array | None, eps: float, axis: int = -1
) -> tuple[Array, Array, Array]:
    """Standardise along ``axis``, then scale and shift; returns ``(y, mean, rstd)``.

    weight, bias: [n] or None. mean and rstd = 1 / sqrt(var + eps) have the shape of x without
    ``axis``. The variance is taken about the mean, in a second pass.
    """
    rows = _as_rows(x, axis)
    out = np.empty(rows.shape, x.dtype)
    mean, rstd = np.empty((2, len(rows)), x.dtype)
    for block in _blocks(rows):
        y = out[block]
        mean[block] = rows[block].mean(axis=1)
        np.subtract(rows[block], mean[block, None], out=y)
        rstd[block] = 1 / np.sqrt(np.vecdot(y, y) / rows.shape[1] + eps)
        y *= rstd[block, None]
        _affine(y, weight, bias)
    return _from_rows(out, x, axis), _per_row(mean, x, axis), _per_row(rstd, x, axis)


def layer_norm_backward(
    g: Array, x: Array, weight: Array | None, mean: Array, rstd: Array, axis: int = -1
) -> tuple[Array, Array, Array]:
    """Differentiate ``layer_norm``: gradients of x, weight and bias, the latter two [n].

    Ba et al., "Layer Normalization" (2016). With u = g * weight and z the standardised x:
    dx = rstd * (u - mean(u) - z * mean(u * z)).
    """
    grads, rows = _as_rows(g, axis), _as_rows(x, axis)
    mean, rstd = mean.reshape(-1, 1), rstd.reshape(-1, 1)
    out = np.empty(rows.shape, x.dtype)
    dw, db = np.zeros((2, rows.shape[1]), x.dtype)
    for block in _blocks(rows):
        z = (rows[block] - mean[block]) * rstd[block]
        dx = out[block]
        np.multiply(grads[block], z, out=dx)
        dw += dx.sum(axis=0)
        db += grads[block].sum(axis=0)
        np.copyto(dx, grads[block])
        _affine(dx, weight, None)
        z *= (np.vecdot(dx, z) / rows.shape[1])[:, None]
        dx -= dx.mean(axis=1, keepdims=True)
        dx -= z
        dx *= rstd[block]
    return _from_rows(out, x, axis), dw, db


def rms_norm(x: Array, weight: Array | None, eps: float, axis: int = -1) -> tuple[Array, Array]:
    """Divide by the root mean square along ``axis``, then scale; returns ``(y, rstd)``.

    weight: [n] or None; rstd = 1 / sqrt(mean(x * x) + eps) has the shape of x without ``axis``.
    """
    rows = _as_rows(x, axis)
    out = np.empty(rows.shape, x.dtype)
    rstd = np.empty(len(rows), x.dtype)
    for block in _blocks(rows):
        squares = np.vecdot(rows[block], rows[block])
        rstd[block] = 1 / np.sqrt(squares / rows.shape[1] + eps)
        np.multiply(rows[block], rstd[block, None], out=out[block])
        _affine(out[block], weight, None)
    return _from_rows(out, x, axis), _per_row(rstd, x, axis)


def rms_norm_backward(
    g: Array, x: Array, weight: Array | None, rstd: Array, axis: int = -1
) -> tuple[Array, Array]:
    """Differentiate ``rms_norm``: gradients of x and weight [n].

    Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019). With u = g * weight and
    z = x * rstd: dx = rstd * (u - z * mean(u * z)).
    """
    grads, rows = _as_rows(g, axis), _as_rows(x, axis)
    rstd = rstd.reshape(-1, 1)
    out = np.empty(rows.shape, x.dtype)
    dw = np.zeros(rows.shape[1], x.dtype)
    for block in _blocks(rows):
        z = rows[block] * rstd[block]
        dx = out[block]
        np.multiply(grads[block], z, out=dx)
        dw += dx.sum(axis=0)
        np.copyto(dx, grads[block])
        _affine(dx, weight, None)
        z *= (np.vecdot(dx, z) / rows.shape[1])[:, None]
        dx -= z
        dx *= rstd[block]
    return _from_rows(out, x, axis), dw


def cross_entropy(
    logits: Array,
    target: Array,
    weight: Array | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> tuple[Array, Array]:
    """Compute the loss of each row and its log-sum-exp, both [N].

    logits: [N, V], target: integers [N] in [0, V) or ``ignore_index``, whose rows cost nothing;
    weight: [V] per class. Smoothing s gives (1 - s) of the weight to the target and s / V to
    every class; ``z_loss`` adds z_loss * lse ** 2. The mean of the batch is
    ``loss.sum() / target_weights(...).sum()``.
    """
    valid, index = _targets(target, ignore_index)
    loss, lse = np.empty((2, len(logits)), logits.dtype)
    plain = weight is None and not label_smoothing and not z_loss
    if plain and valid is None:
        return _plain_cross_entropy(logits, index, loss, lse)
    spread = label_smoothing / logits.shape[1]
    for block in _blocks(logits):
        x = logits[block]
        top = x.max(axis=1, keepdims=True)
        x = x - top
        picked = np.take_along_axis(x, index[block, None], axis=1)[:, 0]
        total = (x.sum(axis=1) if weight is None else x @ weight) if spread else 0
        norm = np.log(np.exp(x, out=x).sum(axis=1))
        lse[block] = norm + top[:, 0]
        share = (
            1 - label_smoothing if weight is None else (1 - label_smoothing) * weight[index[block]]
        )
        loss[block] = share * (norm - picked)
        if spread:
            mass = logits.shape[1] if weight is None else weight.sum()
            loss[block] += spread * (norm * mass - total)
        if z_loss:
            loss[block] += z_loss * lse[block] ** 2
    if valid is not None:
        loss[~valid] = 0
    return loss, lse


def _plain_cross_entropy(
    logits: Array, index: Array, loss: Array, lse: Array
) -> tuple[Array, Array]:
    """``cross_entropy`` where all targets count alike and nothing is added."""
    for block in _blocks(logits):
        top = np.maximum.reduce(logits[block], axis=1)
        x = logits[block] - top[:, None]
        picked = x[np.arange(len(x)), index[block]]
        norm = np.log(np.add.reduce(np.exp(x, out=x), axis=1))
        np.add(norm, top, out=lse[block])
        np.subtract(norm, picked, out=loss[block])
    return loss, lse


def cross_entropy_backward(
    g: Array,
    logits: Array,
    target: Array,
    lse: Array,
    weight: Array | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> Array:
    """Differentiate the row losses of ``cross_entropy`` in the logits: g [N] to [N, V]."""
    valid, index = _targets(target, ignore_index)
    spread = label_smoothing / logits.shape[1]
    mass = logits.shape[1] if weight is None else weight.sum()
    share = slope = g * (1 - label_smoothing) if label_smoothing else g
    if weight is not None:
        share = slope = share * weight[index]
    if spread or z_loss:
        slope = share + g * (spread * mass) + g * (2 * z_loss) * lse
    out = np.empty(logits.shape, logits.dtype)
    for block in _blocks(logits):
        dx = out[block]
        np.subtract(logits[block], lse[block, None], out=dx)
        np.exp(dx, out=dx)
        dx *= slope[block, None]
        if spread:
            dx -= (g[block] * spread)[:, None] * (1 if weight is None else weight)
        dx[np.arange(len(dx)), index[block]] -= share[block]
        if valid is not None:
            dx[~valid[block]] = 0
    return out


def target_weights(
    target: Array, weight: Array | None, ignore_index: int, dtype: np.dtype
) -> Array:
    """Give the weight [N] each row has in a mean: that of its class, zero where ignored."""
    valid, index = _targets(target, ignore_index)
    weights = np.ones(index.shape, dtype) if weight is None else weight[index]
    return (weights if valid is None else np.where(valid, weights, 0)).astype(dtype)


def _targets(target: Array, ignore_index: int) -> tuple[Array | None, Array]:
    """Split targets into a mask, None where all count, and indices that can all be read."""
    if ignore_index < 0 and (not target.size or np.minimum.reduce(target, axis=None) >= 0):
        return None, target.astype(np.int64, copy=False)
    valid = target != ignore_index
    return valid, np.where(valid, target, 0).astype(np.int64)


def _affine(rows: Array, weight: Array | None, bias: Array | None) -> None:
    if weight is not None:
        rows *= weight
    if bias is not None:
        rows += bias


def _blocks(rows: Array) -> Iterator[slice]:
    """Cut [r, n] into blocks of rows; none if it holds no element."""
    return row_blocks(len(rows) if rows.size else 0, rows.shape[1] * rows.itemsize, _BLOCK_BYTES)


def _as_rows(x: Array, axis: int) -> Array:
    """Fold x into [r, n] with ``axis`` last, a view where the layout allows."""
    moved = np.moveaxis(x, axis, -1)
    return moved.reshape(volume(moved.shape[:-1]), moved.shape[-1])


def _from_rows(rows: Array, x: Array, axis: int) -> Array:
    """Undo ``_as_rows`` for a result of the shape of ``x``, in its axis order."""
    moved = rows.reshape(np.moveaxis(x, axis, -1).shape)
    return np.ascontiguousarray(np.moveaxis(moved, -1, axis))


def _per_row(values: Array, x: Array, axis: int, keepdims: bool = False) -> Array:
    """Shape one value per row as ``x`` without ``axis``."""
    shape = list(x.shape)
    shape[axis] = 1
    return values.reshape(shape) if keepdims else values.reshape(np.delete(shape, axis).tolist())
