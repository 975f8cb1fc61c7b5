"""The operator table: one row per operator, and the constructors of the kinds of row.

A row holds everything ruda knows of an operator: shape rule, dtype rule, NumPy reference, CUDA
expression, vjp, domain. What the constructors return is what users call: the row's entry closure
for primitives, the function itself for composites.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from ruda.core.dtypes import ARITHMETIC, DType
from ruda.ops import rules
from ruda.tensor.dispatch import OPS, Op

TABLE = OPS
Function = TypeVar("Function", bound=Callable[..., Any])


class FALLBACK(NamedTuple):
    """Why a row has no kernel of its own on a GPU.

    A row with a body runs the body there, on the same device; one without raises with the reason.
    """

    reason: str


class Composite:
    """A plain function of operators, listed in the table for its documentation and tests."""

    __slots__ = ("doc", "function", "name")

    grade = "composite"
    kind = "composite"

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self.function = function
        self.doc = function.__doc__ or ""

    def __repr__(self) -> str:
        return f"<ruda op {self.name}: composite>"


COMPOSITES: dict[str, Composite] = {}


def names(text: str) -> tuple[str, ...]:
    """``"x y"`` as ``("x", "y")``: how rows spell arguments, attributes and outputs."""
    return tuple(text.split())


def unary(
    name: str,
    numpy: Callable[..., Any],
    expr: str,
    vjp: Callable[..., Any] | None,
    doc: str,
    *,
    dtype: Callable[..., Any] = rules.floating,
    accepts: tuple[DType, ...] = ARITHMETIC,
    **columns: Any,
) -> Callable[..., Any]:
    """A row of one tensor, element by element; ``expr`` is CUDA C in ``x``."""
    rule = (vjp,) if vjp is not None else None
    op = Op(
        name,
        "unary",
        ("x",),
        shape=rules.same,
        dtype=dtype,
        numpy=numpy,
        expr=expr,
        vjp=rule,
        accepts=accepts,
        doc=doc,
        **columns,
    )
    return op.call


def binary(
    name: str,
    numpy: Callable[..., Any],
    expr: str,
    vjp: tuple[Any, Any] | None,
    doc: str,
    *,
    dtype: Callable[..., Any] = rules.promote,
    accepts: tuple[DType, ...] = ARITHMETIC,
    **columns: Any,
) -> Callable[..., Any]:
    """A row of two tensors that broadcast, element by element; ``expr`` is CUDA C in ``x, y``."""
    op = Op(
        name,
        "binary",
        ("x", "y"),
        shape=rules.broadcast,
        dtype=dtype,
        numpy=numpy,
        expr=expr,
        vjp=vjp,
        accepts=accepts,
        doc=doc,
        **columns,
    )
    return op.call


def row(kind: str, name: str, args: str, attrs: str = "", outs: str = "", **columns: Any) -> Any:
    """A row of any other kind: ``reduction scan view index library random dynamic create``.

    The result is called with the tensors and then the attributes, all by position and already
    normalised; a public function in front of it does that.
    """
    return Op(name, kind, names(args), names(attrs), outs=names(outs), **columns).call


def fused(
    name: str, args: str, attrs: str = "", outs: str = "", **columns: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A row whose meaning is the decorated body, a plain function of operators.

    A kernel or reference (``numpy``) is an optimisation that must agree with the body. Without a
    ``vjp`` the gradient comes from the body, and so do second and higher orders always.
    """

    def make(body: Callable[..., Any]) -> Callable[..., Any]:
        op = Op(
            name,
            "fused",
            names(args),
            names(attrs),
            outs=names(outs),
            grade="fused",
            body=body,
            doc=body.__doc__ or "",
            **columns,
        )
        return op.call

    return make


def composite(function: Function) -> Function:
    """List ``function``, which is written in operators alone, in the table."""
    name = function.__name__.rstrip("_")
    COMPOSITES[name] = Composite(name, function)
    return function
