"""What operators on matrices share: rows and their shape rules, triangles, spans of a matrix."""

from __future__ import annotations

from typing import Any

from ruda.core.dtypes import PRECISE
from ruda.core.errors import ShapeError
from ruda.core.shapes import Shape
from ruda.ops import rules
from ruda.ops.diagonal import eye, tril, triu
from ruda.ops.movement import broadcast_to
from ruda.ops.reference import lapack
from ruda.ops.rules import Specs
from ruda.ops.strides import span
from ruda.ops.table import row


def lapack_row(name: str, args: str = "x", attrs: str = "", outs: str = "", **columns: Any) -> Any:
    """A row whose reference is the function ``name`` of ``reference.lapack``."""
    numpy = getattr(lapack, name)
    columns = {"dtype": rules.promote, "accepts": PRECISE, "bound": "compute", **columns}
    return row("library", name, args, attrs, outs, numpy=numpy, **columns)


def matrix(op: Any, specs: Specs, *_: Any) -> Shape:
    """The shape of the first operand, which must hold matrices."""
    if specs[0].ndim < 2:
        raise ShapeError(op.name, "needs matrices", specs[0].shape, "x [..., m, n]")
    return specs[0].shape


def square_matrix(op: Any, specs: Specs, *_: Any) -> Shape:
    """The shape of the first operand, which must hold square matrices."""
    shape = matrix(op, specs)
    if shape[-1] != shape[-2]:
        raise ShapeError(op.name, "needs square matrices", shape, "x [..., n, n]")
    return shape


def lower_half(x: Any) -> Any:
    """The part of ``x`` below the diagonal, with half of the diagonal."""
    return (tril(x) + tril(x, k=-1)) / 2


def upper_half(x: Any) -> Any:
    """The part of ``x`` above the diagonal, with half of the diagonal."""
    return (triu(x) + triu(x, k=1)) / 2


def rows(x: Any, start: int, stop: int) -> Any:
    """``x[..., start:stop, :]``; a view."""
    return span(x, x.ndim - 2, start, stop)


def columns(x: Any, start: int, stop: int) -> Any:
    """``x[..., start:stop]``; a view."""
    return span(x, x.ndim - 1, start, stop)


def identity_like(x: Any) -> Any:
    """Identity matrices in the shape, dtype and place of ``x [..., n, n]``."""
    return broadcast_to(eye(x.shape[-1], dtype=x.dtype, device=x.device), x.shape)
