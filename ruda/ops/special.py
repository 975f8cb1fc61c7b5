"""Special functions of a real argument: errors and gammas."""

from __future__ import annotations

import math
from typing import Any

from ruda.core.dtypes import BOOL, REAL
from ruda.core.errors import ArgumentError
from ruda.core.shapes import index
from ruda.ops import rules
from ruda.ops.arith import negative, square
from ruda.ops.explog import exp
from ruda.ops.reference import special as reference
from ruda.ops.table import row, unary
from ruda.tensor.tensor import RudaTensor

_SLOPE = 2 / math.sqrt(math.pi)

erf = unary(
    "erf",
    reference.erf,
    "erf(x)",
    lambda g, x: g * (exp(-square(x)) * _SLOPE),
    "The error function.",
    accepts=BOOL + REAL,
)
erfc = unary(
    "erfc",
    reference.erfc,
    "erfc(x)",
    lambda g, x: negative(g * (exp(-square(x)) * _SLOPE)),
    "``1 - erf(x)``, accurate where that is tiny.",
    accepts=BOOL + REAL,
)
erfinv = unary(
    "erfinv",
    reference.erfinv,
    "erfinv(x)",
    lambda g, out: g * (exp(square(out)) * (1 / _SLOPE)),
    "The inverse of ``erf``: infinite at -1 and 1, NaN beyond.",
    accepts=BOOL + REAL,
    domain=(-0.9, 0.9),
)
lgamma = unary(
    "lgamma",
    reference.lgamma,
    "lgamma(x)",
    lambda g, x: g * digamma(x),
    "``log(abs(gamma(x)))``: infinite at 0 and the negative integers.",
    accepts=BOOL + REAL,
    domain=(0.5, 4.0),
)
digamma = unary(
    "digamma",
    reference.digamma,
    "ruda_digamma(x)",
    lambda g, x: g * polygamma(1, x),
    "The derivative of ``lgamma``: infinite at 0, NaN at the negative integers.",
    accepts=BOOL + REAL,
    domain=(0.5, 4.0),
)


_polygamma = row(
    "unary",
    "polygamma",
    "x",
    "order",
    shape=rules.same,
    dtype=rules.floating,
    numpy=reference.polygamma,
    expr="ruda_polygamma(x, order)",
    vjp=(lambda g, x, order: g * _polygamma(x, order + 1),),
    accepts=BOOL + REAL,
    domain=(0.5, 4.0),
    doc="The derivative of ``digamma`` of the given order.",
)


def polygamma(n: int, x: Any, /) -> RudaTensor:
    """The derivative of order ``n`` of ``digamma``; ``digamma`` itself for ``n = 0``.

    NaN for negative ``x`` and ``n`` above 1. Raises ``ArgumentError`` for a negative ``n``.

    >>> round(polygamma(1, ruda.asarray(1.0)).item(), 4)
    1.6449
    """
    order = index(n, "polygamma", "n")
    if order < 0:
        raise ArgumentError("polygamma", "a negative order", order, "0 or more")
    return _polygamma(x, order) if order else digamma(x)
