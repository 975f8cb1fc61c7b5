"""Where tensors of integers point, as strides: the geometry that index kernels share.

Two ways of reading have one form here. Each dimension of what is read has a stride in the index, a
stride in the tensor that is read or written (0 for dimensions of places) and a number that counts
places; each index tensor has the length of its axis and the step between its slots.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from ruda.backends.cuda.faults import Form
from ruda.backends.cuda.geometry import needs_wide
from ruda.core.dtypes import DType
from ruda.core.errors import IndexRangeError
from ruda.core.shapes import Shape, contiguous_strides
from ruda.core.spec import Spec, spec_of

THREADS = 256


class Pointing(NamedTuple):
    """How ``index`` points into a tensor; ``number`` counts the places of a line in order."""

    shape: Shape
    spot: Shape
    other: Shape
    number: Shape
    lengths: Shape
    steps: Shape
    apart: int
    form: Form

    @property
    def places(self) -> int:
        """How many places a line has."""
        return math.prod(n for n, k in zip(self.shape, self.number, strict=True) if k)


def by_index(op: str, shape: Shape, strides: Shape, index: Spec, axes: Shape) -> Pointing:
    """Whole slices at places for ``axes`` together, as the row ``index`` reads them."""
    several = len(axes) > 1
    places, spots = index.shape[several:], index.strides[several:]
    together = axes[-1] - axes[0] + 1 == len(axes)
    kept = [i for i in range(len(shape)) if i not in axes]
    lead = axes[0] if together else 0
    before, after = kept[:lead], kept[lead:]
    none = (0,) * len(places)
    numbers = contiguous_strides(places)
    lengths = tuple(shape[a] for a in axes)
    return Pointing(
        (*(shape[i] for i in before), *places, *(shape[i] for i in after)),
        (*(0 for _ in before), *spots, *(0 for _ in after)),
        (*(strides[i] for i in before), *none, *(strides[i] for i in after)),
        (*(0 for _ in before), *numbers, *(0 for _ in after)),
        lengths,
        tuple(strides[a] for a in axes),
        index.strides[0] if several else 0,
        Form(op, index, axes, lengths, wraps=True),
    )


def along(op: str, shape: Shape, strides: Shape, index: Spec, axes: Shape) -> Pointing:
    """Single elements along one axis, as the row ``take_along_axis`` reads them."""
    (axis,) = axes
    return Pointing(
        index.shape,
        index.strides,
        tuple(0 if i == axis else s for i, s in enumerate(strides)),
        tuple(int(i == axis) for i in range(len(shape))),
        (shape[axis],),
        (strides[axis],),
        0,
        Form(op, index, axes, (shape[axis],), wraps=True),
    )


def rows(op: str, shape: Shape, strides: Shape, index: Spec, axes: Shape) -> Pointing:
    """Rows of a table, counted from the front alone."""
    found = by_index(op, shape, strides, index, axes)
    return found._replace(form=Form(op, index, axes, found.lengths, wraps=False))


def packed(wide: bool, *numbers: Any) -> bytes:
    """A struct of integers, in the order given; tuples are arrays."""
    flat: list[int] = []
    for number in numbers:
        flat.extend(number if isinstance(number, tuple) else (number,))
    return struct.pack(f"<{len(flat)}{'q' if wide else 'i'}", *flat)


def is_wide(*specs: Spec) -> bool:
    """Whether an offset into one of ``specs`` can need 64 bits."""
    return any(needs_wide((spec,), spec.shape) for spec in specs if not spec.weak)


def integers(wide: bool) -> dict[str, str]:
    """The types that kernels take offsets and divisions in."""
    return {"I": "i64", "U": "u64"} if wide else {"I": "i32", "U": "u32"}


def blocks(client: Any, work: int, each: int) -> int:
    """Blocks for ``work`` pieces, ``each`` a block, at most what fills the device several times."""
    return min(-(-work // each), int(client.driver.multiprocessors) * 16)


Settle = Callable[[Any], Any]


def in_memory(client: Any, spec: Spec, dtype: DType | None = None) -> tuple[Spec, Settle]:
    """A spec that is no Python scalar, and what makes a handle of it from one of ``spec``."""
    if not spec.weak:
        return spec, lambda h: h
    return dense(client, spec, spec.shape, dtype)


def dense(client: Any, spec: Spec, shape: Shape, dtype: DType | None = None) -> tuple[Spec, Settle]:
    """The row-major spec of ``shape``, and what makes a handle of it: a copy if need be."""
    wanted = spec_of(client, shape, dtype or spec.dtype)
    if not spec.weak and spec.contiguous and spec.shape == shape and spec.dtype is wanted.dtype:
        return spec, lambda h: h
    return wanted, client.copier(wanted, spec)


def refuse_empty(pointing: Pointing) -> Callable[..., Any] | None:
    """What runs in place of a kernel where an axis has no slot at all and places are named."""
    if 0 not in pointing.lengths or not pointing.form.index.size:
        return None
    which = pointing.lengths.index(0)
    got = f"{pointing.form.index.size} places on axis {pointing.form.axes[which]} of size 0"

    def run(*_: Any) -> Any:
        raise IndexRangeError(pointing.form.op, "index out of range", got, "no index at all")

    return run
