"""Activations and their gradients, element by element in float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ruda.backends.numpy.buffers import empty
from ruda.backends.numpy.kernels.compiler import Kernel, inline, kernel
from ruda.backends.numpy.kernels.maths import erf, exp, sigmoids
from ruda.backends.numpy.kernels.maths import tanh as tanh_of
from ruda.backends.numpy.memory import handle_of
from ruda.backends.numpy.pool import POOL, tiles

_F = np.float32
_ONE, _TWO, _HALF, _THREE = _F(1), _F(2), _F(0.5), _F(3)
_HALF_ROOT, _DENSITY = _F(math.sqrt(0.5)), _F(1 / math.sqrt(2 * math.pi))
# Twice the scale of the tanh: 0.5 * (1 + tanh(u)) is sigmoid(2 u).
_SCALE, _CUBIC = _F(2 * math.sqrt(2 / math.pi)), _F(0.044715)

_UNARY = "void(f4[::1], f4[::1])"
_BINARY = "void(f4[::1], f4[::1], f4[::1])"


@kernel(_UNARY)
def sigmoid(x, out):
    for i in range(out.size):
        out[i] = sigmoids(x[i])[0]


@kernel(_UNARY)
def tanh(x, out):
    for i in range(out.size):
        out[i] = tanh_of(x[i])


@kernel(_UNARY)
def silu(x, out):
    for i in range(out.size):
        out[i] = x[i] * sigmoids(x[i])[0]


@kernel(_BINARY)
def silu_backward(g, x, out):
    for i in range(out.size):
        s, other = sigmoids(x[i])
        out[i] = g[i] * (s * (_ONE + x[i] * other))


@kernel(_BINARY)
def swiglu(gate, up, out):
    for i in range(out.size):
        out[i] = gate[i] * sigmoids(gate[i])[0] * up[i]


@inline
def _cdf(x):
    return _HALF * (_ONE + erf(x * _HALF_ROOT))


@kernel(_UNARY)
def gelu(x, out):
    for i in range(out.size):
        out[i] = x[i] * _cdf(x[i])


@kernel(_BINARY)
def gelu_backward(g, x, out):
    for i in range(out.size):
        v = x[i]
        out[i] = g[i] * (_cdf(v) + v * (_DENSITY * exp(-_HALF * (v * v))))


@kernel(_UNARY)
def gelu_tanh(x, out):
    for i in range(out.size):
        v = x[i]
        out[i] = v * sigmoids(_SCALE * (v + _CUBIC * (v * v * v)))[0]


@kernel(_BINARY)
def gelu_tanh_backward(g, x, out):
    for i in range(out.size):
        v = x[i]
        square = v * v
        s, other = sigmoids(_SCALE * (v + _CUBIC * (v * square)))
        inner = _SCALE * (_ONE + _THREE * _CUBIC * square)
        out[i] = g[i] * (s + v * (s * other * inner))


@kernel(_BINARY)
def relu_backward(g, out, dx):
    for i in range(dx.size):
        dx[i] = g[i] if out[i] > _F(0) else _F(0)


KERNELS: dict[str, Kernel] = {
    "sigmoid": sigmoid,
    "tanh": tanh,
    "silu": silu,
    "silu_backward": silu_backward,
    "swiglu": swiglu,
    "gelu": gelu,
    "gelu_backward": gelu_backward,
    "gelu_tanh": gelu_tanh,
    "gelu_tanh_backward": gelu_tanh_backward,
    "relu_backward": relu_backward,
}


def loop(plan: Any) -> Callable[..., Any] | None:
    """Row-major operands of one shape; broadcasting and other orders stay with NumPy."""
    shape = plan.out.shape
    if any(s.weak or s.shape != shape or not s.contiguous for s in plan.specs):
        return None
    if any(s.dtype is not plan.out.dtype for s in plan.specs):
        return None
    return KERNELS[plan.op.name].ready()  # type: ignore[no-any-return]


def bind(plan: Any) -> Callable[..., Any] | None:
    """As ``loop``, from handles to a handle."""
    function: Any = loop(plan)
    if function is None:
        return None
    shape, dtype, parts = plan.out.shape, plan.out.dtype.numpy, tiles(plan.out.size)

    def run(*handles: Any) -> Any:
        out = empty(shape, dtype)
        flat = [h.array.reshape(-1) for h in handles]
        flat.append(out.reshape(-1))
        if len(parts) == 1:
            function(*flat)
        else:
            POOL.run(lambda i: function(*[x[parts[i]] for x in flat]), len(parts))
        return handle_of(out)

    return run
