"""Activation functions of neural networks.

Those on the hot path are rows with gradients of their own; the others are written in operators.
The names are the field's; ``axis`` stands for ``dim``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ruda.core.dtypes import BOOL, FLOAT, REAL
from ruda.core.errors import ArgumentError, ShapeError
from ruda.core.shapes import normalize_axis
from ruda.ops import rules
from ruda.ops.arith import absolute, multiply, square
from ruda.ops.compare import greater
from ruda.ops.explog import exp, expm1, sigmoid
from ruda.ops.hyper import tanh
from ruda.ops.movement import reshape
from ruda.ops.reference import blend
from ruda.ops.reference import smooth as reference
from ruda.ops.select import clip, where
from ruda.ops.special import erf
from ruda.ops.table import composite, fused, unary
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor

_HALF_ROOT = math.sqrt(0.5)
_DENSITY = 1 / math.sqrt(2 * math.pi)
_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715

relu = unary(
    "relu",
    lambda x: np.maximum(x, x.dtype.type(0)),
    "ruda_max(x, T(0))",
    lambda g, out: relu_backward(g, out),
    "``max(x, 0)``, elementwise; the gradient at 0 is 0.",
    dtype=rules.promote,
    accepts=REAL,
)


@fused(
    "relu_backward",
    args="g out",
    shape=rules.broadcast,
    dtype=rules.promote,
    numpy=lambda g, out: blend.where(out > 0, g, np.zeros((), g.dtype)),
    expr="out > T(0) ? g : T(0)",
    accepts=FLOAT,
)
def relu_backward(g: RudaTensor, out: RudaTensor) -> RudaTensor:
    """``g`` where ``out`` is above 0: the gradient of ``relu``."""
    return where(greater(out, 0), g, 0)


silu = unary(
    "silu",
    reference.silu,
    "x * ruda_sigmoid(x)",
    lambda g, x: silu_backward(g, x),
    "``x * sigmoid(x)``, elementwise; also called swish.",
    accepts=BOOL + REAL,
)


@fused(
    "silu_backward",
    args="g x",
    shape=rules.broadcast,
    dtype=rules.promote,
    numpy=reference.silu_backward,
    expr="ruda_silu_backward(g, x)",
    accepts=FLOAT,
)
def silu_backward(g: RudaTensor, x: RudaTensor) -> RudaTensor:
    """The gradient of ``silu`` from its input."""
    s = sigmoid(x)
    return multiply(g, s * (1 + x * (1 - s)))


_gelu = unary(
    "gelu",
    reference.gelu,
    "ruda_gelu(x)",
    lambda g, x: _gelu_backward(g, x),
    "``x`` times the share of a normal distribution below ``x``.",
    accepts=BOOL + REAL,
)


@fused(
    "gelu_backward",
    args="g x",
    shape=rules.broadcast,
    dtype=rules.promote,
    numpy=reference.gelu_backward,
    expr="ruda_gelu_backward(g, x)",
    accepts=FLOAT,
)
def _gelu_backward(g: RudaTensor, x: RudaTensor) -> RudaTensor:
    """The gradient of ``gelu`` from its input."""
    cdf = 0.5 * (1 + erf(x * _HALF_ROOT))
    return multiply(g, cdf + x * (_DENSITY * exp(-0.5 * square(x))))


_gelu_tanh = unary(
    "gelu_tanh",
    reference.gelu_tanh,
    "ruda_gelu_tanh(x)",
    lambda g, x: _gelu_tanh_backward(g, x),
    "``gelu`` with the normal distribution approximated by a tanh.",
    accepts=BOOL + REAL,
)


@fused(
    "gelu_tanh_backward",
    args="g x",
    shape=rules.broadcast,
    dtype=rules.promote,
    numpy=reference.gelu_tanh_backward,
    expr="ruda_gelu_tanh_backward(g, x)",
    accepts=FLOAT,
)
def _gelu_tanh_backward(g: RudaTensor, x: RudaTensor) -> RudaTensor:
    """The gradient of ``gelu_tanh`` from its input."""
    xx = square(x)
    t = tanh(_TANH_SCALE * (x + _TANH_CUBIC * (x * xx)))
    inner = _TANH_SCALE * (1 + 3 * _TANH_CUBIC * xx)
    return multiply(g, 0.5 * (1 + t) + 0.5 * x * ((1 - t * t) * inner))


def gelu(x: Any, /, approximate: str = "none") -> RudaTensor:
    """``x * cdf(x)``, with the cdf of the normal distribution; exact, or by ``"tanh"``.

    Source: D. Hendrycks and K. Gimpel, "Gaussian Error Linear Units" (2016).

    >>> gelu(ruda.asarray([0.0, 10.0])).tolist()
    [0.0, 10.0]
    """
    if approximate == "none":
        return _gelu(x)
    if approximate == "tanh":
        return _gelu_tanh(x)
    raise ArgumentError("gelu", "unknown approximation", repr(approximate), "'none' or 'tanh'")


_softplus = unary(
    "softplus",
    reference.softplus,
    "ruda_softplus(x)",
    lambda g, x: g * sigmoid(x),
    "``log(1 + exp(x))``, without overflow and accurate at both ends.",
    accepts=BOOL + REAL,
    cast="high",
)


def softplus(x: Any, /, beta: float = 1.0) -> RudaTensor:
    """``log(1 + exp(beta * x)) / beta``, without overflow and accurate at both ends."""
    if beta == 1:
        return _softplus(x)
    if beta == 0:
        raise ArgumentError("softplus", "beta is zero", beta)
    return _softplus(x * beta) / beta


def _two_shapes(op: Any, specs: Any) -> Any:
    shape = rules.broadcast(op, specs)
    return shape, shape


def _two_dtypes(op: Any, specs: Any) -> Any:
    operand, dtype = rules.promote(op, specs)
    return operand, (dtype, dtype)


@fused(
    "swiglu_backward",
    "g gate up",
    outs="dgate dup",
    shape=_two_shapes,
    dtype=_two_dtypes,
    numpy=lambda g, gate, up: (reference.silu_backward(g * up, gate), g * reference.silu(gate)),
    accepts=FLOAT,
)
def _swiglu_backward(g: RudaTensor, gate: RudaTensor, up: RudaTensor) -> Any:
    """The gradients of ``swiglu`` from its operands."""
    return silu_backward(multiply(g, up), gate), multiply(g, silu(gate))


@fused(
    "swiglu",
    args="gate up",
    shape=rules.broadcast,
    dtype=rules.floating,
    numpy=lambda gate, up: reference.silu(gate) * up,
    expr="gate * ruda_sigmoid(gate) * up",
    vjp=lambda g, gate, up: _swiglu_backward(g, gate, up),
    accepts=FLOAT,
)
def swiglu(gate: RudaTensor, up: RudaTensor) -> RudaTensor:
    """``swiglu(gate, up)`` is ``silu(gate) * up``, the gated unit of most language models.

    Source: N. Shazeer, "GLU Variants Improve Transformer" (2020).
    """
    return silu(gate) * up


@composite
@given_tensors
def glu(x: RudaTensor, /, axis: int = -1) -> RudaTensor:
    """The first half of ``x`` along ``axis`` times the sigmoid of the second half.

    Raises ``ShapeError`` for an odd length.

    >>> glu(ruda.asarray([1.0, 2.0, 0.0, 0.0])).tolist()
    [0.5, 1.0]
    """
    place = normalize_axis(axis, x.ndim, "glu")
    size = x.shape[place]
    if size % 2:
        raise ShapeError("glu", f"axis {axis} cannot be halved", x.shape, "an even length")
    lead = (slice(None),) * place
    value, gate = x[(*lead, slice(size // 2))], x[(*lead, slice(size // 2, None))]
    return value * sigmoid(gate)


@composite
def leaky_relu(x: Any, /, negative_slope: Any = 0.01) -> RudaTensor:
    """``x`` above 0 and ``negative_slope * x`` below.

    >>> leaky_relu(ruda.asarray([-2.0, 3.0]), 0.5).tolist()
    [-1.0, 3.0]
    """
    return where(greater(x, 0), x, x * negative_slope)


@composite
def elu(x: Any, /, alpha: float = 1.0) -> RudaTensor:
    """``x`` above 0 and ``alpha * (exp(x) - 1)`` below."""
    # The clip keeps the branch that is not taken from overflowing, in the gradient too.
    return where(greater(x, 0), x, expm1(clip(x, None, 0)) * alpha)


@composite
def celu(x: Any, /, alpha: float = 1.0) -> RudaTensor:
    """``x`` above 0 and ``alpha * (exp(x / alpha) - 1)`` below: an ``elu`` with a smooth slope."""
    return where(greater(x, 0), x, expm1(clip(x, None, 0) / alpha) * alpha)


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


@composite
def selu(x: Any, /) -> RudaTensor:
    """An ``elu`` scaled so that deep stacks keep mean 0 and variance 1.

    Source: G. Klambauer et al., "Self-Normalizing Neural Networks" (2017).
    """
    return elu(x, _SELU_ALPHA) * _SELU_SCALE


@composite
def mish(x: Any, /) -> RudaTensor:
    """``x * tanh(softplus(x))``."""
    return x * tanh(_softplus(x))


@composite
def hardtanh(x: Any, /, min_val: Any = -1.0, max_val: Any = 1.0) -> RudaTensor:
    """``x`` moved into the interval from ``min_val`` to ``max_val``."""
    return clip(x, min_val, max_val)


@composite
def relu6(x: Any, /) -> RudaTensor:
    """``x`` moved into the interval from 0 to 6."""
    return clip(x, 0, 6)


@composite
def hardsigmoid(x: Any, /) -> RudaTensor:
    """``clip(x / 6 + 1 / 2, 0, 1)``."""
    return clip(x / 6 + 0.5, 0, 1)


@composite
def hardswish(x: Any, /) -> RudaTensor:
    """``x * clip(x + 3, 0, 6) / 6``."""
    return x * clip(x / 6 + 0.5, 0, 1)


@composite
def softsign(x: Any, /) -> RudaTensor:
    """``x / (1 + abs(x))``."""
    return x / (absolute(x) + 1)


@composite
def tanhshrink(x: Any, /) -> RudaTensor:
    """``x - tanh(x)``."""
    return x - tanh(x)


@composite
def softshrink(x: Any, /, lambd: float = 0.5) -> RudaTensor:
    """``x`` moved towards 0 by ``lambd``, at most to 0."""
    if lambd < 0:
        raise ArgumentError("softshrink", "lambd is negative", lambd, "0 or more")
    return x - clip(x, -lambd, lambd)


@composite
def hardshrink(x: Any, /, lambd: float = 0.5) -> RudaTensor:
    """``x`` where it is further than ``lambd`` from 0, else 0."""
    return where(greater(absolute(x), lambd), x, 0)


@composite
def threshold(x: Any, /, threshold: Any, value: Any) -> RudaTensor:
    """``x`` where it is above ``threshold``, else ``value``."""
    return where(greater(x, threshold), x, value)


@composite
@given_tensors
def prelu(x: RudaTensor, weight: RudaTensor, /, axis: int = 1) -> RudaTensor:
    """``leaky_relu`` with a learned slope: ``weight`` has one element, or one for each of ``axis``.

    Raises ``ShapeError`` for any other number of them.
    """
    if weight.size != 1:
        place = normalize_axis(axis, x.ndim, "prelu")
        if weight.shape != (x.shape[place],):
            wanted = f"(1,) or ({x.shape[place]},)"
            raise ShapeError("prelu", "one slope, or one per channel", weight.shape, wanted)
        weight = reshape(weight, (weight.size, *(1,) * (x.ndim - place - 1)))
    return leaky_relu(x, weight)
