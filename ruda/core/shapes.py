"""Pure shape algebra: broadcasting, strides and axes. Strides count elements, not bytes."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from ruda.core.errors import ArgumentError, AxisError, DTypeError, ShapeError

Shape: TypeAlias = tuple[int, ...]


@functools.lru_cache(maxsize=4096)
def contiguous_strides(shape: Shape) -> Shape:
    """Row-major strides of ``shape``.

    >>> contiguous_strides((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def is_contiguous(shape: Shape, strides: Shape) -> bool:
    """Whether elements lie in row-major order without gaps; axes of length 1 do not matter."""
    if 0 in shape:
        return True
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1:
            if stride != step:
                return False
            step *= size
    return True


def extent(shape: Shape, strides: Shape) -> tuple[int, int]:
    """Between which elements, the end excluded, all lie, counted from the first; of some elements.

    >>> extent((2, 3), (-4, 1))
    (-4, 3)
    """
    steps = [s * (n - 1) for n, s in zip(shape, strides, strict=True)]
    return sum(s for s in steps if s < 0), sum(s for s in steps if s > 0) + 1


def repeats_memory(shape: Shape, strides: Shape) -> bool:
    """Whether two places may lie at one address, as where an axis is broadcast or windows overlap.

    Exact for what slicing, permuting and diagonals make of row-major memory.
    """
    if 0 in shape:
        return False
    reach = 0
    for stride, size in sorted((abs(s), n) for n, s in zip(shape, strides, strict=True) if n > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def broadcast_shapes(op: str, *shapes: Shape) -> Shape:
    """The shape that all ``shapes`` broadcast to; raises ``ShapeError`` naming ``op``.

    >>> broadcast_shapes("add", (3, 1), (4,))
    (3, 4)
    """
    rank = max(map(len, shapes), default=0)
    out = [1] * rank
    for shape in shapes:
        for i, size in enumerate(shape, rank - len(shape)):
            if size == 1 or out[i] == size:
                continue
            if out[i] != 1:
                got = " and ".join(map(str, shapes))
                expected = "sizes that are equal or 1 on each axis, counted from the right"
                raise ShapeError(op, "shapes do not broadcast", got, expected)
            out[i] = size
    return tuple(out)


def broadcasts_to(shape: Shape, target: Shape) -> bool:
    """Whether ``shape`` can be repeated to ``target``, which stays as it is.

    >>> broadcasts_to((3, 1), (2, 3, 4)), broadcasts_to((3, 4), (3, 1))
    (True, False)
    """
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(n in (1, m) for n, m in pairs)


def broadcast_strides(op: str, shape: Shape, strides: Shape, target: Shape) -> Shape:
    """Strides that show ``shape`` as ``target``: repeated axes get stride 0."""
    lead = len(target) - len(shape)
    if not broadcasts_to(shape, target):
        raise ShapeError(op, "cannot broadcast", got=shape, expected=f"a shape that fits {target}")
    own = (
        0 if a == 1 and b != 1 else s for a, b, s in zip(shape, target[lead:], strides, strict=True)
    )
    return (0,) * lead + tuple(own)


def index(value: Any, op: str, name: str = "axis") -> int:
    """``value`` as a Python integer, or a ``DTypeError`` that names the argument."""
    if isinstance(value, bool):
        raise DTypeError(op, f"{name} must be an integer", got=repr(value), expected="an integer")
    try:
        return operator.index(value)
    except TypeError:
        got = f"{value!r} of type {type(value).__name__}"
        raise DTypeError(op, f"{name} must be an integer", got, "an integer") from None


def normalize_axis(axis: Any, rank: int, op: str) -> int:
    """``axis`` counted from the front; raises ``AxisError`` when it is out of range."""
    value = index(axis, op)
    if not -rank <= value < rank:
        expected = f"-{rank} to {rank - 1}" if rank else "no axis, for a 0-d tensor"
        raise AxisError(op, "axis out of range", got=value, expected=expected)
    return value + rank if value < 0 else value


def normalize_axes(axis: Any, rank: int, op: str) -> Shape:
    """``axis`` (None for all, an integer, or a sequence) as sorted distinct axes."""
    if axis is None:
        return tuple(range(rank))
    if isinstance(axis, Sequence):
        axes = tuple(normalize_axis(a, rank, op) for a in axis)
        if len(set(axes)) != len(axes):
            raise AxisError(op, "an axis is named twice", got=tuple(axis))
        return tuple(sorted(axes))
    return (normalize_axis(axis, rank, op),)


def _sizes(shape: Any, op: str) -> list[int]:
    """``shape``, an integer or a sequence of them, as a list of integers."""
    is_many = shape.__class__ is tuple or isinstance(shape, Iterable)
    sizes = shape if is_many else (shape,)
    return [n if n.__class__ is int else index(n, op, "shape") for n in sizes]


def normalize_shape(shape: Any, op: str) -> Shape:
    """``shape`` (an integer or a sequence of them) as a tuple without negative sizes."""
    out = tuple(_sizes(shape, op))
    if min(out, default=0) < 0:
        raise ShapeError(op, "a size is negative", got=out, expected="sizes of at least 0")
    return out


MAX_RANK = 64
MAX_BYTES = 2**63 - 1


def check_addressable(op: str, shape: Shape, itemsize: int) -> None:
    """Raise ``ShapeError`` for more axes or bytes than memory can be addressed with."""
    if len(shape) > MAX_RANK:
        raise ShapeError(op, "too many axes", f"{len(shape)} axes", f"at most {MAX_RANK}")
    # Axes of length 0 do not help: strides are computed from all of the others.
    if math.prod(n for n in shape if n) * itemsize > MAX_BYTES:
        raise ShapeError(op, "too many elements to address", shape, f"at most {MAX_BYTES} bytes")


def infer_shape(shape: Any, size: int, op: str) -> Shape:
    """``shape`` with one -1 replaced so that it holds ``size`` elements."""
    out = _sizes(shape, op)
    if out.count(-1) > 1 or min(out, default=0) < -1:
        raise ShapeError(op, "at most one size may be -1, none less", got=tuple(out))
    held = math.prod(out)
    if held < 0 and size % held == 0:
        out[out.index(-1)] = size // -held
    elif held != size or -1 in out:
        raise ShapeError(
            op, f"cannot hold {size} elements", got=tuple(out), expected=f"{size} in all"
        )
    return tuple(out)


def reshape_strides(shape: Shape, strides: Shape, target: Shape) -> Shape | None:
    """Strides that show the same elements as ``target`` without a copy, or None.

    Axes of the source are grouped with axes of the target so that each group holds the same
    number of elements; a group can be re-cut when its source axes are evenly spaced.
    """
    if 0 in shape:
        return contiguous_strides(target)
    kept = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    out: list[int] = []
    i = j = 0
    while i < len(kept) or j < len(target):
        if j < len(target) and target[j] == 1:
            out.append(1)
            j += 1
            continue
        start, first, have, want = i, j, kept[i][0], target[j]
        while have != want:
            if have < want:
                i += 1
                have *= kept[i][0]
            else:
                j += 1
                want *= target[j]
        if any(kept[k][1] != kept[k + 1][0] * kept[k + 1][1] for k in range(start, i)):
            return None
        step, cut = kept[i][1], []
        for size in reversed(target[first : j + 1]):
            cut.append(step)
            step *= size
        out.extend(reversed(cut))
        i, j = i + 1, j + 1
    return tuple(out)


def reduced_shape(shape: Shape, axes: Shape, keepdims: bool) -> Shape:
    """``shape`` with ``axes`` removed, or kept with length 1."""
    if keepdims:
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def pairs(value: Any, rank: int, op: str, name: str) -> tuple[tuple[int, int], ...]:
    """``value`` (n, or n per axis, or (low, high) per axis) as one pair per axis."""
    if not isinstance(value, Sequence):
        value = (value,) * rank
    if len(value) != rank:
        expected = f"one value, {rank} values or {rank} pairs"
        raise ArgumentError(op, f"{name} does not fit {rank} axes", got=value, expected=expected)
    out = []
    for item in value:
        low, high = item if isinstance(item, Sequence) else (item, item)
        out.append((index(low, op, name), index(high, op, name)))
    return tuple(out)
