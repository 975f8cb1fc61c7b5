"""Recurrent layers and cells as functions: one direction of one layer, or one step of it."""

from __future__ import annotations

from typing import Any

from ruda.core.errors import ArgumentError
from ruda.ops import recurrent
from ruda.ops.linear import linear
from ruda.ops.movement import expand_dims, reshape, squeeze
from ruda.ops.table import composite
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor

State = tuple[RudaTensor, RudaTensor]


def _input_share(x: RudaTensor, w: RudaTensor, b: RudaTensor | None) -> RudaTensor:
    """``x [T, N, I]`` for all gates at once: one product over steps and batch."""
    rows = linear(reshape(x, (x.shape[0] * x.shape[1], x.shape[2])), w, b)
    return reshape(rows, (x.shape[0], x.shape[1], w.shape[0]))


def _joined(b_ih: RudaTensor | None, b_hh: RudaTensor | None) -> RudaTensor | None:
    if b_ih is None or b_hh is None:
        return b_hh if b_ih is None else b_ih
    return b_ih + b_hh


@composite
@given_tensors
def rnn_layer(
    x: RudaTensor,
    h0: RudaTensor,
    w_ih: RudaTensor,
    w_hh: RudaTensor,
    b_ih: RudaTensor | None = None,
    b_hh: RudaTensor | None = None,
    *,
    nonlinearity: str = "tanh",
    lengths: RudaTensor | None = None,
    reverse: bool = False,
) -> RudaTensor:
    """States ``[T, N, H]`` of ``h = tanh(x w_ih.T + b_ih + h w_hh.T + b_hh)``, or with ``"relu"``.

    ``x [T, N, I]``, ``h0 [N, H]``, ``w_ih [H, I]``, ``w_hh [H, H]``. With ``lengths [N]`` the
    state of a sequence that has ended stays; ``reverse`` walks from the last step. Elman, "Finding
    structure in time" (1990). Raises ``ShapeError``, ``DTypeError``, ``ArgumentError``.

    >>> rnn_layer(ruda.ones((4, 2, 3)), ruda.zeros((2, 5)), ruda.ones((5, 3)), ruda.eye(5)).shape
    (4, 2, 5)
    """
    if nonlinearity not in ("tanh", "relu"):
        expected = "'tanh' or 'relu'"
        raise ArgumentError("rnn", "unknown nonlinearity", repr(nonlinearity), expected)
    gx = _input_share(x, w_ih, _joined(b_ih, b_hh))
    return recurrent.rnn(gx, h0, w_hh, lengths, nonlinearity == "relu", bool(reverse))


@composite
@given_tensors
def lstm_layer(
    x: RudaTensor,
    state: State,
    w_ih: RudaTensor,
    w_hh: RudaTensor,
    b_ih: RudaTensor | None = None,
    b_hh: RudaTensor | None = None,
    w_hr: RudaTensor | None = None,
    *,
    lengths: RudaTensor | None = None,
    reverse: bool = False,
) -> State:
    """Outputs ``[T, N, H]`` and cells ``[T, N, C]`` of an LSTM; the last of both is its state.

    ``x [T, N, I]``, ``state`` of ``h0 [N, H]`` and ``c0 [N, C]``, ``w_ih [4 C, I]`` and
    ``w_hh [4 C, H]`` with the rows of the gates i, f, g, o; ``w_hr [H, C]`` projects the output.
    ``c = f c + i g`` and ``h = o tanh(c)``, with sigmoids of i, f, o and a tanh of g. Hochreiter
    and Schmidhuber (1997). Other arguments and errors as ``rnn_layer``.
    """
    gx = _input_share(x, w_ih, _joined(b_ih, b_hh))
    return recurrent.lstm(gx, *state, w_hh, w_hr, lengths, bool(reverse))


@composite
@given_tensors
def gru_layer(
    x: RudaTensor,
    h0: RudaTensor,
    w_ih: RudaTensor,
    w_hh: RudaTensor,
    b_ih: RudaTensor | None = None,
    b_hh: RudaTensor | None = None,
    *,
    lengths: RudaTensor | None = None,
    reverse: bool = False,
) -> RudaTensor:
    """States ``[T, N, H]`` of a GRU: ``h = (1 - z) n + z h``.

    ``x [T, N, I]``, ``h0 [N, H]``, ``w_ih [3 H, I]`` and ``w_hh [3 H, H]`` with the rows of the
    gates r, z, n, where ``n = tanh(x w_in.T + b_in + r (h w_hn.T + b_hn))``. Cho et al. (2014).
    Other arguments and errors as ``rnn_layer``.
    """
    return recurrent.gru(_input_share(x, w_ih, b_ih), h0, w_hh, b_hh, lengths, bool(reverse))


@composite
@given_tensors
def rnn_cell(input: RudaTensor, hx: RudaTensor, *weights: Any, **options: Any) -> RudaTensor:
    """One step of ``rnn_layer``: ``input [N, I]`` and ``hx [N, H]`` to the next ``[N, H]``."""
    return squeeze(rnn_layer(expand_dims(input, 0), hx, *weights, **options), 0)


@composite
@given_tensors
def lstm_cell(input: RudaTensor, hx: State, *weights: Any, **options: Any) -> State:
    """One step of ``lstm_layer``: ``input [N, I]`` and a state to the next state ``(h, c)``."""
    h, c = lstm_layer(expand_dims(input, 0), hx, *weights, **options)
    return squeeze(h, 0), squeeze(c, 0)


@composite
@given_tensors
def gru_cell(input: RudaTensor, hx: RudaTensor, *weights: Any, **options: Any) -> RudaTensor:
    """One step of ``gru_layer``: ``input [N, I]`` and ``hx [N, H]`` to the next ``[N, H]``."""
    return squeeze(gru_layer(expand_dims(input, 0), hx, *weights, **options), 0)
