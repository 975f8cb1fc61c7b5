"""The backward walk: from an output's node to the leaves, each node once, in topological order.

A row's vjp is written in public operators, so with ``create_graph`` the walk records itself and
gradients of gradients need nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ruda.autodiff.pieces import SLICE, Pieces, met, sliced
from ruda.autodiff.rules import cotangents
from ruda.autodiff.shaping import fitted
from ruda.core.errors import DeviceError, DTypeError, GradientError, ShapeError
from ruda.core.mode import pulling
from ruda.ops.arith import add
from ruda.ops.create import ones_like
from ruda.ops.movement import copy
from ruda.tensor.node import Leaf, Node, Output, grad_of, set_grad, visiting
from ruda.tensor.tensor import RudaTensor

Edges: TypeAlias = tuple[Any, ...]
# All nodes below the roots in topological order, and those that lead to a wanted one.
Way: TypeAlias = tuple[list[tuple[Any, Edges]], set[Any] | None]


def backward(root: RudaTensor, gradient: Any, retain_graph: bool, create_graph: bool) -> None:
    """Add d(root)/d(leaf) times ``gradient`` to ``.grad`` of every leaf below ``root``."""
    seed = check_seed(root, gradient, "backward")
    # The seed may be the user's own tensor: no leaf takes it over.
    given = {id(seed.handle)}

    def arrive(leaf: Leaf, g: RudaTensor) -> None:
        before = grad_of(leaf)
        if create_graph:
            after = g if before is None else add(before, g)
        elif before is not None:
            before.assign(add(before, g))
            return
        else:
            # A gradient is changed in place later on: it must be this leaf's alone, and dense.
            h = g.handle
            shared = h.root is not None or id(h) in given or not g.spec.contiguous
            after = copy(g) if shared or leaf.hooks else g
            given.add(id(after.handle))
        set_grad(leaf, after)

    ones = (seed.handle,) if gradient is None else ()
    walk([(root.node, seed)], arrive, None, retain_graph, create_graph, ones)


def check_seed(root: RudaTensor, gradient: Any, op: str) -> RudaTensor:
    """The seed of a walk: ``gradient`` checked against ``root``, or one for a single element."""
    if root.node is None:
        what = "the tensor was not made from anything that requires grad"
        raise GradientError(op, what, root.spec, hint="requires_grad=True on the inputs")
    if gradient is None:
        if root.size != 1:
            hint = f"a gradient of shape {root.shape}, or a sum"
            raise GradientError(op, "needs a gradient for several elements", root.shape, hint=hint)
        return ones_like(root)
    if gradient.__class__ is not RudaTensor:
        raise DTypeError(op, "the gradient is not a tensor", type(gradient).__name__)
    if gradient.spec.client is not root.spec.client:
        got, hint = f"{gradient.device} for a tensor on {root.device}", "gradient.to(x.device)"
        raise DeviceError(op, "the gradient lives elsewhere", got, hint=hint)
    if gradient.shape != root.shape:
        raise ShapeError(op, "the gradient does not fit", gradient.shape, root.shape)
    return fitted(gradient, root.spec)


def walk(
    roots: Sequence[tuple[Any, RudaTensor]],
    arrive: Callable[[Any, RudaTensor], None],
    wanted: set[Any] | None,
    retain_graph: bool,
    create_graph: bool,
    ones: tuple[Any, ...] = (),
    way: Way | None = None,
) -> None:
    """Push cotangents from ``roots`` to the leaves and to the nodes in ``wanted``.

    ``arrive(node, g)`` is called with the finished cotangent of each leaf and wanted node. With
    ``wanted`` given, only nodes that lead to one of them are visited. ``ones`` are the handles of
    the seeds that are known to be ones. ``way`` is the ``way_to`` the wanted nodes, if known.
    """
    order, useful = way or way_to([node for node, _ in roots], wanted)
    visiting(order)
    pending: dict[Any, Any] = {}
    for node, seed in roots:
        _push(pending, node, seed)
    with pulling(create_graph, retain_graph, ones):
        for node, edges in reversed(order):
            g = pending.pop(node, None)
            if g is None or (useful is not None and node not in useful):
                continue
            if g.__class__ is Pieces:
                g = g.whole()
            hooks = getattr(node, "hooks", None)
            if hooks:
                g = _hooked(hooks, g)
            if node.__class__ is Leaf:
                arrive(node, g)
                continue
            if wanted is not None and node in wanted:
                arrive(node, g)
            if node.__class__ is Output:
                _gather(node, g, pending)
                continue
            _spread(node, edges, g, pending, useful, create_graph)
            if not retain_graph:
                node.free()


def way_to(roots: Sequence[Any], wanted: set[Any] | None) -> Way:
    """What a walk from ``roots`` visits; the same each time, since nodes stay what they are."""
    order = _topological(roots)
    return order, None if wanted is None else _leading_to(order, wanted)


def _gather(output: Output, g: RudaTensor, pending: dict[Any, Any]) -> None:
    """Put the cotangent of one output of several beside those of the others."""
    slots = pending.get(output.node)
    if slots is None:
        slots = pending[output.node] = [None] * len(output.node.plan.out)
    before = slots[output.index]
    slots[output.index] = g if before is None else add(before, g)


def _spread(
    node: Node,
    edges: Edges,
    g: Any,
    pending: dict[Any, Any],
    useful: set[Any] | None,
    create_graph: bool,
) -> None:
    """Send the cotangent of ``node`` on to its inputs."""
    if useful is None:
        needs = tuple([e is not None for e in edges])
    else:
        needs = tuple([e is not None and e in useful for e in edges])
    if True not in needs:
        return
    if node.plan.op is SLICE:
        pieces = sliced(node, g, pending.get(edges[0]))
        if pieces is not None:
            pending[edges[0]] = pieces
            return
    specs = node.plan.specs
    for i, gx in enumerate(cotangents(node, g, needs, create_graph, walk)):
        if gx is not None and needs[i]:
            edge, spec = edges[i], specs[i]
            if gx.spec is not spec:
                gx = fitted(gx, spec)
            before = pending.get(edge)
            pending[edge] = gx if before is None else met(before, gx)


def _push(pending: dict[Any, Any], node: Any, g: RudaTensor) -> None:
    before = pending.get(node)
    pending[node] = g if before is None else add(before, g)


def _hooked(hooks: Sequence[Callable[[Any], Any]], g: Any) -> Any:
    for hook in list(hooks):
        changed = hook(g)
        g = g if changed is None else changed
    return g


def _topological(roots: Sequence[Any]) -> list[tuple[Any, Edges]]:
    """All nodes below ``roots`` with their edges, inputs before users; without recursion."""
    order: list[tuple[Any, Edges]] = []
    entered: set[Any] = set()
    stack = list(roots)[::-1]
    while stack:
        node = stack.pop()
        kind = node.__class__
        if kind is tuple:
            # All that this node was made from is done.
            order.append(node)
            continue
        if node in entered:
            continue
        entered.add(node)
        if kind is Leaf:
            order.append((node, ()))
            continue
        edges = node.edges() if kind is Node else (node.node,)
        stack.append((node, edges))
        for edge in reversed(edges):
            if edge is not None and edge not in entered:
                stack.append(edge)
    return order


def _leading_to(order: Sequence[tuple[Any, Edges]], wanted: set[Any]) -> set[Any]:
    useful: set[Any] = set()
    for node, edges in order:
        if node in wanted or not useful.isdisjoint(edges):
            useful.add(node)
    return useful
