"""What a traced function leaves behind: outputs, gradients, new contents of state."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from ruda.fusion.graph import Value
from ruda.fusion.lines import refusal
from ruda.fusion.pytree import Given, rebuilt, refuse_loop
from ruda.fusion.symbols import Symbol, SymbolView, TracedInt
from ruda.fusion.tape import Tape
from ruda.fusion.tracer import Tracer
from ruda.ops.movement import copy
from ruda.tensor.node import Leaf
from ruda.tensor.tensor import RudaTensor, wrap
from ruda.tensor.views import note, register_view

# Objects that are looked through for a tensor inside of a result.
_MOST = 1000


class Made:
    """A tensor or scalar that each replay makes: its value, spec, and the reference to its node."""

    __slots__ = ("node", "spec", "value")

    def __init__(self, value: Value, spec: Any, node: Any) -> None:
        self.value = value
        self.spec = spec
        self.node = node


class Results:
    """Collected while the trace still runs, because copies of what is aliased are operators too.

    ``out`` is the result with a ``Made`` for each tensor and traced scalar. ``grads`` pairs leaves
    with the tensor they get, None to drop theirs. ``writes`` pairs cells with their last value.
    """

    def __init__(self, tracer: Tracer, out: Any) -> None:
        self.tracer = tracer
        self.tape = Tape(tracer)
        self._tensors: dict[int, tuple[RudaTensor, Made]] = {}
        # Memory that belongs to a gradient: neither an output nor another gradient may have it.
        self._taken: set[Value] = set()
        self.grads = self._gradients()
        try:
            self.out = rebuilt(out, self._output)
        except RecursionError:
            refuse_loop(out, "the result")
            raise
        self.writes = [(cell, self._owned(cell.history[-1])) for cell in tracer.cells.changed()]

    def seal(self, given: Given) -> None:
        """The trace is over: refer to the nodes below the outputs."""
        for leaf, i in self.tracer.argument_leaves.items():
            self.tape.arguments[leaf] = i
        for i, value in enumerate(given.leaves):
            if value.__class__ is RudaTensor and value.node is not None:
                self.tape.arguments.setdefault(value.node, i)
        made = [made for _, made in self._tensors.values()]
        for item in (*made, *(grad for _, grad in self.grads if grad is not None)):
            node = item.node
            item.node = self.tape.add(node)
            if item.node and item.node[0] == "leaf" and self.tracer.grads.get(node) is not None:
                what = "an output that was made a leaf inside the step has a gradient"
                raise refusal("compile", what, hint="returning the gradient itself")

    def values(self) -> list[Value]:
        """All values that a replay has to keep to the end."""
        return [*self.shown(), *(v for _, v in self.writes)]

    def shown(self) -> list[Value]:
        """Those that are looked at from outside."""
        made = [made.value for _, made in self._tensors.values()]
        made += [grad.value for _, grad in self.grads if grad is not None]
        return [*made, *self.scalars, *self.tape.values()]

    def _gradients(self) -> list[tuple[Leaf, Made | None]]:
        tracer = self.tracer
        self.scalars: list[Value] = []
        out: list[tuple[Leaf, Made | None]] = []
        for leaf, grad in list(tracer.grads.items()):
            if grad is tracer.first_grads[leaf] or leaf in tracer.inner:
                continue
            if grad is None:
                out.append((leaf, None))
                continue
            value = tracer.value(tracer.symbol(grad.handle, grad.spec))
            if value.borrowed or value.memory is not value or value in self._taken:
                grad = copy(grad)
                value = tracer.value(grad.handle)
            self._taken.add(value)
            out.append((leaf, Made(value, grad.spec, grad.node)))
        return out

    def _output(self, leaf: Any) -> Any:
        if isinstance(leaf, TracedInt):
            self.scalars.append(leaf.value)
            return Made(leaf.value, None, None)
        if leaf.__class__ is not RudaTensor:
            known = any(found is leaf for found in self.tracer.objects)
            if not known and _holds(leaf):
                what = "an object that holds tensors is returned"
                hint = "a tuple, dict or dataclass"
                raise refusal("compile", what, type(leaf).__name__, hint)
            return leaf
        found = self._tensors.get(id(leaf))
        if found is None:
            found = self._tensors[id(leaf)] = (leaf, self._made(leaf))
        return found[1]

    def _made(self, tensor: RudaTensor) -> Made:
        value = self.tracer.value(self.tracer.symbol(tensor.handle, tensor.spec))
        if value.borrowed or value.memory in self._taken:
            tensor = copy(tensor)
            value = self.tracer.value(tensor.handle)
        return Made(value, tensor.spec, tensor.node)

    def _owned(self, value: Value) -> Value:
        """``value`` in memory of its own: what it shows may be overwritten by the same commit."""
        if not value.borrowed:
            return value
        return self.tracer.apply("copy", [(value, value.spec)], ())  # type: ignore[no-any-return]

    def forget(self) -> None:
        """Let go of the trace, whose symbols hold on to the arguments of its call."""
        self.tape.forget()
        del self.tracer
        self._tensors.clear()
        self.writes.clear()

    def filled(self, given: Given, look: Callable[[Value], Any]) -> tuple[Any, list[Any]]:
        """The outputs and the gradients of one replay."""
        node_of = self.tape.made(given, look)
        one = self.out
        if one.__class__ is Made and one.spec is not None and not self.grads:
            # A loss, as a rule: there is nothing to put together.
            tensor = wrap(one.spec, look(one.value), node_of(one.node))
            if tensor.handle.root is not None:
                _relate([tensor])
            return tensor, []
        tensors: dict[int, RudaTensor] = {}

        def fill(item: Any) -> Any:
            if item.__class__ is not Made:
                return item
            if item.spec is None:
                return look(item.value)
            found = tensors.get(id(item))
            if found is None:
                found = wrap(item.spec, look(item.value), node_of(item.node))
                tensors[id(item)] = found
            return found

        out = rebuilt(self.out, fill)
        _relate(list(tensors.values()))
        return out, [fill(grad) for _, grad in self.grads]


def _relate(tensors: list[RudaTensor]) -> None:
    """Tell outputs that show the memory of another output of their relation."""
    bases = {id(t.handle): t for t in tensors if t.handle.root is None}
    for tensor in tensors:
        root = tensor.handle.root
        if root is None:
            continue
        base = bases.get(id(root))
        if base is None:
            note(root, tensor)
        else:
            register_view(base, tensor)


def _holds(value: Any) -> bool:
    """Whether ``value`` has a tensor for a field, or one of the trace somewhere inside.

    An iterator counts too: it would be at its end in the second call.
    """
    fields = getattr(value, "__dict__", None) or {}
    if isinstance(value, Iterator) or any(x.__class__ is RudaTensor for x in fields.values()):
        return True
    stack, seen = [value], {id(None)}
    while stack and len(seen) < _MOST:
        found = stack.pop()
        if id(found) in seen or isinstance(found, type | ModuleType | Tracer):
            continue
        seen.add(id(found))
        if found.__class__ is RudaTensor:
            if isinstance(found.handle, Symbol | SymbolView):
                return True
        elif found.__class__ is not dict or "__builtins__" not in found:
            stack += gc.get_referents(found)
    return False
