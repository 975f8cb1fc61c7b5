"""Rows that read elements by tensors of integers, or write them, and where booleans are true.

``index`` reads whole slices at places given for some axes together, as NumPy's advanced indexing
does; ``take_along_axis`` reads single elements along one axis. An index counts from the end when
negative; outside of its axis it raises ``IndexRangeError``. Indices for several axes lie stacked
along a leading axis of one tensor.
"""

from __future__ import annotations

from typing import Any

from ruda.core.dtypes import BOOL
from ruda.core.errors import ShapeError
from ruda.core.shapes import Shape
from ruda.core.spec import Spec
from ruda.ops import places, rules
from ruda.ops.movement import reshape
from ruda.ops.places import Family
from ruda.ops.reference import scatter as reference
from ruda.ops.table import row
from ruda.tensor.tensor import RudaTensor


def together(axes: Shape) -> bool:
    """Whether ``axes`` are neighbours: then what is read stays in their place, else it leads."""
    return axes[-1] - axes[0] + 1 == len(axes)


def places_shape(index: Spec, axes: Shape) -> Shape:
    """The shape of the places, without the axis that indices for several axes are stacked along."""
    return index.shape if len(axes) == 1 else index.shape[1:]


def indexed(op: Any, x: Spec, index: Spec, axes: Shape) -> Shape:
    """The shape that ``index`` reads: ``axes`` replaced by the shape of the places."""
    kept = tuple(n for i, n in enumerate(x.shape) if i not in axes)
    lead = axes[0] if together(axes) else 0
    return kept[:lead] + places_shape(index, axes) + kept[lead:]


def _index_winners(family: Family, index: RudaTensor, x: Spec, axes: Shape) -> RudaTensor:
    shape, own = places_shape(index.spec, axes), tuple(range(len(axes)))
    won = places.winners(family, index, shape, tuple(x.shape[a] for a in axes), own)
    after = x.ndim - 1 - axes[-1] if together(axes) else x.ndim - len(axes)
    return reshape(won, shape + (1,) * after)


index = places.reader(
    "index",
    lambda: INDEX,
    reference.index,
    indexed,
    "Slices of ``x`` at places given for ``axes`` together: advanced indexing.",
)
index_adjoint = places.adjoint(
    "index_adjoint",
    lambda: INDEX,
    reference.combine,
    "Zeros of ``shape`` with ``g`` added where ``index`` would read: its adjoint.",
)
_index_put = places.putter(
    "index_put",
    lambda: INDEX,
    reference.put,
    indexed,
    "``base`` with ``value`` where ``index`` reads; of equal places the last wins.",
)
_index_add = places.adder(
    "index_add",
    lambda: INDEX,
    reference.combine,
    indexed,
    "``base`` with ``value`` added where ``index`` reads; repeated places add up.",
)
_index_multiply = places.multiplier(
    "index_multiply",
    lambda: INDEX,
    reference.combine,
    indexed,
    "``base`` multiplied by ``value`` where ``index`` reads, as often as a place is named.",
)
_index_extreme = places.extreme(
    "index_extreme",
    lambda: INDEX,
    reference.combine,
    indexed,
    "The smaller or larger of ``base`` and every ``value`` where ``index`` reads.",
)
INDEX = Family(
    index,
    index_adjoint,
    _index_put,
    _index_add,
    _index_multiply,
    _index_extreme,
    indexed,
    _index_winners,
)


def along(op: Any, x: Spec, index: Spec, axes: Shape) -> Shape:
    """The shape that ``take_along_axis`` reads: that of the index, if it fits."""
    if index.ndim != x.ndim:
        expected = f"{x.ndim} axes, as the tensor has"
        raise ShapeError(op.name, "the index has another rank", index.shape, expected)
    for axis, (n, size) in enumerate(zip(index.shape, x.shape, strict=True)):
        if axis not in axes and n > size:
            expected = f"at most {x.shape} except on axis {axes[0]}"
            raise ShapeError(op.name, "the index is too long", index.shape, expected)
    return index.shape


def _along_winners(family: Family, index: RudaTensor, x: Spec, axes: Shape) -> RudaTensor:
    return places.winners(family, index, index.spec.shape, x.shape, axes)


take_along = places.reader(
    "take_along_axis",
    lambda: ALONG,
    reference.take_along,
    along,
    "Elements of ``x`` at places along one axis.",
)
take_along_adjoint = places.adjoint(
    "take_along_axis_adjoint",
    lambda: ALONG,
    reference.combine_along,
    "Zeros of ``shape`` with ``g`` added where ``take_along_axis`` would read: its adjoint.",
)
_scatter_put = places.putter(
    "scatter_put",
    lambda: ALONG,
    reference.put_along,
    along,
    "``base`` with ``value`` at places along one axis; of equal places the last wins.",
)
_scatter_add = places.adder(
    "scatter_add",
    lambda: ALONG,
    reference.combine_along,
    along,
    "``base`` with ``value`` added at places along one axis; repeated places add up.",
)
_scatter_multiply = places.multiplier(
    "scatter_multiply",
    lambda: ALONG,
    reference.combine_along,
    along,
    "``base`` multiplied by ``value`` at places along one axis.",
)
_scatter_extreme = places.extreme(
    "scatter_extreme",
    lambda: ALONG,
    reference.combine_along,
    along,
    "The smaller or larger of ``base`` and every ``value`` at places along one axis.",
)
ALONG = Family(
    take_along,
    take_along_adjoint,
    _scatter_put,
    _scatter_add,
    _scatter_multiply,
    _scatter_extreme,
    along,
    _along_winners,
)


true_places = row(
    "dynamic",
    "true_places",
    "mask",
    shape=rules.same,
    dtype=rules.unchanged,
    numpy=reference.true_places,
    accepts=BOOL,
    exact=True,
    doc="Where ``mask`` is true, in row-major order: one row of places per axis.",
)
