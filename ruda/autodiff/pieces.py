"""What several slices of one tensor send back to it, put together.

Each alone would be zeros of the whole with the slice's cotangent in them, and all of them as many
passes over the whole. Slices that tile an axis, such as those of ``unstack`` and ``split``, are
laid side by side instead.
"""

from __future__ import annotations

import functools
from typing import Any

from ruda.core.shapes import Shape, is_contiguous
from ruda.core.spec import Spec
from ruda.ops.arith import add
from ruda.ops.join import concat, stack
from ruda.tensor.dispatch import OPS
from ruda.tensor.node import Node

SLICE, _UNSLICE, _permute = OPS["slice"], OPS["unslice"], OPS["permute"].call

# From so many bytes a copy takes longer than the views that spare it.
_LARGE = 4 << 20


class Pieces:
    """Cotangents of slices of a tensor of ``spec`` along ``axis``, and the sum of all others."""

    __slots__ = ("axis", "parts", "rest", "spec")

    def __init__(self, spec: Spec, axis: int, rest: Any) -> None:
        self.spec, self.axis, self.rest = spec, axis, rest
        self.parts: list[tuple[Shape, tuple[Any, ...], Any]] = []

    def whole(self) -> Any:
        """The cotangent of the tensor."""
        found = self._side_by_side()
        if found is None:
            found = functools.reduce(add, map(self._padded, self.parts))
        return found if self.rest is None else add(self.rest, found)

    def _side_by_side(self) -> Any:
        """The slices one after the other; None unless they tile the axis."""
        axis, at = self.axis, 0
        parts = sorted(self.parts, key=lambda part: part[0][axis])
        for starts, (lengths, *_), _ in parts:
            if starts[axis] != at:
                return None
            at += lengths[axis]
        if at != self.spec.shape[axis]:
            return None
        dropped = {pattern[2] for _, pattern, _ in parts}
        if len(dropped) != 1:
            return None
        join = stack if dropped.pop() else concat
        large = self.spec.nbytes >= _LARGE
        order = _order(self.spec.shape, self.spec.strides) if large else None
        if order is None:
            return join([g for *_, g in parts], axis=axis)
        # Laid as the tensor lies: what it was made from can be shown from that without a copy.
        turned = order
        if join is stack:
            turned = tuple([a - (a > axis) for a in order if a != axis])
        joined = join([_permute(g, turned) for *_, g in parts], axis=order.index(axis))
        return _permute(joined, tuple([order.index(a) for a in range(len(order))]))

    def _padded(self, part: tuple[Shape, tuple[Any, ...], Any]) -> Any:
        starts, pattern, g = part
        return _UNSLICE.call(g, starts, self.spec.shape, *pattern)


def met(before: Any, g: Any) -> Any:
    """The sum of what has arrived at a node and a further cotangent."""
    if before.__class__ is Pieces:
        before.rest = g if before.rest is None else add(before.rest, g)
        return before
    return g if before is None else add(before, g)


def sliced(node: Node, g: Any, before: Any) -> Pieces | None:
    """What has arrived at the input of a slice and the cotangent of the slice; None to add them."""
    spec, pattern = node.plan.specs[0], node.plan.attrs
    starts = node.saved(1)[0]
    axis = _axis(spec.shape, *pattern)
    if axis is None or any(start.__class__ is not int for start in starts):
        return None
    if before.__class__ is not Pieces:
        before = Pieces(spec, axis, before)
    elif before.axis != axis:
        return None
    before.parts.append((starts, pattern, g))
    return before


@functools.lru_cache(maxsize=4096)
def _order(shape: Shape, strides: Shape) -> Shape | None:
    """The order of the axes in which a tensor is row-major, if that is another than their own."""
    order = tuple(sorted(range(len(shape)), key=lambda a: -strides[a]))
    sizes, steps = ([v[a] for a in order] for v in (shape, strides))
    if order == tuple(range(len(shape))) or not is_contiguous(tuple(sizes), tuple(steps)):
        return None
    return order


@functools.lru_cache(maxsize=4096)
def _axis(shape: Shape, lengths: Shape, steps: Shape, dropped: Shape) -> int | None:
    """The one axis that a slice without steps cuts, and drops if it drops any; else None."""
    cut = [i for i, length in enumerate(lengths) if length != shape[i]]
    if len(cut) != 1 or any(step != 1 for step in steps) or dropped not in ((), (cut[0],)):
        return None
    return cut[0]
