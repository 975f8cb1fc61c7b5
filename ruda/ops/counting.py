"""Which targets of a loss count, and the mean over those."""

from __future__ import annotations

from typing import Any

import numpy as np

from ruda.core.dtypes import FLOAT, INTEGER, iinfo
from ruda.core.errors import DTypeError, ShapeError
from ruda.ops.cast import astype
from ruda.ops.compare import equal, not_equal
from ruda.ops.embed import embedding
from ruda.ops.movement import broadcast_to
from ruda.ops.reduce import sum
from ruda.ops.rowwise import wide
from ruda.ops.rules import Specs
from ruda.ops.select import where
from ruda.ops.table import fused
from ruda.tensor.tensor import RudaTensor


def counts(target: RudaTensor, ignore: int) -> RudaTensor:
    """Where a target is not ``ignore``, which its dtype may be unable to hold."""
    limits = iinfo(target.dtype)
    fits = limits.min <= ignore <= limits.max
    return not_equal(target, ignore) if fits else equal(target, target)


def _shape(op: Any, specs: Specs, ignore: int) -> Any:
    if specs[0].shape != specs[1].shape:
        raise ShapeError(op.name, "the target does not fit", specs[1].shape, specs[0].shape)
    return (), ()


def _dtype(op: Any, specs: Specs, ignore: int) -> Any:
    own, target = specs[0].dtype, specs[1].dtype
    if own not in FLOAT or not target.is_integer:
        got, expected = f"{own} and {target}", "a real floating dtype and integers"
        raise DTypeError(op.name, "dtypes not supported", got, expected)
    return (own, None), (own, own)


def _reference(loss: Any, target: Any, ignore: int) -> Any:
    count = loss.dtype.type(np.count_nonzero(target != ignore))
    return np.divide(np.add.reduce(loss, axis=None), count), count


@fused(
    "mean_where_counted",
    "loss target",
    "ignore_index",
    "mean count",
    shape=_shape,
    takes={"loss": FLOAT, "target": INTEGER},
    dtype=_dtype,
    numpy=_reference,
    vjp=(lambda g, loss_spec, count: _spread(g[0], loss_spec, count), None),
    cast="high",
)
def _mean_where_counted(loss: RudaTensor, target: RudaTensor, ignore_index: int) -> Any:
    """``sum(loss)`` over the number of targets that are not ``ignore_index``, and that number.

    The loss of a target that is ignored is 0 already.
    """
    count = sum(astype(counts(target, ignore_index), loss.dtype))
    return sum(loss) / count, count


def _spread(g: Any, spec: Any, count: RudaTensor) -> Any:
    return None if g is None else broadcast_to(g / count, spec.shape)


def _counted_dtype(op: Any, specs: Specs, ignore: int) -> Any:
    (own, _), _ = _dtype(op, specs, ignore)
    return (own, None), own


def _counted_reference(x: Any, target: Any, ignore: int) -> Any:
    return np.divide(x, x.dtype.type(np.count_nonzero(target != ignore)))


@fused(
    "over_counted",
    "x target",
    "ignore_index",
    shape=lambda op, specs, ignore: specs[0].shape,
    takes={"x": FLOAT, "target": INTEGER},
    dtype=_counted_dtype,
    numpy=_counted_reference,
    cast="high",
)
def _over_counted(x: RudaTensor, target: RudaTensor, ignore_index: int) -> RudaTensor:
    """``x`` over the number of targets that are not ``ignore_index``, as the mean's gradient is."""
    return x / sum(astype(counts(target, ignore_index), x.dtype))


def mean_counted(loss: RudaTensor, target: RudaTensor, weight: Any, ignore: int) -> RudaTensor:
    """``sum(loss)`` over the sum of the weights of the targets that count."""
    if weight is None:
        return _mean_where_counted(loss, target, ignore)[0]
    valid = counts(target, ignore)
    return sum(loss) / sum(where(valid, embedding(where(valid, target, 0), wide(weight)), 0))
