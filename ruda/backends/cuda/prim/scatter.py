"""Writing where tensors of integers point, a thread for each value: few places, and put of many."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.gather import UNITS, unit_of
from ruda.backends.cuda.prim.pointing import THREADS, blocks, integers, packed
from ruda.backends.cuda.prim.scattering import Dims, Work, dims_of
from ruda.backends.cuda.prim.segments import COMBINE
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import compute_of, int32
from ruda.core.errors import StrategyError
from ruda.core.shapes import Shape
from ruda.core.spec import spec_of

# From (address of the output, address of the base, slots of the value, handle of the index).
Write = Callable[[int, int, Any, Any], None]


def few(work: Work) -> Write:
    launchers = _Scattering(work, 0)
    faults, form = work.client.faults, work.pointing.form

    def write(address: int, _: int, slots: Any, index: Any) -> None:
        launch = launchers.at(address | slots[0])
        launch(address, *slots, index.address, 0, *faults.parameters(form))

    return write


def claimed(work: Work) -> Write:
    """The last place that names a slot claims it; then those that own their claim write."""
    client = work.client
    if work.pointing.places >= 2**31 or work.limit >= 2**31:
        raise StrategyError(work.op, "more places than 32 bits number", work.limit, 2**31 - 1)
    claim, put = _Scattering(work, 1), _Scattering(work, 2)
    faults, form = client.faults, work.pointing.form
    spec = spec_of(client, (work.limit,), int32)

    def write(address: int, _: int, slots: Any, index: Any) -> None:
        claims = allocate(client.pool, spec)
        client.driver.fill(claims.address, 0xFF, spec.nbytes, client.now.stream)
        at = (index.address, claims.address, *faults.parameters(form))
        claim.at(1)(address, *slots, *at)
        put.at(address | slots[0])(address, *slots, *at)

    return write


class _Scattering:
    """The launchers of one form of ``scatter.cu``, by the size of what they move."""

    def __init__(self, work: Work, form: int) -> None:
        self._work, self._form = work, form
        self._dims = dims = dims_of(work)
        size = self._size = self._widest = work.out.dtype.itemsize
        self._by_value = work.value.weak
        self._moves = work.mode is None and not self._by_value
        self._moves = self._moves and work.value.dtype is work.out.dtype
        last = (dims.value[-1], dims.other[-1], dims.spot[-1], dims.number[-1])
        if self._moves and form != 1 and last == (1, 1, 0, 0) and dims.line[-1] == 0:
            steps = (*dims.value[:-1], *dims.other[:-1], *work.pointing.steps)
            self._widest = unit_of(size, dims.sizes[-1], steps)
        self._made: dict[int, Launcher] = {}
        self.at(0 if form != 1 else 1)

    def at(self, joint: int) -> Launcher:
        """The launcher for addresses whose bits joined are ``joint``."""
        unit = self._widest if joint % self._widest == 0 else self._size
        if unit not in self._made:
            self._made[unit] = self._launcher(unit)
        return self._made[unit]

    def _launcher(self, unit: int) -> Launcher:
        work, dims, form = self._work, self._entries(), self._form
        dtype, drops = work.out.dtype, work.dropped is not None
        given = work.value.dtype if not self._by_value else dtype
        bits = UNITS[unit] if self._moves else ""
        p, wide, index = work.pointing, work.wide, work.index.dtype
        kind = f"{unit}b" if bits else f"{code_of(given)}{'v' * self._by_value}_{code_of(dtype)}"
        name = "_".join(
            (
                f"scatter_{work.mode or 'put'}{form}",
                kind,
                f"{code_of(index)}_r{len(dims.sizes)}k{len(p.lengths)}",
                *(["drop"] if drops else []),
                *([] if p.form.wraps else ["rows"]),
                *(["wide"] if wide else []),
            )
        )
        source = instance(
            __file__,
            NAME=name,
            FORM=form,
            T=bits or stored(dtype),
            C=bits or computed(dtype),
            V=bits or stored(given),
            INDEX=stored(index),
            RANK=len(dims.sizes),
            COUNT=len(p.lengths),
            WRAPS=str(p.form.wraps).lower(),
            PUT=int(work.mode is None),
            DROPS=int(drops),
            BYVALUE=int(self._by_value),
            **{"COMBINE(a, b)": COMBINE[work.mode or "add"]},
            **integers(wide),
        )
        geometry, n = self._geometry(dims, unit // self._size)
        grid = blocks(work.client, n, THREADS)
        width = 2 if self._by_value and compute_of(dtype).itemsize == 16 else 1
        widths = (1, width, 1, 1, 3)
        return Launcher(work.client, source, name, grid, THREADS, widths, [geometry])

    def _entries(self) -> Dims:
        """The dimensions to run over: of the index alone where values are not looked at."""
        dims, d = self._dims, self._dims.place
        if self._form != 1 or not self._work.whole or d is None:
            return dims
        return Dims(*((column[d],) for column in dims))

    def _geometry(self, dims: Dims, each: int) -> tuple[bytes, int]:
        """The struct Geometry in units of ``each`` elements, and how many entries it has."""
        work, p, d = self._work, self._work.pointing, dims.place
        sizes = (*dims.sizes[:-1], dims.sizes[-1] // each)
        n = math.prod(sizes)
        value = _in_units(dims.value, each)
        line = 0 if d is None else value[d]
        place = 0 if d is None else dims.spot[d]
        numbers = (n, p.places, place, line, sizes, value, dims.spot, _in_units(dims.other, each))
        steps = tuple(s // each for s in p.steps)
        rest = (dims.line, dims.number, p.lengths, steps, work.slots, p.apart, work.dropped or 0)
        return packed(work.wide, *numbers, *rest), n


def _in_units(strides: Shape, each: int) -> Shape:
    """Strides counted in units of ``each`` elements; the innermost one is that of a unit."""
    return strides if each == 1 else (*(s // each for s in strides[:-1]), strides[-1])
