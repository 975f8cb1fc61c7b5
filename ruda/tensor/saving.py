"""How a recorded call stores the values that its vjps name.

An operand is kept only for the sake of a tracked input: ``mask * x`` keeps the mask for the
gradient of ``x``, and not ``x`` for that of an untracked mask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def wanted_by(op: Any, i: int) -> tuple[bool, ...]:
    """For each input, whether its vjp names argument ``i`` (a joint or absent vjp: all alike)."""
    if op.wants:
        return tuple(op.args[i] in op.wants.get(arg, ()) for arg in op.args)
    if op.vjp is None or op.joint:
        return (i in op.saves or op.saves_all,) * len(op.args)
    return tuple(op.args[i] in names for names in op.vjp_names)


def kept(op: Any, tracked: tuple[bool, ...]) -> list[bool]:
    """For each argument, whether the vjp of a tracked input names it."""
    keeps: list[bool] | None = op.keeps.get(tracked)
    if keeps is None:
        if op.saves_all or (op.joint and not op.wants) or op.vjp is None:
            keeps = [op.saves_all or i in op.saves for i in range(len(tracked))]
        else:
            pairs = [zip(wanted, tracked, strict=True) for wanted in op.wanted]
            keeps = [any(w and t for w, t in pair) for pair in pairs]
        op.keeps[tracked] = keeps
    return keeps


def saver(op: Any) -> Callable[..., None] | None:
    """The function that stores saved handles and their versions on a node, by arity of ``op``."""
    make = {1: _saver1, 2: _saver2, 3: _saver3}.get(len(op.args))
    return None if make is None else make(op)


def _saver1(op: Any) -> Callable[..., None]:
    keeps_x, keeps_out = 0 in op.saves or op.saves_all, op.keeps_out

    def save(node: Any, hx: Any, out: Any) -> None:
        if keeps_x:
            node.sx = hx
            node.vx = hx.version
        if keeps_out:
            node.out = out
            node.vout = out.version

    return save


def _saver2(op: Any) -> Callable[..., None]:
    x_for_x, x_for_y = wanted_by(op, 0)
    y_for_x, y_for_y = wanted_by(op, 1)
    keeps_out = op.keeps_out

    def save(node: Any, hx: Any, hy: Any, out: Any) -> None:
        nx, ny = node.x is not None, node.y is not None
        if (x_for_x and nx) or (x_for_y and ny):
            node.sx = hx
            node.vx = hx.version
        if (y_for_x and nx) or (y_for_y and ny):
            node.sy = hy
            node.vy = hy.version
        if keeps_out:
            node.out = out
            node.vout = out.version

    return save


def _saver3(op: Any) -> Callable[..., None]:
    keeps_out, wants, keeps = op.keeps_out, bool(op.wants), op.keeps

    def save(node: Any, hx: Any, hy: Any, hz: Any, out: Any) -> None:
        tracked = node.x is not None, node.y is not None, node.z is not None
        keeps_x, keeps_y, keeps_z = keeps.get(tracked) or kept(op, tracked)
        if wants:
            node.sx = node.sy = node.sz = node.vx = node.vy = node.vz = None
        if keeps_x:
            node.sx = hx
            node.vx = hx.version
        if keeps_y:
            node.sy = hy
            node.vy = hy.version
        if keeps_z:
            node.sz = hz
            node.vz = None if hz is None else hz.version
        if keeps_out:
            node.out = out
            node.vout = out.version

    return save
