"""How a recorded call stores the values that its vjps name: one small closure per pattern."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def saver(op: Any) -> Callable[..., None] | None:
    """The function that stores saved handles and their versions on a node, by arity of ``op``."""
    make = {1: _saver1, 2: _saver2}.get(len(op.args))
    return None if make is None else make(op)


def _saver1(op: Any) -> Callable[..., None]:
    keeps_x, keeps_out = 0 in op.saves, op.keeps_out

    def save(node: Any, hx: Any, out: Any) -> None:
        if keeps_x:
            node.sx = hx
            node.vx = hx.version
        if keeps_out:
            node.out = out
            node.vout = out.version

    return save


def _saver2(op: Any) -> Callable[..., None]:
    keeps_x, keeps_y, keeps_out = 0 in op.saves, 1 in op.saves, op.keeps_out

    def save(node: Any, hx: Any, hy: Any, out: Any) -> None:
        if keeps_x:
            node.sx = hx
            node.vx = hx.version
        if keeps_y:
            node.sy = hy
            node.vy = hy.version
        if keeps_out:
            node.out = out
            node.vout = out.version

    return save
