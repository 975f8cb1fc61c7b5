"""What one executed operator leaves behind for backward, and what a leaf carries.

A node never holds its own tensor: saved values are kept as handles with the version they had, and
are wrapped again during backward. Memory is therefore freed by reference count alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ruda.core.errors import GradientError
from ruda.core.mode import MODE

if TYPE_CHECKING:
    from ruda.tensor.dispatch import Plan


class Leaf:
    """The node of a tensor that the user asked gradients for: its gradient and its hooks."""

    __slots__ = ("__weakref__", "grad", "hooks")

    def __init__(self) -> None:
        self.grad: Any = None
        self.hooks: list[Callable[[Any], Any]] | None = None


class Node:
    """One executed operator: its plan, the nodes of its inputs and the values its vjps name.

    Up to three inputs lie in the slots ``x y z`` (saved handles in ``sx sy sz``, their versions in
    ``vx vy vz``) because a tuple would be one more object for the garbage collector to follow;
    operators with more inputs keep tuples in ``x``, ``sx`` and ``vx``.
    """

    __slots__ = (
        "__weakref__",
        "freed",
        "hooks",
        "out",
        "plan",
        "sx",
        "sy",
        "sz",
        "vout",
        "vx",
        "vy",
        "vz",
        "x",
        "y",
        "z",
    )

    plan: Plan
    x: Any
    y: Any
    z: Any
    sx: Any
    sy: Any
    sz: Any
    vx: Any
    vy: Any
    vz: Any
    out: Any
    vout: Any

    def edges(self) -> tuple[Any, ...]:
        """The nodes of the inputs, None where an input was not tracked."""
        arity = len(self.plan.specs)
        if arity == 1:
            return (self.x,)
        if arity == 2:
            return (self.x, self.y)
        if arity == 3:
            return (self.x, self.y, self.z)
        return self.x  # type: ignore[no-any-return]

    def saved(self, i: int) -> tuple[Any, Any]:
        """Handle and version of saved input ``i``; raises when backward already freed it."""
        node = self if getattr(self, "freed", False) is False else self.alive()
        if len(self.plan.specs) > 3:
            return node.sx[i], node.vx[i]
        if i == 0:
            return node.sx, node.vx
        return (node.sy, node.vy) if i == 1 else (node.sz, node.vz)

    def saved_output(self) -> tuple[Any, Any]:
        """Handle (or handles) and version of the saved output."""
        node = self if getattr(self, "freed", False) is False else self.alive()
        return node.out, node.vout

    def alive(self) -> Node:
        """The twin from a second run that has the values which this node had to give up."""
        state: Any = self.freed
        if state is True:
            what = f"what {self.plan.op.name} saved was already freed"
            hint = "backward(retain_graph=True) the first time, or computing the loss anew"
            raise GradientError("backward", what, hint=hint)
        return state.twin(self)  # type: ignore[no-any-return]

    def free(self, state: Any = True) -> None:
        """Drop the saved values; a second backward raises, or asks ``state`` for a twin."""
        if self.plan.op.holds:
            before: Any = getattr(self, "freed", False)
            if before is not False and before is not True:
                before.release(self)
            self.sx = self.sy = self.sz = self.out = None
            self.freed = state


class Output:
    """The node of one output of an operator with several: which node, and which output."""

    __slots__ = ("__weakref__", "hooks", "index", "node")

    hooks: list[Any]

    def __init__(self, node: Node, index: int) -> None:
        self.node = node
        self.index = index


def visiting(order: Sequence[tuple[Any, Any]]) -> None:
    """Inside a trace, refuse a backward walk over nodes from outside of it; edges lie beside."""
    tracer = MODE.get().tracer
    if tracer is not None:
        tracer.visiting([node for node, _ in order])


def grad_of(leaf: Leaf) -> Any:
    """The gradient of ``leaf``; inside a trace, as the trace sees it."""
    tracer = MODE.get().tracer
    return leaf.grad if tracer is None else tracer.get_grad(leaf)


def gradients(tensors: Sequence[Any]) -> list[Any]:
    """The gradient of each tensor, None where it has none."""
    if MODE.get().tracer is not None:
        return [t.grad for t in tensors]
    return [t.node.grad if t.node.__class__ is Leaf else None for t in tensors]


def drop_gradients(tensors: Iterable[Any]) -> None:
    """Let the leaves among ``tensors`` have no gradient."""
    tracer = MODE.get().tracer
    for t in tensors:
        leaf = t.node
        if leaf.__class__ is Leaf:
            if tracer is None:
                leaf.grad = None
            elif tracer.get_grad(leaf) is not None:
                tracer.set_grad(leaf, None)


def set_grad(leaf: Leaf, value: Any) -> None:
    """Set the gradient of ``leaf``; inside a trace, for the trace alone."""
    tracer = MODE.get().tracer
    if tracer is None:
        leaf.grad = value
    else:
        tracer.set_grad(leaf, value)
