"""The last call of a compiled step, kept so that another one like it is known at a glance.

In a loop most calls give tensors of the same specs at the same addresses, or nothing at all. Then
the key of arguments, the check for shared memory and the choice of a graph would come out as
before: only the preconditions that do not depend on arguments are left to be asked.
"""

from __future__ import annotations

from typing import Any

from ruda.fusion.pytree import Given
from ruda.tensor.tensor import RudaTensor


class FastPath:
    """``whole``, the graph of ``program`` that ran, and what came with that call."""

    __slots__ = ("address", "mode", "places", "program", "whole")

    def __init__(self, program: Any, whole: Any, mode: Any, args: tuple[Any, ...]) -> None:
        self.program, self.whole, self.mode = program, whole, mode
        self.address = whole.client.address
        self.places = [
            (None, 0) if value.__class__ is float else (value.spec, self.address(value.handle))
            for value in args
        ]

    def matches(self, mode: Any, args: tuple[Any, ...]) -> bool:
        """Whether a call with positional arguments alone would end in the same graph."""
        if mode is not self.mode or len(args) != len(self.places) or self.whole.client.guarded:
            return False
        for value, (spec, place) in zip(args, self.places, strict=True):
            if spec is None:
                if value.__class__ is not float:
                    return False
            elif not _plain(value) or value.spec is not spec or self.address(value.handle) != place:
                return False
        return self.program.preconditions.unchanged()  # type: ignore[no-any-return]


def _plain(value: Any) -> bool:
    """Whether an argument is a tensor over memory of its own, without a node."""
    if value.__class__ is not RudaTensor or value.node is not None:
        return False
    return value.qparams is None and value.handle.root is None


def fast_path_of(program: Any, whole: Any, mode: Any, args: tuple[Any, ...]) -> FastPath | None:
    """The fast path of a call that has run; None where a glance at the next one would not do.

    That is where a graph copies its arguments, which may be elsewhere each time, and where they
    show memory of the state or of gradients, and where a budget is kept.
    """
    if whole is None or whole.graph is None or whole.arguments or whole.client.guarded:
        return None
    if (
        program.bounded
        or not program.preconditions.simple
        or not all(v.__class__ is float or _plain(v) for v in args)
    ):
        return None
    return FastPath(program, whole, mode, args)


def given_by(args: tuple[Any, ...]) -> Given:
    """Arguments that are leaves themselves, without the key of a call."""
    given = object.__new__(Given)
    given.leaves = [*args]
    return given
