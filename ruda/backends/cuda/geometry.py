"""Plans of element-by-element work: which form each operand has, and dimensions collapsed."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import NamedTuple

from ruda.core.shapes import Shape, contiguous_strides
from ruda.core.spec import Spec

LARGEST_RANK = 8


# Tiles are worth it from this size on, along both of their dimensions.
_SHORTEST_TURN = 16


class Layout(NamedTuple):
    """Collapsed sizes, and for each operand its form and its strides along them.

    ``count`` and ``tile`` are those of ``codegen.Map``; with ``count`` alone the last size and the
    last strides are those of packs.
    """

    sizes: Shape
    forms: tuple[str, ...]
    strides: tuple[Shape, ...]
    out: Shape | None
    count: int = 0  # type: ignore[assignment]
    tile: int = 0

    @property
    def is_flat(self) -> bool:
        """Whether nothing needs strides."""
        return not (self.count or self.tile or self.scatters or "strided" in self.forms)

    @property
    def scatters(self) -> bool:
        """Whether the output is written through strides."""
        return self.out is not None


def layout_of(operands: tuple[Spec, ...], out: Spec) -> Layout:
    """The simplest geometry in which ``operands`` broadcast to ``out``."""
    shape = out.shape
    shown = [_shown(spec, shape) for spec in operands]
    forms = [_form(spec, strides, shape) for spec, strides in zip(operands, shown, strict=True)]
    scatters = not out.contiguous
    if "strided" in forms or scatters:
        # One strided operand needs coordinates; a dense one has them as well then.
        forms = ["strided" if form == "dense" else form for form in forms]
    kept = [strides for strides, form in zip(shown, forms, strict=True) if form == "strided"]
    # The order of a row-major output joins with everything; a strided one has its own say.
    if scatters:
        # The order of the elements is free: that of the output's memory, so that writes join.
        order = sorted(range(len(shape)), key=lambda i: -abs(out.strides[i]))
        shape = tuple(shape[i] for i in order)
        kept = [tuple(s[i] for i in order) for s in (*kept, out.strides)]
    sizes, joined = collapsed(shape, kept)
    found = iter(joined)
    strides = tuple(next(found) if form == "strided" else () for form in forms)
    return Layout(sizes, tuple(forms), strides, next(found) if scatters else None)


def _shown(spec: Spec, out: Shape) -> Shape:
    """The strides of ``spec`` along the axes of ``out``; 0 where it repeats."""
    lead = len(out) - spec.ndim
    own = tuple(0 if n == 1 else s for n, s in zip(spec.shape, spec.strides, strict=True))
    return (0,) * lead + own


def _form(spec: Spec, strides: Shape, out: Shape) -> str:
    if spec.weak:
        return "value"
    if all(s == 0 for s in strides):
        return "single"
    return "dense" if spec.contiguous and spec.shape == out else "strided"


def collapsed(out: Shape, strides: list[Shape]) -> tuple[Shape, list[Shape]]:
    """Neighbouring axes joined wherever every operand steps evenly over both."""
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(out):
        if size == 1:
            continue
        here = [s[axis] for s in strides]
        joins = bool(sizes) and all(
            own[-1] == step * size for own, step in zip(steps, here, strict=True)
        )
        if joins:
            sizes[-1] *= size
            for own, step in zip(steps, here, strict=True):
                own[-1] = step
        else:
            sizes.append(size)
            for own, step in zip(steps, here, strict=True):
                own.append(step)
    return tuple(sizes) or (1,), [tuple(own) or (0,) for own in steps]


def by_packs(
    layout: Layout, itemsizes: tuple[int, ...], whole: Sequence[int] = ()
) -> Layout | None:
    """``layout`` with the last dimension in packs of up to 16 bytes, where strides allow it.

    ``itemsizes`` are those of the operands and, last, of the output; ``whole`` are more numbers of
    elements that have to be whole packs.
    """
    moving = [
        (s, size)
        for s, form, size in zip(layout.strides, layout.forms, itemsizes, strict=False)
        if form == "strided"
    ]
    runs = [(s, size) for s, size in moving if s[-1] == 1]
    if len(runs) < len([s for s, _ in moving if s[-1]]):
        return None
    if layout.out is not None and layout.out[-1] != 1:
        return None
    steps = [step for s in (*(s for s, _ in runs), layout.out or ()) for step in s[:-1]]
    widest = 16 // max(itemsizes[-1], *(size for _, size in runs), 1)
    count = math.gcd(widest, layout.sizes[-1], *steps, *whole)
    if count < 2:
        return None
    return _repacked(layout, count)


def _repacked(layout: Layout, count: int) -> Layout:
    row_major = contiguous_strides(layout.sizes)
    forms: list[str] = []
    strides: list[Shape] = []
    for form, own in zip(layout.forms, layout.strides, strict=True):
        if form != "strided":
            forms.append(form)
        elif own[-1] == 0:
            forms.append("same")
        else:
            forms.append("dense" if own == row_major else "run")
        strides.append((*own[:-1], count) if forms[-1] == "run" else own)
    sizes = (*layout.sizes[:-1], layout.sizes[-1] // count)
    out = None if layout.out is None else (*layout.out[:-1], count)
    return Layout(sizes, tuple(forms), tuple(strides), out, count)


def by_tiles(layout: Layout, itemsizes: tuple[int, ...]) -> Layout | None:
    """``layout`` in tiles, where one or two operands lie densely along another dimension."""
    sizes = layout.sizes
    out = layout.out or contiguous_strides(sizes)
    if len(sizes) < 2 or out[-1] != 1:
        return None
    across = [s for s in layout.strides if s and abs(s[-1]) > 1 and 1 in s[:-1]]
    if not across:
        return None
    turn = across[0].index(1)
    shortest = min(sizes[turn], sizes[-1])
    turned = [bool(s) and abs(s[-1]) > 1 and s[turn] == 1 for s in layout.strides]
    if shortest < _SHORTEST_TURN or not 1 <= sum(turned) <= 2:
        return None
    order = [*(i for i in range(len(sizes) - 1) if i != turn), turn, len(sizes) - 1]

    def ordered(numbers: Shape) -> Shape:
        return tuple(numbers[i] for i in order) if numbers else ()

    forms = tuple("turned" if t else f for t, f in zip(turned, layout.forms, strict=True))
    largest = max(size for size, t in zip(itemsizes, turned, strict=False) if t)
    tile = 64 if largest * sum(turned) <= 4 and shortest > 32 else 32
    strides = tuple(ordered(s) for s in layout.strides)
    return Layout(ordered(sizes), forms, strides, ordered(out), 0, tile)


def by_pairs(tiles: Layout, itemsizes: tuple[int, ...]) -> Layout | None:
    """``tiles`` of two-byte elements in pairs along both dimensions, where strides allow it."""
    moving = [(s, size) for s, size in zip(tiles.strides, itemsizes, strict=False) if s]
    if tiles.tile != 64 or tiles.out is None or [size for _, size in moving] != [2]:
        return None
    turned = moving[0][0]
    even = (*tiles.sizes[-2:], *turned[:-2], turned[-1], *tiles.out[:-1])
    if itemsizes[-1] != 2 or any(n % 2 for n in even):
        return None
    return tiles._replace(count=2)


def packed(layout: Layout, wide: bool) -> bytes:
    """The bytes of the struct Geometry that all kernels but the flat one take by value."""
    numbers = [] if layout.tile else [math.prod(layout.sizes)]
    numbers.extend(layout.sizes)
    for form, strides in zip(layout.forms, layout.strides, strict=True):
        if form in ("strided", "run", "same", "turned"):
            numbers.extend(strides)
    numbers.extend(layout.out or ())
    return struct.pack(f"<{len(numbers)}{'q' if wide else 'i'}", *numbers)


def needs_wide(specs: tuple[Spec, ...], out: Shape) -> bool:
    """Whether an index or an offset can pass 2^31 - 1."""
    size = 1
    for n in out:
        size *= n
    reach = [size]
    for spec in specs:
        reach.append(
            sum(abs(s) * (n - 1) for n, s in zip(spec.shape, spec.strides, strict=True)) + 1
        )
    # A grid-stride loop adds up to a whole grid to its index before it looks.
    return max(reach) > 2**31 - 2**22
