"""Where a replay fetches the values of a graph's inputs from: arguments, state, gradients, draws.

Handles of state are held by identity; those of arguments and gradients are fetched at each call
from where they are then.
"""

from __future__ import annotations

from typing import Any


class Held:
    """A handle of state, the same at each call."""

    __slots__ = ("handle", "kind", "name")

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.kind = "state"
        self.name = "state"

    def __repr__(self) -> str:
        return self.name

    def fetch(self, given: Any) -> Any:
        """The handle."""
        return self.handle


class Argument:
    """The handle of a tensor argument, or the base handle that it shows memory of."""

    __slots__ = ("index", "kind", "name", "whole")

    def __init__(self, index: int, name: str, whole: bool = False) -> None:
        self.index = index
        self.kind = "argument"
        self.name = name
        self.whole = whole

    def __repr__(self) -> str:
        return f"base of {self.name}" if self.whole else self.name

    def fetch(self, given: Any) -> Any:
        """The handle in this call."""
        handle = given.leaves[self.index].handle
        return (handle.root or handle) if self.whole else handle

    def base(self) -> Argument:
        """The source of the memory that the argument shows."""
        return Argument(self.index, self.name, True)


class LeafOf:
    """A leaf of the tape: one of the state, or that of a tensor argument."""

    __slots__ = ("index", "leaf")

    def __init__(self, leaf: Any, index: int | None) -> None:
        self.leaf = leaf
        self.index = index

    def fetch(self, given: Any) -> Any:
        """The leaf in this call."""
        return self.leaf if self.index is None else given.leaves[self.index].node


class Gradient:
    """The base handle of the gradient that a leaf has when the call begins."""

    __slots__ = ("kind", "leaf", "name")

    def __init__(self, leaf: LeafOf) -> None:
        self.leaf = leaf
        self.kind = "gradient"
        self.name = "gradient"

    def __repr__(self) -> str:
        return self.name

    def fetch(self, given: Any) -> Any:
        """The handle in this call."""
        return self.leaf.fetch(given).grad.handle


class Scalar:
    """A float argument."""

    __slots__ = ("index", "kind", "name")

    def __init__(self, index: int, name: str) -> None:
        self.index = index
        self.kind = "scalar"
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def fetch(self, given: Any) -> Any:
        """The float in this call."""
        return given.leaves[self.index]


class Draw:
    """The seed of a generator, or a draw number counted from where the call found it."""

    __slots__ = ("generator", "kind", "name", "step")

    def __init__(self, generator: Any, step: int | None) -> None:
        self.generator = generator
        self.step = step
        self.kind = "scalar"
        self.name = "seed" if step is None else f"draw+{step}"

    def __repr__(self) -> str:
        return self.name

    def fetch(self, given: Any) -> Any:
        """The number in this call."""
        generator = self.generator
        return generator.seed if self.step is None else generator.draw + self.step
