"""Initial values of parameters: each function overwrites a tensor in place and returns it.

Random values come from ``generator``, or from ruda's default one.
"""

from __future__ import annotations

import math
from typing import Any

from ruda.core.dtypes import float64
from ruda.core.errors import ArgumentError, ShapeError
from ruda.core.mode import no_grad
from ruda.ops.arith import sign
from ruda.ops.cast import astype
from ruda.ops.compare import less
from ruda.ops.diagonal import diagonal, eye
from ruda.ops.linalg_decompositions import qr
from ruda.ops.movement import matrix_transpose, reshape
from ruda.ops.random import normal, truncated_normal, uniform
from ruda.ops.select import where
from ruda.ops.sort import argsort
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor

_GAINS = {
    "linear": 1.0,
    "sigmoid": 1.0,
    "tanh": 5.0 / 3.0,
    "relu": math.sqrt(2.0),
    "selu": 0.75,
}


def _filled(tensor: RudaTensor, value: Any) -> RudaTensor:
    with no_grad():
        tensor.assign(value)
    return tensor


@given_tensors
def constant_(tensor: RudaTensor, value: float) -> RudaTensor:
    """Fill ``tensor`` with ``value``."""
    return _filled(tensor, value)


@given_tensors
def zeros_(tensor: RudaTensor) -> RudaTensor:
    """Fill ``tensor`` with zeros."""
    return _filled(tensor, 0)


@given_tensors
def ones_(tensor: RudaTensor) -> RudaTensor:
    """Fill ``tensor`` with ones."""
    return _filled(tensor, 1)


@given_tensors
def uniform_(
    tensor: RudaTensor, a: float = 0.0, b: float = 1.0, generator: Any = None
) -> RudaTensor:
    """Fill ``tensor`` with uniform numbers on [a, b).

    >>> weight = uniform_(ruda.zeros((2, 3)), -1, 1)
    >>> bool(ruda.all(ruda.abs(weight) <= 1))
    True
    """
    where: dict[str, Any] = {"dtype": tensor.dtype, "device": tensor.device}
    return _filled(tensor, uniform(tensor.shape, a, b, generator=generator, **where))


@given_tensors
def normal_(
    tensor: RudaTensor, mean: float = 0.0, std: float = 1.0, generator: Any = None
) -> RudaTensor:
    """Fill ``tensor`` with normal numbers."""
    where: dict[str, Any] = {"dtype": tensor.dtype, "device": tensor.device}
    return _filled(tensor, normal(tensor.shape, mean, std, generator=generator, **where))


@given_tensors
def trunc_normal_(
    tensor: RudaTensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> RudaTensor:
    """Fill ``tensor`` with normal numbers conditioned on [a, b]."""
    where: dict[str, Any] = {"dtype": tensor.dtype, "device": tensor.device}
    values = truncated_normal(tensor.shape, mean, std, a, b, generator=generator, **where)
    return _filled(tensor, values)


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps the variance through ``nonlinearity``.

    ``param`` is the negative slope of ``"leaky_relu"``, 0.01 unless given. Raises
    ``ArgumentError`` for an unknown name.

    >>> calculate_gain("relu") ** 2
    2.0000000000000004
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1.0 + slope * slope))
    if nonlinearity not in _GAINS:
        expected = ", ".join(["leaky_relu", *_GAINS])
        raise ArgumentError("calculate_gain", "unknown nonlinearity", nonlinearity, expected)
    return _GAINS[nonlinearity]


@given_tensors
def fans(tensor: RudaTensor) -> tuple[int, int]:
    """How many inputs an output of ``tensor [out, in, *kernel]`` has, and outputs an input."""
    if tensor.ndim < 2:
        expected = "at least [out, in]"
        raise ShapeError("init", "a vector has no fan-in and fan-out", tensor.shape, expected)
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


@given_tensors
def xavier_uniform_(tensor: RudaTensor, gain: float = 1.0, generator: Any = None) -> RudaTensor:
    """Uniform with std gain * sqrt(2 / (fan_in + fan_out)).

    Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks"
    (2010).
    """
    return _uniform_of_std(tensor, gain * _glorot(tensor), generator)


@given_tensors
def xavier_normal_(tensor: RudaTensor, gain: float = 1.0, generator: Any = None) -> RudaTensor:
    """Normal with std gain * sqrt(2 / (fan_in + fan_out)); source as ``xavier_uniform_``."""
    return normal_(tensor, 0.0, gain * _glorot(tensor), generator)


@given_tensors
def kaiming_uniform_(
    tensor: RudaTensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> RudaTensor:
    """Uniform with std gain / sqrt(fan); ``a`` is the negative slope of a leaky ReLU.

    He et al., "Delving deep into rectifiers" (2015). ``mode`` is ``"fan_in"`` or ``"fan_out"``.
    """
    return _uniform_of_std(tensor, _he(tensor, a, mode, nonlinearity), generator)


@given_tensors
def kaiming_normal_(
    tensor: RudaTensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> RudaTensor:
    """Normal with std gain / sqrt(fan); arguments and source as ``kaiming_uniform_``."""
    return normal_(tensor, 0.0, _he(tensor, a, mode, nonlinearity), generator)


@given_tensors
def orthogonal_(tensor: RudaTensor, gain: float = 1.0, generator: Any = None) -> RudaTensor:
    """``gain`` times a matrix of orthonormal rows or columns, whichever are fewer.

    ``tensor [out, in, *kernel]`` is taken as ``[out, in * prod(kernel)]``. Saxe et al., "Exact
    solutions to the nonlinear dynamics of learning in deep linear neural networks" (2013). Raises
    ``ShapeError`` for a vector.

    >>> weight = orthogonal_(ruda.zeros((2, 3)))
    >>> bool(ruda.allclose(weight @ weight.mT, ruda.eye(2), atol=1e-5))
    True
    """
    fans(tensor)
    if tensor.size == 0:
        return tensor
    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
    size = (max(rows, columns), min(rows, columns))
    q, r = qr(normal(size, generator=generator, dtype=float64, device=tensor.device))
    # With these signs every rotation is equally likely: Mezzadri (2007).
    q = q * sign(diagonal(r))
    values = gain * (q if rows >= columns else matrix_transpose(q))
    return _filled(tensor, astype(reshape(values, tensor.shape), tensor.dtype))


@given_tensors
def eye_(tensor: RudaTensor) -> RudaTensor:
    """Ones on the diagonal of the matrix ``tensor``, zeros elsewhere."""
    if tensor.ndim != 2:
        raise ShapeError("eye_", "not a matrix", tensor.shape, "[out, in]")
    return _filled(tensor, eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device))


@given_tensors
def dirac_(tensor: RudaTensor, groups: int = 1) -> RudaTensor:
    """A convolution's weight ``[out, in, *kernel]`` that passes each input channel on.

    Each of ``groups`` groups of outputs passes on as many channels as fit. Raises ``ShapeError``
    unless there are 1 to 3 kernel axes, ``ArgumentError`` unless ``groups`` divides the outputs.
    """
    if tensor.ndim not in (3, 4, 5):
        raise ShapeError("dirac_", "no weight of a convolution", tensor.shape, "[out, in, *kernel]")
    if groups < 1 or tensor.shape[0] % groups:
        got = f"{tensor.shape[0]} outputs in {groups} groups"
        raise ArgumentError("dirac_", "outputs do not divide", got)
    each = tensor.shape[0] // groups
    middle = tuple(n // 2 for n in tensor.shape[2:])
    places = [(g * each + i, i) for g in range(groups) for i in range(min(each, tensor.shape[1]))]
    _filled(tensor, 0)
    with no_grad():
        for place in places:
            tensor[(*place, *middle)] = 1
    return tensor


@given_tensors
def sparse_(
    tensor: RudaTensor, sparsity: float, std: float = 0.01, generator: Any = None
) -> RudaTensor:
    """Normal numbers, with a fraction ``sparsity`` of each column of the matrix zero.

    Martens, "Deep learning via Hessian-free optimization" (2010). Raises ``ShapeError`` unless
    ``tensor`` is a matrix, ``ArgumentError`` unless the fraction lies between 0 and 1.
    """
    if tensor.ndim != 2:
        raise ShapeError("sparse_", "not a matrix", tensor.shape, "[rows, columns]")
    if not 0 <= sparsity <= 1:
        raise ArgumentError("sparse_", "sparsity is no fraction", sparsity, "0 to 1")
    zeros_of_column = math.ceil(sparsity * tensor.shape[0])
    values = normal(tensor.shape, 0.0, std, generator=generator, dtype=tensor.dtype)
    ranks = argsort(argsort(uniform(tensor.shape, generator=generator), axis=0), axis=0)
    return _filled(tensor, where(less(ranks, zeros_of_column), 0, values))


def _uniform_of_std(tensor: RudaTensor, std: float, generator: Any) -> RudaTensor:
    if tensor.size == 0:
        return tensor
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def _glorot(tensor: RudaTensor) -> float:
    return math.sqrt(2.0 / max(sum(fans(tensor)), 1))


def _he(tensor: RudaTensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError("init", "unknown mode", repr(mode), '"fan_in" or "fan_out"')
    fan = fans(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fan, 1))
