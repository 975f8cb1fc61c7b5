"""What row kernels work on: operands and outputs with their roles, and how they lie in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ruda.backends.cuda.faults import Form
from ruda.backends.cuda.geometry import collapsed
from ruda.core.dtypes import DType
from ruda.core.shapes import Shape
from ruda.core.spec import Spec, is_absent

_LONGEST = 1 << 30


class Side(NamedTuple):
    """One operand or output: its role, and its stride along each axis of the rows' shape.

    Rows ``by`` another side begin where its integers say, which may count from the end: ``wraps``.
    """

    name: str
    dtype: DType
    role: str
    strides: Shape
    raw: bool = False
    by: str = ""
    wraps: bool = False


class Work(NamedTuple):
    """Rows of ``shape`` along ``axes``, one kernel over them; scalars in the program's order.

    ``form`` is that of the indices among the inputs, where the program tells of faults.
    """

    client: Any
    shape: Shape
    axes: Shape
    inputs: tuple[Side, ...]
    outs: tuple[Side, ...]
    row_dtype: DType
    compute: DType
    scalars: tuple[float, ...] = ()
    form: Form | None = None

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return math.prod(n for i, n in enumerate(self.shape) if i not in self.axes)

    @property
    def length(self) -> int:
        """Elements of a row."""
        return math.prod(self.shape[i] for i in self.axes)


def supported(work: Work) -> bool:
    """Whether rows can be counted as the kernels count them."""
    return 0 < work.length <= _LONGEST and work.compute.is_floating


def given(specs: Sequence[Spec], names: Sequence[str]) -> dict[str, int]:
    """The places of the operands that are given, by name."""
    pairs = zip(names, specs, strict=True)
    return {name: i for i, (name, spec) in enumerate(pairs) if not is_absent(spec)}


def rows_of(name: str, spec: Spec, shape: Shape) -> Side:
    """An operand of the shape of the rows, or that broadcasts to it."""
    return Side(name, spec.dtype, "rows", _broadcast(spec, shape))


def column_of(name: str, spec: Spec, shape: Shape, axis: int | None = None) -> Side:
    """An operand with an element for each place along ``axis``, or that broadcasts to the rows."""
    if axis is None:
        return Side(name, spec.dtype, "column", _broadcast(spec, shape))
    strides = (spec.strides[0] if i == axis else 0 for i in range(len(shape)))
    return Side(name, spec.dtype, "column", tuple(strides))


def row_of(name: str, spec: Spec, shape: Shape, axes: Shape) -> Side:
    """An operand with an element for each row, of the shape without ``axes`` or with ones there."""
    if spec.ndim == len(shape):
        return Side(name, spec.dtype, "row", _broadcast(spec, shape))
    found = iter(zip(spec.shape, spec.strides, strict=True))
    pairs = [(1, 0) if i in axes else next(found) for i in range(len(shape))]
    return Side(name, spec.dtype, "row", tuple(0 if n == 1 else s for n, s in pairs))


def beside_of(name: str, spec: Spec, shape: Shape, kept: Shape) -> Side:
    """An operand that broadcasts to the axes ``kept`` of the rows' shape, and lacks the others."""
    found = kept[len(kept) - spec.ndim :]
    steps = dict(zip(found, _broadcast(spec, spec.shape), strict=True))
    return Side(name, spec.dtype, "row", tuple(steps.get(i, 0) for i in range(len(shape))))


def one_of(name: str, spec: Spec, shape: Shape) -> Side:
    """An operand of one element."""
    return Side(name, spec.dtype, "one", (0,) * len(shape))


def _broadcast(spec: Spec, shape: Shape) -> Shape:
    lead = len(shape) - spec.ndim
    own = (0 if n == 1 else s for n, s in zip(spec.shape, spec.strides, strict=True))
    return (0,) * lead + tuple(own)


class Layout(NamedTuple):
    """Collapsed sizes and strides of outer and inner axes, per side."""

    outer: Shape
    inner: Shape
    steps: dict[str, tuple[Shape, Shape]]


def layout_of(work: Work) -> Layout:
    """How the rows and their elements lie, with as few axes as the strides of all sides allow."""
    sides = [s for s in (*work.inputs, *work.outs) if s.role not in ("one", "value")]
    kept = [i for i in range(len(work.shape)) if i not in work.axes]
    outer, outer_steps = _joined(work.shape, kept, sides)
    inner, inner_steps = _joined(work.shape, sorted(work.axes), sides)
    steps = {s.name: (o, i) for s, o, i in zip(sides, outer_steps, inner_steps, strict=True)}
    return Layout(outer, inner, steps)


def _joined(shape: Shape, axes: Sequence[int], sides: list[Side]) -> tuple[Shape, list[Shape]]:
    sizes = tuple(shape[i] for i in axes)
    return collapsed(sizes, [tuple(s.strides[i] for i in axes) for s in sides])
