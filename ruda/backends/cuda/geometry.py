"""Plans of element-by-element work: which form each operand has, and dimensions collapsed."""

from __future__ import annotations

import struct
from typing import NamedTuple

from ruda.core.shapes import Shape
from ruda.core.spec import Spec

LARGEST_RANK = 8


class Layout(NamedTuple):
    """Collapsed sizes, and for each operand its form and its strides along them."""

    sizes: Shape
    forms: tuple[str, ...]
    strides: tuple[Shape, ...]
    out: Shape | None

    @property
    def is_flat(self) -> bool:
        """Whether nothing needs strides."""
        return "strided" not in self.forms and not self.scatters

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
    sizes, joined = collapsed(shape, [*kept, out.strides] if scatters else kept)
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


def packed(layout: Layout, wide: bool) -> bytes:
    """The bytes of the struct Geometry that strided kernels take by value."""
    n = 1
    for size in layout.sizes:
        n *= size
    numbers = [n, *layout.sizes]
    for form, strides in zip(layout.forms, layout.strides, strict=True):
        if form == "strided":
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
