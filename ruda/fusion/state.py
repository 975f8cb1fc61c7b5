"""The handles from outside that a trace meets, each with the symbol that stands for it.

A base handle becomes a cell: a symbol that remembers it and what is assigned to it.
"""

from __future__ import annotations

from typing import Any

from ruda.core.spec import Spec
from ruda.fusion.graph import Graph, Value
from ruda.fusion.sources import Held
from ruda.fusion.symbols import Symbol, SymbolView


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
