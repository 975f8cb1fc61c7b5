"""Where the operands of a product lie, in the terms of the vendor's libraries; arithmetic only.

A library multiplies matrices of which rows or columns have no gaps, and batches of them that lie
evenly. An operand that is neither is copied densely first, and so is one whose batch would take
many calls; any other view, transposed or broadcast, goes in as it is.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

from ruda.core.shapes import (
    Shape,
    broadcast_shapes,
    broadcast_strides,
    contiguous_strides,
)

# Calls of one product up to which copying an operand would cost more than it saves.
_FEW_CALLS = 8
# Matrices of one call: what the third dimension of a grid can count.
_LARGEST_BATCH = 65535


class Side(NamedTuple):
    """How a matrix lies: its rows without gaps, or its columns (``transposed``).

    ``leading`` is the distance between them, in elements.
    """

    transposed: bool
    leading: int


class Call(NamedTuple):
    """One call of the library: how many products, and where they start, in elements."""

    count: int  # type: ignore[assignment]
    x: int
    y: int
    out: int


class Geometry(NamedTuple):
    """A product ``[m, k] [k, n]``, batched, of operands that may have been copied first."""

    m: int
    n: int
    k: int
    x: Side
    y: Side
    steps: tuple[int, int, int]
    calls: tuple[Call, ...]
    copies: tuple[bool, bool]

    @property
    def is_single(self) -> bool:
        """Whether there is one product alone."""
        return len(self.calls) == 1 and self.calls[0].count == 1


class _Operand(NamedTuple):
    """A matrix with its batch strides along the axes of the result."""

    batch: Shape
    rows: int
    row: int
    columns: int
    column: int


def geometry(x: tuple[Shape, Shape], y: tuple[Shape, Shape]) -> Geometry:
    """The calls for ``x @ y``, each given by shape and strides; all sizes are positive."""
    copies = [not _fits(*x, left=True), not _fits(*y, left=False)]
    given = (x, y)
    while True:
        sides = [
            (shape, contiguous_strides(shape)) if copied else (shape, strides)
            for (shape, strides), copied in zip(given, copies, strict=True)
        ]
        found = _arranged(sides[0], sides[1], (copies[0], copies[1]))
        scattered = [
            not copied and not _is_even(*side) for side, copied in zip(sides, copies, strict=True)
        ]
        if len(found.calls) <= _FEW_CALLS or not any(scattered):
            return found
        copies = [a or b for a, b in zip(copies, scattered, strict=True)]


def _matrix(shape: Shape, strides: Shape, left: bool) -> tuple[Shape, Shape]:
    """A vector as one row on the left, as one column on the right."""
    if len(shape) > 1:
        return shape, strides
    return ((1, *shape), (0, *strides)) if left else ((*shape, 1), (*strides, 0))


def _fits(shape: Shape, strides: Shape, left: bool) -> bool:
    """Whether a library takes the operand as it lies."""
    shape, strides = _matrix(shape, strides, left)
    forward = all(s >= 0 or n == 1 for n, s in zip(shape[:-2], strides[:-2], strict=True))
    return forward and side(shape[-2:], strides[-2:]) is not None


def _is_even(shape: Shape, strides: Shape) -> bool:
    """Whether the batch axes of an operand are one axis."""
    axes = [(n, s) for n, s in zip(shape[:-2], strides[:-2], strict=True) if n > 1]
    return all(s == t * n for (_, s), (n, t) in itertools.pairwise(axes))


def side(shape: Shape, strides: Shape) -> Side | None:
    """How a matrix lies, None if neither its rows nor its columns are without gaps."""
    (rows, columns), (row, column) = shape, strides
    if (column == 1 or columns == 1) and (row >= columns or rows == 1):
        return Side(False, max(row if rows > 1 else 1, columns, 1))
    if (row == 1 or rows == 1) and (column >= rows or columns == 1):
        return Side(True, max(column if columns > 1 else 1, rows, 1))
    return None


def _arranged(
    x: tuple[Shape, Shape], y: tuple[Shape, Shape], copies: tuple[bool, bool]
) -> Geometry:
    (xs, xt), (ys, yt) = _matrix(*x, left=True), _matrix(*y, left=False)
    lead = broadcast_shapes("matmul", xs[:-2], ys[:-2])
    a = _Operand(_batch(xs, xt, lead), xs[-2], xt[-2], xs[-1], xt[-1])
    b = _Operand(_batch(ys, yt, lead), ys[-2], yt[-2], ys[-1], yt[-1])
    a, lead = _folded(a, b, lead)
    b = b._replace(batch=b.batch if lead else ())
    first = side((a.rows, a.columns), (a.row, a.column))
    second = side((b.rows, b.columns), (b.row, b.column))
    assert first is not None and second is not None
    steps, calls = _calls(a, b, lead)
    return Geometry(a.rows, b.columns, a.columns, first, second, steps, calls, copies)


def _batch(shape: Shape, strides: Shape, lead: Shape) -> Shape:
    own = tuple(0 if n == 1 else s for n, s in zip(shape[:-2], strides[:-2], strict=True))
    return broadcast_strides("matmul", shape[:-2], own, lead)


def _folded(a: _Operand, b: _Operand, lead: Shape) -> tuple[_Operand, Shape]:
    """The batch of the left operand as rows of one matrix, where the right one is shared."""
    if not lead or any(s and n > 1 for n, s in zip(lead, b.batch, strict=True)):
        return a, lead
    axes = [(n, s) for n, s in zip((*lead, a.rows), (*a.batch, a.row), strict=True) if n > 1]
    if any(s != t * n for (_, s), (n, t) in itertools.pairwise(axes)):
        return a, lead
    rows, row = math.prod(n for n, _ in axes), axes[-1][1] if axes else 0
    if side((rows, a.columns), (row, a.column)) is None:
        return a, lead
    return a._replace(batch=(), rows=rows, row=row), ()


def _calls(a: _Operand, b: _Operand, lead: Shape) -> tuple[tuple[int, int, int], tuple[Call, ...]]:
    """The longest axis of the batch goes into one call, the others are walked."""
    size = a.rows * b.columns
    of_out = tuple(s * size for s in contiguous_strides(lead))
    axes = _joined(list(zip(lead, a.batch, b.batch, of_out, strict=True)))
    if not axes:
        return (0, 0, size), (Call(1, 0, 0, 0),)
    longest = max(axes)
    axes.remove(longest)
    count, *steps = longest
    starts = [
        tuple(sum(i * axis[side] for i, axis in zip(at, axes, strict=True)) for side in (1, 2, 3))
        for at in itertools.product(*(range(axis[0]) for axis in axes))
    ]
    calls = tuple(
        Call(
            min(_LARGEST_BATCH, count - done),
            *(s + done * step for s, step in zip(start, steps, strict=True)),
        )
        for start in starts
        for done in range(0, count, _LARGEST_BATCH)
    )
    return (steps[0], steps[1], steps[2]), calls


def _joined(axes: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Neighbouring batch axes joined wherever both operands step evenly over them."""
    out: list[tuple[int, int, int, int]] = []
    for axis in axes:
        n = axis[0]
        if n == 1:
            continue
        if out and all(s == t * n for s, t in zip(out[-1][1:], axis[1:], strict=True)):
            out[-1] = (out[-1][0] * n, *axis[1:])
        else:
            out.append(axis)
    return out
