"""From a call to a cached plan: operators, their plans, and how a plan is made.

Each operator owns one entry closure (``entry.py``), which looks up the plan of the operands'
interned specs; a miss runs the row's rules once, here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ruda.core.devices import client as client_of
from ruda.core.dtypes import CATEGORY_NAMES, DType, integer_range
from ruda.core.errors import DeviceError, DTypeError
from ruda.core.mode import Precision
from ruda.core.shapes import check_addressable
from ruda.core.spec import Spec, spec_of, weak_spec
from ruda.tensor.entry import entry
from ruda.tensor.launch import execute, slow
from ruda.tensor.saving import saver, wanted_by

__all__ = ["OPS", "Op", "Plan", "clear_plans", "execute", "slow"]

CAPACITY = 4096
OPS: dict[str, Op] = {}


class Plan:
    """An operator for given specs and attributes, ready to run on handles.

    ``out`` is the spec of the output (a tuple for several outputs, None while it depends on
    values), ``operand`` the dtype that operands are cast to, ``records`` whether a node is worth
    building, ``limits`` the range of a Python integer among the operands (None: any), ``shares``
    whether the output shows the memory of the first operand, ``precision`` the faster arithmetic
    that a compute-bound operator may use (None: IEEE).
    """

    __slots__ = (
        "attrs",
        "limits",
        "op",
        "operand",
        "out",
        "precision",
        "records",
        "run",
        "shares",
        "specs",
    )

    op: Op
    specs: tuple[Spec, ...]
    attrs: tuple[Any, ...]
    out: Any
    operand: Any
    run: Callable[..., Any]
    records: bool
    shares: bool
    limits: tuple[int, int] | None
    precision: Precision | None


class Op:
    """One row of the operator table, with its plan caches and its entry closure ``call``.

    ``optional`` names the arguments that may be None (rules see ``is_absent`` specs, references
    None); ``dtype_error`` is what a dtype outside of ``accepts`` raises. ``takes`` tells the dtypes
    per argument where they differ and the dtype rule is what refuses others. ``wants`` tells which
    arguments the gradient of each needs where one vjp makes all: it gets None for the others.
    """

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
        optional: tuple[str, ...] = (),
        dtype_error: type[DTypeError] = DTypeError,
        takes: Mapping[str, tuple[DType, ...]] = MappingProxyType({}),
        wants: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
        cuda: Any = None,
    ) -> None:
        self.name, self.kind, self.grade = name, kind, grade
        self.args, self.attrs, self.outs = args, attrs, outs
        self.shape, self.dtype, self.numpy, self.expr = shape, dtype, numpy, expr
        self.accepts, self.domain, self.cast, self.bound = accepts, domain, cast, bound
        self.body, self.doc, self.exact = body, doc, exact
        self.optional, self.dtype_error, self.takes = optional, dtype_error, takes
        self.wants = wants
        self.hot: dict[Any, Plan] = {}
        self.cold: dict[Any, Plan] = {}
        self._set_vjp(vjp)
        self.wanted = tuple(wanted_by(self, i) for i in range(len(args)))
        self.keeps: dict[tuple[bool, ...], list[bool]] = {}
        self.save: Any = saver(self)
        # None, or why no kernel of a GPU belongs to the row.
        self.cuda = cuda
        self.call = entry(self)
        OPS[name] = self

    def __repr__(self) -> str:
        return f"<ruda op {self.name}: {self.grade} {self.kind}>"

    def _set_vjp(self, vjp: Any) -> None:
        """Read off the parameter names of the vjps what the tape has to keep."""
        self.vjp = vjp
        # Made by the first backward: what gets the values that each vjp names.
        self.pulls: Any = None
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
        self.kept_outs = tuple(name in named for name in self.outs)
        self.holds = bool(self.saves) or self.keeps_out or self.saves_all
        self.differentiable = vjp is not None or self.body is not None

    def lookup(
        self,
        specs: tuple[Spec, ...],
        attrs: tuple[Any, ...],
        client: Any = None,
        precision: Precision | None = None,
    ) -> Plan:
        """The plan of ``specs`` and ``attrs``, made now if it is not cached."""
        if precision is not None and self.bound == "compute":
            key: Any = (precision, *specs, *attrs)
            return self.hot.get(key) or self.miss(key, specs, attrs, client, precision)
        if attrs:
            key = (*specs, *attrs) if client is None else (client, *attrs)
        else:
            key = specs[0] if len(specs) == 1 else specs
        plan = self.hot.get(key)
        return self.miss(key, specs, attrs, client) if plan is None else plan

    def miss(
        self,
        key: Any,
        specs: tuple[Spec, ...],
        attrs: tuple[Any, ...] = (),
        client: Any = None,
        precision: Precision | None = None,
    ) -> Plan:
        """Bring a plan back from the cold cache or make it; a full hot cache turns cold."""
        plan = self.cold.pop(key, None)
        if plan is None:
            plan = self.plan(specs, attrs, client, precision)
        if len(self.hot) >= CAPACITY:
            # In place, because the entry closure holds on to this very dict.
            self.cold.clear()
            self.cold.update(self.hot)
            self.hot.clear()
        self.hot[key] = plan
        return plan

    def miss_scalar(self, key: Any, x: Spec, kind: str) -> Plan:
        """The plan of a tensor with a Python scalar of ``kind``, kept under ``key`` as well."""
        return self.miss(key, (x, weak_spec(x.client, kind)))

    def miss_scalar_left(self, key: Any, y: Spec, kind: str) -> Plan:
        """As ``miss_scalar``, with the scalar on the left."""
        return self.miss(key, (weak_spec(y.client, kind), y))

    def dtype_of_operands(self, plan: Plan) -> tuple[Any, ...]:
        """The dtype that each operand of ``plan`` is cast to; None leaves it as it is."""
        wanted = plan.operand
        return wanted if isinstance(wanted, tuple) else (wanted,) * len(plan.specs)

    def plan(
        self,
        specs: tuple[Spec, ...],
        attrs: tuple[Any, ...],
        client: Any = None,
        precision: Precision | None = None,
    ) -> Plan:
        """Run the row's rules on ``specs`` and bind a kernel; raises the row's typed errors."""
        client = self._check(specs) if client is None else client
        target = client_of(attrs[-1]) if self.kind == "transfer" else client
        plan = Plan()
        plan.op, plan.specs, plan.attrs, plan.precision = self, specs, attrs, precision
        plan.operand, out_dtype = self.dtype(self, specs, *attrs)  # type: ignore[misc]
        shape = self.shape(self, specs, *attrs)  # type: ignore[misc]
        plan.out = _out_specs(target, self, shape, out_dtype)
        plan.records = self.differentiable and _is_inexact(plan.out)
        plan.limits = _limits(plan) if any(s.weak for s in specs) else None
        plan.shares = self.kind == "view" and bool(shape) and isinstance(shape[0], tuple)
        # Whatever is not the CPU knows how to copy in both directions.
        plan.run = (client if target.device.kind == "cpu" else target).bind(plan)
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
                raise self.dtype_error(
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
    shape, strides = shape if shape and isinstance(shape[0], tuple) else (shape, None)
    check_addressable(op.name, shape, dtype.itemsize)
    return spec_of(client, shape, dtype, strides)


def _is_inexact(out: Any) -> bool:
    if out is None:
        return False
    return any(s.dtype.is_inexact for s in (out if isinstance(out, tuple) else (out,)))


def _limits(plan: Plan) -> tuple[int, int] | None:
    """The Python integers that the dtypes of weak integer operands hold."""
    pairs = zip(plan.specs, plan.op.dtype_of_operands(plan), strict=True)
    met = [d for s, d in pairs if s.weak and s.dtype.kind == "int" and d is not None]
    ranges = [integer_range(dtype) for dtype in met]
    return (max(low for low, _ in ranges), min(high for _, high in ranges)) if ranges else None
