"""From a node and its cotangent to the cotangents of its inputs, by the row's vjp.

The parameter names of a vjp say what it wants: ``g`` (a tuple for several outputs), an argument's
name (the saved value), ``out`` or an output's name, ``x_spec`` or ``out_spec`` (facts alone), an
attribute's name, ``needs`` (which inputs want a cotangent), ``xs`` and ``specs`` (all arguments of
a variadic row).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ruda.core.errors import GradientError, VersionError
from ruda.core.mode import MODE, recording, using
from ruda.ops.movement import reshape
from ruda.tensor.node import Leaf, Node, Output
from ruda.tensor.tensor import RudaTensor, wrap

Walk: TypeAlias = Callable[..., None]


def cotangents(node: Node, g: Any, needs: tuple[bool, ...], create_graph: bool, walk: Walk) -> Any:
    """One cotangent per input (None where there is none or none is needed)."""
    op, mode = node.plan.op, MODE.get()
    if node.plan.precision != mode.precision:
        # A product that was allowed to be fast going forward is so going back, and no other.
        with using(mode.but(precision=node.plan.precision)):
            return cotangents(node, g, needs, create_graph, walk)
    if op.vjp is None:
        return _through_body(node, g, needs, create_graph, walk)
    value = _Values(node, g, needs, create_graph)
    if op.joint:
        return op.vjp(*[value[name] for name in op.vjp_names[0]])
    return [
        rule(*[value[name] for name in names]) if need and rule is not None else None
        for rule, names, need in zip(op.vjp, op.vjp_names, needs, strict=True)
    ]


class _Values:
    """The values that a vjp may name, made when they are asked for."""

    __slots__ = ("create_graph", "g", "needs", "node")

    def __init__(self, node: Node, g: Any, needs: tuple[bool, ...], create_graph: bool) -> None:
        self.node = node
        self.g = g
        self.needs = needs
        self.create_graph = create_graph

    def __getitem__(self, name: str) -> Any:
        node = self.node
        plan, op = node.plan, node.plan.op
        if name == "g":
            return self.g
        if name in op.args:
            return saved_input(node, op.args.index(name), self.create_graph)
        if name == "out" or name in op.outs:
            return saved_output(node, name, self.create_graph)
        if name in op.attrs:
            return plan.attrs[op.attrs.index(name)]
        if name == "needs":
            return self.needs
        if name == "specs":
            return plan.specs
        if name == "xs":
            return [saved_input(node, i, self.create_graph) for i in range(len(plan.specs))]
        if name == "out_spec":
            return plan.out
        return plan.specs[op.args.index(name.removesuffix("_spec"))]


def saved_input(node: Node, i: int, create_graph: bool) -> Any:
    """Saved input ``i`` as a tensor, tied to its history when gradients are recorded."""
    spec = node.plan.specs[i]
    handle, version = node.saved(i)
    if spec.weak and not hasattr(handle, "version"):
        return handle
    _check_version(
        node, handle, version, f"input {node.plan.op.args[min(i, len(node.plan.op.args) - 1)]!r}"
    )
    return wrap(spec, handle, node.edges()[i] if create_graph else None)


def saved_output(node: Node, name: str, create_graph: bool) -> RudaTensor:
    """The saved output called ``name``."""
    handle, version = node.saved_output()
    spec, origin = node.plan.out, node  # type: Any, Node | Output
    if node.plan.op.outs:
        i = node.plan.op.outs.index(name)
        handle, version, spec = handle[i], version[i], spec[i]
        origin = Output(node, i)
    _check_version(node, handle, version, "output")
    return wrap(spec, handle, origin if create_graph else None)


def _check_version(node: Node, handle: Any, version: Any, what: str) -> None:
    if handle.version != version:
        message = f"the {what} saved for its backward was changed in place afterwards"
        changes = f"{handle.version - version} change(s) since"
        hint = "changing a copy, or changing it before it is used"
        raise VersionError(node.plan.op.name, message, changes, hint=hint)


def _through_body(
    node: Node, g: Any, needs: tuple[bool, ...], create_graph: bool, walk: Walk
) -> Any:
    """Differentiate a fused row without a vjp: run its body again and walk through that.

    With ``create_graph`` the body's inputs stay tied to the outer tape, so higher orders follow.
    """
    plan = node.plan
    if plan.op.body is None:
        raise GradientError(plan.op.name, "has no gradient")
    with recording(True):
        probes = [
            _probe(saved_input(node, i, create_graph), need, create_graph)
            for i, need in enumerate(needs)
        ]
        out = plan.op.body(*probes, *plan.attrs)
    seeds = zip(out, g, strict=True) if plan.op.outs else [(out, g)]
    roots = [(o.node, gi) for o, gi in seeds if gi is not None and o.node is not None]
    found: dict[Any, RudaTensor] = {}
    wanted = {p.node for p, need in zip(probes, needs, strict=True) if need}
    walk(roots, found.__setitem__, wanted, create_graph, create_graph)
    return [found.get(p.node) if need else None for p, need in zip(probes, needs, strict=True)]


def _probe(x: Any, need: bool, create_graph: bool) -> Any:
    """``x`` with a node of its own, so that the walk through the body can stop there."""
    if not need:
        return x if x.__class__ is not RudaTensor else wrap(x.spec, x.handle)
    if create_graph:
        return reshape(x, x.shape)
    return wrap(x.spec, x.handle, Leaf())
