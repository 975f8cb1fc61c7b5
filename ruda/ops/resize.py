"""Resizing: every method is a linear map along one axis, applied axis by axis."""

from __future__ import annotations

import math
from typing import Any

from ruda.core.dtypes import NUMERIC
from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from ruda.core.shapes import Shape, index
from ruda.ops.adaptive_pool import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from ruda.ops.reference import resample as reference
from ruda.ops.rules import Specs
from ruda.ops.scalars import real_number
from ruda.ops.table import composite, row
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


def _resized(op: Any, specs: Specs, axis: int, size: int, *_: Any) -> Shape:
    shape = specs[0].shape
    return (*shape[:axis], size, *shape[axis + 1 :])


def _dtype(op: Any, specs: Specs, axis: int, size: int, method: str, *_: Any) -> Any:
    dtype = specs[0].dtype
    if not dtype.is_inexact and not method.startswith("nearest"):
        hint = 'astype("float32"), or mode="nearest"'
        raise DTypeError(op.name, "weighted sums need floats", dtype, "a float dtype", hint)
    return dtype, dtype


_resample = row(
    "index",
    "resample",
    "x",
    "axis size method step corners antialias",
    shape=_resized,
    dtype=_dtype,
    numpy=reference.resample,
    vjp=(
        lambda g, x_spec, axis, method, step, corners, antialias: _resample_backward(
            g, axis, x_spec.shape[axis], method, step, corners, antialias
        ),
    ),
    accepts=NUMERIC,
    doc="``axis`` brought to ``size`` elements, each a weighted sum of a few.",
)
_resample_backward = row(
    "index",
    "resample_backward",
    "dy",
    "axis size method step corners antialias",
    shape=_resized,
    dtype=_dtype,
    numpy=reference.resample_backward,
    vjp=(
        lambda g, dy_spec, axis, method, step, corners, antialias: _resample(
            g, axis, dy_spec.shape[axis], method, step, corners, antialias
        ),
    ),
    accepts=NUMERIC,
    doc="Transpose of ``resample``: each input gathers from the outputs it went to.",
)

# Each mode with the method along one axis and the number of spatial axes; None: one to three.
_MODES: dict[str, tuple[str, int | None]] = {
    "nearest": ("nearest", None),
    "nearest-exact": ("nearest-exact", None),
    "linear": ("linear", 1),
    "bilinear": ("linear", 2),
    "trilinear": ("linear", 3),
    "bicubic": ("cubic", 2),
    "lanczos": ("lanczos", None),
    "area": ("area", None),
}
_AREA = {1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}


@composite
@given_tensors
def interpolate(
    input: RudaTensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> RudaTensor:
    """Resize the spatial axes of ``input [N, C, *S]`` to ``size``, or by ``scale_factor``.

    ``mode``: ``nearest``, ``nearest-exact``, ``linear`` (one axis), ``bilinear`` and ``bicubic``
    (two), ``trilinear`` (three), ``lanczos``, ``area``. ``align_corners`` puts the outer elements
    of both on each other instead of their outer edges. ``antialias`` widens the filter when
    shrinking (linear, bilinear, bicubic; lanczos always does). Sizes from a factor are rounded
    down; the factor itself places the samples unless ``recompute_scale_factor``. Float and complex
    dtypes, for nearest any numeric one. Backward gathers, in one fixed order. Keys, "Cubic
    Convolution Interpolation", 1981; Duchon, "Lanczos Filtering", 1979.

    Raises ``ShapeError`` for a rank that the mode does not take and for empty axes,
    ``ArgumentError`` for settings that contradict each other.

    >>> interpolate(ruda.asarray([[[0.0, 1.0]]]), 4, mode="linear").tolist()
    [[[0.0, 0.25, 0.75, 1.0]]]
    """
    method = _method(input, mode, align_corners, antialias)
    own = input.shape[2:]
    sizes, factors = _sizes(own, size, scale_factor, recompute_scale_factor)
    if 0 in own:
        raise ShapeError("interpolate", "an axis to resize is empty", input.shape)
    if method == "area":
        return _AREA[len(own)](input, sizes)
    corners, filters = bool(align_corners), bool(antialias) or method == "lanczos"
    out = input
    for i in sorted(range(len(own)), key=lambda i: sizes[i] / own[i]):
        step = _step(own[i], sizes[i], factors[i], corners)
        if sizes[i] != own[i] or step != 1.0:
            out = _resample(out, i + 2, sizes[i], method, step, corners, filters)
    return out


def _step(size: int, count: int, factor: float | None, corners: bool) -> float:
    """The distance between outputs, in inputs."""
    if corners:
        return (size - 1) / (count - 1) if count > 1 else 0.0
    return 1 / factor if factor is not None else size / count


def _method(x: RudaTensor, mode: str, align_corners: Any, antialias: bool) -> str:
    name = "interpolate"
    if mode not in _MODES:
        raise ArgumentError(name, "unknown mode", repr(mode), f"one of {tuple(_MODES)}")
    method, rank = _MODES[mode]
    if not 3 <= x.ndim <= 5 or (rank is not None and x.ndim != rank + 2):
        axes = "1 to 3" if rank is None else rank
        raise ShapeError(name, "wrong rank", x.shape, f"[N, C, *S] with {axes} spatial axes")
    if align_corners is not None and method not in ("linear", "cubic"):
        expected = "a linear or cubic mode"
        raise ArgumentError(name, "align_corners has no meaning here", repr(mode), expected)
    if antialias and mode not in ("linear", "bilinear", "bicubic", "lanczos"):
        expected = "linear, bilinear, bicubic or lanczos"
        raise ArgumentError(name, "antialias has no meaning here", repr(mode), expected)
    if antialias and align_corners:
        expected = "antialias or align_corners"
        raise ArgumentError(name, "a widened filter aligns no corners", "both", expected)
    return method


def _sizes(
    own: Shape, size: Any, scale_factor: Any, recompute: bool | None
) -> tuple[Shape, tuple[float | None, ...]]:
    """The sizes wanted, and the factors that place the samples; None: the ratio of the sizes."""
    name, rank = "interpolate", len(own)
    if (size is None) == (scale_factor is None):
        got = f"size={size}, scale_factor={scale_factor}"
        raise ArgumentError(name, "needs one of size and scale_factor", got)
    if size is not None:
        sizes = tuple(index(n, name, "size") for n in _each("size", size, rank))
        factors: tuple[float | None, ...] = (None,) * rank
    else:
        given = _each("scale_factor", scale_factor, rank)
        numbers = tuple(real_number(name, "scale_factor", f, 0, ends="()") for f in given)
        sizes = tuple(math.floor(n * f) for n, f in zip(own, numbers, strict=True))
        factors = (None,) * rank if recompute else numbers
    if any(n < 1 for n in sizes):
        raise ArgumentError(name, "a size is too small", sizes, "at least 1")
    return sizes, factors


def _each(what: str, value: Any, rank: int) -> tuple[Any, ...]:
    values = tuple(value) if isinstance(value, tuple | list) else (value,) * rank
    if len(values) != rank:
        expected = f"a number or {rank} of them"
        raise ArgumentError("interpolate", f"{what} does not fit {rank} axes", value, expected)
    return values


@given_tensors
def upsample(
    input: RudaTensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> RudaTensor:
    """``interpolate`` under its older name."""
    return interpolate(input, size, scale_factor, mode, align_corners)
