"""The recorded part of a compiled step's outputs, made anew for each replay.

When backward is called outside of the compiled function, the outputs need the nodes that the trace
recorded, with the values of this replay in place of symbols.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.fusion.graph import Value
from ruda.fusion.lines import refusal
from ruda.fusion.symbols import Symbol, SymbolView, TracedInt
from ruda.tensor.node import Leaf, Node, Output

_VERSIONS = {"sx": "vx", "sy": "vy", "sz": "vz", "out": "vout"}


class _Saved:
    """A saved handle: which value it is, and whether it was changed after it was saved."""

    __slots__ = ("stale", "value")

    def __init__(self, value: Any, stale: bool) -> None:
        self.value = value
        self.stale = stale


class _Pattern:
    """What to make one node from."""

    __slots__ = ("edges", "freed", "hooks", "plan", "saved")

    def __init__(self, node: Node) -> None:
        self.plan = node.plan
        self.freed = getattr(node, "freed", False)
        self.hooks = list(getattr(node, "hooks", None) or ())
        self.edges: list[Any] = []
        self.saved: dict[str, Any] = {}


class Tape:
    """The patterns of all nodes below the outputs, inputs before users."""

    def __init__(self, tracer: Any) -> None:
        self.tracer = tracer
        self.patterns: list[_Pattern] = []
        self.places: dict[Node, int] = {}
        # Nodes of tensor arguments, which are other ones in each call.
        self.arguments: dict[Any, int] = {}

    def add(self, node: Any) -> Any:
        """A reference to ``node`` for ``made``: (kind, what) or None."""
        if node is None:
            return None
        if node in self.arguments:
            return ("argument", self.arguments[node])
        if node.__class__ is Output and node.node in self.tracer.nodes:
            return ("output", (self._place(node.node), node.index, getattr(node, "hooks", None)))
        if node.__class__ is Node and node in self.tracer.nodes:
            return ("node", self._place(node))
        return ("outside", node) if node.__class__ is not Leaf else self._leaf(node)

    def _leaf(self, leaf: Leaf) -> Any:
        return ("outside" if self.tracer.is_outside(leaf) else "leaf", leaf)

    def _place(self, root: Node) -> int:
        """The place of ``root``'s pattern; those below it are made first."""
        stack = [root]
        while stack:
            node = stack[-1]
            if node in self.places:
                stack.pop()
                continue
            below = [] if getattr(node, "freed", False) else self._below(node)
            if below:
                stack += below
                continue
            stack.pop()
            self.places[node] = len(self.patterns)
            self.patterns.append(self._pattern(node))
        return self.places[root]

    def _below(self, node: Node) -> list[Node]:
        edges = [e.node if e.__class__ is Output else e for e in node.edges()]
        traced = self.tracer.nodes
        return [e for e in edges if e.__class__ is Node and e in traced and e not in self.places]

    def _pattern(self, node: Node) -> _Pattern:
        pattern = _Pattern(node)
        if pattern.freed not in (False, True):
            what = "an output depends on a checkpoint, whose second run would be outside"
            raise refusal("compile", what, hint="calling backward inside of the compiled step")
        if pattern.freed:
            # Backward through it raises whatever lies below: no need to keep more.
            pattern.edges = [None if e is None else ("leaf", None) for e in node.edges()]
            return pattern
        pattern.edges = [self.add(edge) for edge in node.edges()]
        for saved, version in _VERSIONS.items():
            if hasattr(node, saved):
                handle = getattr(node, saved)
                pattern.saved[saved] = _kept(handle, getattr(node, version, None))
        return pattern

    def forget(self) -> None:
        """Let go of the trace."""
        del self.tracer
        self.places.clear()
        self.arguments.clear()

    def values(self) -> list[Value]:
        """The values that the nodes save."""
        found: list[Value] = []
        for pattern in self.patterns:
            for saved in pattern.saved.values():
                items = saved if isinstance(saved, tuple) else (saved,)
                found += [s.value for s in items if isinstance(s, _Saved)]
        return found

    def made(self, given: Any, look: Callable[[Value], Any]) -> Callable[[Any], Any]:
        """The nodes of one replay: a function from references to nodes."""
        nodes: list[Node] = []
        leaves: dict[Leaf | None, Leaf] = {}

        def find(reference: Any) -> Any:
            if reference is None:
                return None
            kind, what = reference
            if kind == "argument":
                return given.leaves[what].node
            if kind == "outside":
                return what
            if kind == "leaf":
                return leaves.setdefault(what, Leaf())
            if kind == "node":
                return nodes[what]
            output = Output(nodes[what[0]], what[1])
            if what[2]:
                output.hooks = list(what[2])
            return output

        for pattern in self.patterns:
            nodes.append(_made(pattern, [find(edge) for edge in pattern.edges], look))
        return find


def _kept(handle: Any, version: Any) -> Any:
    if isinstance(handle, tuple) and isinstance(version, tuple):
        return tuple(_kept(h, v) for h, v in zip(handle, version, strict=True))
    if isinstance(handle, TracedInt):
        return _Saved(handle.value, False)
    if not isinstance(handle, Symbol | SymbolView):
        return handle
    value = handle.at(version)
    if value is None:
        value = handle.at(min(handle.shown))  # type: ignore[union-attr]
    return _Saved(value, handle.version != version)


def _made(pattern: _Pattern, edges: list[Any], look: Callable[[Value], Any]) -> Node:
    node = Node()
    node.plan = pattern.plan
    if len(node.plan.specs) > 3:
        node.x = tuple(edges)
    else:
        for name, edge in zip("xyz", edges, strict=False):
            setattr(node, name, edge)
    if pattern.hooks:
        node.hooks = list(pattern.hooks)  # type: ignore[attr-defined]
    if pattern.freed:
        node.freed = True
    for saved, item in pattern.saved.items():
        handle, number = _filled(item, look)
        setattr(node, saved, handle)
        setattr(node, _VERSIONS[saved], number)
    return node


def _filled(saved: Any, look: Callable[[Value], Any]) -> tuple[Any, Any]:
    """The handle (or handles) of this replay and the version it counts as saved at."""
    if saved.__class__ is tuple:
        pairs = [_filled(item, look) for item in saved]
        return tuple(h for h, _ in pairs), tuple(v for _, v in pairs)
    if not isinstance(saved, _Saved):
        return saved, getattr(saved, "version", None)
    handle = look(saved.value)
    return handle, handle.version - 1 if saved.stale else getattr(handle, "version", None)
