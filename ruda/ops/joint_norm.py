"""Facts about many tensors together: their Euclidean norm as one vector, whether all are finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ruda.core.dtypes import FLOAT, bool_, compute_of
from ruda.core.mode import MODE
from ruda.ops import rules
from ruda.ops.cast import astype
from ruda.ops.compare import isfinite
from ruda.ops.join import stack
from ruda.ops.reduce import all as all_of
from ruda.ops.rules import Specs
from ruda.ops.statistics import vector_norm
from ruda.ops.table import fused
from ruda.tensor.dispatch import OPS, slow
from ruda.tensor.tensor import RudaTensor, wrap


def _wide(op: Any, specs: Specs, *_: Any) -> Any:
    """Half types add up in float32."""
    dtype = compute_of(rules.promote(op, specs)[1])
    return dtype, dtype


def _reference(*xs: Any) -> Any:
    squares = sum(float(np.vdot(x, x)) for x in map(np.ravel, xs))
    return np.sqrt(np.asarray(squares)).astype(xs[0].dtype)


@fused(
    "joint_norm",
    "xs",
    shape=lambda op, specs: (),
    dtype=_wide,
    numpy=_reference,
    accepts=FLOAT,
    cast="high",
)
def _joint_norm(*xs: RudaTensor) -> RudaTensor:
    """The root of the sum of all squares of all tensors; float32 for half types."""
    wide = [astype(x, compute_of(x.dtype), copy=False) for x in xs]
    return vector_norm(stack([vector_norm(x) for x in wide]))


def joint_norm(xs: Sequence[RudaTensor]) -> RudaTensor:
    """The Euclidean norm of the tensors ``xs`` together, of any shapes; a 0-d tensor.

    >>> joint_norm([ruda.asarray([3.0]), ruda.asarray([[4.0], [0.0]])]).item()
    5.0
    """
    return _of_many("joint_norm", xs)


@fused(
    "joint_finite",
    "xs",
    shape=lambda op, specs: (),
    dtype=lambda op, specs, *_: (None, bool_),
    numpy=lambda *xs: np.asarray(all(np.isfinite(x).all() for x in xs)),
    accepts=FLOAT,
    exact=True,
)
def _joint_finite(*xs: RudaTensor) -> RudaTensor:
    """Whether no element of any tensor is NaN or infinite."""
    return all_of(stack([all_of(isfinite(x)) for x in xs]))


def joint_finite(xs: Sequence[RudaTensor]) -> RudaTensor:
    """Whether no element of the tensors ``xs``, of any shapes, is NaN or infinite: 0-d, bool.

    >>> joint_finite([ruda.asarray([3.0]), ruda.asarray([[4.0], [ruda.inf]])]).item()
    False
    """
    return _of_many("joint_finite", xs)


def _of_many(name: str, xs: Sequence[RudaTensor]) -> RudaTensor:
    """A row of any number of tensors; off the tape they are looked at once, and not one by one."""
    op, mode = OPS[name], MODE.get()
    if mode.grad or mode.special or {x.__class__ for x in xs} != {RudaTensor}:
        return slow(op, list(xs), ())
    plan = op.lookup(tuple([x.spec for x in xs]), ())
    return wrap(plan.out, plan.run(*[x.handle for x in xs]))
