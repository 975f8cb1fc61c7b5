"""Telling attention where tokens stand: waves, rotations and slopes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ruda.core.dtypes import FLOAT, float32, float64
from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from ruda.core.shapes import broadcasts_to
from ruda.ops.arith import abs, multiply, subtract
from ruda.ops.cast import astype
from ruda.ops.conversion import asarray
from ruda.ops.join import concat, stack
from ruda.ops.movement import expand_dims, reshape
from ruda.ops.reduce import unbroadcast
from ruda.ops.reference.rotary import rotary
from ruda.ops.rowwise import own_dtypes, wide
from ruda.ops.rules import Specs
from ruda.ops.table import composite, fused
from ruda.ops.trig import cos, sin
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


def _check_positions(op: str, positions: RudaTensor) -> None:
    if not positions.dtype.is_integer:
        hint = 'positions.astype("int64")'
        raise DTypeError(op, "positions are not integers", positions.dtype, "integers", hint)


def _even(op: str, name: str, width: int) -> None:
    if width < 2 or width % 2:
        raise ArgumentError(op, f"{name} is not even", width, "an even number above 0")


@composite
@given_tensors
def sinusoidal_positions(
    positions: RudaTensor, width: int, base: float = 10_000.0, *, dtype: Any = None
) -> RudaTensor:
    """Waves ``[..., width]`` of the integer ``positions [...]``: sines and cosines by turns.

    Pair i has the angle ``position / base ** (2 i / width)``; angles are float64. The result is
    float32 unless ``dtype`` is given. Raises ``ArgumentError`` for an odd width. Vaswani et al.,
    "Attention is all you need" (2017).

    >>> sinusoidal_positions(ruda.asarray([0]), 4).tolist()
    [[0.0, 1.0, 0.0, 1.0]]
    """
    _check_positions("sinusoidal_positions", positions)
    _even("sinusoidal_positions", "width", width)
    rates = asarray(rotary_frequencies(width, base), dtype=float64, device=positions.device)
    angles = multiply(expand_dims(astype(positions, float64), -1), rates)
    waves = reshape(stack([sin(angles), cos(angles)], axis=-1), (*positions.shape, width))
    return astype(waves, dtype or float32)


def rotary_frequencies(
    width: int, base: float = 10_000.0, scaling: Mapping[str, Any] | None = None
) -> list[float]:
    """The ``width / 2`` angles by which a step turns each pair: ``base ** (-2 i / width)``, scaled.

    ``scaling`` is what configurations of published models call ``rope_scaling``: a mapping with
    ``rope_type`` (``default``, ``linear``, ``ntk`` or ``llama3``) and its numbers. ``linear``
    divides all by ``factor`` (Chen et al., 2023); ``ntk`` raises the base, which leaves fast pairs
    almost as they are; ``llama3`` divides the pairs whose wave is long against
    ``original_max_position_embeddings`` and blends those between ``low_freq_factor`` and
    ``high_freq_factor`` waves ("The Llama 3 herd of models", 2024).

    >>> rotary_frequencies(4, 100.0, {"rope_type": "linear", "factor": 2.0})
    [0.5, 0.05]
    """
    _even("rotary_frequencies", "width", width)
    numbers = dict(scaling or {})
    kind = numbers.pop("rope_type", numbers.pop("type", None)) if numbers else "default"
    if kind not in _SCALINGS:
        expected = f"rope_type {', '.join(_SCALINGS)}"
        raise ArgumentError("rotary_frequencies", "unknown scaling", repr(kind), expected)
    # Some configurations repeat the base beside the scaling.
    numbers.pop("rope_theta", None)
    try:
        return _SCALINGS[kind](width, base, **numbers)
    except TypeError as error:
        raise ArgumentError("rotary_frequencies", f"{kind} scaling: {error}", scaling) from error


def _plain(width: int, base: float) -> list[float]:
    return [base ** (-i / width) for i in range(0, width, 2)]


def _linear(width: int, base: float, factor: float) -> list[float]:
    return [rate / factor for rate in _plain(width, base)]


def _ntk(width: int, base: float, factor: float) -> list[float]:
    """The base at which the slowest pair turns ``factor`` times slower."""
    return _plain(width, base * factor ** (width / max(width - 2, 1)))


def _llama3(
    width: int,
    base: float,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_max_position_embeddings: int,
) -> list[float]:
    """Fast pairs kept, slow ones divided by ``factor``, a straight line between the two."""
    rates = []
    for rate in _plain(width, base):
        waves = original_max_position_embeddings * rate / (2 * math.pi)
        share = (waves - low_freq_factor) / (high_freq_factor - low_freq_factor)
        kept = min(max(share, 0.0), 1.0)
        rates.append(rate * (kept + (1 - kept) / factor))
    return rates


_SCALINGS: dict[Any, Callable[..., list[float]]] = {
    "default": _plain,
    "linear": _linear,
    "ntk": _ntk,
    "llama3": _llama3,
}


def _turn_shape(op: Any, specs: Specs, *_: Any) -> Any:
    return specs[0].shape


def _turn_dtype(op: Any, specs: Specs, *_: Any) -> Any:
    return own_dtypes(specs), specs[0].dtype


def _halves(x: RudaTensor, interleaved: bool) -> tuple[RudaTensor, RudaTensor]:
    """The first and the second feature of each pair."""
    if interleaved:
        return x[..., ::2], x[..., 1::2]
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def _cos_vjp(g: Any, x: Any, cos_spec: Any, interleaved: bool) -> Any:
    pairs = zip(_halves(wide(g), interleaved), _halves(wide(x), interleaved), strict=True)
    first, second = (a * b for a, b in pairs)
    return unbroadcast(first + second, cos_spec.shape)


def _sin_vjp(g: Any, x: Any, sin_spec: Any, interleaved: bool, back: bool) -> Any:
    (g1, g2), (x1, x2) = _halves(wide(g), interleaved), _halves(wide(x), interleaved)
    turned = g1 * x2 - g2 * x1 if back else g2 * x1 - g1 * x2
    return unbroadcast(turned, sin_spec.shape)


@fused(
    "rotary",
    "x cos sin",
    "interleaved back",
    shape=_turn_shape,
    dtype=_turn_dtype,
    numpy=rotary,
    vjp=(
        lambda g, cos, sin, interleaved, back: _turned(g, cos, sin, interleaved, not back),
        _cos_vjp,
        _sin_vjp,
    ),
    accepts=FLOAT,
)
def _turned(
    x: RudaTensor, cos: RudaTensor, sin: RudaTensor, interleaved: bool, back: bool
) -> RudaTensor:
    """All pairs of ``x [..., 2 R]`` turned by the angles of ``cos`` and ``sin [..., R]``."""
    first, second = _halves(wide(x), interleaved)
    c, s = wide(cos), wide(-sin if back else sin)
    turned = [first * c - second * s, second * c + first * s]
    if interleaved:
        out = reshape(stack(turned, axis=-1), x.shape)
    else:
        out = concat(turned, axis=-1)
    return astype(out, x.dtype, copy=False)


@composite
@given_tensors
def apply_rotary(
    x: RudaTensor, cos: RudaTensor, sin: RudaTensor, interleaved: bool = False
) -> RudaTensor:
    """Turn pairs of features of ``x [..., D]`` by angles given as ``cos`` and ``sin [..., R / 2]``.

    The first R features turn, the others stay. A pair is (i, i + R / 2), or (2 i, 2 i + 1) with
    ``interleaved``. ``cos`` and ``sin`` broadcast to the leading axes of ``x``; they may be wider
    than ``x``, whose dtype the result has. Raises ``ShapeError``. Su et al., "RoFormer" (2021).

    >>> x = ruda.asarray([[1.0, 2.0]])
    >>> apply_rotary(x, ruda.asarray([[0.0]]), ruda.asarray([[1.0]])).tolist()
    [[-2.0, 1.0]]
    """
    half = _check_turn(x, cos, sin)
    if 2 * half == x.shape[-1]:
        return _turned(x, cos, sin, bool(interleaved), False)
    turned = _turned(x[..., : 2 * half], cos, sin, bool(interleaved), False)
    return concat([turned, x[..., 2 * half :]], axis=-1)


def _check_turn(x: RudaTensor, cos: RudaTensor, sin: RudaTensor) -> int:
    """R / 2, where all three fit together."""
    got = f"x {x.shape}, cos {cos.shape}, sin {sin.shape}"
    expected = "cos and sin [..., R / 2] that broadcast to x [..., D], with R at most D"
    half = cos.shape[-1] if cos.ndim else 0
    fits = x.ndim > 0 and cos.shape == sin.shape and 0 < 2 * half <= x.shape[-1]
    if not fits or not broadcasts_to(cos.shape[:-1], x.shape[:-1]):
        raise ShapeError("apply_rotary", "angles do not fit", got, expected)
    return half


def alibi_slopes(heads: int) -> list[float]:
    """How fast attention of each head fades with distance: ``2 ** (-8 (i + 1) / heads)``.

    That is for powers of two; otherwise the slopes of the next lower one are followed by every
    other slope of the next higher one. Press et al., "Train short, test long" (2021).

    >>> alibi_slopes(4)
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    if heads < 1:
        raise ArgumentError("alibi_slopes", "heads is not positive", heads, "at least 1")
    lower = 2 ** int(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / lower) for i in range(lower)]
    if lower == heads:
        return slopes
    return slopes + alibi_slopes(2 * lower)[::2][: heads - lower]


@composite
@given_tensors
def alibi_bias(
    slopes: RudaTensor, query_positions: RudaTensor, key_positions: RudaTensor
) -> RudaTensor:
    """``-slope * |query - key|`` for each head, ``[H, T, S]``: the bias of ``attention``.

    ``slopes [H]`` is as ``alibi_slopes`` gives them, in the dtype of the result; positions ``[T]``
    and ``[S]`` are integers.

    >>> alibi_bias(ruda.asarray([0.5]), ruda.asarray([2]), ruda.arange(3)).tolist()
    [[[-1.0, -0.5, -0.0]]]
    """
    for positions in (query_positions, key_positions):
        _check_positions("alibi_bias", positions)
    shapes = [slopes.shape, query_positions.shape, key_positions.shape]
    if any(len(shape) != 1 for shape in shapes):
        raise ShapeError("alibi_bias", "one axis each is needed", shapes, "[H], [T] and [S]")
    distance = abs(subtract(expand_dims(query_positions, 1), key_positions))
    return multiply(expand_dims(-slopes, (1, 2)), astype(distance, slopes.dtype))
