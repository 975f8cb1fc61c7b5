"""Tensors one after the other along an axis: one launch for up to 16 that are dense already."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.gather import UNITS, unit_of
from ruda.backends.cuda.prim.pointing import THREADS, blocks, integers, is_wide, packed
from ruda.backends.cuda.source import instance
from ruda.core.spec import spec_of

# The pointers and sizes of so many operands are parameters of one launch.
_MOST = 16


class _Group:
    """Dense operands of one launch: which they are, how long, where their columns start."""

    def __init__(self, client: Any, plan: Any, members: Sequence[tuple[int, int]]) -> None:
        (axis,), out = plan.attrs, plan.out
        self._client, self._out = client, out
        self._members = members
        self._apart = math.prod(out.shape[axis:])
        self._outer = math.prod(out.shape[:axis])
        size = out.dtype.itemsize
        self._inner = [math.prod(plan.specs[i].shape[axis:]) for i, _ in members]
        self._starts = [start for _, start in members]
        steps = (*self._inner, *self._starts)
        self._unit = unit_of(size, self._apart, steps)
        self._made = {self._unit: self._launcher(self._unit)}

    def __call__(self, address: int, handles: Sequence[Any]) -> None:
        """Copy the members of ``handles`` to their columns."""
        addresses = [handles[i].address for i, _ in self._members]
        joint = address
        for other in addresses:
            joint |= other
        unit = self._unit if joint % self._unit == 0 else self._out.dtype.itemsize
        if unit not in self._made:
            self._made[unit] = self._launcher(unit)
        self._made[unit](address, *addresses, *[0] * (_MOST - len(addresses)))

    def _launcher(self, unit: int) -> Launcher:
        each = unit // self._out.dtype.itemsize
        wide = is_wide(self._out)
        name = f"concat_{unit}b{'_wide' * wide}"
        source = instance(__file__, NAME=name, UNIT=UNITS[unit], MOST=_MOST, **integers(wide))
        none = (1,) * (_MOST - len(self._members))
        inner = (*(n // each for n in self._inner), *none)
        starts = (*(n // each for n in self._starts), *none)
        geometry = packed(wide, self._outer, self._apart // each, inner, starts)
        longest = self._outer * max(self._inner) // each
        grid = (blocks(self._client, longest, 4 * THREADS), len(self._members))
        return Launcher(self._client, source, name, grid, THREADS, (1, _MOST), [geometry])


def _bind(client: Any, plan: Any) -> Callable[..., Any]:
    (axis,), out = plan.attrs, plan.out
    behind = math.prod(out.shape[axis + 1 :])
    dense: list[tuple[int, int]] = []
    others: list[tuple[int, int, Any]] = []
    start = 0
    for i, spec in enumerate(plan.specs):
        if spec.size and spec.contiguous and spec.dtype is out.dtype:
            dense.append((i, start))
        elif spec.size:
            # Of another dtype or order: one launch for it alone, which casts.
            region = spec_of(client, spec.shape, out.dtype, out.strides)
            others.append((i, start * out.dtype.itemsize, client.writer(region, spec)))
        start += spec.shape[axis] * behind
    groups = [_Group(client, plan, dense[at : at + _MOST]) for at in range(0, len(dense), _MOST)]

    def run(*handles: Any) -> Any:
        result = allocate(client.pool, out)
        for group in groups:
            group(result.address, handles)
        for i, offset, write in others:
            write(result.address + offset, handles[i])
        return result

    return run


KERNELS = {"concat": _bind}
