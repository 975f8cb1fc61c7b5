"""Operators of the user's own: name, forward, shape and dtype rules and gradient in one place."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ruda.core.dtypes import as_dtype
from ruda.core.errors import ArgumentError, GradientError
from ruda.core.shapes import broadcast_shapes
from ruda.ops import rules
from ruda.tensor.dispatch import OPS, Op
from ruda.tensor.launch import slow

Function = Callable[..., Any]


def custom_op(
    fn: Function | None = None,
    *,
    name: str | None = None,
    shape: Function | None = None,
    dtype: Any = None,
    vjp: Any = None,
) -> Any:
    """Make an operator of a NumPy function; works eagerly, under gradients and in compiled steps.

    The decorated function gets ndarrays and returns one; its positional parameters are the tensors,
    its keyword-only ones are attributes (numbers, strings, tuples). ``shape`` maps the operands'
    shapes and the attributes to the result's shape (default: they broadcast), ``dtype`` is the
    result's (default: the promoted one). ``vjp`` is a function per tensor, a tuple of them, written
    in ruda operators; their parameter names say what they want: ``g``, the cotangent, ``out``, the
    result, or the name of a tensor or attribute. Without it, asking for a gradient raises.

    What it gives has to follow from its operands alone: a compiled step calls it once where it is
    called twice with the same ones, and not at all where nobody needs the result. Random numbers
    are an operand.

    Check what you wrote with ``ruda.testing.check_op``.

    >>> @ruda.custom_op(vjp=lambda g, x: g * 3.0 * x * x)
    ... def cube(x):
    ...     return x**3
    >>> cube(ruda.asarray([2.0])).tolist()
    [8.0]
    """
    if fn is None:
        return lambda f: custom_op(f, name=name, shape=shape, dtype=dtype, vjp=vjp)
    args, attrs = _parameters(fn)
    title = name or fn.__name__
    known = OPS.get(title)
    if known is not None and known.grade != "custom":
        hint = f'custom_op(..., name="my_{title}")'
        raise ArgumentError("custom_op", "the name is an operator of ruda", title, hint=hint)
    op = Op(
        title,
        "library",
        args,
        attrs,
        grade="custom",
        shape=_shape_rule(shape),
        dtype=_dtype_rule(dtype),
        numpy=_reference(fn, len(args), attrs),
        vjp=_vjps(vjp, title, args, attrs),
        doc=inspect.getdoc(fn) or f"Custom operator {title}.",
    )
    return _public(op, fn, attrs)


def _reference(fn: Function, arity: int, attrs: tuple[str, ...]) -> Function:
    """``fn`` called with ndarrays it cannot write to: an operator never changes its inputs."""

    def guarded(value: Any) -> Any:
        if hasattr(value, "flags"):
            value = value.view()
            value.flags.writeable = False
        return value

    def run(*values: Any) -> Any:
        arrays = [guarded(value) for value in values[:arity]]
        return fn(*arrays, **dict(zip(attrs, values[arity:], strict=True)))

    return run


def _parameters(fn: Function) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the tensors and of the attributes of ``fn``."""
    parameters = inspect.signature(fn).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    args = tuple(p.name for p in parameters if p.kind in positional)
    attrs = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
    if not args or any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        expected = "at least one tensor parameter, and no *args or **kwargs"
        got = str(inspect.signature(fn))
        raise ArgumentError("custom_op", "cannot tell the operands", got, expected)
    return args, attrs


def _shape_rule(shape: Function | None) -> Function:
    def rule(op: Any, specs: Any, *attrs: Any) -> Any:
        shapes = [s.shape for s in specs]
        if shape is None:
            return broadcast_shapes(op.name, *shapes)
        return tuple(shape(*shapes, **dict(zip(op.attrs, attrs, strict=True))))

    return rule


def _dtype_rule(dtype: Any) -> Function:
    if dtype is None:
        return rules.promote
    fixed = as_dtype(dtype, "custom_op")
    return lambda op, specs, *attrs: ((None,) * len(specs), fixed)


def _vjps(vjp: Any, name: str, args: tuple[str, ...], attrs: tuple[str, ...]) -> Any:
    if vjp is None:

        def missing(g: Any) -> Any:
            raise GradientError(name, "has no gradient", hint="custom_op(vjp=...)")

        return (missing,) * len(args)
    rules_ = vjp if isinstance(vjp, tuple) else (vjp,)
    if len(rules_) != len(args):
        expected = f"{len(args)}: of {', '.join(args)}"
        raise ArgumentError("custom_op", "one vjp per tensor is needed", len(rules_), expected)
    known = ("g", "out", *args, *attrs)
    for rule in rules_:
        asked = tuple(inspect.signature(rule).parameters)
        if not {*asked} <= {*known, *(f"{arg}_spec" for arg in args)}:
            expected = f"names among {', '.join(known)}"
            raise ArgumentError("custom_op", "a vjp asks for what is not there", asked, expected)
    return rules_


def _public(op: Op, fn: Function, attrs: tuple[str, ...]) -> Function:
    """The function that users call: tensors by position, attributes by keyword with defaults."""
    signature = inspect.signature(fn)
    defaults = {n: signature.parameters[n].default for n in attrs}

    def call(*tensors: Any, **given: Any) -> Any:
        unknown = given.keys() - defaults.keys()
        missing = [
            n for n, d in defaults.items() if n not in given and d is inspect.Parameter.empty
        ]
        if unknown or missing or len(tensors) != len(op.args):
            got = f"{len(tensors)} tensors and {sorted(given)}"
            raise ArgumentError(op.name, "does not fit the signature", got, str(signature))
        values = tuple(given.get(n, d) for n, d in defaults.items())
        return slow(op, tensors, values)

    call.__name__ = call.__qualname__ = op.name
    call.__doc__ = op.doc
    call.op = op  # type: ignore[attr-defined]
    return call
