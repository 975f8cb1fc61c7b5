"""Mutation is an operator: ``assign`` overwrites what a tensor shows and tells the tape.

The base's node becomes the node of "the base with that region replaced", and every live view of the
same base is shown again from it, so gradients are those of the values that are there now.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ruda.core.dtypes import promote
from ruda.core.errors import DeviceError, DTypeError, GradientError, ShapeError
from ruda.core.mode import MODE
from ruda.core.shapes import broadcast_strides, repeats_memory
from ruda.core.spec import Spec, spec_of, weak_spec
from ruda.tensor.dispatch import OPS, Op
from ruda.tensor.launch import record, slow
from ruda.tensor.node import Leaf, Node
from ruda.tensor.operands import operand
from ruda.tensor.tensor import RudaTensor, wrap
from ruda.tensor.views import family, owner_of

_KIND_ORDER = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}


def assign(target: RudaTensor, value: Any) -> RudaTensor:
    """Overwrite ``target`` with ``value`` (tensor, scalar or array, broadcast to its shape).

    Views see the change and so does the tape. Raises ``ShapeError`` when the value does not fit or
    the target repeats memory, ``DTypeError`` when the value's kind does not fit the dtype,
    ``GradientError`` for a leaf that requires grad (outside of ``no_grad``).
    """
    if target.__class__ is not RudaTensor:
        raise DTypeError("assign", "the target is not a tensor", type(target).__name__)
    mode = MODE.get()
    if mode.recorder is not None and mode.recorder.skips(target):
        return target
    value = _fitting(target, value)
    nodes = _recording(target, value) if mode.grad else None
    if mode.tracer is None:
        target.spec.client.write(target.spec, target.handle, value.spec, value.handle)
        (target.handle.root or target.handle).version += 1
    else:
        mode.tracer.assign(target.spec, target.handle, value.spec, value.handle)
    _set_nodes(nodes, mode.tracer)
    return target


def update(target: RudaTensor, op: Op, value: Any, places: RudaTensor, attrs: Any) -> None:
    """Overwrite ``target`` with ``op(target, value, places)``, writing only what changes.

    The reference of ``op`` offers ``in_place``, which writes into the array it is given.
    """
    mode = MODE.get()
    if mode.tracer is not None or mode.recorder is not None:
        assign(target, slow(op, (target, value, places), attrs))
        return
    _check_distinct(target.spec)
    operands = [operand(op.name, v, target.spec.client) for v in (target, value, places)]
    if None in operands:
        got, wanted = type(value).__name__, "a tensor, array or scalar"
        raise DTypeError(op.name, "not a value", got, wanted)
    specs, handles, nodes = zip(*operands, strict=True)  # type: ignore[arg-type]
    plan = op.lookup(specs, attrs)
    changed = None
    if mode.grad:
        tracked = any(n is not None for n in nodes)
        node = record(plan, handles, nodes, None) if tracked else None
        changed = _recording(target, wrap(plan.out, None, node))
    target.spec.client.update(plan, handles)
    (target.handle.root or target.handle).version += 1
    _set_nodes(changed, None)


def update_all(
    targets: Sequence[RudaTensor], op: Op, values: Sequence[Any], attrs: tuple[Any, ...] = ()
) -> None:
    """Overwrite ``targets`` with the outputs of ``op``; they may be among its operands.

    Off the tape the reference's ``in_place`` writes into the targets' own memory where it fits.
    """
    mode = MODE.get()
    plain = not (mode.grad or mode.tracer or mode.recorder)
    operands = [operand(op.name, v, targets[0].spec.client) for v in values] if plain else [None]
    if None not in operands:
        specs, handles, _ = zip(*operands, strict=True)  # type: ignore[arg-type]
        plan = op.lookup(specs, attrs)
        if all(t.spec is spec for t, spec in zip(targets, plan.out, strict=True)):
            targets[0].spec.client.update_all(plan, handles, [t.handle for t in targets])
            for target in targets:
                (target.handle.root or target.handle).version += 1
            return
    for target, value in zip(targets, slow(op, values, attrs), strict=True):
        assign(target, value)


def _set_nodes(nodes: list[tuple[RudaTensor, Node]] | None, tracer: Any) -> None:
    for tensor, node in nodes or ():
        if tracer is None:
            tensor.node = node
        else:
            tracer.set_node(tensor, node)


def _check_distinct(spec: Spec) -> None:
    if repeats_memory(spec.shape, spec.strides):
        hint = "target.contiguous() first"
        raise ShapeError("assign", "the target repeats memory", spec, hint=hint)


def _fitting(target: RudaTensor, value: Any) -> RudaTensor:
    """``value`` as a tensor of the target's dtype whose shape broadcasts to the target's."""
    spec = target.spec
    found = operand("assign", value, spec.client)
    if found is None:
        raise DTypeError("assign", "not a value", type(value).__name__, "a tensor, array or scalar")
    given, handle, node = found
    _check_distinct(spec)
    if given.client is not spec.client:
        got = f"{given.client.device} for a target on {spec.client.device}"
        raise DeviceError(
            "assign", "the value lives elsewhere", got, hint="value.to(target.device)"
        )
    if _KIND_ORDER.get(given.dtype.kind, 9) > _KIND_ORDER.get(spec.dtype.kind, 9):
        hint = "value.astype(target.dtype)"
        raise DTypeError("assign", "the value would lose its kind", given.dtype, spec.dtype, hint)
    broadcast_strides("assign", given.shape, given.strides, spec.shape)
    fitted = wrap(given, handle, node)
    if given.weak:
        return OPS["full"].call(handle, (), spec.dtype, spec.client.device)  # type: ignore[no-any-return]
    if given.dtype is not spec.dtype:
        promote(given.dtype, spec.dtype)
        return fitted.astype(spec.dtype)
    return fitted


def _recording(target: RudaTensor, value: RudaTensor) -> list[tuple[RudaTensor, Node]] | None:
    """The nodes that tensors get through this change, None when nothing is tracked.

    Raises before anything is written.
    """
    owner, views = owner_of(target), family(target)
    for tensor in (target, owner):
        if tensor is not None and tensor.node.__class__ is Leaf:
            what = "a leaf that requires grad is changed in place"
            hint = "ruda.no_grad() around the update, or a copy of the leaf"
            raise GradientError("assign", what, got=tensor.spec, hint=hint)
    base = target if owner is None else owner
    if value.node is None and base.node is None and all(v.node is None for v in views):
        return None
    if owner is None:
        views = _lone_view(target, views)
    if views and not base.spec.contiguous:
        hint = "base.contiguous() before taking views"
        raise GradientError("assign", "a tracked view of a strided base", base.spec, hint=hint)
    whole = _assign_node(base, target, value)
    return [(base, whole), *((view, _view_node(base, view, whole)) for view in views)]


def _lone_view(target: RudaTensor, views: list[RudaTensor]) -> list[RudaTensor]:
    """A view whose base is gone stands for itself; a live sibling that overlaps it cannot."""
    low, high = _extent(target)
    for other in views:
        start, stop = _extent(other)
        if other is not target and start < high and low < stop:
            what = "an overlapping view is live and their common base is gone"
            raise GradientError("assign", what, other.spec, hint="keeping the base in a variable")
    return []


def _extent(tensor: RudaTensor) -> tuple[int, int]:
    """The half-open range of elements that ``tensor`` touches in its base."""
    reach = [s * (n - 1) for n, s in zip(tensor.shape, tensor.strides, strict=True)]
    start = _offset(tensor)
    return start + sum(r for r in reach if r < 0), start + sum(r for r in reach if r > 0) + 1


def _offset(tensor: RudaTensor) -> int:
    return 0 if tensor.handle.root is None else tensor.handle.offset


def _assign_node(base: RudaTensor, target: RudaTensor, value: RudaTensor) -> Node:
    """The node of ``assign_view(base, value, offset; shape, strides)``, without running it."""
    client = target.spec.client
    dense = spec_of(client, base.shape, base.dtype)
    strides = dense.strides if target is base else target.strides
    specs = (dense, value.spec, weak_spec(client, "int"))
    node = Node()
    node.plan = OPS["assign_view"].lookup(specs, (target.shape, strides))
    # A change of everything leaves nothing of what was there.
    node.x = None if target is base else base.node
    node.y, node.z = value.node, None
    node.sz, node.vz = _offset(target) - _offset(base), None
    return node


def _view_node(base: RudaTensor, view: RudaTensor, whole: Node) -> Node:
    client = view.spec.client
    specs = (spec_of(client, base.shape, base.dtype), weak_spec(client, "int"))
    node = Node()
    node.plan = OPS["as_strided"].lookup(specs, (view.shape, view.strides))
    node.x, node.y = whole, None
    node.sy, node.vy = _offset(view) - _offset(base), None
    return node
