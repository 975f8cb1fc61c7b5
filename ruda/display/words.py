"""Numbers, sizes and layouts as short words; what both the text and the HTML say."""

from __future__ import annotations

import math
from typing import Any

from ruda.core.shapes import contiguous_strides
from ruda.core.spec import Spec
from ruda.display.sample import stored_shape


def number(value: Any) -> str:
    """Four significant digits of a float, all digits of an integer."""
    if isinstance(value, bool | int):
        return f"{value:,}" if abs(value) < 10**15 else f"{value:.4g}"
    return f"{value:.4g}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")


def share(part: float) -> str:
    """A fraction as a percentage that is 0 % and 100 % only when it is exactly so."""
    percent = 100 * part
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.3g} %"


def memory(count: int) -> str:
    """A number of bytes in binary units."""
    size, unit = float(count), 0
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    while size >= 1024 and unit < len(units) - 1:
        size, unit = size / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{size:.1f} {units[unit]}"


def extent(shape: tuple[int, ...]) -> str:
    """``64 × 128``; a tensor without axes is a scalar."""
    return " × ".join(f"{length:,}" for length in shape) if shape else "scalar"


def layout(spec: Spec) -> str:
    """How the elements lie in memory."""
    if spec.contiguous:
        return "row-major"
    stored = stored_shape(spec)
    if stored != spec.shape:
        count = math.prod(stored)
        return f"expanded from {count:,} element{'s' if count != 1 else ''}"
    if any(stride < 0 for stride in spec.strides):
        return "reversed"
    order = sorted(range(spec.ndim), key=lambda axis: -spec.strides[axis])
    dense = contiguous_strides(tuple(spec.shape[axis] for axis in order))
    if tuple(spec.strides[axis] for axis in order) == dense:
        return f"transposed, axes in memory {tuple(order)}"
    return "strided"
