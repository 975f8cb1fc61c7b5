"""What stands for a handle or a scalar while tracing.

A symbol is to the graph what a handle is to memory: a base with a version, or a view of one. It
knows which value it shows, now and at each earlier version.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ruda.core.spec import Spec
from ruda.fusion.graph import Value
from ruda.fusion.lines import refusal
from ruda.tensor.operands import WeakScalar
from ruda.tensor.tensor import RudaTensor


def _gone(*_: Any) -> Any:
    what = "the tensor belongs to a trace and is used outside of it"
    raise refusal("compile", what, hint="returning it from the compiled function")


class Symbol:
    """A base handle of the trace. ``real`` is the handle it stands for, None for a new tensor."""

    __slots__ = ("__weakref__", "history", "real", "spec", "tracer", "views")

    root = None
    offset = 0
    array = address = block = property(_gone)

    def __init__(self, tracer: Any, value: Value, spec: Spec | None, real: Any = None) -> None:
        self.tracer = tracer
        self.history = [value]
        self.spec = spec
        self.real = real
        self.views: list[Any] | None = None

    @property
    def version(self) -> int:
        """How often the trace has assigned to it."""
        return len(self.history) - 1

    def at(self, version: int) -> Value | None:
        """The value at ``version``."""
        return self.history[version]


class SymbolView:
    """A view handle of the trace: a window of ``base``; ``root`` is what real code sees as root."""

    __slots__ = ("__weakref__", "base", "offset", "owner", "real", "root", "shown", "spec")

    array = address = block = property(_gone)

    def __init__(self, base: Symbol, offset: int, spec: Spec, value: Value, real: Any) -> None:
        self.base = base
        self.root = base if base.real is None else base.real
        self.offset = offset
        self.spec = spec
        self.owner: Any = None
        self.real = real
        self.shown = {base.version: value}

    @property
    def tracer(self) -> Any:
        """The trace that the view belongs to."""
        return self.base.tracer

    @property
    def whole(self) -> bool:
        """Whether it shows all of its base, element by element in the order of the memory."""
        own, base = self.spec, self.base.spec
        if base is None or self.offset or not (own.contiguous and base.contiguous):
            return False
        return own.size == base.size and own.dtype is base.dtype

    @property
    def version(self) -> int:
        """The version of the base."""
        return self.base.version

    def at(self, version: int) -> Value | None:
        """The value at ``version``, None if nobody looked at the view then."""
        return self.shown.get(version)


class TracedInt(WeakScalar):
    """An integer that each replay renews: a seed or a draw number."""

    __slots__ = ("name", "tracer", "value")

    kind = "int"

    def __init__(self, tracer: Any, value: Value, name: str) -> None:
        self.tracer = tracer
        self.value = value
        self.name = name

    def __repr__(self) -> str:
        return f"<traced {self.kind} {self.name}>"

    def _unknown(self, *_: Any) -> Any:
        what = f"the value of the {self.kind} {self.name} is needed while tracing"
        hint = "ruda operators on it, or a 0-d tensor; an int or str argument may steer Python code"
        raise refusal("compile", what, hint=hint)

    __bool__ = __int__ = __float__ = __index__ = __complex__ = __str__ = __format__ = _unknown
    def _compare(self, other: Any) -> Any:
        """Beside a tensor that is for the tensor to say."""
        return NotImplemented if isinstance(other, RudaTensor) else self._unknown()

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _compare
    __round__ = __trunc__ = __floor__ = __ceil__ = __divmod__ = __rdivmod__ = _unknown
    __hash__ = None  # type: ignore[assignment]


def _power(x: Any, y: Any) -> float:
    result = x**y
    if result.__class__ is not float:
        raise ValueError(f"{x} ** {y} is not a real number, which the compiled step was traced for")
    return result


class TracedFloat(TracedInt):
    """A float argument: arithmetic among such and Python numbers is that of Python, per replay."""

    __slots__ = ()

    kind = "float"


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": _power,
}


def _calculate(name: str, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    if not all(isinstance(x, TracedFloat | int | float) for x in operands):
        return NotImplemented
    tracer = next(x.tracer for x in operands if isinstance(x, TracedFloat))
    value = tracer.graph.scalar(name, function, [tracer.value(x) for x in operands])
    return TracedFloat(tracer, value, f"{name}(...)")


def _attach() -> None:
    def binary(name: str, function: Callable[..., Any]) -> tuple[Any, Any]:
        return (
            lambda x, y: _calculate(name, function, (x, y)),
            lambda y, x: _calculate(name, function, (x, y)),
        )

    for name, function in _OPERATIONS.items():
        forward, reflected = binary(name, function)
        setattr(TracedFloat, f"__{name}__", forward)
        setattr(TracedFloat, f"__r{name}__", reflected)
    TracedFloat.__neg__ = lambda x: _calculate("neg", operator.neg, (x,))  # type: ignore[operator]
    TracedFloat.__pos__ = lambda x: x  # type: ignore[operator]
    TracedFloat.__abs__ = lambda x: _calculate("abs", operator.abs, (x,))  # type: ignore[attr-defined]


_attach()
