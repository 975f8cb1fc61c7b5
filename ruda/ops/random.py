"""Random tensors of continuous values: rows of a seed and a draw number, functions that draw.

Seed, draw number and scalar parameters are values, not structure: one plan serves every call.
Parameters that are tensors scale and shift a standard draw, so gradients reach them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.core.devices import client as client_of
from ruda.core.dtypes import FLOAT, DType, as_dtype
from ruda.core.errors import DTypeError, GradientError, ShapeError
from ruda.core.shapes import Shape, broadcast_shapes, normalize_shape
from ruda.ops import vendor
from ruda.ops.generator import chosen
from ruda.ops.reference import random as continuous
from ruda.ops.reference import random_checks as checks
from ruda.ops.reference.draws import compute_dtype
from ruda.ops.table import row
from ruda.tensor.host import draw_number, seed_number
from ruda.tensor.operands import as_scalar
from ruda.tensor.tensor import RudaTensor


def drawn(
    name: str, params: str, numpy: Callable[..., Any], doc: str, dtype: DType | None = None
) -> Any:
    """A row of parameters, seed and draw; its attributes are shape, dtype (if open) and device."""
    return row(
        "random",
        name,
        f"{params} seed draw",
        "shape device" if dtype else "shape dtype device",
        shape=lambda op, specs, shape, *_: shape,
        dtype=lambda op, specs, shape, *rest: ((None,) * len(specs), dtype or rest[0]),
        numpy=numpy,
        exact=True,
        doc=doc,
    )


_uniform = drawn(
    "uniform",
    "low high",
    lambda low, high, seed, draw, shape, dtype, device: continuous.uniform(
        int(seed), int(draw), shape, low, high, dtype.numpy
    ),
    "Uniform on [low, high).",
)
_normal = drawn(
    "normal",
    "mean std",
    lambda mean, std, seed, draw, shape, dtype, device: continuous.normal(
        int(seed), int(draw), shape, mean, std, dtype.numpy
    ),
    "Normal by Box and Muller.",
)
_truncated_normal = drawn(
    "truncated_normal",
    "mean std low high",
    lambda mean, std, low, high, seed, draw, shape, dtype, device: continuous.truncated_normal(
        int(seed), int(draw), shape, mean, std, low, high, dtype.numpy
    ),
    "Normal conditioned on [low, high].",
)
_exponential = drawn(
    "exponential",
    "scale",
    lambda scale, seed, draw, shape, dtype, device: continuous.exponential(
        int(seed), int(draw), shape, scale, dtype.numpy
    ),
    "Exponential with mean ``scale``.",
)
_gamma = drawn(
    "gamma",
    "concentration scale",
    lambda concentration, scale, seed, draw, shape, dtype, device: continuous.gamma(
        int(seed), int(draw), shape, concentration, scale, dtype.numpy
    ),
    "Gamma by Marsaglia and Tsang.",
)


class Place:
    """Shape, dtype and device of a draw, from what was asked for and the tensor parameters."""

    __slots__ = ("device", "dtype", "shape")

    def __init__(
        self, op: str, shape: Any, device: Any, params: tuple[Any, ...], dtype: Any = None
    ) -> None:
        tensors = [p for p in params if p.__class__ is RudaTensor]
        if shape is None and not tensors:
            expected = "a shape, or parameters that are tensors"
            raise ShapeError(op, "needs a shape", "None", expected)
        own = broadcast_shapes(op, *(t.shape for t in tensors))
        self.shape: Shape = own if shape is None else normalize_shape(shape, op)
        for tensor in tensors:
            checks.check_broadcast(op, "a parameter", tensor.shape, self.shape)
        where = tensors[0].device if tensors and device is None else device
        client = client_of(where)
        self.device = client.device
        self.dtype = _float(op, dtype, tensors, client)


def _float(op: str, dtype: Any, tensors: list[RudaTensor], client: Any) -> DType:
    if dtype is None:
        own = [t.dtype for t in tensors if t.dtype.is_floating]
        return own[0] if own else client.defaults.floating
    kind = as_dtype(dtype, op)
    if kind not in FLOAT:
        raise DTypeError(op, "no random numbers in this dtype", kind, "a real floating dtype")
    return kind


def scalar(op: str, name: str, value: Any) -> float:
    """``value`` as a real Python number, or a ``DTypeError`` that names the parameter."""
    number = as_scalar(value)
    if number is None or isinstance(number, complex):
        got = f"{value!r:.60} of type {type(value).__name__}"
        raise DTypeError(op, f"{name} is no real number", got, "a real scalar")
    return number


def key(op: str, generator: Any) -> tuple[Any, Any]:
    """The seed of ``generator`` and its next draw number."""
    source = chosen(generator, op)
    return seed_number(source), draw_number(source)


def _drawn_uniform(place: Place, low: float, high: float, generator: Any) -> RudaTensor:
    source = chosen(generator, "uniform", vendor=True)
    if source.engine != "philox":
        return vendor.uniform(source, place.device, place.shape, place.dtype, low, high)
    at = key("uniform", source)
    return _uniform(low, high, *at, place.shape, place.dtype, place.device)


def _drawn_normal(place: Place, mean: float, std: float, generator: Any) -> RudaTensor:
    source = chosen(generator, "normal", vendor=True)
    if source.engine != "philox":
        return vendor.normal(source, place.device, place.shape, place.dtype, mean, std)
    at = key("normal", source)
    return _normal(mean, std, *at, place.shape, place.dtype, place.device)


def _real(place: Place) -> Any:
    return compute_dtype(place.dtype.numpy)


def has_tensors(*params: Any) -> bool:
    """Whether a parameter is a tensor, which then scales or shifts a standard draw."""
    return any(p.__class__ is RudaTensor for p in params)


def uniform(
    shape: Any = None,
    low: Any = 0.0,
    high: Any = 1.0,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> RudaTensor:
    """Uniform on [low, high), of ``shape``; ``low`` and ``high`` are scalars or tensors.

    24 random bits (53 for float64). Tensors broadcast to the shape, and get gradients. Raises
    ``ArgumentError`` for scalars unless low < high.

    >>> uniform((2,), generator=ruda.random.Generator(0)).tolist()
    [0.3990464210510254, 0.8805201649665833]
    """
    place = Place("uniform", shape, device, (low, high), dtype)
    if has_tensors(low, high):
        return _drawn_uniform(place, 0.0, 1.0, generator) * (high - low) + low
    low, high = scalar("uniform", "low", low), scalar("uniform", "high", high)
    checks.check_uniform(low, high, _real(place))
    return _drawn_uniform(place, low, high, generator)


def normal(
    shape: Any = None,
    mean: Any = 0.0,
    std: Any = 1.0,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> RudaTensor:
    """Normal with ``mean`` and ``std``, scalars or tensors, of ``shape``.

    Tensors broadcast to the shape, and get gradients. Raises ``ArgumentError`` unless a scalar mean
    is finite and a scalar std finite and at least 0.

    >>> normal((2, 3), generator=ruda.random.Generator(0)).shape
    (2, 3)
    """
    place = Place("normal", shape, device, (mean, std), dtype)
    if has_tensors(mean, std):
        return _drawn_normal(place, 0.0, 1.0, generator) * std + mean
    mean, std = scalar("normal", "mean", mean), scalar("normal", "std", std)
    checks.check_finite("normal", _real(place), mean=mean)
    checks.check_scale("normal", _real(place), "std", std, zero=True)
    return _drawn_normal(place, mean, std, generator)


def truncated_normal(
    shape: Any,
    mean: float = 0.0,
    std: float = 1.0,
    low: float = -2.0,
    high: float = 2.0,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> RudaTensor:
    """Normal conditioned on [low, high], of ``shape``; the parameters are scalars.

    Exact far into the tails; infinite bounds are allowed. Raises ``ArgumentError`` unless
    low < high, ``mean`` is finite and ``std`` finite and positive.
    """
    name = "truncated_normal"
    place = Place(name, shape, device, (), dtype)
    mean, std = scalar(name, "mean", mean), scalar(name, "std", std)
    low, high = scalar(name, "low", low), scalar(name, "high", high)
    checks.check_truncation(mean, std, low, high, _real(place))
    at = key(name, generator)
    return _truncated_normal(mean, std, low, high, *at, place.shape, place.dtype, place.device)


def exponential(
    shape: Any = None,
    scale: Any = 1.0,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> RudaTensor:
    """Exponential with mean ``scale``, a scalar or a tensor, of ``shape``.

    A tensor broadcasts to the shape, and gets a gradient. Raises ``ArgumentError`` unless a scalar
    scale is finite and positive.
    """
    place = Place("exponential", shape, device, (scale,), dtype)
    where = (place.shape, place.dtype, place.device)
    if has_tensors(scale):
        return _exponential(1.0, *key("exponential", generator), *where) * scale
    scale = scalar("exponential", "scale", scale)
    checks.check_scale("exponential", _real(place), "scale", scale)
    return _exponential(scale, *key("exponential", generator), *where)


def gamma(
    shape: Any = None,
    concentration: Any = 1.0,
    scale: Any = 1.0,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> RudaTensor:
    """Gamma with ``concentration`` and ``scale``, scalars or tensors, of ``shape``.

    Tensors broadcast to the shape; ``scale`` gets a gradient. Raises ``ArgumentError`` unless both
    are finite and positive, ``GradientError`` for a concentration that requires grad.
    """
    place = Place("gamma", shape, device, (concentration, scale), dtype)
    where = (place.shape, place.dtype, place.device)
    if has_tensors(concentration):
        if concentration.requires_grad:
            what = "there is no gradient in the concentration"
            raise GradientError("gamma", what, hint="concentration.detach()")
    else:
        concentration = scalar("gamma", "concentration", concentration)
        checks.check_concentration("gamma", _real(place), concentration)
    if has_tensors(scale):
        return _gamma(concentration, 1.0, *key("gamma", generator), *where) * scale
    scale = scalar("gamma", "scale", scale)
    checks.check_scale("gamma", _real(place), "scale", scale)
    return _gamma(concentration, scale, *key("gamma", generator), *where)
