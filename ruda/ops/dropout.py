"""Dropout: the mask follows from two integers, so nothing of the size of the input is kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from ruda.core import dtypes
from ruda.core.dtypes import INEXACT
from ruda.ops import rules
from ruda.ops.create import ones, zeros
from ruda.ops.generator import chosen
from ruda.ops.movement import reshape
from ruda.ops.reference import sampling
from ruda.ops.rules import Specs
from ruda.ops.scalars import real_number
from ruda.ops.select import where
from ruda.ops.table import composite, fused, row
from ruda.ops.windows import check_rank
from ruda.tensor.given import given_tensors
from ruda.tensor.host import draw_number, seed_number
from ruda.tensor.tensor import RudaTensor

keep_mask = row(
    "random",
    "dropout_mask",
    "p seed draw",
    "shape device",
    shape=lambda op, specs, shape, device: shape,
    dtype=lambda op, specs, *_: ((None, None, None), dtypes.bool_),
    numpy=lambda p, seed, draw, shape, device: sampling.dropout_mask(
        int(seed), int(draw), shape, float(p)
    ),
    exact=True,
    doc="False with probability ``p``: which elements dropout keeps.",
)


def kept_scale(p: float) -> float:
    """What dropout multiplies kept elements by, so that the expectation stays."""
    return 1 / (1 - p)


def _masked(x: Any, p: float, seed: Any, draw: Any) -> Any:
    keep = sampling.dropout_mask(int(seed), int(draw), x.shape, p)
    return np.where(keep, x * x.dtype.type(kept_scale(p)), x.dtype.type(0))


def _same_dtype(op: Any, specs: Specs) -> Any:
    return (specs[0].dtype, None, None, None), specs[0].dtype


@fused(
    "dropout",
    "x p seed draw",
    shape=rules.same,
    dtype=_same_dtype,
    numpy=_masked,
    vjp=(lambda g, p, seed, draw: _dropout(g, p, seed, draw), None, None, None),
    accepts=INEXACT,
)
def _dropout(x: RudaTensor, p: float, seed: int, draw: Any) -> RudaTensor:
    """``x / (1 - p)`` where the mask keeps an element, else 0."""
    keep = keep_mask(p, seed, draw, x.shape, x.device)
    return where(keep, x * kept_scale(p), 0)


@given_tensors
def dropout(
    input: RudaTensor, p: float = 0.5, training: bool = True, *, generator: Any = None
) -> RudaTensor:
    """Each element zero with probability ``p``, else divided by ``1 - p``; while ``training``.

    The mask follows from the generator's seed and one draw number alone, the same eagerly and
    compiled, and is made again in backward. Raises ``ArgumentError`` unless 0 <= p <= 1.

    >>> dropout(ruda.ones(4), 0.5, generator=ruda.random.Generator(0)).tolist()
    [0.0, 2.0, 2.0, 2.0]
    """
    rate = real_number("dropout", "p", p, 0, 1)
    if not training or rate == 0:
        return input
    if rate == 1:
        return where(zeros(input.shape, dtype="bool", device=input.device), input, 0)
    source = chosen(generator, "dropout")
    return _dropout(input, rate, seed_number(source), draw_number(source))


def _channels(
    name: str, rank: int, x: RudaTensor, p: float, training: bool, generator: Any
) -> RudaTensor:
    check_rank(name, rank, x)
    rate = real_number(name, "p", p, 0, 1)
    if not training or rate == 0:
        return x
    lead = x.shape[: x.ndim - rank]
    scale = dropout(ones(lead, dtype=x.dtype, device=x.device), rate, generator=generator)
    return x * reshape(scale, lead + (1,) * rank)


@composite
@given_tensors
def dropout1d(
    input: RudaTensor, p: float = 0.5, training: bool = True, *, generator: Any = None
) -> RudaTensor:
    """As ``dropout``, for whole channels of ``[N, C, L]`` or ``[C, L]``."""
    return _channels("dropout1d", 1, input, p, training, generator)


@composite
@given_tensors
def dropout2d(
    input: RudaTensor, p: float = 0.5, training: bool = True, *, generator: Any = None
) -> RudaTensor:
    """As ``dropout``, for whole channels of ``[N, C, H, W]`` or ``[C, H, W]``."""
    return _channels("dropout2d", 2, input, p, training, generator)


@composite
@given_tensors
def dropout3d(
    input: RudaTensor, p: float = 0.5, training: bool = True, *, generator: Any = None
) -> RudaTensor:
    """As ``dropout``, for whole channels of ``[N, C, D, H, W]`` or ``[C, D, H, W]``."""
    return _channels("dropout3d", 3, input, p, training, generator)
