"""The Euclidean norm of several tensors as one vector: what bounds the gradients of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ruda.core.dtypes import FLOAT, compute_of
from ruda.ops import rules
from ruda.ops.cast import astype
from ruda.ops.join import stack
from ruda.ops.rules import Specs
from ruda.ops.statistics import vector_norm
from ruda.ops.table import fused
from ruda.tensor.dispatch import OPS, slow
from ruda.tensor.tensor import RudaTensor


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
    return slow(OPS["joint_norm"], list(xs), ())
