"""The hot path: the entry closure of an operator, one shape of closure per arity.

A closure reads the specs, finds the plan, launches and records; whatever is out of the ordinary
goes to ``launch.slow``: ``autocast`` too, where the row ``lowers`` or raises its operands. Every
line here runs once per operator call: measure before adding one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ruda.core.devices import client as client_of
from ruda.core.mode import MODE
from ruda.core.spec import absent_spec
from ruda.tensor.launch import check_integers, outputs, record, slow
from ruda.tensor.node import Node
from ruda.tensor.tensor import RudaTensor, wrap
from ruda.tensor.views import register_view

if TYPE_CHECKING:
    from ruda.tensor.dispatch import Op

_new: Any = object.__new__
_SCALARS = {float: "float", int: "int", bool: "bool"}


def entry(op: Op) -> Callable[..., Any]:
    """The closure that fits the arity and kind of ``op``."""
    arity = len(op.args)
    general = op.outs or op.attrs or op.kind in ("view", "dynamic")
    if arity == 3 and not general and op.optional in ((), op.args[2:]):
        call = entry3(op)
    elif op.outs or op.kind == "dynamic" or arity > 2 or arity == 0:
        call = entry_n(op)
    elif op.attrs or op.kind == "view":
        call = entry1_attrs(op) if arity == 1 and op.kind not in _HOSTED else entry_n(op)
    else:
        call = entry1(op) if arity == 1 else entry2(op)
    call.__name__ = call.__qualname__ = op.name
    call.__doc__ = op.doc
    return call


# Rows whose operands are scalars alone: their last attribute says on which device they run.
_HOSTED = ("create", "random")


def entry1(op: Op) -> Callable[..., Any]:
    """The closure of an operator of one tensor without attributes."""
    find, mode_of, saves, save = op.hot.get, MODE.get, op.saves or op.keeps_out, op.save
    lowers = op.cast is not None

    def call(x: Any, /, *, out: Any = None) -> Any:
        if x.__class__ is not RudaTensor or out is not None:
            return slow(op, (x,), (), out)
        plan = find(x.spec) or op.miss(x.spec, (x.spec,))
        mode = mode_of()
        if mode.special and (lowers or mode.beyond):
            return slow(op, (x,))
        hx, nx = x.handle, x.node
        t = _new(RudaTensor)
        t.spec = plan.out
        t.handle = h = plan.run(hx)
        t.qparams = None
        if nx is None or not (mode.grad and plan.records):
            t.node = None
            return t
        t.node = node = Node()
        node.plan = plan
        node.x = nx
        if saves:
            save(node, hx, h)
        return t

    return call


def entry2(op: Op, foreign: Any = None) -> Callable[..., Any]:
    """The closure of an operator of two tensors without attributes.

    As a dunder method, ``foreign`` is NotImplemented: what an unknown operand gives back.
    """
    find, mode_of, saves, save = op.hot.get, MODE.get, op.saves or op.keeps_out, op.save
    lowers = op.cast is not None
    with_scalar = _with_scalar(op)

    def call(x: Any, y: Any, /, *, out: Any = None) -> Any:
        if y.__class__ is not RudaTensor or x.__class__ is not RudaTensor or out is not None:
            if y.__class__ in _SCALARS and x.__class__ is RudaTensor and out is None:
                return with_scalar(x, y)
            return slow(op, (x, y), (), out, foreign)
        key = (x.spec, y.spec)
        plan = find(key) or op.miss(key, key)
        mode = mode_of()
        if mode.special and (lowers or mode.beyond):
            return slow(op, (x, y))
        hx, hy, nx, ny = x.handle, y.handle, x.node, y.node
        t = _new(RudaTensor)
        t.spec = plan.out
        t.handle = h = plan.run(hx, hy)
        t.qparams = None
        if (nx is None and ny is None) or not (mode.grad and plan.records):
            t.node = None
            return t
        t.node = node = Node()
        node.plan = plan
        node.x = nx
        node.y = ny
        if saves:
            save(node, hx, hy, h)
        return t

    return call


def _with_scalar(op: Op) -> Callable[[RudaTensor, Any], RudaTensor]:
    """``op`` of a tensor and a Python scalar; the scalar's type is part of the plan's key."""
    find, mode_of, lowers = op.hot.get, MODE.get, op.cast is not None

    def call(x: RudaTensor, y: Any) -> RudaTensor:
        mode = mode_of()
        if mode.special and (lowers or mode.beyond):
            return slow(op, (x, y))  # type: ignore[no-any-return]
        key = (x.spec, y.__class__)
        plan = find(key) or op.miss_scalar(key, x.spec, _SCALARS[y.__class__])
        limits = plan.limits
        if limits is not None and not limits[0] <= y <= limits[1]:
            check_integers(plan, (x.handle, y))
        h = plan.run(x.handle, y)
        if x.node is not None and mode.grad and plan.records:
            return wrap(plan.out, h, record(plan, (x.handle, y), (x.node, None), h))
        return wrap(plan.out, h)

    return call


def reflected(op: Op) -> Callable[..., Any]:
    """The method ``__rop__`` of a binary operator: the tensor is the right operand."""
    find, mode_of, lowers = op.hot.get, MODE.get, op.cast is not None

    def call(y: RudaTensor, x: Any, /) -> Any:
        mode = mode_of()
        if x.__class__ not in _SCALARS or (mode.special and (lowers or mode.beyond)):
            return slow(op, (x, y), foreign=NotImplemented)
        key = (x.__class__, y.spec)
        plan = find(key) or op.miss_scalar_left(key, y.spec, _SCALARS[x.__class__])
        limits = plan.limits
        if limits is not None and not limits[0] <= x <= limits[1]:  # type: ignore[operator]
            check_integers(plan, (x, y.handle))
        h = plan.run(x, y.handle)
        if y.node is not None and mode.grad and plan.records:
            return wrap(plan.out, h, record(plan, (x, y.handle), (None, y.node), h))
        return wrap(plan.out, h)

    return call


def entry1_attrs(op: Op) -> Callable[..., Any]:
    """The closure of an operator of one tensor with attributes, reductions and views above all."""
    find, mode_of, saves, save = op.hot.get, MODE.get, op.saves or op.keeps_out, op.save
    lowers = op.cast is not None

    def call(x: Any, /, *attrs: Any, out: Any = None) -> Any:
        mode = mode_of()
        special = mode.special and (lowers or mode.beyond)
        if x.__class__ is not RudaTensor or out is not None or special:
            return slow(op, (x,), attrs, out)
        key = (x.spec, *attrs)
        plan = find(key) or op.miss(key, (x.spec,), attrs)
        hx, nx = x.handle, x.node
        t = _new(RudaTensor)
        t.spec = plan.out
        t.handle = h = plan.run(hx)
        t.qparams = t.node = None
        if plan.shares:
            register_view(x, t)
        if nx is not None and mode.grad and plan.records:
            t.node = node = Node()
            node.plan = plan
            node.x = nx
            if saves:
                save(node, hx, h)
        return t

    return call


def entry3(op: Op) -> Callable[..., Any]:
    """The closure of an operator of three tensors without attributes; the last may be optional."""
    find, mode_of, saves, save = op.hot.get, MODE.get, op.saves or op.keeps_out, op.save
    lowers = op.cast is not None
    may_lack, call_n = op.args[2] in op.optional, entry_n(op)

    def call(x: Any, y: Any, z: Any, /, *, out: Any = None) -> Any:
        mode = mode_of()
        special = mode.special and (lowers or mode.beyond)
        whole = x.__class__ is y.__class__ is RudaTensor and out is None and not special
        if whole and z.__class__ is RudaTensor:
            sz, hz, nz = z.spec, z.handle, z.node
        elif whole and z is None and may_lack:
            sz, hz, nz = absent_spec(x.spec.client), None, None
        else:
            return call_n(x, y, z, out=out)
        key = (x.spec, y.spec, sz)
        plan = find(key) or op.miss(key, key)
        hx, hy, nx, ny = x.handle, y.handle, x.node, y.node
        t = _new(RudaTensor)
        t.spec = plan.out
        t.handle = h = plan.run(hx, hy, hz)
        t.qparams = t.node = None
        if not (nx is ny is nz is None) and mode.grad and plan.records:
            t.node = node = Node()
            node.plan = plan
            node.x = nx
            node.y = ny
            node.z = nz
            if saves:
                save(node, hx, hy, hz, h)
        return t

    return call


def entry_n(op: Op) -> Callable[..., Any]:
    """The closure of everything else: tensors first, then the attributes, all by position."""
    arity = len(op.args)
    if op.kind in _HOSTED and op.attrs[-1:] == ("device",):
        return lambda *values: slow(
            op, values[:arity], values[arity:], client=client_of(values[-1])
        )

    if op.kind in ("view", "dynamic"):
        return lambda *values, out=None: slow(op, values[:arity], values[arity:], out)
    find, mode_of, several, lowers = op.hot.get, MODE.get, bool(op.outs), op.cast is not None
    optional = tuple(arg in op.optional for arg in op.args)

    def call(*values: Any, out: Any = None) -> Any:
        tensors, attrs = values[:arity], values[arity:]
        mode = mode_of()
        if out is not None or (mode.special and (lowers or mode.beyond)):
            return slow(op, tensors, attrs, out)
        specs, handles, nodes = [], [], []
        for t in tensors:
            if t.__class__ is RudaTensor:
                specs.append(t.spec)
                handles.append(t.handle)
                nodes.append(t.node)
            elif t is None and specs and optional[len(specs)]:
                specs.append(absent_spec(specs[0].client))
                handles.append(None)
                nodes.append(None)
            else:
                return slow(op, tensors, attrs)
        key = (*specs, *attrs)
        plan = find(key) or op.miss(key, tuple(specs), attrs)
        result = plan.run(*handles)
        node = None
        if mode.grad and plan.records and nodes.count(None) < len(nodes):
            node = record(plan, handles, nodes, result)
        if several:
            return outputs(plan.out, result, node)
        return wrap(plan.out, result, node)

    return call
