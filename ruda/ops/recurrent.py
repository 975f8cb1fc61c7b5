"""Recurrent layers: fused rows over a whole sequence.

The input's share of all steps is one product in front of a row; the row walks time with one product
per step. Backward makes the gates again from the states that it kept, in one product, and then goes
back through time; gradients of weights are products of whole sequences.
"""

from __future__ import annotations

from typing import Any

from ruda.core.dtypes import FLOAT, INTEGER
from ruda.core.errors import DTypeError, ShapeError
from ruda.core.shapes import Shape
from ruda.core.spec import Spec, is_absent
from ruda.ops.activation import relu as positive_part
from ruda.ops.cast import astype
from ruda.ops.compare import greater
from ruda.ops.create import zeros_like
from ruda.ops.explog import sigmoid
from ruda.ops.hyper import tanh
from ruda.ops.join import concat, split, stack
from ruda.ops.linear import linear
from ruda.ops.matmul import matmul
from ruda.ops.movement import expand_dims, matrix_transpose, reshape
from ruda.ops.reduce import sum
from ruda.ops.reference import recurrent as reference
from ruda.ops.rowwise import wide
from ruda.ops.rules import Specs
from ruda.ops.select import where
from ruda.ops.strides import span
from ruda.ops.table import FALLBACK, fused
from ruda.tensor.tensor import RudaTensor


def _fit(op: Any, name: str, spec: Spec, expected: Shape) -> None:
    if not is_absent(spec) and spec.shape != expected:
        raise ShapeError(op.name, f"{name} does not fit", spec.shape, expected)


def _check(op: Any, gates: int, gx: Spec, h0: Spec, w: Spec, lengths: Spec) -> tuple[int, int]:
    """Operands that fit together; the batch and the size of the cells."""
    if gx.ndim != 3 or gx.shape[2] % gates or h0.ndim != 2:
        got = f"{gx.shape} and {h0.shape}"
        raise ShapeError(op.name, "ranks do not fit", got, f"[T, N, {gates} C] and [N, H]")
    if not gx.shape[0]:
        raise ShapeError(op.name, "a sequence without steps", gx.shape, "at least one step")
    batch, size = gx.shape[1], gx.shape[2] // gates
    _fit(op, "the state", h0, (batch, h0.shape[1]))
    _fit(op, "w", w, (gx.shape[2], h0.shape[1]))
    _fit(op, "lengths", lengths, (batch,))
    return batch, size


def _cast(op: Any, specs: Specs) -> Any:
    """Each operand in its dtype: one float dtype among all, and lengths of integers."""
    floats = {s.dtype for s in specs[:-1] if not is_absent(s)}
    if len(floats) != 1 or not floats <= set(FLOAT):
        got = " and ".join(sorted(map(str, floats)))
        hint = "astype: a module converts with module.to(dtype)"
        raise DTypeError(op.name, "operands differ in dtype", got, "one float dtype", hint)
    if not is_absent(specs[-1]) and not specs[-1].dtype.is_integer:
        raise DTypeError(op.name, "lengths are no integers", specs[-1].dtype, "integers")
    (dtype,) = floats
    return (*(None if s.weak else dtype for s in specs[:-1]), None), dtype


def _outputs(count: int) -> Any:
    """The dtype rule of a row with so many outputs; 0 for a single one."""

    def rule(op: Any, specs: Specs, *_: Any) -> Any:
        cast, dtype = _cast(op, specs)
        return cast, (dtype,) * count if count else dtype

    return rule


def _steps(x: RudaTensor, reverse: bool) -> range:
    return reference.order(x.shape[0], reverse)


def _active(lengths: RudaTensor | None, t: int) -> RudaTensor | None:
    """Which sequences [N, 1] still run at step ``t``."""
    return None if lengths is None else expand_dims(greater(lengths, t), 1)


def _chosen(active: RudaTensor | None, new: RudaTensor, old: RudaTensor) -> RudaTensor:
    return new if active is None else where(active, new, old)


def _masked(active: RudaTensor | None, x: RudaTensor) -> RudaTensor:
    return x if active is None else where(active, x, 0)


def _times(h: RudaTensor, w: RudaTensor) -> RudaTensor:
    return matmul(h, matrix_transpose(w))


def _in_order(states: list[RudaTensor], like: RudaTensor, reverse: bool) -> RudaTensor:
    """What was collected step by step, by time, in the dtype of ``like``."""
    return astype(stack(states[::-1] if reverse else states), like.dtype, copy=False)


def _before(states: RudaTensor, first: RudaTensor, reverse: bool) -> RudaTensor:
    """The state before each step."""
    steps, one = states.shape[0], expand_dims(first, 0)
    if reverse:
        return concat([span(states, 0, 1, steps), one])
    return concat([one, span(states, 0, 0, steps - 1)])


def _weight_gradient(dgates: RudaTensor, states: RudaTensor) -> RudaTensor:
    """The sum over steps and batch of gates [T, N, G] times states [T, N, H]: [G, H]."""
    rows = [reshape(v, (v.shape[0] * v.shape[1], v.shape[2])) for v in (dgates, states)]
    return matmul(matrix_transpose(rows[0]), rows[1])


def _rnn_shape(op: Any, specs: Specs, *_: Any) -> Shape:
    gx, h0, w, lengths = specs
    batch, size = _check(op, 1, gx, h0, w, lengths)
    _fit(op, "the state", h0, (batch, size))
    return gx.shape


@fused(
    "rnn_backward",
    "dy h0 y w lengths",
    "relu reverse",
    "dgx dh0",
    shape=lambda op, specs, *_: (specs[2].shape, specs[1].shape),
    takes={"dy": FLOAT, "h0": FLOAT, "y": FLOAT, "w": FLOAT, "lengths": INTEGER},
    dtype=_outputs(2),
    numpy=reference.rnn_backward,
    optional=("lengths",),
    cuda=FALLBACK("each step of time is a product and a few maps"),
)
def _rnn_backward(
    dy: RudaTensor, h0: RudaTensor, y: RudaTensor, w: RudaTensor, lengths: Any, *attrs: bool
) -> Any:
    """Gradients of ``rnn`` in the input's share and in the first state."""
    relu, reverse = attrs
    g, states, weight = wide(dy), wide(y), wide(w)
    dh, out = zeros_like(wide(h0)), []
    for t in _steps(y, not reverse):
        dh, active = dh + g[t], _active(lengths, t)
        h = states[t]
        da = where(greater(h, 0), dh, 0) if relu else dh * (1 - h * h)
        da = _masked(active, da)
        out.append(da)
        dh = _chosen(active, matmul(da, weight), dh)
    return _in_order(out, dy, not reverse), astype(dh, h0.dtype, copy=False)


def _rnn_vjp(
    g: Any, h0: Any, out: Any, w: Any, lengths: Any, needs: Any, relu: bool, reverse: bool
) -> Any:
    dgx, dh0 = _rnn_backward(g, h0, out, w, lengths, relu, reverse)
    dw = _weight_gradient(dgx, _before(out, h0, reverse)) if needs[2] else None
    return dgx, dh0, dw, None


@fused(
    "rnn",
    "gx h0 w lengths",
    "relu reverse",
    shape=_rnn_shape,
    takes={"gx": FLOAT, "h0": FLOAT, "w": FLOAT, "lengths": INTEGER},
    dtype=_outputs(0),
    numpy=reference.rnn,
    vjp=_rnn_vjp,
    optional=("lengths",),
    cast="low",
    cuda=FALLBACK("each step of time is a product and a few maps"),
)
def rnn(
    gx: RudaTensor, h0: RudaTensor, w: RudaTensor, lengths: Any, relu: bool, reverse: bool
) -> RudaTensor:
    """States [T, N, H] of ``h = tanh(gx[t] + h w.T)``, or of its positive part."""
    x, h, weight, out = wide(gx), wide(h0), wide(w), []
    for t in _steps(gx, reverse):
        a = x[t] + _times(h, weight)
        h = _chosen(_active(lengths, t), positive_part(a) if relu else tanh(a), h)
        out.append(h)
    return _in_order(out, gx, reverse)


def _lstm_shape(op: Any, specs: Specs, reverse: bool) -> Any:
    gx, h0, c0, w, p, lengths = specs
    batch, size = _check(op, 4, gx, h0, w, lengths)
    _fit(op, "the cell state", c0, (batch, size))
    _fit(op, "p", p, (h0.shape[1], size))
    if is_absent(p):
        _fit(op, "the state", h0, (batch, size))
    return (*gx.shape[:2], h0.shape[1]), (*gx.shape[:2], size)


def _lstm_gates(a: RudaTensor) -> tuple[RudaTensor, ...]:
    i, f, g, o = split(a, a.shape[-1] // 4, axis=-1)
    return sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)


@fused(
    "lstm_backward",
    "dy dc gx h0 c0 y c w p lengths",
    "reverse",
    "dgx dout dh0 dc0",
    shape=lambda op, specs, reverse: tuple(specs[i].shape for i in (2, 5, 3, 4)),
    takes={
        "dy": FLOAT,
        "gx": FLOAT,
        "h0": FLOAT,
        "c0": FLOAT,
        "y": FLOAT,
        "c": FLOAT,
        "w": FLOAT,
        "lengths": INTEGER,
    },
    dtype=_outputs(4),
    numpy=reference.lstm_backward,
    optional=("dy", "dc", "p", "lengths"),
    cuda=FALLBACK("each step of time is a product and a few maps"),
)
def _lstm_backward(
    dy: Any,
    dc: Any,
    gx: RudaTensor,
    h0: RudaTensor,
    c0: RudaTensor,
    y: RudaTensor,
    c: RudaTensor,
    w: RudaTensor,
    p: Any,
    lengths: Any,
    reverse: bool,
) -> Any:
    """Gradients of ``lstm`` in the gates, in each step's output, and in the first state."""
    states, cells = (wide(_before(*v, reverse)) for v in ((y, h0), (c, c0)))
    x, weight, squashed = wide(gx), wide(w), tanh(wide(c))
    dh, dcell = zeros_like(wide(h0)), zeros_like(wide(c0))
    gates_out, outputs = [], []
    for t in _steps(gx, not reverse):
        active = _active(lengths, t)
        i, f, g, o = _lstm_gates(x[t] + _times(states[t], weight))
        dh = dh if dy is None else dh + wide(dy)[t]
        dcell = dcell if dc is None else dcell + wide(dc)[t]
        dm = dh if p is None else matmul(dh, wide(p))
        total = dcell + dm * o * (1 - squashed[t] * squashed[t])
        di, df = total * g * i * (1 - i), total * cells[t] * f * (1 - f)
        dg, do = total * i * (1 - g * g), dm * squashed[t] * o * (1 - o)
        da = _masked(active, concat([di, df, dg, do], axis=1))
        gates_out.append(da)
        outputs.append(_masked(active, dh))
        dh = _chosen(active, matmul(da, weight), dh)
        dcell = _chosen(active, total * f, dcell)
    lists = [_in_order(v, gx, not reverse) for v in (gates_out, outputs)]
    return *lists, *(astype(v, gx.dtype, copy=False) for v in (dh, dcell))


def _lstm_vjp(
    g: Any,
    gx: Any,
    h0: Any,
    c0: Any,
    y: Any,
    c: Any,
    w: Any,
    p: Any,
    lengths: Any,
    needs: Any,
    reverse: bool,
) -> Any:
    operands = (gx, h0, c0, y, c, w, p, lengths)
    dgx, dout, dh0, dc0 = _lstm_backward(g[0], g[1], *operands, reverse)
    states, dw, dp = _before(y, h0, reverse), None, None
    if needs[3]:
        dw = _weight_gradient(dgx, states)
    if needs[4]:
        size = c0.shape[1]
        last = linear(states, span(w, 0, 3 * size, 4 * size))
        o = sigmoid(span(gx, 2, 3 * size, 4 * size) + last)
        dp = _weight_gradient(dout, o * tanh(c))
    return dgx, dh0, dc0, dw, dp, None


@fused(
    "lstm",
    "gx h0 c0 w p lengths",
    "reverse",
    "y c",
    shape=_lstm_shape,
    takes={"gx": FLOAT, "h0": FLOAT, "c0": FLOAT, "w": FLOAT, "lengths": INTEGER},
    dtype=_outputs(2),
    numpy=reference.lstm,
    vjp=_lstm_vjp,
    optional=("p", "lengths"),
    cast="low",
    cuda=FALLBACK("each step of time is a product and a few maps"),
)
def lstm(
    gx: RudaTensor,
    h0: RudaTensor,
    c0: RudaTensor,
    w: RudaTensor,
    p: Any,
    lengths: Any,
    reverse: bool,
) -> Any:
    """Outputs [T, N, H] and cells [T, N, C] of an LSTM with the gates i, f, g, o."""
    x, h, cell, weight = wide(gx), wide(h0), wide(c0), wide(w)
    outputs, cells = [], []
    for t in _steps(gx, reverse):
        active = _active(lengths, t)
        i, f, g, o = _lstm_gates(x[t] + _times(h, weight))
        cell = _chosen(active, f * cell + i * g, cell)
        m = o * tanh(cell)
        h = _chosen(active, m if p is None else _times(m, wide(p)), h)
        outputs.append(h)
        cells.append(cell)
    return tuple(_in_order(v, gx, reverse) for v in (outputs, cells))


def _gru_shape(op: Any, specs: Specs, reverse: bool) -> Shape:
    gx, h0, w, b, lengths = specs
    batch, size = _check(op, 3, gx, h0, w, lengths)
    _fit(op, "the state", h0, (batch, size))
    _fit(op, "b", b, (gx.shape[2],))
    return (*gx.shape[:2], size)


def _gru_gates(x: RudaTensor, a: RudaTensor) -> tuple[RudaTensor, ...]:
    """r, z, n and what r scales, of the shares of input and state."""
    xr, xz, xn = split(x, x.shape[-1] // 3, axis=-1)
    hr, hz, inner = split(a, a.shape[-1] // 3, axis=-1)
    r = sigmoid(xr + hr)
    return r, sigmoid(xz + hz), tanh(xn + r * inner), inner


def _state_share(h: RudaTensor, w: RudaTensor, b: Any) -> RudaTensor:
    return _times(h, w) if b is None else _times(h, w) + wide(b)


@fused(
    "gru_backward",
    "dy gx h0 y w b lengths",
    "reverse",
    "dgx dgh dh0",
    shape=lambda op, specs, reverse: tuple(specs[i].shape for i in (1, 1, 2)),
    takes={
        "dy": FLOAT,
        "gx": FLOAT,
        "h0": FLOAT,
        "y": FLOAT,
        "w": FLOAT,
        "b": FLOAT,
        "lengths": INTEGER,
    },
    dtype=_outputs(3),
    numpy=reference.gru_backward,
    optional=("b", "lengths"),
    cuda=FALLBACK("each step of time is a product and a few maps"),
)
def _gru_backward(
    dy: RudaTensor,
    gx: RudaTensor,
    h0: RudaTensor,
    y: RudaTensor,
    w: RudaTensor,
    b: Any,
    lengths: Any,
    reverse: bool,
) -> Any:
    """Gradients of ``gru`` in the gates' shares of input and state, and in the first state."""
    x, weight, upper = wide(gx), wide(w), wide(dy)
    states = wide(_before(y, h0, reverse))
    dh = zeros_like(wide(h0))
    ahead, recurrent = [], []
    for t in _steps(gx, not reverse):
        active = _active(lengths, t)
        r, z, n, inner = _gru_gates(x[t], _state_share(states[t], weight, b))
        dh = dh + upper[t]
        dn = dh * (1 - z) * (1 - n * n)
        dr, dz = dn * inner * r * (1 - r), dh * (states[t] - n) * z * (1 - z)
        ahead.append(_masked(active, concat([dr, dz, dn], axis=1)))
        recurrent.append(_masked(active, concat([dr, dz, dn * r], axis=1)))
        dh = _chosen(active, matmul(recurrent[-1], weight) + dh * z, dh)
    lists = [_in_order(v, gx, not reverse) for v in (ahead, recurrent)]
    return *lists, astype(dh, gx.dtype, copy=False)


def _gru_vjp(
    g: Any,
    gx: Any,
    h0: Any,
    out: Any,
    w: Any,
    b: Any,
    lengths: Any,
    needs: Any,
    reverse: bool,
) -> Any:
    dgx, dgh, dh0 = _gru_backward(g, gx, h0, out, w, b, lengths, reverse)
    dw = _weight_gradient(dgh, _before(out, h0, reverse)) if needs[2] else None
    return dgx, dh0, dw, sum(dgh, axis=(0, 1)) if needs[3] else None, None


@fused(
    "gru",
    "gx h0 w b lengths",
    "reverse",
    shape=_gru_shape,
    takes={"gx": FLOAT, "h0": FLOAT, "w": FLOAT, "b": FLOAT, "lengths": INTEGER},
    dtype=_outputs(0),
    numpy=reference.gru,
    vjp=_gru_vjp,
    optional=("b", "lengths"),
    cast="low",
    cuda=FALLBACK("each step of time is a product and a few maps"),
)
def gru(
    gx: RudaTensor, h0: RudaTensor, w: RudaTensor, b: Any, lengths: Any, reverse: bool
) -> RudaTensor:
    """States [T, N, H] of a GRU with the gates r, z, n, the reset acting behind the product."""
    x, h, weight, out = wide(gx), wide(h0), wide(w), []
    for t in _steps(gx, reverse):
        _, z, n, _ = _gru_gates(x[t], _state_share(h, weight, b))
        h = _chosen(_active(lengths, t), n + z * (h - n), h)
        out.append(h)
    return _in_order(out, gx, reverse)
