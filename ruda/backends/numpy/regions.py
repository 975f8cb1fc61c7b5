"""Chains of elementwise operators of a compiled step, done a tile at a time.

Each operator is the loop that it is by itself, so every bit is what eager code gives; but what lies
between two of them is a tile that stays in the cache, and memory sees the ends of a chain alone.
Smaller tiles cost more calls than they save: six operators on 4 M float32 took 7.2 ms in tiles of
2^18, 8.1 of 2^17, 10.7 of 2^16, and 12.5 one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ruda.backends.numpy.buffers import empty
from ruda.backends.numpy.kernels import enabled, loop
from ruda.backends.numpy.large import ufunc_of
from ruda.backends.numpy.memory import handle_of
from ruda.backends.numpy.pool import POOL, TILE, tiles


def fuses(plan: Any) -> bool:
    """Whether ``plan`` can be a step of a region."""
    return _loop_of(plan) is not None


def _loop_of(plan: Any) -> Callable[..., Any] | None:
    """What computes a plan from flat operands into a flat result, its last argument, or None."""
    out = plan.out
    if out is None or out.__class__ is tuple or plan.op.attrs or out.size < TILE:
        return None
    if any(not s.weak and (s.shape != out.shape or not s.contiguous) for s in plan.specs):
        return None
    ufunc = ufunc_of(plan)
    return loop(plan) or (None if ufunc is None else _into(ufunc))


def _into(ufunc: Any) -> Callable[..., Any]:
    """``ufunc`` with the result behind its operands, where NumPy wants to hear what it is."""

    def run(*values: Any) -> None:
        ufunc(*values[:-1], out=values[-1])

    return run


def bind_region(region: Any) -> Callable[..., tuple[Any, ...]]:
    """The function from input handles to the handles of what is kept."""
    shape, dtypes = region.out[0].shape, [out.dtype.numpy for out in region.out]
    size = region.out[0].size
    parts = tiles(size) if enabled() else tiles(size, size)
    scalars, program = _scalars(region), _Program(region)

    def run(*handles: Any) -> tuple[Any, ...]:
        outs = [empty(shape, dtype) for dtype in dtypes]
        flat = [
            h.array.reshape(-1) if dtype is None else np.asarray(h, dtype)
            for h, dtype in zip(handles, scalars, strict=True)
        ]
        whole = [out.reshape(-1) for out in outs]
        POOL.run(lambda i: program.run(flat, whole, parts[i]), len(parts))
        return tuple([handle_of(out) for out in outs])

    return run


def _scalars(region: Any) -> list[Any]:
    """For each operand the dtype that a Python scalar is taken in, None for a tensor."""
    found: list[Any] = [None] * len(region.specs)
    for step in region.steps:
        casts = step.plan.op.dtype_of_operands(step.plan)
        for place, spec, cast in zip(step.sources, step.plan.specs, casts, strict=True):
            if spec.weak:
                found[place] = cast.numpy
    return found


class _Program:
    """The steps of a region, each with the place of its result: one of the kept ones, or spare."""

    def __init__(self, region: Any) -> None:
        first = len(region.specs)
        last = {s: i for i, step in enumerate(region.steps) for s in step.sources}
        self.spare: list[Any] = []
        self.steps: list[tuple[Callable[..., Any], Sequence[int], int, int]] = []
        free: list[int] = []
        homes: dict[int, int] = {}
        for i, step in enumerate(region.steps):
            kept = region.kept.index(i) if i in region.kept else -1
            home = -1 if kept >= 0 else self._home(free, step.plan.out.dtype.numpy)
            homes[first + i] = home
            self.steps.append((_loop_of(step.plan), step.sources, kept, home))  # type: ignore[arg-type]
            # Behind the step: a loop does not write where it reads.
            free += {homes[s] for s in step.sources if last[s] == i and homes.get(s, -1) >= 0}

    def _home(self, free: list[int], dtype: Any) -> int:
        """A spare piece of ``dtype`` that nobody needs."""
        for home in free:
            if self.spare[home] == dtype:
                free.remove(home)
                return home
        self.spare.append(dtype)
        return len(self.spare) - 1

    def run(self, operands: Sequence[Any], outs: Sequence[Any], part: slice) -> None:
        """All steps on a part of flat ``operands``, into the same part of ``outs``."""
        spare = [empty((part.stop - part.start,), dtype) for dtype in self.spare]
        values = [x[part] if x.ndim else x for x in operands]
        for function, sources, kept, home in self.steps:
            result = outs[kept][part] if kept >= 0 else spare[home]
            function(*[values[s] for s in sources], result)
            values.append(result)
