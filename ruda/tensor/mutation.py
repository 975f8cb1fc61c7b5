"""Mutation is an operator: ``assign`` overwrites what a tensor shows and tells the tape.

The base's node becomes the node of "the base with that region replaced", and every live view of the
same base is shown again from it, so gradients are those of the values that are there now.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ruda.core.dtypes import KIND_ORDER, DType, integer_range, promote
from ruda.core.errors import DeviceError, DTypeError, GradientError, ShapeError
from ruda.core.mode import MODE, NODES
from ruda.core.shapes import broadcast_strides, extent, repeats_memory
from ruda.core.spec import Spec, spec_of, weak_spec
from ruda.tensor.dispatch import OPS, Op
from ruda.tensor.launch import not_in_range, operands_of, record, slow
from ruda.tensor.node import Leaf, Node
from ruda.tensor.operands import operand
from ruda.tensor.tensor import RudaTensor, wrap
from ruda.tensor.views import family, owner_of


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
    specs, handles, nodes = zip(*operands, strict=True)
    plan = op.lookup(specs, attrs)
    if specs[1].weak:
        _check_range(op.name, handles[1], target.spec.dtype)
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
    operands = operands_of(op, values, targets[0].spec.client) if plain else [None]
    if None not in operands:
        specs, handles, _ = zip(*operands, strict=True)
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
            tensor.node, NODES.mark = node, object()
        else:
            tracer.set_node(tensor, node)


def _check_range(op: str, value: Any, dtype: DType) -> None:
    """Raise unless ``dtype`` can hold the scalar, should it be a Python integer."""
    if value.__class__ is int:
        low, high = integer_range(dtype)
        if not low <= value <= high:
            raise not_in_range(op, value, dtype)


def _check_distinct(spec: Spec) -> None:
    if repeats_memory(spec.shape, spec.strides):
        hint = "target.contiguous() first"
        raise ShapeError("assign", "the target repeats memory", spec, hint=hint)


def _fitting(target: RudaTensor, value: Any) -> RudaTensor:
    """``value`` as a tensor of the target's dtype whose shape broadcasts to the target's."""
    spec = target.spec
    if value.__class__ is RudaTensor and value.spec is spec and spec.contiguous:
        return value
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
    if KIND_ORDER[given.dtype.kind] > KIND_ORDER[spec.dtype.kind]:
        hint = "value.astype(target.dtype)"
        raise DTypeError("assign", "the value would lose its kind", given.dtype, spec.dtype, hint)
    broadcast_strides("assign", given.shape, given.strides, spec.shape)
    fitted = wrap(given, handle, node)
    if given.weak:
        _check_range("assign", handle, spec.dtype)
        if MODE.get().tracer is not None:
            return OPS["full"].call(handle, (), spec.dtype, spec.client.device)  # type: ignore[no-any-return]
        return fitted
    if given.dtype is not spec.dtype:
        promote(given.dtype, spec.dtype)
        return fitted.astype(spec.dtype)
    return fitted


def _recording(target: RudaTensor, value: RudaTensor) -> list[tuple[RudaTensor, Node]] | None:
    """The nodes that tensors get through this change, None when nothing is tracked.

    Raises before anything is written.
    """
    owner, views = owner_of(target), family(target)
    for tensor in (target, owner, *views):
        if tensor is not None and tensor.node.__class__ is Leaf and _overlap(tensor, target):
            what = "a leaf that requires grad is changed in place"
            hint = "ruda.no_grad() around the update, or a copy of the leaf"
            raise GradientError("assign", what, got=tensor.spec, hint=hint)
    base = target if owner is None else owner
    if value.node is None and base.node is None and all(v.node is None for v in views):
        return None
    views = [v for v in views if v.node.__class__ is not Leaf]
    if owner is None and any(v is not target and _overlap(v, target) for v in views):
        base, views = _buried(target, views)
    elif owner is None:
        views = []
    # Alone, a base of any strides counts as row-major: nobody sees where its elements lie.
    plain = base.spec.contiguous or not views
    memory = _Memory(_dense(base), _offset(base), base.node) if plain else _memory(base)
    whole = _assign_node(memory, target, value, covers=plain and target is base)
    own = whole if plain else _view_node(memory, base, whole)
    return [(base, own), *((view, _view_node(memory, view, whole)) for view in views)]


class _Memory(NamedTuple):
    """A row-major tensor that a base is, or lies in: spec, where it starts in the root, node."""

    spec: Spec
    start: int
    node: Any


def _dense(tensor: RudaTensor) -> Spec:
    return spec_of(tensor.spec.client, tensor.shape, tensor.dtype)


def _memory(base: RudaTensor) -> _Memory:
    """The stretch of memory that ``base`` is a view of, with the history of its elements."""
    low, high = _extent(base)
    empty = _Memory(spec_of(base.spec.client, (high - low,), base.dtype), low, None)
    return empty._replace(node=None if base.node is None else _assign_node(empty, base, base))


def _buried(target: RudaTensor, views: list[RudaTensor]) -> tuple[RudaTensor, list[RudaTensor]]:
    """What stands for the base of live views when the base itself is gone, and the views of it.

    Their common history is where the history of each of them leads through views alone. A view
    with a history of its own since then, because it was changed while it stood alone, is the base
    of the views taken from it.
    """
    spec, node = _origin(target)
    kin = [view for view in views if _origin(view)[1] is node]
    if node.__class__ is Leaf:
        what = "a leaf that requires grad is changed in place"
        raise GradientError("assign", what, spec, hint="a copy of the leaf")
    if not any(_overlap(v, target) for v in views if _origin(v)[1] is not node):
        root = target.handle.root
        whole = (MODE.get().tracer or target.spec.client).base(root)
        if node is None or spec is whole:
            return wrap(whole if node is None else spec, root, node), kin
        for view in kin:
            if view.node is node:
                return view, [v for v in kin if v is not view]
    what = "an overlapping view is live and their common base is gone"
    raise GradientError("assign", what, target.spec, hint="keeping the base in a variable")


def _origin(view: RudaTensor) -> tuple[Spec, Any]:
    """Spec and node of the tensor that ``view`` was made from through views alone."""
    spec, node = view.spec, view.node
    while node.__class__ is Node and node.plan.shares:
        spec, node = node.plan.specs[0], node.x
    return spec, node


def _overlap(a: RudaTensor, b: RudaTensor) -> bool:
    """Whether two tensors over one base may touch the same elements."""
    low, high = _extent(a)
    start, stop = _extent(b)
    return start < high and low < stop


def is_same(target: RudaTensor, value: Any) -> bool:
    """Whether ``value`` is the very view to be written: what ``x[i] += y`` does at its end."""
    same = (
        value.__class__ is RudaTensor
        and value.spec is target.spec
        and value.handle.root is target.handle.root
        and value.handle.root is not None
        and value.handle.offset == target.handle.offset
    )
    tracer = MODE.get().tracer
    if same and tracer is not None:
        tracer.compared(target.handle.root)
    return same


def _extent(tensor: RudaTensor) -> tuple[int, int]:
    """The half-open range of elements that ``tensor`` touches in its base."""
    start, (low, high) = _offset(tensor), extent(tensor.shape, tensor.strides)
    return start + low, start + high


def _offset(tensor: RudaTensor) -> int:
    return 0 if tensor.handle.root is None else tensor.handle.offset


def _assign_node(
    memory: _Memory, target: RudaTensor, value: RudaTensor, *, covers: bool = False
) -> Node:
    """The node of ``assign_view(memory, value, offset; shape, strides)``, without running it."""
    strides = _dense(target).strides if covers else target.strides
    node = Node()
    specs = (memory.spec, value.spec, weak_spec(target.spec.client, "int"))
    node.plan = OPS["assign_view"].lookup(specs, (target.shape, strides))
    # A change of everything leaves nothing of what was there.
    node.x = None if covers else memory.node
    node.y, node.z = value.node, None
    node.sz, node.vz = 0 if covers else _offset(target) - memory.start, None
    return node


def _view_node(memory: _Memory, view: RudaTensor, whole: Node) -> Node:
    specs = (memory.spec, weak_spec(view.spec.client, "int"))
    node = Node()
    node.plan = OPS["as_strided"].lookup(specs, (view.shape, view.strides))
    node.x, node.y = whole, None
    node.sy, node.vy = _offset(view) - memory.start, None
    return node
