"""How a reduction is laid over threads: rows or columns, teams, vector width, splits.

Axes are collapsed first. Where elements next to each other in memory belong to one output, a team
of threads reads along the run ("rows"); where they belong to neighbouring outputs, threads stand
side by side over them ("columns"). Sizes and strides stay arguments of the kernels; what is chosen
here by size (vector width, batches in flight) is a small number of classes.
"""

from __future__ import annotations

import math
import struct
from typing import NamedTuple

from ruda.core.errors import StrategyError
from ruda.core.shapes import Shape
from ruda.core.spec import Spec

THREADS = 256
LARGEST_RANK = 8
_MOST_STATE = 64  # bytes of running state in a thread of the column kernel
_SHORT_RUN = 32  # bytes
_FAR = 2**30  # beyond that many places, 64-bit indices


class Axis(NamedTuple):
    """Size, stride in the operand, and stride in the output (0 for a reduced axis)."""

    size: int
    step: int
    out: int = 0


class Axes(NamedTuple):
    """Collapsed axes, outermost first, and how far the first element to read lies from the base."""

    kept: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    offset: int


class Shaped(NamedTuple):
    """A launch: which kernel, its settings, its grid, and the numbers of its struct Geometry."""

    kernel: str
    settings: dict[str, int | str]
    grid: tuple[int, int]
    numbers: tuple[int, ...]
    splits: int
    align: int

    def packed(self, setting: bytes) -> bytes:
        """The bytes of the struct Geometry."""
        return struct.pack(f"<{len(self.numbers)}q", *self.numbers) + setting


def axes_of(x: Spec, axes: Shape, ordered: bool) -> Axes:
    """The axes of a reduction, collapsed; ``ordered`` keeps the order of the reduced elements."""
    kept = [
        Axis(n, s) for i, (n, s) in enumerate(zip(x.shape, x.strides, strict=True)) if i not in axes
    ]
    reduced = [Axis(x.shape[i], x.strides[i]) for i in axes]
    outer, step = [], 1
    for axis in reversed(kept):
        outer.append(Axis(axis.size, axis.step, step))
        step *= axis.size
    if any(a.size == 0 for a in reduced):
        return Axes((Axis(step, 0, 1),), (Axis(0, 0),), 0)
    offset = 0
    if not ordered:
        offset = sum((a.size - 1) * a.step for a in reduced if a.step < 0)
        reduced = [Axis(a.size, abs(a.step)) for a in reduced]
        # Repeated elements first, then from far apart to close by.
        reduced.sort(key=lambda a: (a.step != 0, -a.step))
    found = Axes(_joined(outer[::-1]), _joined(reduced), offset)
    if max(len(found.kept), len(found.reduced)) > LARGEST_RANK:
        what = f"more than {LARGEST_RANK} separate dimensions"
        raise StrategyError("reduce", what, x, hint="contiguous(x)")
    return found


def _joined(axes: list[Axis]) -> tuple[Axis, ...]:
    """Neighbouring axes joined where they step evenly."""
    out: list[Axis] = []
    for axis in axes:
        if axis.size == 1:
            continue
        if out and out[-1].step == axis.step * axis.size and out[-1].out == axis.out * axis.size:
            out[-1] = Axis(out[-1].size * axis.size, axis.step, axis.out)
        else:
            out.append(axis)
    return tuple(out)


def shape_of(axes: Axes, itemsize: int, state: int, units: int, scalar: bool = False) -> Shaped:
    """The launch for ``axes``; ``scalar`` where the address allows no wide reads.

    ``state`` is the size of an accumulator in bytes, ``units`` the number of multiprocessors.
    """
    steps = [abs(a.step) for a in axes.kept if a.step]
    inner = axes.reduced[-1] if axes.reduced else Axis(1, 0)
    along = not steps or (axes.reduced and inner.step != 0 and abs(inner.step) <= min(steps))
    # Many runs of a few bytes, side by side: threads stand over the outputs all the same.
    tiny = len(axes.reduced) > 1 and inner.size * itemsize < _SHORT_RUN
    if along and tiny and steps and min(steps) == inner.size * abs(inner.step):
        along = False
    if along or _size(axes.reduced) == 0:
        return _rows(axes, inner, itemsize, units, scalar)
    return _columns(axes, itemsize, state, units, scalar)


def _rows(axes: Axes, inner: Axis, itemsize: int, units: int, scalar: bool) -> Shaped:
    runs = axes.reduced[:-1]
    rows, count = _size(axes.kept), _size(runs)
    widest = max(1, min(8, 16 // itemsize)) if inner.step == 1 else 1
    steps = [inner.size, *(a.step for a in (*axes.kept, *runs))]
    vector = 1 if scalar else _dividing(widest, steps)
    packs = inner.size // vector
    # A run that starts anywhere is read by packs all the same once it is long.
    peel = widest > 1 and inner.size >= 64 * widest
    short = not peel and packs <= THREADS
    vector = widest if peel else vector
    flight = _flight(vector, itemsize)
    if short:
        lanes = _lanes(packs)
        many = count >= flight
        team = lanes * min(THREADS // lanes, _ceil2(-(-count // flight)))
        batch = (1, flight, 1) if many else (flight, 1, 1)
        chunk, pieces = max(inner.size, 1), 1
    else:
        lanes, team = _teams(inner.size // vector, count, rows, units)
        batch = (1, 1, flight)
        chunk = _chunk(rows * count * inner.size, lanes * vector * flight, units, lanes)
        chunk = min(chunk, inner.size) if lanes == THREADS else inner.size
        pieces = -(-inner.size // chunk)
    everything = count * pieces if inner.size else 0
    blocks = -(-rows // (THREADS // team * batch[0]))
    each = team // lanes * batch[1]
    splits = _splits(blocks, everything, each, units) if team == THREADS else 1
    settings = _settings(axes.kept, runs, vector, PEEL=int(peel))
    settings |= dict(zip(("ROWS", "RUNS", "STEPS"), batch, strict=True))
    wide = max(rows, everything * each, inner.size) > _FAR
    settings["INDEX"] = "u64" if wide else "u32"
    numbers = (
        *_columns_of(axes.kept, "size", "step"),
        *_columns_of(runs, "size", "step"),
        *(rows, inner.size, inner.step, chunk, pieces, everything, lanes, team),
    )
    align = 1 if peel else vector * itemsize
    return Shaped("rows", settings, (blocks, splits), numbers, splits, align)


def _lanes(packs: int) -> int:
    """Threads of a short run: as many as packs, else so many that few of them idle at its end."""
    if packs <= 32:
        return _ceil2(packs)
    return next(n for n in (32, 16, 8) if n == 8 or -(-packs // n) * n * 4 <= packs * 5)


def _flight(vector: int, itemsize: int) -> int:
    """Packs in flight in a thread: enough to cover the memory's latency, in few registers."""
    return 4 if vector > 2 or vector * itemsize >= 16 else 8


def _teams(packs: int, count: int, rows: int, units: int) -> tuple[int, int]:
    """Threads of a long run, and of a row: a warp, or the block where rows are few or long."""
    if packs >= 1024 or (count == 1 and rows < units * 16 and packs >= 64):
        return THREADS, THREADS
    return 32, 32 * min(8, _floor2(count))


def _chunk(total: int, step: int, units: int, lanes: int) -> int:
    """Elements of a piece of a long run: some steps of a block, more where there is much to do."""
    return step * max(1, min(16, total // (units * 32 * step)))


def _splits(blocks: int, pieces: int, each: int, units: int) -> int:
    """Blocks for one output: enough to fill the device, with equal shares of ``pieces``."""
    if blocks >= units * 16 or pieces <= each:
        return 1
    most = min(-(-units * 32 // blocks), -(-pieces // each))
    share = -(-pieces // (most * each))
    return -(-pieces // (share * each))


def _columns(axes: Axes, itemsize: int, state: int, units: int, scalar: bool) -> Shaped:
    place = min(
        (i for i, a in enumerate(axes.kept) if a.step), key=lambda i: abs(axes.kept[i].step)
    )
    inner = axes.kept[place]
    outer = axes.kept[:place] + axes.kept[place + 1 :]
    count = _size(axes.reduced)
    vector = 1
    if inner.step == 1 and not scalar:
        widest = max(1, min(8, 16 // itemsize, _MOST_STATE // _ceil2(state)))
        vector = _dividing(widest, [inner.size, *(a.step for a in (*outer, *axes.reduced))])
    flight = _flight(vector, itemsize)
    packs = inner.size // vector
    across = min(_ceil2(packs), 32)
    down = min(THREADS // across, _ceil2(-(-count // flight)))
    across = min(_ceil2(packs), THREADS // down)
    tiles, deep = -(-packs // across), THREADS // (across * down)
    blocks = tiles * -(-_size(outer) // deep)
    splits = 1
    if blocks < units * 16:
        most = max(1, min(-(-units * 32 // blocks), count // (down * flight * 2), 65535))
        splits = -(-count // -(-count // most))
    share = -(-count // splits)
    settings = _settings(outer, axes.reduced, vector, STEPS=flight)
    wide = max(_size(outer), tiles, count + THREADS * flight) > _FAR
    settings["INDEX"] = "u64" if wide else "u32"
    outputs = _size(axes.kept)
    numbers = (
        *_columns_of(outer, "size", "step", "out"),
        *_columns_of(axes.reduced, "size", "step"),
        *(_size(outer), inner.size, inner.step, inner.out, tiles, count, share, across, down),
        outputs,
    )
    return Shaped("columns", settings, (blocks, splits), numbers, splits, vector * itemsize)


def _settings(
    kept: tuple[Axis, ...], reduced: tuple[Axis, ...], vector: int, **more: int
) -> dict[str, int | str]:
    ranks = {"KEPT": max(len(kept), 1), "REDUCED": max(len(reduced), 1)}
    return {**ranks, "VECTOR": vector, **more}


def _columns_of(axes: tuple[Axis, ...], *fields: str) -> list[int]:
    """The sizes of ``axes``, then their steps, and so on; of one axis of length 1 for none."""
    return [getattr(a, field) for field in fields for a in axes or (Axis(1, 0),)]


def _size(axes: tuple[Axis, ...]) -> int:
    return math.prod(a.size for a in axes)


def _dividing(widest: int, numbers: list[int]) -> int:
    """The widest power of two up to ``widest`` that divides all ``numbers``."""
    return math.gcd(widest, *numbers)


def _ceil2(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


def _floor2(n: int) -> int:
    return 1 << max(n.bit_length() - 1, 0)
