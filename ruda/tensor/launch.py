"""One call, the general way: resolve the operands, find the plan, launch it, wrap, record.

Python scalars, arrays, tracing, autocast and ``out=`` all come through here; the entry closures
keep the common case for themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ruda.core.devices import client as client_of
from ruda.core.dtypes import DType, integer_range
from ruda.core.errors import DTypeError, IntegerRangeError, ShapeError
from ruda.core.mode import MODE, Mode
from ruda.core.spec import absent_spec
from ruda.tensor.node import Node, Output
from ruda.tensor.operands import operand
from ruda.tensor.saving import kept
from ruda.tensor.tensor import RudaTensor, wrap
from ruda.tensor.views import register_view

if TYPE_CHECKING:
    from ruda.tensor.dispatch import Op, Plan


def execute(plan: Plan, handles: Sequence[Any], nodes: Sequence[Any], mode: Mode) -> Any:
    """Launch ``plan`` (or hand it to the tracer), wrap the result and record it."""
    op, spec = plan.op, plan.out
    tracer = mode.tracer
    if tracer is None:
        result = plan.run(*handles)
    else:
        # What the trace knows the operands by is also what the tape has to save.
        handles, result = tracer.emit(plan, handles)
    if spec is None:
        spec, result = result
    node = None
    if mode.grad and plan.records and nodes.count(None) < len(nodes):
        node = record(plan, handles, nodes, result)
        if mode.recorder is not None:
            mode.recorder.recorded(node)
        if tracer is not None:
            tracer.recorded(node)
    if not op.outs:
        return wrap(spec, result, node)
    return outputs(spec, result, node)


def outputs(specs: Sequence[Any], handles: Sequence[Any], node: Node | None) -> tuple[Any, ...]:
    """The tensors of an operator with several outputs."""
    if node is None:
        return tuple([wrap(s, h) for s, h in zip(specs, handles, strict=True)])
    made = []
    for i, spec in enumerate(specs):
        made.append(wrap(spec, handles[i], Output(node, i) if spec.dtype.is_inexact else None))
    return tuple(made)


def record(plan: Plan, handles: Sequence[Any], nodes: Sequence[Any], result: Any) -> Node:
    """The node of one launch, with the values that the vjps of its tracked inputs name."""
    op, node = plan.op, Node()
    node.plan = plan
    keeps = kept(op, tuple([edge is not None for edge in nodes]))
    if len(nodes) > 3:
        held = [h if k else None for h, k in zip(handles, keeps, strict=True)]
        node.x, node.sx = tuple(nodes), tuple(held)
        node.vx = tuple([getattr(h, "version", None) for h in held])
    elif nodes:
        _save_few(node, handles, nodes, keeps)
    if op.keeps_out and op.outs:
        held = [h if k else None for h, k in zip(result, op.kept_outs, strict=True)]
        node.out = tuple(held)
        node.vout = tuple([None if h is None else h.version for h in held])
    elif op.keeps_out:
        node.out = result
        node.vout = result.version
    return node


def _save_few(node: Node, handles: Sequence[Any], nodes: Sequence[Any], keeps: list[bool]) -> None:
    """Edges and saved values of up to three inputs, None for what a joint vjp does without."""
    node.x = nodes[0]
    if node.plan.op.wants:
        node.sx = node.sy = node.sz = node.vx = node.vy = node.vz = None
    if keeps[0]:
        node.sx = handles[0]
        node.vx = getattr(handles[0], "version", None)
    if len(nodes) == 1:
        return
    node.y = nodes[1]
    if keeps[1]:
        node.sy = handles[1]
        node.vy = getattr(handles[1], "version", None)
    if len(nodes) == 2:
        return
    node.z = nodes[2]
    if keeps[2]:
        node.sz = handles[2]
        node.vz = getattr(handles[2], "version", None)


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
    if out is not None and out.__class__ is not RudaTensor:
        got = f"{out!r:.60} of type {type(out).__name__}"
        raise DTypeError(op.name, "out is not a tensor", got, "a ruda tensor")
    if mode.cast is not None and op.cast is not None:
        values = [_cast(op, v, mode.cast) for v in values]
    if client is None:
        tensors = (v.spec.client for v in values if v.__class__ is RudaTensor)
        client = next(tensors, None) or client_of()
    operands = operands_of(op, values, client)
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
    plan = op.lookup(specs, attrs, precision=mode.precision)
    if plan.limits is not None:
        check_integers(plan, handles)
    if mode.tracer is not None:
        mode.tracer.meet(values)
    result = execute(plan, handles, nodes, mode)
    if op.kind == "view":
        register_view(values[0], result)
    return result if out is None else _into(out, result, op)


def _into(out: Any, result: Any, op: Op) -> Any:
    """``out`` overwritten with ``result``, which must have its shape: nothing is broadcast."""
    if out.spec.shape != result.spec.shape:
        raise ShapeError(op.name, "out= does not fit the result", out.spec.shape, result.spec.shape)
    return out.assign(result)


def operands_of(op: Op, values: Sequence[Any], client: Any) -> list[Any]:
    """Each value as (spec, handle, node); absent where the row lets it be None, else None."""
    operands = [operand(op.name, v, client) for v in values]
    if None not in operands or not op.optional:
        return operands
    absent = absent_spec(client), None, None
    return [
        absent if value is None and name in op.optional else found
        for name, value, found in zip(op.args, values, operands, strict=True)
    ]


def _cast(op: Op, value: Any, low: DType) -> Any:
    if value.__class__ is not RudaTensor:
        return value
    dtype = value.spec.dtype
    if op.cast == "low" and dtype.name == "float32":
        return value.astype(low)
    if op.cast == "high" and dtype.is_half:
        return value.astype("float32")
    return value


def check_integers(plan: Plan, handles: Sequence[Any]) -> None:
    """Raise ``IntegerRangeError`` for a Python integer that does not fit the operands' dtype."""
    low, high = plan.limits  # type: ignore[misc]
    met = plan.op.dtype_of_operands(plan)
    for spec, dtype, value in zip(plan.specs, met, handles, strict=True):
        if spec.weak and value.__class__ is int and not low <= value <= high:
            raise not_in_range(plan.op.name, value, dtype)


def not_in_range(op: str, value: int, dtype: DType) -> IntegerRangeError:
    """The error for a Python integer that ``dtype`` cannot hold."""
    low, high = integer_range(dtype)
    expected = f"{low} to {high}" if dtype.is_integer else "what a Python float holds"
    hint = "a tensor of a wider dtype" if dtype.is_integer else "float('inf')"
    return IntegerRangeError(op, f"the Python integer does not fit {dtype}", value, expected, hint)
