"""Operators that only move elements, read backwards: where operands lie in a result."""

from __future__ import annotations

from typing import Any

from ruda.core.shapes import Shape, reshape_strides


def origins(plan: Any, strides: Shape) -> list[tuple[Shape, int]] | None:
    """Strides and offset of each operand of ``plan`` in a result that has ``strides``.

    None where strides cannot tell, or where ``plan`` is not permute, reshape or concat.
    """
    name, given = plan.op.name, plan.specs[0]
    if name == "permute":
        order = plan.attrs[0]
        return [(tuple(strides[order.index(i)] for i in range(given.ndim)), 0)]
    if name == "reshape":
        found = reshape_strides(plan.out.shape, strides, given.shape)
        return None if found is None else [(found, 0)]
    if name != "concat":
        return None
    axis, starts = plan.attrs[0], [0]
    for spec in plan.specs:
        starts.append(starts[-1] + spec.shape[axis])
    return [(strides, start * strides[axis]) for start in starts[:-1]]
