"""Where the values of a trace come from and where they go: arguments, state, gradients, draws.

A base handle that the trace meets becomes a cell, a symbol that remembers it. Handles of state are
held by identity; those of arguments and gradients are fetched at each call from where they were.
"""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import starmap
from operator import call
from typing import Any

from ruda.core.spec import Spec
from ruda.fusion.graph import Graph, Value
from ruda.fusion.symbols import Symbol, SymbolView


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


class Cells:
    """The handles from outside that a trace has met, each with its symbol."""

    def __init__(self, tracer: Any, graph: Graph) -> None:
        self.tracer = tracer
        self.graph = graph
        self.bases: dict[int, Symbol] = {}
        self.views: dict[int, SymbolView] = {}
        self.sources: dict[int, Any] = {}
        # Sources are found by the id of a handle, which must not be free for another meanwhile.
        self.kept: list[Any] = []

    def declare(self, handle: Any, source: Any) -> None:
        """Say that ``handle`` is to be fetched from ``source`` and not held."""
        self.kept.append(handle)
        self.sources.setdefault(id(handle), source)
        if handle.root is not None:
            self.kept.append(handle.root)
            self.sources.setdefault(id(handle.root), source.base())

    def symbol(self, handle: Any, spec: Spec) -> Symbol | SymbolView:
        """The symbol of a real handle, made when it is first met."""
        if handle.root is None:
            return self.base(handle)
        found = self.views.get(id(handle))
        if found is None:
            base = self.base(handle.root)
            first = base.history[0]
            # All of a state's memory is that state: what is moved to a device is such a view.
            whole = handle.offset == 0 and spec is base.spec and first.kind == "state"
            value = first if whole else self._input(handle, spec)
            self.kept.append(handle)
            found = SymbolView(base, handle.offset, spec, value, handle)
            found.shown = {0: value}
            self.views[id(handle)] = found
        return found

    def base(self, handle: Any) -> Symbol:
        """The cell of a real base handle."""
        found = self.bases.get(id(handle))
        if found is None:
            spec = self.tracer.client.base(handle)
            found = Symbol(self.tracer, self._input(handle, spec), spec, handle)
            self.bases[id(handle)] = found
        return found

    def _input(self, handle: Any, spec: Spec) -> Value:
        self.kept.append(handle)
        source = self.sources.setdefault(id(handle), Held(handle))
        return self.graph.input(source.kind, spec, source)

    def changed(self) -> list[Symbol]:
        """The cells that the trace has assigned to."""
        return [cell for cell in self.bases.values() if cell.version]


def commit(calls: Iterable[tuple[Any, ...]]) -> None:
    """Make all ``calls`` or, when interrupted before the first, none.

    The loop, and each call if it is of a C function, runs no Python code, and only between two
    steps of Python code does an interrupt from the keyboard become an exception.
    """
    deque(starmap(call, calls), maxlen=0)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """An interrupt from the keyboard is heard at the end of the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda *what: heard.append(what))
    try:
        yield
    finally:
        # One that was set from outside of Python comes back as None and cannot be put back.
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
        if heard and callable(before):
            before(*heard[0])
