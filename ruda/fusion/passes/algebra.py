"""Operators that change nothing, to the last bit, and values that are known beforehand.

``x * 1``, ``x - 0``, ``x + -0.0``, double negation, a cast back from a wider dtype, a copy of what
nobody overwrites, views that end where they began. ``x + 0`` stays: it makes 0.0 of -0.0.
"""

from __future__ import annotations

import math
from collections.abc import Set
from typing import Any

from ruda.core.dtypes import DType
from ruda.fusion.graph import Graph, Instruction, Value

_VIEWS = ("reshape", "permute", "slice", "expand")
# A constant takes memory as long as the step lives.
_LARGEST = 1 << 16


def simplify(graph: Graph, wanted: Set[Value]) -> None:
    """Let users of a result that is another value read that one."""
    shown = {value.memory for value in wanted}
    makers: dict[Value, Instruction] = {}
    instead: dict[Value, Value] = {}
    kept = []
    for instruction in graph.instructions:
        instruction.follow(instead)
        found = None
        if not any(v.memory in shown for v in instruction.outputs):
            found = _simpler(instruction, makers)
        if found is None:
            kept.append(instruction)
            makers.update((value, instruction) for value in instruction.outputs)
        else:
            instead[instruction.outputs[0]] = found
    graph.instructions = kept


def _simpler(instruction: Instruction, makers: dict[Value, Instruction]) -> Value | None:
    """The value that the only result of ``instruction`` equals."""
    plan = instruction.plan
    if plan is None or plan.out is None or plan.out.__class__ is tuple or plan.op.kind == "region":
        return None
    found = _known(instruction)
    if found is None and plan.op.name == "astype":
        found = _cast(instruction, makers)
    if found is None and (plan.shares or plan.op.name in ("copy", "unslice")):
        found = _shown(instruction, makers)
    if found is None:
        found = _same(instruction, makers)
    return found if found is not None and found.spec is plan.out else None


def _known(instruction: Instruction) -> Value | None:
    """A constant, where all operands are."""
    plan = instruction.plan
    if plan.shares or plan.op.kind not in ("create", "unary", "binary", "ternary", "cast"):
        return None
    if plan.out.nbytes > _LARGEST or any(v.kind != "constant" for v in instruction.inputs):
        return None
    return Value("constant", plan.out, plan.run(*(v.payload for v in instruction.inputs)))


def _cast(instruction: Instruction, makers: dict[Value, Instruction]) -> Value | None:
    """Casts by way of a dtype that holds everything: one cast, or none."""
    first = makers.get(instruction.inputs[0])
    if first is None or first.plan is None or first.plan.op.name != "astype":
        return None
    source, plan = first.inputs[0], instruction.plan
    if not _holds(first.plan.out.dtype, first.plan.specs[0].dtype):
        return None
    if source.spec is plan.out:
        return source
    other = plan.op.lookup(first.plan.specs, plan.attrs)
    if other.out is plan.out:
        instruction.inputs, instruction.plan, instruction.run = (source,), other, other.run
    return None


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of ``narrow`` is one of ``wide``."""
    if narrow.kind == "bool":
        return wide.is_integer or wide.is_floating
    if narrow.is_floating:
        return wide.is_floating and wide.itemsize > narrow.itemsize
    same = narrow.is_integer and wide.is_integer and narrow.kind == wide.kind
    return same and wide.itemsize > narrow.itemsize


def widens(plan: Any) -> bool:
    """Whether ``plan`` casts floats to a dtype that holds every one of them."""
    if plan is None or plan.op.kind != "cast":
        return False
    given = plan.specs[0].dtype
    return given.is_floating and _holds(plan.out.dtype, given)


def _shown(instruction: Instruction, makers: dict[Value, Instruction]) -> Value | None:
    """What a copy or a view shows without a change."""
    plan, source = instruction.plan, instruction.inputs[0]
    name = plan.op.name
    if name == "unslice":
        # All of its axes are whole.
        whole = source.spec is plan.out and not any(plan.attrs[1:])
        return source if whole else None
    if name != "copy" and name not in _VIEWS:
        return None
    if source.spec is plan.out:
        return source
    first = makers.get(source)
    if first is None or first.plan is None or first.op != name or not first.plan.shares:
        return None
    base = first.inputs[0]
    if name == "reshape":
        return base
    if name == "permute":
        order, again = first.plan.attrs[0], plan.attrs[0]
        return base if all(order[k] == i for i, k in enumerate(again)) else None
    return None


def _same(instruction: Instruction, makers: dict[Value, Instruction]) -> Value | None:
    """The operand that arithmetic leaves as it is."""
    plan, inputs = instruction.plan, instruction.inputs
    name, kind = plan.op.name, plan.out.dtype
    if kind.kind == "complex":
        return None
    if name == "negative":
        first = makers.get(inputs[0])
        return first.inputs[0] if first is not None and first.op == "negative" else None
    if len(inputs) != 2:
        return None
    for value, other in ((inputs[0], inputs[1]), (inputs[1], inputs[0])):
        first_operand = value is inputs[0]
        if _neutral(name, _number(other), kind, first_operand):
            return value
    return None


def _number(value: Value) -> Any:
    """A number that is the same in each replay: Python's, or a tensor of no axes."""
    if value.kind != "constant":
        return None
    spec = value.spec
    if spec is not None and not spec.weak and not spec.shape and spec.dtype.kind != "complex":
        return spec.client.read(spec, value.payload).item()
    return value.payload if value.payload.__class__ in (int, float) else None


def _neutral(name: str, number: Any, kind: DType, behind: bool) -> bool:
    """Whether ``name`` with ``number``, ``behind`` or before the other operand, gives that."""
    if number is None:
        return False
    if name == "multiply":
        return bool(number == 1)
    if name == "divide":
        return behind and number == 1 and kind.is_floating
    if number != 0:
        return False
    positive = math.copysign(1.0, number) > 0
    if name == "subtract":
        return behind and (positive or not kind.is_floating)
    return name == "add" and (not kind.is_floating or not positive)
