"""The hot path: from a call to a cached plan to a launch to a node.

Each operator owns one entry closure. The closure looks up the plan of the operands' interned
specs; a miss runs the row's rules once. Everything out of the ordinary (Python scalars, tracing,
autocast, ``out=``) leaves the closure for ``slow``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ruda.core.devices import client as client_of
from ruda.core.dtypes import CATEGORY_NAMES, DType
from ruda.core.errors import CaptureError, DeviceError, DTypeError, IntegerRangeError
from ruda.core.mode import MODE, Mode
from ruda.core.spec import Spec, spec_of
from ruda.tensor.node import Node, Output
from ruda.tensor.operands import operand
from ruda.tensor.saving import saver
from ruda.tensor.tensor import RudaTensor, wrap
from ruda.tensor.views import register_view

CAPACITY = 4096
OPS: dict[str, Op] = {}


class Plan:
    """An operator for given specs and attributes, ready to run on handles.

    ``out`` is the spec of the output (a tuple for several outputs, None while it depends on
    values), ``operand`` the dtype that operands are cast to, ``records`` whether a node is worth
    building, ``limits`` the range of a Python integer among the operands, ``shares``
    whether the output shows the memory of the first operand.
    """

    __slots__ = ("attrs", "limits", "op", "operand", "out", "records", "run", "shares", "specs")

    op: Op
    specs: tuple[Spec, ...]
    attrs: tuple[Any, ...]
    out: Any
    operand: Any
    run: Callable[..., Any]
    records: bool
    shares: bool
    limits: tuple[int, int] | None


class Op:
    """One row of the operator table, with its plan caches and its entry closure ``call``."""

    def __init__(
        self,
        name: str,
        kind: str,
        args: tuple[str, ...],
        attrs: tuple[str, ...] = (),
        *,
        grade: str = "primitive",
        shape: Callable[..., Any] | None = None,
        dtype: Callable[..., Any] | None = None,
        numpy: Callable[..., Any] | None = None,
        expr: str | None = None,
        vjp: Any = None,
        outs: tuple[str, ...] = (),
        accepts: tuple[DType, ...] = (),
        domain: tuple[float, float] = (-2.0, 2.0),
        cast: str | None = None,
        body: Callable[..., Any] | None = None,
        bound: str = "memory",
        doc: str = "",
        exact: bool = False,
    ) -> None:
        self.name, self.kind, self.grade = name, kind, grade
        self.args, self.attrs, self.outs = args, attrs, outs
        self.shape, self.dtype, self.numpy, self.expr = shape, dtype, numpy, expr
        self.accepts, self.domain, self.cast, self.bound = accepts, domain, cast, bound
        self.body, self.doc, self.exact = body, doc, exact
        self.hot: dict[Any, Plan] = {}
        self.cold: dict[Any, Plan] = {}
        self._set_vjp(vjp)
        self.save = saver(self)
        self.call = _entry(self)
        OPS[name] = self

    def __repr__(self) -> str:
        return f"<ruda op {self.name}: {self.grade} {self.kind}>"

    def _set_vjp(self, vjp: Any) -> None:
        """Read off the parameter names of the vjps what the tape has to keep."""
        self.vjp = vjp
        rules = vjp if isinstance(vjp, tuple) else (vjp,) if vjp else ()
        self.joint = vjp is not None and not isinstance(vjp, tuple)
        self.vjp_names = tuple(_parameters(rule) for rule in rules)
        named = {name for names in self.vjp_names for name in names}
        known = {
            "g",
            "out",
            "out_spec",
            "needs",
            "specs",
            "xs",
            *self.args,
            *self.attrs,
            *self.outs,
        }
        unknown = named - known - {f"{arg}_spec" for arg in self.args}
        if unknown:
            raise TypeError(f"{self.name}: the vjp names {sorted(unknown)}, which the row has not")
        if vjp is None and self.body is not None:
            # Without a rule of its own a fused row is differentiated through its body.
            named = set(self.args)
        self.saves = tuple(i for i, arg in enumerate(self.args) if arg in named)
        self.saves_all = "xs" in named
        self.keeps_out = "out" in named or any(name in named for name in self.outs)
        self.differentiable = vjp is not None or self.body is not None

    def lookup(self, specs: tuple[Spec, ...], attrs: tuple[Any, ...], client: Any = None) -> Plan:
        """The plan of ``specs`` and ``attrs``, made now if it is not cached."""
        if attrs:
            key: Any = (*specs, *attrs) if client is None else (client, *attrs)
        else:
            key = specs[0] if len(specs) == 1 else specs
        plan = self.hot.get(key)
        return self.miss(key, specs, attrs, client) if plan is None else plan

    def miss(
        self, key: Any, specs: tuple[Spec, ...], attrs: tuple[Any, ...] = (), client: Any = None
    ) -> Plan:
        """Bring a plan back from the cold cache or make it; a full hot cache turns cold."""
        plan = self.cold.pop(key, None)
        if plan is None:
            plan = self.plan(specs, attrs, client)
        if len(self.hot) >= CAPACITY:
            # In place, because the entry closure holds on to this very dict.
            self.cold.clear()
            self.cold.update(self.hot)
            self.hot.clear()
        self.hot[key] = plan
        return plan

    def plan(self, specs: tuple[Spec, ...], attrs: tuple[Any, ...], client: Any = None) -> Plan:
        """Run the row's rules on ``specs`` and bind a kernel; raises the row's typed errors."""
        client = self._check(specs) if client is None else client
        plan = Plan()
        plan.op, plan.specs, plan.attrs = self, specs, attrs
        plan.operand, out_dtype = self.dtype(self, specs, *attrs)  # type: ignore[misc]
        shape = self.shape(self, specs, *attrs)  # type: ignore[misc]
        plan.out = _out_specs(client, self, shape, out_dtype)
        plan.records = self.differentiable and _is_inexact(plan.out)
        plan.limits = _limits(plan) if any(s.weak for s in specs) else None
        plan.shares = self.kind == "view" and bool(shape) and isinstance(shape[0], tuple)
        plan.run = client.bind(plan)
        return plan

    def _check(self, specs: tuple[Spec, ...]) -> Any:
        client = specs[0].client
        for spec in specs:
            if spec.client is not client:
                got = " and ".join(str(s.client.device) for s in specs)
                hint = "moving one of them with .to(device)"
                raise DeviceError(self.name, "operands live on different devices", got, hint=hint)
            if self.accepts and spec.dtype not in self.accepts and not spec.weak:
                wanted = CATEGORY_NAMES.get(self.accepts, "one of " + str(self.accepts))
                hint = "casting with astype"
                raise DTypeError(
                    self.name, "dtype not supported", spec.dtype, wanted + " dtype", hint
                )
        return client

    def clear(self) -> None:
        """Forget all plans; the next call makes them anew."""
        self.hot.clear()
        self.cold.clear()


def clear_plans() -> None:
    """Forget the plans of every operator, for when default dtypes change."""
    for op in OPS.values():
        op.clear()


def _parameters(rule: Callable[..., Any] | None) -> tuple[str, ...]:
    return () if rule is None else rule.__code__.co_varnames[: rule.__code__.co_argcount]


def _out_specs(client: Any, op: Op, shape: Any, dtype: Any) -> Any:
    if op.kind == "dynamic":
        return None
    if op.outs:
        return tuple(spec_of(client, s, d) for s, d in zip(shape, dtype, strict=True))
    if shape and isinstance(shape[0], tuple):
        return spec_of(client, shape[0], dtype, shape[1])
    return spec_of(client, shape, dtype)


def _is_inexact(out: Any) -> bool:
    if out is None:
        return False
    return any(s.dtype.is_inexact for s in (out if isinstance(out, tuple) else (out,)))


def _limits(plan: Plan) -> tuple[int, int] | None:
    dtype = plan.operand
    if not isinstance(dtype, DType) or not dtype.is_integer:
        return None
    high = 2 ** (dtype.bits - (dtype.kind == "int")) - 1
    return (-high - 1 if dtype.kind == "int" else 0), high


def execute(plan: Plan, handles: Sequence[Any], nodes: Sequence[Any], mode: Mode) -> Any:
    """Launch ``plan`` (or hand it to the tracer), wrap the result and record it."""
    op = plan.op
    if mode.tracer is None:
        result = plan.run(*handles)
    elif op.kind == "dynamic":
        hint = f"calling {op.name} outside of the compiled step, or its form with a fixed size"
        raise CaptureError(op.name, "the shape of the result depends on values", hint=hint)
    else:
        result = mode.tracer.emit(plan, handles)
    spec = plan.out
    if spec is None:
        spec, result = result
    node = None
    if mode.grad and plan.records and any(n is not None for n in nodes):
        node = _record(plan, handles, nodes, result)
    if not op.outs:
        return wrap(spec, result, node)
    return tuple(
        wrap(s, h, None if node is None or not s.dtype.is_inexact else Output(node, i))
        for i, (s, h) in enumerate(zip(spec, result, strict=True))
    )


def _record(plan: Plan, handles: Sequence[Any], nodes: Sequence[Any], result: Any) -> Node:
    op, node = plan.op, Node()
    node.plan = plan
    versions = [getattr(h, "version", None) for h in handles]
    if len(nodes) > 3:
        node.x = tuple(nodes)
        keeps = range(len(handles)) if op.saves_all else op.saves
        node.sx = tuple(h if i in keeps else None for i, h in enumerate(handles))
        node.vx = tuple(versions)
    else:
        for name, edge in zip("xyz", nodes, strict=False):
            setattr(node, name, edge)
        for i in range(len(nodes)) if op.saves_all else op.saves:
            setattr(node, ("sx", "sy", "sz")[i], handles[i])
            setattr(node, ("vx", "vy", "vz")[i], versions[i])
    if op.keeps_out:
        node.out = result
        node.vout = tuple(h.version for h in result) if op.outs else result.version
    return node


def slow(
    op: Op,
    values: Sequence[Any],
    attrs: tuple[Any, ...] = (),
    out: Any = None,
    foreign: Any = None,
    client: Any = None,
) -> Any:
    """Any call: Python scalars, arrays, tracing, autocast and ``out=`` included.

    ``client`` says where an operator without tensor operands runs.
    """
    mode = MODE.get()
    if mode.cast is not None and op.cast is not None:
        values = [_cast(op, v, mode.cast) for v in values]
    if client is None:
        tensors = (v.spec.client for v in values if v.__class__ is RudaTensor)
        client = next(tensors, None) or client_of()
    operands = [operand(op.name, v, client) for v in values]
    if None in operands:
        if foreign is NotImplemented:
            return NotImplemented
        bad = values[operands.index(None)]
        hint = "ruda.asarray"
        got, wanted = f"{bad!r:.60} of type {type(bad).__name__}", "a tensor, array or scalar"
        raise DTypeError(op.name, "not an operand", got, wanted, hint)
    specs, handles, nodes = zip(*operands, strict=True)
    if op.kind == "view" and values[0].__class__ is not RudaTensor:
        values = (wrap(specs[0], handles[0]), *values[1:])
    plan = op.lookup(specs, attrs)
    if plan.limits is not None:
        _check_integers(plan, handles)
    result = execute(plan, handles, nodes, mode)
    if op.kind == "view":
        register_view(values[0], result)
    return result if out is None else out.assign(result)


def _cast(op: Op, value: Any, low: DType) -> Any:
    if value.__class__ is not RudaTensor:
        return value
    dtype = value.spec.dtype
    if op.cast == "low" and dtype.name == "float32":
        return value.astype(low)
    if op.cast == "high" and dtype.is_half:
        return value.astype("float32")
    return value


def _check_integers(plan: Plan, handles: Sequence[Any]) -> None:
    low, high = plan.limits  # type: ignore[misc]
    for spec, value in zip(plan.specs, handles, strict=True):
        if spec.weak and value.__class__ is int and not low <= value <= high:
            what = f"the Python integer does not fit {plan.operand}"
            raise IntegerRangeError(plan.op.name, what, value, f"{low} to {high}")


_new: Any = object.__new__


def _entry(op: Op) -> Callable[..., Any]:
    from_kind = {1: entry1, 2: entry2}.get(len(op.args))
    if op.attrs or op.outs or from_kind is None or op.kind in ("view", "dynamic"):
        call = entry_n(op)
    else:
        call = from_kind(op)
    call.__name__ = call.__qualname__ = op.name
    call.__doc__ = op.doc
    return call


def entry1(op: Op, foreign: Any = None) -> Callable[..., Any]:
    """The closure of an operator of one tensor without attributes."""
    find, mode_of, saves, save = op.hot.get, MODE.get, op.saves or op.keeps_out, op.save

    def call(x: Any, /, out: Any = None) -> Any:
        if x.__class__ is not RudaTensor or out is not None:
            return slow(op, (x,), (), out, foreign)
        plan = find(x.spec) or op.miss(x.spec, (x.spec,))
        mode = mode_of()
        if mode.special:
            return slow(op, (x,))
        hx, nx = x.handle, x.node
        t = _new(RudaTensor)
        t.spec = plan.out
        t.handle = h = plan.run(hx)
        t.qparams = None
        if nx is None or not (mode.grad and plan.records):
            t.node = None
            return t
        t.node = node = _new(Node)
        node.plan = plan
        node.x = nx
        if saves:
            save(node, hx, h)
        return t

    return call


def entry2(op: Op, foreign: Any = None) -> Callable[..., Any]:
    """The closure of an operator of two tensors without attributes."""
    find, mode_of, saves, save = op.hot.get, MODE.get, op.saves or op.keeps_out, op.save

    def call(x: Any, y: Any, /, out: Any = None) -> Any:
        if x.__class__ is not RudaTensor or y.__class__ is not RudaTensor or out is not None:
            return slow(op, (x, y), (), out, foreign)
        key = (x.spec, y.spec)
        plan = find(key) or op.miss(key, key)
        mode = mode_of()
        if mode.special:
            return slow(op, (x, y))
        hx, hy, nx, ny = x.handle, y.handle, x.node, y.node
        t = _new(RudaTensor)
        t.spec = plan.out
        t.handle = h = plan.run(hx, hy)
        t.qparams = None
        if (nx is None and ny is None) or not (mode.grad and plan.records):
            t.node = None
            return t
        t.node = node = _new(Node)
        node.plan = plan
        node.x = nx
        node.y = ny
        if saves:
            save(node, hx, hy, h)
        return t

    return call


def entry_n(op: Op) -> Callable[..., Any]:
    """The closure of everything else: tensors first, then the attributes, all by position."""
    arity = len(op.args)
    if op.attrs[-1:] == ("device",) and op.kind in ("create", "random"):
        # Such a row has scalars alone for operands: its device says where it runs.
        return lambda *values: slow(
            op, values[:arity], values[arity:], client=client_of(values[-1])
        )

    def call(*values: Any, out: Any = None) -> Any:
        return slow(op, values[:arity], values[arity:], out)

    return call


def variadic(op: Op, values: Sequence[Any], attrs: tuple[Any, ...] = ()) -> Any:
    """Call an operator whose number of tensors is open, such as concat."""
    return slow(op, values, attrs)


def reflected(op: Op) -> Callable[..., Any]:
    """The method ``__rop__`` of a binary operator: operands swapped."""

    def call(y: Any, x: Any, /) -> Any:
        return slow(op, (x, y), foreign=NotImplemented)

    return call
