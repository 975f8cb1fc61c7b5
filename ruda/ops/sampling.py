"""Random tensors of discrete values: bools, integers, categories, permutations."""

from __future__ import annotations

from typing import Any

from ruda.core import dtypes
from ruda.core.devices import client as client_of
from ruda.core.dtypes import FLOAT, as_dtype
from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from ruda.core.shapes import index, normalize_axis, normalize_shape
from ruda.ops import vendor
from ruda.ops.embed import embedding
from ruda.ops.generator import chosen
from ruda.ops.movement import moveaxis, reshape
from ruda.ops.random import Place, drawn, has_tensors, key, scalar
from ruda.ops.reference import random_checks as checks
from ruda.ops.reference import sampling as reference
from ruda.ops.table import row
from ruda.tensor.tensor import RudaTensor

_integers = drawn(
    "integers",
    "low high",
    lambda low, high, seed, draw, shape, dtype, device: reference.integers(
        int(seed), int(draw), shape, low, high, dtype.numpy
    ),
    "Uniform integers in [low, high), without bias.",
)
_bernoulli = drawn(
    "bernoulli",
    "p",
    lambda p, seed, draw, shape, device: reference.bernoulli(int(seed), int(draw), shape, p),
    "True with probability ``p``.",
    dtypes.bool_,
)
_permutation = row(
    "random",
    "permutation",
    "seed draw",
    "length device",
    shape=lambda op, specs, length, device: (length,),
    dtype=lambda op, specs, *_: ((None, None), dtypes.int64),
    numpy=lambda seed, draw, length, device: reference.permutation(int(seed), int(draw), length),
    exact=True,
    doc="The integers below ``length`` in random order.",
)
_categorical = row(
    "random",
    "categorical",
    "weights seed draw",
    "samples logits replacement",
    shape=lambda op, specs, samples, *_: (*specs[0].shape[:-1], samples),
    dtype=lambda op, specs, *_: ((None, None, None), dtypes.int64),
    numpy=lambda weights, seed, draw, samples, logits, replacement: reference.categorical(
        int(seed), int(draw), weights, samples, logits, replacement
    ),
    accepts=FLOAT,
    exact=True,
    doc="Indices into the last axis, drawn by weight.",
)


def bernoulli(
    p: Any = 0.5, shape: Any = None, *, device: Any = None, generator: Any = None
) -> RudaTensor:
    """True with probability ``p``, a scalar or a tensor that broadcasts to ``shape``; bool.

    Raises ``ArgumentError`` unless 0 <= p <= 1.

    >>> bernoulli(0.5, (4,), generator=ruda.random.Generator(0)).tolist()
    [True, False, False, False]
    """
    place = Place("bernoulli", shape, device, (p,))
    if not has_tensors(p):
        p = scalar("bernoulli", "p", p)
        checks.check_probability("bernoulli", "p", p)
    return _bernoulli(p, *key("bernoulli", generator), place.shape, place.device)


def integers(
    low: Any,
    high: Any = None,
    shape: Any = (),
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> RudaTensor:
    """Uniform integers in [low, high), or in [0, low) without ``high``, of ``shape``.

    Without bias; the default integer dtype unless given. Raises ``ArgumentError`` unless
    low < high and both bounds fit the dtype.

    >>> integers(-3, 3, (4,), generator=ruda.random.Generator(0)).tolist()
    [-1, 2, 1, 0]
    """
    first, last = (0, low) if high is None else (low, high)
    first, last = index(first, "integers", "low"), index(last, "integers", "high")
    client = client_of(device)
    kind = client.defaults.integer if dtype is None else as_dtype(dtype, "integers")
    if not kind.is_integer:
        raise DTypeError("integers", "not an integer dtype", kind)
    checks.check_integers(first, last, kind.numpy)
    size = normalize_shape(shape, "integers")
    source = chosen(generator, "integers", vendor=True)
    if source.engine != "philox":
        return vendor.integers(source, client.device, size, kind, first, last)
    return _integers(first, last, *key("integers", generator), size, kind, client.device)


def categorical(
    weights: RudaTensor,
    samples: int | None = None,
    *,
    logits: bool = False,
    replacement: bool = True,
    generator: Any = None,
) -> RudaTensor:
    """Indices into the last axis of ``weights [..., K]``, int64 ``[..., samples]``.

    Weights are probabilities that need not sum to 1, or ``logits``. Without ``samples`` one index
    and no axis for it. Without replacement indices come in the order drawn. Raises
    ``ArgumentError`` for weights that are NaN, negative or infinite, or too few in a row.

    >>> categorical(ruda.asarray([0.0, 1.0]), 3).tolist()
    [1, 1, 1]
    """
    if weights.__class__ is not RudaTensor or weights.ndim == 0:
        raise ShapeError("categorical", "the weights are no tensor [..., K]", repr(weights))
    count = 1 if samples is None else index(samples, "categorical", "samples")
    if count < 0 or weights.shape[-1] == 0 or (not replacement and count > weights.shape[-1]):
        got = f"{count} samples of weights {weights.shape}"
        raise ArgumentError("categorical", "cannot draw so many", got)
    at = key("categorical", generator)
    out = _categorical(weights.detach(), *at, count, bool(logits), bool(replacement))
    return reshape(out, weights.shape[:-1]) if samples is None else out


def permutation(x: Any, *, axis: int = 0, device: Any = None, generator: Any = None) -> RudaTensor:
    """The integers below ``x`` in random order, int64; or a tensor ``x`` shuffled along ``axis``.

    >>> permutation(4, generator=ruda.random.Generator(0)).tolist()
    [3, 2, 1, 0]
    """
    at = key("permutation", generator)
    if x.__class__ is RudaTensor:
        along = normalize_axis(axis, x.ndim, "permutation")
        order = _permutation(*at, x.shape[along], x.device)
        return moveaxis(embedding(order, moveaxis(x, along, 0)), 0, along)
    length = index(x, "permutation", "x")
    if length < 0:
        raise ArgumentError("permutation", "the length is negative", length)
    return _permutation(*at, length, client_of(device).device)
