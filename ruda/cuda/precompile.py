"""Compiling kernels before they are needed, into the cache on disk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ruda.core.dtypes import as_dtype
from ruda.core.errors import ArgumentError, RudaError
from ruda.core.spec import spec_of
from ruda.cuda.devices import gpu
from ruda.tensor.dispatch import OPS, Op

_KINDS = ("unary", "binary", "ternary")
_SHAPE = (64, 128)


def precompile(
    names: Iterable[str] | None = None,
    dtypes: Iterable[Any] = ("float32", "bfloat16"),
    device: Any = None,
) -> int:
    """Compile the kernels of the operators ``names`` for ``dtypes``; returns how many plans.

    Without names, those of every elementwise operator. Kernels belong to dtypes and layouts, not to
    shapes, so what is compiled here serves dense tensors of any size. Raises ``ArgumentError`` for
    a name that is no elementwise operator.
    """
    client = gpu(device)
    rows = [op for op in OPS.values() if _fits(op)] if names is None else list(map(_row, names))
    kinds = [as_dtype(dtype, "precompile") for dtype in dtypes]
    count = 0
    for op in rows:
        for dtype in kinds:
            if op.accepts and dtype not in op.accepts:
                continue
            spec = spec_of(client, _SHAPE, dtype)
            try:
                op.lookup((spec,) * len(op.args), ())
            except RudaError:
                # A dtype that the row refuses by its rules is nothing to compile for.
                continue
            count += 1
    return count


def _fits(op: Op) -> bool:
    return op.kind in _KINDS and not op.attrs and op.expr is not None


def _row(name: str) -> Op:
    op = OPS.get(name)
    if op is None or not _fits(op):
        raise ArgumentError("precompile", "not an elementwise operator", name)
    return op
