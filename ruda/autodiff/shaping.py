"""Bringing a cotangent to the shape and dtype of the value it belongs to.

Done once, here, so that no row has to undo broadcasting or promotion.
"""

from __future__ import annotations

from ruda.core.spec import Spec
from ruda.ops.cast import astype
from ruda.ops.complexes import real
from ruda.ops.reduce import unbroadcast
from ruda.tensor.tensor import RudaTensor


def fitted(g: RudaTensor, spec: Spec) -> RudaTensor:
    """``g`` summed over broadcast axes, real if ``spec`` is, and in its dtype."""
    if g.spec.shape != spec.shape:
        g = unbroadcast(g, spec.shape)
    if g.spec.dtype is not spec.dtype:
        if g.spec.dtype.kind == "complex" and spec.dtype.kind != "complex":
            g = real(g)
        if g.spec.dtype is not spec.dtype:
            g = astype(g, spec.dtype)
    return g
