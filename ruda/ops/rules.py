"""Shape and dtype rules that rows share.

A shape rule takes ``(op, specs, *attrs)`` and returns the shape of the output (a tuple of shapes
for several outputs, ``(shape, strides)`` for a view). A dtype rule takes the same and returns
``(operand, out)``: what operands are cast to before the reference sees them (None: as they are, a
tuple: one per operand) and the dtype of the output. Rules run once per signature, so they can
afford to be kind.
"""

from __future__ import annotations

from typing import Any

from ruda.core import dtypes
from ruda.core.dtypes import DType
from ruda.core.errors import DTypeError
from ruda.core.shapes import Shape, broadcast_shapes, reduced_shape
from ruda.core.spec import Spec, promote_specs

Specs = tuple[Spec, ...]


def same(op: Any, specs: Specs, *_: Any) -> Shape:
    """The shape of the first operand."""
    return specs[0].shape


def broadcast(op: Any, specs: Specs, *_: Any) -> Shape:
    """The shape all operands broadcast to."""
    return broadcast_shapes(op.name, *(s.shape for s in specs))


def reduced(op: Any, specs: Specs, axes: Shape, keepdims: bool, *_: Any) -> Shape:
    """The first operand's shape without ``axes``, or with them of length 1."""
    return reduced_shape(specs[0].shape, axes, keepdims)


def _meet(op: Any, specs: Specs) -> DType:
    try:
        dtype = promote_specs(specs)
    except DTypeError as error:
        raise DTypeError(op.name, error.what, error.got, error.expected, error.hint) from None
    if op.accepts and dtype not in op.accepts:
        wanted = dtypes.CATEGORY_NAMES.get(op.accepts, str(op.accepts))
        got = " and ".join(str(s.dtype) for s in specs)
        raise DTypeError(op.name, "dtype not supported", got, f"{wanted} dtype", "astype")
    return dtype


def promote(op: Any, specs: Specs, *_: Any) -> tuple[Any, Any]:
    """Operands meet in one dtype, which is the output's."""
    dtype = _meet(op, specs)
    return dtype, dtype


def one_dtype(op: Any, specs: Specs, *_: Any) -> tuple[Any, Any]:
    """All operands that are given have the dtype of the first, and so has the output."""
    dtype = specs[0].dtype
    for arg, spec in zip(op.args, specs, strict=True):
        if not spec.weak and spec.dtype is not dtype:
            hint = f"{arg}.astype({str(dtype)!r})"
            raise op.dtype_error(op.name, f"{arg} has another dtype", spec.dtype, dtype, hint)
    return tuple(None if spec.weak else dtype for spec in specs), dtype


def compare(op: Any, specs: Specs, *_: Any) -> tuple[Any, Any]:
    """Operands meet in one dtype; the output is bool."""
    return _meet(op, specs), dtypes.bool_


def floating(op: Any, specs: Specs, *_: Any) -> tuple[Any, Any]:
    """As ``promote``, but integers and bools become the default float."""
    dtype = _meet(op, specs)
    if not dtype.is_inexact:
        dtype = specs[0].client.defaults.floating
    return dtype, dtype


def real_part(op: Any, specs: Specs, *_: Any) -> tuple[Any, Any]:
    """Operands as they are; a complex one gives the real dtype of its parts."""
    dtype = _meet(op, specs)
    return dtype, dtypes.real_of(dtype)


def unchanged(op: Any, specs: Specs, *_: Any) -> tuple[Any, Any]:
    """No cast, and the dtype stays: for operators that only move values."""
    return None, specs[0].dtype


def boolean(op: Any, specs: Specs, *_: Any) -> tuple[Any, Any]:
    """The operands are not cast; the output is bool."""
    return None, dtypes.bool_


def accumulated(op: Any, specs: Specs, dtype: DType | None) -> tuple[Any, Any]:
    """What sums and products are kept in: ``dtype``, else 64 bits for integers narrower than that.

    The reference widens integers while it adds, which saves a wider copy of the operand.
    """
    source = specs[0].dtype
    wide = {"bool": dtypes.int64, "int": dtypes.int64, "uint": dtypes.uint64}.get(source.kind)
    if dtype is None or dtype is wide:
        return (source, source) if wide is None else (None, wide)
    if dtype not in dtypes.NUMERIC:
        raise DTypeError(op.name, "cannot accumulate in", dtype, "a numeric dtype")
    if source.kind == "complex" and dtype.kind != "complex":
        hint = "real(x) or imag(x)"
        raise DTypeError(op.name, "would drop the imaginary part", source, dtype, hint)
    return dtype, dtype
