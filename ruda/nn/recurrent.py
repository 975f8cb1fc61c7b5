"""Recurrent networks: stacks of layers in one or both directions, and single cells."""

from __future__ import annotations

import math
from typing import Any

from ruda.core.errors import ArgumentError, ShapeError
from ruda.core.shapes import Shape
from ruda.nn import init
from ruda.nn.module import Module
from ruda.nn.packed import PackedSequence, pack_padded_sequence, pad_packed_sequence
from ruda.nn.parameter import Parameter
from ruda.ops.cells import gru_cell, gru_layer, lstm_cell, lstm_layer, rnn_cell, rnn_layer
from ruda.ops.create import empty, zeros
from ruda.ops.dropout import dropout as drop
from ruda.ops.join import concat, stack
from ruda.ops.movement import expand_dims, squeeze, swapaxes
from ruda.tensor.tensor import RudaTensor

_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")


class _Recurrent(Module):
    """Weights under PyTorch's names, such as ``weight_ih_l0_reverse``, drawn uniformly."""

    _gates = 1

    hidden_size: int

    def _add(self, suffix: str, inputs: int, bias: bool, proj_size: int, where: Any) -> None:
        rows = self._gates * self.hidden_size
        shapes: list[Shape] = [(rows, inputs), (rows, proj_size or self.hidden_size)]
        shapes += [(rows,), (rows,)] if bias else []
        names = _NAMES[: len(shapes)]
        if proj_size:
            names, shapes = (*names, _NAMES[4]), [*shapes, (proj_size, self.hidden_size)]
        for name, shape in zip(names, shapes, strict=True):
            setattr(self, name + suffix, Parameter(empty(shape, **where)))

    def _weights(self, suffix: str) -> dict[str, RudaTensor | None]:
        """The weights of one layer and direction by the names that functions give them."""
        short = ("w_ih", "w_hh", "b_ih", "b_hh", "w_hr")
        found = {
            s: self._parameters.get(name + suffix) for s, name in zip(short, _NAMES, strict=True)
        }
        return {name: value for name, value in found.items() if value is not None}

    def reset_parameters(self, generator: Any = None) -> None:
        """Draw all weights uniform on ±1 / sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size else 0.0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound, generator)


class _Stack(_Recurrent):
    """Layers on layers: what ``RNN``, ``LSTM`` and ``GRU`` share."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
        *,
        generator: Any = None,
    ) -> None:
        super().__init__()
        self._check(hidden_size, num_layers, dropout, proj_size)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size
        self.generator = generator
        width = (proj_size or hidden_size) * (2 if bidirectional else 1)
        for layer in range(num_layers):
            for suffix in self._suffixes(layer):
                inputs = width if layer else input_size
                self._add(suffix, inputs, bias, proj_size, {"device": device, "dtype": dtype})
        self.reset_parameters(generator)

    def _check(self, hidden_size: int, num_layers: int, dropout: float, proj_size: int) -> None:
        name = type(self).__name__
        if hidden_size < 1 or num_layers < 1:
            got = f"hidden_size {hidden_size}, num_layers {num_layers}"
            raise ArgumentError(name, "sizes are too small", got, "at least 1 each")
        if not 0 <= dropout <= 1:
            raise ArgumentError(name, "dropout is no probability", dropout, "0 to 1")
        if not 0 <= proj_size < hidden_size:
            expected = f"0 to {hidden_size - 1}"
            raise ArgumentError(name, "proj_size does not fit", proj_size, expected)

    def _suffixes(self, layer: int) -> list[str]:
        ends = ("", "_reverse") if self.bidirectional else ("",)
        return [f"_l{layer}{end}" for end in ends]

    def _through(
        self, x: RudaTensor, state: Any, weights: Any, **how: Any
    ) -> tuple[RudaTensor, Any]:
        """One layer in one direction: outputs, and the states of all steps, one or a pair."""
        raise NotImplementedError

    def _sizes(self) -> tuple[int, ...]:
        """The length of each part of a state."""
        return (self.hidden_size,)

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """``input [T, N, I]`` (``[N, T, I]`` with ``batch_first``, ``[T, I]``, packed).

        Returns the outputs of the last layer in the layout of ``input`` and the last state
        ``[layers * directions, N, H]``, a pair for an LSTM; ``hx`` is such a state to start from,
        zero unless given.
        """
        if isinstance(input, PackedSequence):
            x, lengths = pad_packed_sequence(input)
            out, state = self._run(x, hx, lengths)
            return pack_padded_sequence(out, input.lengths, False, input.order is None), state
        if input.ndim not in (2, 3):
            expected = "[T, N, I] or [T, I]"
            raise ShapeError(type(self).__name__, "wrong rank", input.shape, expected)
        single = input.ndim == 2
        swapped = self.batch_first and not single
        x = expand_dims(input, 1) if single else swapaxes(input, 0, 1) if swapped else input
        start = _each(hx, lambda v: expand_dims(v, 1)) if single and hx is not None else hx
        out, state = self._run(x, start, None)
        if single:
            return squeeze(out, 1), _each(state, lambda v: squeeze(v, 1))
        return (swapaxes(out, 0, 1) if swapped else out), state

    def _start(self, x: RudaTensor, hx: Any) -> tuple[RudaTensor, ...]:
        """The parts of the first state, each ``[layers * directions, N, size]``, checked."""
        count = self.num_layers * (2 if self.bidirectional else 1)
        shapes = [(count, x.shape[1], size) for size in self._sizes()]
        if hx is None:
            return tuple(zeros(shape, dtype=x.dtype, device=x.device) for shape in shapes)
        parts = tuple(hx) if isinstance(hx, tuple | list) else (hx,)
        got = [part.shape for part in parts]
        if got != shapes:
            what = "the first state does not fit"
            raise ShapeError(type(self).__name__, what, got, shapes)
        return parts

    def _run(self, x: RudaTensor, hx: Any, lengths: RudaTensor | None) -> tuple[RudaTensor, Any]:
        start = self._start(x, hx)
        ends: list[tuple[RudaTensor, ...]] = []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                x = drop(x, self.dropout, self.training, generator=self.generator)
            outputs = []
            for reverse, suffix in enumerate(self._suffixes(layer)):
                state = tuple(part[len(ends)] for part in start)
                how = {"lengths": lengths, "reverse": bool(reverse)}
                out, states = self._through(x, state, self._weights(suffix), **how)
                outputs.append(out)
                ends.append(tuple(part[0 if reverse else -1] for part in states))
            x = outputs[0] if len(outputs) == 1 else concat(outputs, axis=2)
        last = tuple(stack(parts) for parts in zip(*ends, strict=True))
        return x, last if len(last) > 1 else last[0]

    def extra_repr(self) -> str:
        """The sizes, and settings that are not the default."""
        facts = f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}"
        defaults = {"bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False}
        defaults["proj_size"] = 0
        changed = [
            f"{k}={getattr(self, k)!r}" for k, v in defaults.items() if getattr(self, k) != v
        ]
        return ", ".join([facts, *changed])


def _each(state: Any, change: Any) -> Any:
    if isinstance(state, tuple | list):
        return tuple(change(part) for part in state)
    return change(state)


class RNN(_Stack):
    """``h = tanh(W_ih x + b_ih + W_hh h + b_hh)``, or with ``nonlinearity="relu"``.

    Called with ``input`` and, if given, the first state; see ``forward``. ``dropout`` acts between
    layers while training. Names and shapes of the weights are PyTorch's. Elman (1990).

    >>> out, last = ruda.nn.RNN(3, 5, bidirectional=True)(ruda.ones((4, 2, 3)))
    >>> out.shape, last.shape
    ((4, 2, 10), (2, 2, 5))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        generator: Any = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            got = repr(nonlinearity)
            raise ArgumentError("RNN", "unknown nonlinearity", got, "'tanh' or 'relu'")
        settings = (bias, batch_first, dropout, bidirectional, 0, device, dtype)
        super().__init__(input_size, hidden_size, num_layers, *settings, generator=generator)
        self.nonlinearity = nonlinearity

    def _through(
        self, x: RudaTensor, state: Any, weights: Any, **how: Any
    ) -> tuple[RudaTensor, Any]:
        out = rnn_layer(x, state[0], nonlinearity=self.nonlinearity, **weights, **how)
        return out, (out,)


class LSTM(_Stack):
    """Long short-term memory: gates i, f, o and a cell; Hochreiter and Schmidhuber (1997).

    The state is a pair ``(h, c)``. With ``proj_size`` outputs are projected to that many numbers:
    Sak et al. (2014). Everything else as ``RNN``.

    >>> out, (h, c) = ruda.nn.LSTM(3, 5, batch_first=True)(ruda.ones((2, 4, 3)))
    >>> out.shape, h.shape, c.shape
    ((2, 4, 5), (1, 2, 5), (1, 2, 5))
    """

    _gates = 4

    def _sizes(self) -> tuple[int, ...]:
        return self.proj_size or self.hidden_size, self.hidden_size

    def _through(
        self, x: RudaTensor, state: Any, weights: Any, **how: Any
    ) -> tuple[RudaTensor, Any]:
        out, cells = lstm_layer(x, state, **weights, **how)
        return out, (out, cells)


class GRU(_Stack):
    """Gated recurrent unit with the reset behind the product; Cho et al. (2014). As ``RNN``.

    >>> out, last = ruda.nn.GRU(3, 5, num_layers=2)(ruda.ones((4, 2, 3)))
    >>> out.shape, last.shape
    ((4, 2, 5), (2, 2, 5))
    """

    _gates = 3

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        generator: Any = None,
    ) -> None:
        settings = (bias, batch_first, dropout, bidirectional, 0, device, dtype)
        super().__init__(input_size, hidden_size, num_layers, *settings, generator=generator)

    def _through(
        self, x: RudaTensor, state: Any, weights: Any, **how: Any
    ) -> tuple[RudaTensor, Any]:
        out = gru_layer(x, state[0], **weights, **how)
        return out, (out,)


class _Cell(_Recurrent):
    """One step: ``input [N, I]`` or ``[I]`` and a state to the next state."""

    _parts = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if hidden_size < 1:
            name = type(self).__name__
            raise ArgumentError(name, "hidden_size is too small", hidden_size, "at least 1")
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        self._add("", input_size, bias, 0, {"device": device, "dtype": dtype})
        self.reset_parameters()

    def _step(self, x: RudaTensor, state: Any) -> Any:
        raise NotImplementedError

    def forward(self, input: RudaTensor, hx: Any = None) -> Any:
        """The state after ``input``; ``hx`` is the one before, zero unless given."""
        if input.ndim not in (1, 2):
            raise ShapeError(type(self).__name__, "wrong rank", input.shape, "[N, I] or [I]")
        single = input.ndim == 1
        x = expand_dims(input, 0) if single else input
        if hx is None:
            first = zeros((x.shape[0], self.hidden_size), dtype=x.dtype, device=x.device)
            hx = first if self._parts == 1 else (first, first)
        elif single:
            hx = _each(hx, lambda v: expand_dims(v, 0))
        out = self._step(x, hx)
        return _each(out, lambda v: squeeze(v, 0)) if single else out

    def extra_repr(self) -> str:
        """The sizes."""
        return f"{self.input_size}, {self.hidden_size}, bias={self.bias}"


class RNNCell(_Cell):
    """One step of ``RNN``.

    >>> ruda.nn.RNNCell(3, 5)(ruda.ones((2, 3))).shape
    (2, 5)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity

    def _step(self, x: RudaTensor, state: Any) -> Any:
        return rnn_cell(x, state, **self._weights(""), nonlinearity=self.nonlinearity)


class LSTMCell(_Cell):
    """One step of ``LSTM``: a state is a pair ``(h, c)``.

    >>> h, c = ruda.nn.LSTMCell(3, 5)(ruda.ones((2, 3)))
    >>> h.shape
    (2, 5)
    """

    _gates = 4
    _parts = 2

    def _step(self, x: RudaTensor, state: Any) -> Any:
        return lstm_cell(x, state, **self._weights(""))


class GRUCell(_Cell):
    """One step of ``GRU``."""

    _gates = 3

    def _step(self, x: RudaTensor, state: Any) -> Any:
        return gru_cell(x, state, **self._weights(""))
