"""From a node and its cotangent to the cotangents of its inputs, by the row's vjp.

The parameter names of a vjp say what it wants: ``g`` (a tuple for several outputs), an argument's
name (the saved value), ``out`` or an output's name, ``x_spec`` or ``out_spec`` (facts alone), an
attribute's name, ``needs`` (which inputs want a cotangent), ``xs`` and ``specs`` (all arguments of
a variadic row).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ruda.core.errors import GradientError, VersionError
from ruda.core.mode import MODE, Using, recording
from ruda.ops.movement import reshape
from ruda.tensor.node import Leaf, Node, Output
from ruda.tensor.tensor import RudaTensor, wrap

if TYPE_CHECKING:
    from ruda.tensor.dispatch import Op

Walk: TypeAlias = Callable[..., None]
Getter: TypeAlias = Callable[[Node, Any, tuple[bool, ...], bool], Any]


def cotangents(node: Node, g: Any, needs: tuple[bool, ...], create_graph: bool, walk: Walk) -> Any:
    """One cotangent per input, None where there is none or none is needed.

    In IEEE, but for products that were allowed to be fast going forward.
    """
    if node.plan.precision is not None:
        with Using(MODE.get().but(precision=node.plan.precision)):
            return _pulled(node, g, needs, create_graph, walk)
    return _pulled(node, g, needs, create_graph, walk)


def _pulled(node: Node, g: Any, needs: tuple[bool, ...], create_graph: bool, walk: Walk) -> Any:
    op = node.plan.op
    if op.vjp is None:
        return _through_body(node, g, needs, create_graph, walk)
    pulls = op.pulls or _set_pulls(op)
    if op.joint:
        return pulls[0](node, g, needs, create_graph)
    if len(pulls) == 1 and pulls[0] is not None:
        return (pulls[0](node, g, needs, create_graph),)
    return [
        pull(node, g, needs, create_graph) if need and pull is not None else None
        for pull, need in zip(pulls, needs, strict=True)
    ]


def _set_pulls(op: Op) -> Any:
    """For each vjp of a row, the function from a node and its cotangent; kept on the row."""
    rules = (op.vjp,) if op.joint else op.vjp
    op.pulls = tuple(
        None if rule is None else _pull(op, rule, names)
        for rule, names in zip(rules, op.vjp_names, strict=True)
    )
    return op.pulls


def _pull(op: Op, rule: Callable[..., Any], names: tuple[str, ...]) -> Getter:
    """``rule`` with what it names got from a node; most begin with the cotangent."""
    if names == ("g",):
        return lambda node, g, needs, create_graph: rule(g)
    if names[0] == "g" and len(names) == 2:
        get = _getter(op, names[1])
        return lambda node, g, needs, create_graph: rule(g, get(node, g, needs, create_graph))
    getters = [_getter(op, name) for name in names]
    return lambda node, g, needs, create_graph: rule(
        *[get(node, g, needs, create_graph) for get in getters]
    )


def _getter(op: Op, name: str) -> Getter:
    """From (node, g, needs, create_graph) to the value that a vjp names."""
    if name == "g":
        return lambda node, g, needs, create_graph: g
    if name in op.args:
        i = op.args.index(name)
        if op.wants:
            return lambda node, g, needs, create_graph: _kept_input(node, i, create_graph)
        return lambda node, g, needs, create_graph: saved_input(node, i, create_graph)
    if name == "out" or name in op.outs:
        return lambda node, g, needs, create_graph: saved_output(node, name, create_graph)
    if name in op.attrs:
        place = op.attrs.index(name)
        return lambda node, g, needs, create_graph: node.plan.attrs[place]
    if name == "xs":
        return lambda node, g, needs, create_graph: [
            saved_input(node, i, create_graph) for i in range(len(node.plan.specs))
        ]
    return _plain_getter(op, name)


def _plain_getter(op: Op, name: str) -> Getter:
    """As ``_getter``, for what the plan or the walk knows."""
    if name == "needs":
        return lambda node, g, needs, create_graph: needs
    if name == "specs":
        return lambda node, g, needs, create_graph: node.plan.specs
    if name == "out_spec":
        return lambda node, g, needs, create_graph: node.plan.out
    i = op.args.index(name.removesuffix("_spec"))
    return lambda node, g, needs, create_graph: node.plan.specs[i]


def saved_input(node: Node, i: int, create_graph: bool) -> Any:
    """Saved input ``i`` as a tensor, tied to its history when gradients are recorded."""
    spec = node.plan.specs[i]
    handle, version = node.saved(i)
    if spec.weak and not hasattr(handle, "version"):
        return handle
    if handle.version != version:
        args = node.plan.op.args
        raise _moved(node, handle, version, f"input {args[min(i, len(args) - 1)]!r}")
    return wrap(spec, handle, node.edges()[i] if create_graph else None)


def _kept_input(node: Node, i: int, create_graph: bool) -> Any:
    """As ``saved_input``; None for what was not kept because no tracked input wants it."""
    return None if node.saved(i)[0] is None else saved_input(node, i, create_graph)


def saved_output(node: Node, name: str, create_graph: bool) -> RudaTensor:
    """The saved output called ``name``."""
    handle, version = node.saved_output()
    spec, i = node.plan.out, None
    if node.plan.op.outs:
        i = node.plan.op.outs.index(name)
        handle, version, spec = handle[i], version[i], spec[i]
    if handle.version != version:
        raise _moved(node, handle, version, "output")
    if not create_graph:
        return wrap(spec, handle)
    return wrap(spec, handle, node if i is None else Output(node, i))


def _moved(node: Node, handle: Any, version: Any, what: str) -> VersionError:
    message = f"the {what} saved for its backward was changed in place afterwards"
    changes = f"{handle.version - version} change(s) since"
    hint = "changing a copy, or changing it before it is used"
    return VersionError(node.plan.op.name, message, changes, hint=hint)


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
