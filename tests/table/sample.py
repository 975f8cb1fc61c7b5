"""What a derived test feeds a row: samples, bad calls and composed functions.

``tests/table/samples/<family>.py`` holds them as ``SAMPLES`` (lists of ``Sample`` by row name),
``BAD`` (a list of ``Bad``), ``COMPOSED`` (a list of ``Composed``) and ``NO_GRADIENT`` (reasons by
row name, for rows that give floats and have no vjp). Rows that work element by element, without
attributes, need none: their domain is enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ruda.core.dtypes import DType


@dataclass(frozen=True)
class Sample:
    """The operands and attributes of one call of a row.

    An operand is a shape (random values in the row's domain and in the dtype under test), an
    ndarray (of floats: cast to the dtype under test; of anything else: as it is), a ``Vector``, a
    scalar, or None for an optional one. ``attrs`` are the row's attributes, normalised. ``dtypes``
    narrows the dtypes that the row accepts, ``grad=False`` says that there is no derivative at
    these values, ``dense=True`` that only row-major operands are taken and others raise.
    ``constants`` names arguments that a joint vjp gives no gradient.
    """

    inputs: tuple[Any, ...]
    attrs: tuple[Any, ...] = ()
    dtypes: tuple[DType, ...] | None = None
    grad: bool = True
    dense: bool = False
    constants: tuple[str, ...] = ()

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The operands that are shapes."""
        return tuple(x for x in self.inputs if x.__class__ is tuple)


@dataclass(frozen=True)
class Bad:
    """A call that must raise ``error`` with a message that ``match`` is found in."""

    call: Callable[[], Any]
    error: type[Exception]
    match: str


@dataclass(frozen=True)
class Composed:
    """A function of tensors to differentiate and trace, with shapes or ndarrays for its inputs.

    ``captured=False`` says that a compiled step cannot hold it: a shape depends on values.
    """

    name: str
    call: Callable[..., Any]
    inputs: tuple[Any, ...]
    domain: tuple[float, float] = (-2.0, 2.0)
    captured: bool = True


def values(shape: tuple[int, ...], dtype: DType, domain: tuple[float, float], rng: Any) -> Any:
    """Random values of ``dtype`` inside ``domain``."""
    low, high = domain
    if dtype.kind == "bool":
        return np.asarray(rng.random(shape) < 0.5) if low <= 0 else np.ones(shape, np.bool_)
    if dtype.is_integer:
        first, last = _integers(low, high)
        first = max(first, 0 if dtype.kind == "uint" else -100)
        drawn = rng.integers(first, min(last, 100), shape, endpoint=True)
        return np.asarray(drawn).astype(dtype.numpy)
    out = rng.uniform(low, high, shape)
    if dtype.kind == "complex":
        out = out + 1j * rng.uniform(low, high, shape)
    return np.asarray(out).astype(dtype.numpy)


def _integers(low: float, high: float) -> tuple[int, int]:
    """The integers from ``low`` to ``high``, or where there are none the two around them."""
    first, last = math.ceil(low), math.floor(high)
    return (first, last) if first <= last else (math.floor(low), math.ceil(high))


def operands(inputs: tuple[Any, ...], dtype: DType, domain: tuple[float, float], rng: Any) -> Any:
    """The operands of a sample: ndarrays, tuples of integers and scalars."""
    return [_operand(x, dtype, domain, rng) for x in inputs]


def _operand(x: Any, dtype: DType, domain: tuple[float, float], rng: Any) -> Any:
    if x.__class__ is tuple:
        return values(x, dtype, domain, rng)
    if isinstance(x, np.ndarray) and x.dtype.kind in "fc":
        return x.astype(dtype.numpy)
    return x
