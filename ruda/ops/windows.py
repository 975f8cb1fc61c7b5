"""What functions over spatial axes share: the rank they take, settings as one tuple per axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ruda.core.errors import ArgumentError, ShapeError
from ruda.core.shapes import Shape, index
from ruda.tensor.tensor import RudaTensor

Pairs = tuple[tuple[int, int], ...]


def check_rank(name: str, rank: int, x: RudaTensor) -> None:
    """Raise unless ``x`` is ``[N, C, *S]`` or ``[C, *S]`` with ``rank`` spatial axes."""
    if x.ndim not in (rank + 1, rank + 2):
        expected = f"[N, C, *S] or [C, *S] with {rank} spatial axes"
        raise ShapeError(name, "wrong rank", x.shape, expected)


def per_axis(
    value: Any,
    rank: int,
    op: str,
    name: str,
    least: int = 1,
    error: type[ArgumentError] = ArgumentError,
) -> Shape:
    """``value`` (an integer, or one per axis) as ``rank`` integers of at least ``least``."""
    values = tuple(value) if isinstance(value, Sequence) else (value,) * rank
    if len(values) == 1:
        values *= rank
    if len(values) != rank:
        expected = f"an integer or {rank} of them"
        raise error(op, f"{name} does not fit {rank} axes", value, expected)
    out = tuple(index(v, op, name) for v in values)
    if any(v < least for v in out):
        raise error(op, f"{name} is too small", value, f"at least {least}")
    return out


def padding_pairs(
    value: Any, rank: int, op: str, error: type[ArgumentError] = ArgumentError
) -> Pairs:
    """``value`` (n, one per axis, or (low, high) per axis) as one pair per axis, none negative."""
    values = tuple(value) if isinstance(value, Sequence) else (value,) * rank
    if len(values) == 1:
        values *= rank
    if len(values) != rank:
        expected = f"an integer, {rank} of them, or {rank} pairs"
        raise error(op, f"padding does not fit {rank} axes", value, expected)
    out = tuple(_pair(v, op) for v in values)
    if any(side < 0 for pair in out for side in pair):
        raise error(op, "padding is negative", value, "at least 0")
    return out


def _pair(value: Any, op: str) -> tuple[int, int]:
    low, high = value if isinstance(value, Sequence) else (value, value)
    return index(low, op, "padding"), index(high, op, "padding")
