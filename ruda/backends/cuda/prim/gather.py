"""Reading where tensors of integers point, in one launch: slices, single elements, table rows.

Elements are moved as bits, in units of up to 16 bytes where the innermost dimension of what is read
is whole, dense and aligned; so one kernel serves all dtypes of a size.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from ruda.backends.cuda.geometry import collapsed
from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.pointing import (
    THREADS,
    Pointing,
    along,
    blocks,
    by_index,
    in_memory,
    integers,
    is_wide,
    packed,
    refuse_empty,
    rows,
)
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, stored

UNITS = {1: "u8", 2: "u16", 4: "u32", 8: "u64", 16: "Sixteen"}


def unit_of(itemsize: int, run: int, steps: Sequence[int]) -> int:
    """The bytes that can be moved at once: ``run`` dense elements, strides ``steps`` between."""
    whole = math.gcd(16, *(itemsize * abs(n) for n in (run, *steps)))
    return max(whole & -whole, itemsize)


def _bind(client: Any, plan: Any, pointing: Pointing, settle: Any) -> Callable[..., Any]:
    out = plan.out
    empty = refuse_empty(pointing)
    if empty is not None:
        return empty
    pool, faults, form = client.pool, client.faults, pointing.form
    launcher = _Launchers(client, plan, pointing)

    def run(hx: Any, hi: Any) -> Any:
        result = allocate(pool, out)
        if out.size:
            hi = settle(hi)
            launch = launcher.at(result.address | hx.address)
            launch(result.address, hx.address, hi.address, *faults.parameters(form))
        return result

    return run


class _Launchers:
    """The kernels of one plan, by the size of what they move; made when first needed."""

    def __init__(self, client: Any, plan: Any, pointing: Pointing) -> None:
        self._client, self._pointing = client, pointing
        x, out = plan.specs[0], plan.out
        self._size = x.dtype.itemsize
        self._wide = is_wide(x, out, pointing.form.index)
        self._sizes, (self._other, self._spot) = collapsed(
            pointing.shape, [pointing.other, pointing.spot]
        )
        self._widest = self._size
        if self._other[-1] == 1 and self._spot[-1] == 0:
            steps = (*self._other[:-1], *pointing.steps)
            self._widest = unit_of(self._size, self._sizes[-1], steps)
        if out.size:
            self.at(0)

    def at(self, joint: int) -> Launcher:
        """The one for addresses whose bits joined are ``joint``."""
        return self._made(self._widest if joint % self._widest == 0 else self._size)

    @functools.cache  # noqa: B019  (as long-lived as the plan)
    def _made(self, unit: int) -> Launcher:
        pointing, client, each = self._pointing, self._client, unit // self._size
        index = pointing.form.index.dtype
        rank, count = len(self._sizes), len(pointing.lengths)
        wraps = "" if pointing.form.wraps else "_rows"
        name = f"gather{wraps}_{unit}b_{code_of(index)}_r{rank}k{count}{'_wide' * self._wide}"
        source = instance(
            __file__,
            NAME=name,
            UNIT=UNITS[unit],
            INDEX=stored(index),
            RANK=rank,
            COUNT=count,
            WRAPS=str(pointing.form.wraps).lower(),
            **integers(self._wide),
        )
        sizes = (*self._sizes[:-1], self._sizes[-1] // each)
        n = math.prod(sizes)
        # The innermost stride of 1 stays what it is, in units.
        other = (*(s // each for s in self._other[:-1]), self._other[-1])
        steps = tuple(s // each for s in pointing.steps)
        geometry = packed(
            self._wide, n, sizes, other, self._spot, pointing.lengths, steps, pointing.apart
        )
        grid = blocks(client, n, 4 * THREADS)
        return Launcher(client, source, name, grid, THREADS, (1, 1, 1, 3), [geometry])


def reader(way: Any) -> Callable[[Any, Any], Callable[..., Any]]:
    """What binds the row that reads in this way."""

    def bind(client: Any, plan: Any) -> Callable[..., Any]:
        x, index = plan.specs
        axes = plan.attrs[0]
        index, settle = in_memory(client, index)
        pointing = way(plan.op.name, x.shape, x.strides, index, axes)
        return _bind(client, plan, pointing, settle)

    return bind


def _table(client: Any, plan: Any) -> Callable[..., Any]:
    x, index = plan.specs
    index, settle = in_memory(client, index)
    return _bind(client, plan, rows("embedding", x.shape, x.strides, index, (0,)), settle)


KERNELS = {"index": reader(by_index), "take_along_axis": reader(along), "embedding": _table}
