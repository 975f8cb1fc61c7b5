"""Combining many values by slot: a stable sort by slot, then each slot's values in their order."""

from __future__ import annotations

import math
from typing import Any

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim import keys
from ruda.backends.cuda.prim.scatter import Write
from ruda.backends.cuda.prim.scattering import Work, dims_of
from ruda.backends.cuda.prim.segments import Rows, Segments, untouched
from ruda.backends.cuda.prim.sort import numbering
from ruda.core.dtypes import uint8, uint32
from ruda.core.errors import StrategyError
from ruda.core.spec import spec_of

# From this many bytes a row, rows that no place names are filled apart from those that are.
_LONG = 256


def fills_rest(work: Work) -> bool:
    """Whether every row of the output is written, so that nothing has to be there before.

    So it is where long rows lie one after the other in the order of the slots.
    """
    axes, nbytes = work.pointing.form.axes, work.out.nbytes // work.limit
    leads = work.whole and axes == tuple(range(len(axes)))
    return leads and nbytes % 16 == 0 and nbytes >= _LONG


def combined(work: Work) -> Write:
    """The launches that combine the values of ``work``; of more slots than fit 32 bits it raises.

    Where ``fills_rest`` says so and the base is not the output, other rows are those of the base.
    """
    client, p = work.client, work.pointing
    n = p.places if work.whole else math.prod(p.shape)
    if work.limit >= 2**32 - 1 or n >= 2**31:
        raise StrategyError(work.op, "more slots than 32 bits number", work.limit, 2**32 - 2)
    segments = Segments(client, _rows(work, n))
    sort = numbering(client, n, work.limit if work.dropped is not None else work.limit - 1)
    rest = _Rest(work) if fills_rest(work) else None
    number = _numbering(work, rest is not None)
    spec, faults, form = spec_of(client, (n,), uint32), client.faults, p.form
    by_value = work.value.weak

    def write(address: int, base: int, slots: Any, index: Any) -> None:
        found = allocate(client.pool, spec)
        marks = found if rest is None else rest.marks()
        number(found.address, marks.address, index.address, 0, *faults.parameters(form))
        if rest is not None and address != base:
            rest.fill(address, base, marks.address)
        segments(address, base, slots if by_value else slots[0], *sort(found))

    return write


def _numbering(work: Work, touches: bool) -> Launcher:
    """What finds the slot of each place: one index for whole slices, else one for each element."""
    p = work.pointing
    shape, spot, line = p.shape, p.spot, work.line
    if work.whole:
        several = len(p.lengths) > 1
        shape, spot = work.index.shape[several:], work.index.strides[several:]
        line = (0,) * len(shape)
    facts = (p.lengths, work.slots, p.apart, work.limit, work.dropped, p.form.wraps)
    entries = keys.Entries(shape, spot, line, *facts, work.index.dtype)
    return keys.bind(work.client, entries, touches, work.wide or work.limit > 2**31 - 2**22)


def _rows(work: Work, n: int) -> Rows:
    """The values as rows for places: slices that places select, or single elements."""
    dims, p = dims_of(work), work.pointing
    d = dims.place
    given = None if work.value.weak else work.value.dtype
    single = Rows(
        work.op,
        work.mode or "add",
        n,
        sizes=(1,),
        value=(0,),
        out=(0,),
        row=int(any(dims.value)),
        lengths=(work.limit,),
        steps=(1,),
        limit=work.limit,
        given=given,
        dtype=work.out.dtype,
        based=work.based,
        wide=work.wide,
    )
    if not work.whole:
        return single
    kept = [i for i in range(len(dims.sizes)) if i != d]
    sizes, value, other = (
        tuple(column[i] for i in kept) or (default,)
        for column, default in ((dims.sizes, 1), (dims.value, 0), (dims.other, 0))
    )
    row = 0 if d is None else dims.value[d]
    slices = single._replace(sizes=sizes, value=value, out=other, row=row)
    return slices._replace(lengths=p.lengths, steps=p.steps)


class _Rest:
    """Rows of the output that no place names: marks of those named, and what fills the others."""

    def __init__(self, work: Work) -> None:
        self._client, self._spec = work.client, spec_of(work.client, (work.limit,), uint8)
        nbytes = work.out.nbytes // work.limit
        self.fill = untouched(work.client, work.limit, nbytes, work.based)

    def marks(self) -> Any:
        """Fresh marks, all clear."""
        client = self._client
        marks = allocate(client.pool, self._spec)
        client.driver.fill(marks.address, 0, self._spec.nbytes, client.now.stream)
        return marks
