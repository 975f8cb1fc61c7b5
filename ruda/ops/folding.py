"""Sliding windows: a view that shows them, and its adjoint, which adds them up."""

from __future__ import annotations

from typing import Any

import numpy as np

from ruda.core.errors import ArgumentError, ShapeError
from ruda.core.shapes import Shape, index, normalize_axis
from ruda.ops.movement import view
from ruda.ops.rules import Specs
from ruda.ops.strides import adjoint, as_strided_bytes
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


def _unfolded(op: Any, specs: Specs, axis: int, size: int, step: int) -> Any:
    return _window_geometry(specs[0].shape, specs[0].strides, axis, size, step)


def _window_geometry(
    shape: Shape, strides: Shape, axis: int, size: int, step: int
) -> tuple[Shape, Shape]:
    count = (shape[axis] - size) // step + 1
    return (
        (*shape[:axis], count, *shape[axis + 1 :], size),
        (*strides[:axis], strides[axis] * step, *strides[axis + 1 :], strides[axis]),
    )


def _windows(x: Any, axis: int, size: int, step: int) -> Any:
    return as_strided_bytes(x, *_window_geometry(x.shape, x.strides, axis, size, step))


def _add_windows(out: Any, g: Any, axis: int, size: int, step: int) -> None:
    count = g.shape[axis]
    places = np.moveaxis(out, axis, -1)
    windows = np.moveaxis(g, axis, -2)
    for i in range(size):
        places[..., i : i + step * (count - 1) + 1 : step] += windows[..., i]


window_view = view(
    "unfold",
    "axis size step",
    _unfolded,
    _windows,
    (lambda g, x_spec, axis, size, step: windows_added(g, x_spec.shape, axis, size, step),),
    "Windows of ``size`` elements along ``axis``, ``step`` apart, along a new last axis.",
)
windows_added = adjoint(
    "fold",
    "g",
    "shape axis size step",
    _add_windows,
    (lambda g, axis, size, step: window_view(g, axis, size, step),),
    "Windows added up where ``unfold`` would have read them: its adjoint.",
    adds=True,
)


@given_tensors
def unfold(x: RudaTensor, /, size: int, *, step: int = 1, axis: int = -1) -> RudaTensor:
    """Windows of ``size`` elements along ``axis``, ``step`` apart, along a new last axis; a view.

    Raises ``ShapeError`` for windows longer than the axis.

    >>> unfold(ruda.asarray([1, 2, 3, 4]), 3).tolist()
    [[1, 2, 3], [2, 3, 4]]
    """
    place = normalize_axis(axis, x.spec.ndim, "unfold")
    length, stride = _window("unfold", size, step)
    if length > x.spec.shape[place]:
        expected = f"at most {x.spec.shape[place]}"
        raise ShapeError("unfold", "the window is longer than the axis", length, expected)
    return window_view(x, place, length, stride)


@given_tensors
def fold(x: RudaTensor, length: int, /, *, step: int = 1, axis: int = -1) -> RudaTensor:
    """Windows, laid out as ``unfold`` gives them, added up along an ``axis`` of ``length``.

    The adjoint of ``unfold``; ``axis`` counts the axes of the result. Raises ``ShapeError`` unless
    there are as many windows as ``unfold`` would find.

    >>> fold(ruda.asarray([[1, 2, 3], [2, 3, 4]]), 4).tolist()
    [1, 4, 6, 4]
    """
    place = normalize_axis(axis, x.spec.ndim - 1, "fold")
    size, stride = _window("fold", x.spec.shape[-1], step)
    total = index(length, "fold", "length")
    count = (total - size) // stride + 1
    if total < size or x.spec.shape[place] != count:
        expected = f"{max(count, 0)} windows of {size} for a length of {total}"
        raise ShapeError("fold", "the windows do not fit", x.spec.shape, expected)
    shape = (*x.spec.shape[:place], total, *x.spec.shape[place + 1 : -1])
    return windows_added(x, shape, place, size, stride)


def _window(op: str, size: Any, step: Any) -> tuple[int, int]:
    length, stride = index(size, op, "size"), index(step, op, "step")
    if length < 1 or stride < 1:
        raise ArgumentError(op, "size and step must be positive", (length, stride), "at least 1")
    return length, stride
