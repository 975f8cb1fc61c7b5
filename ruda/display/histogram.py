"""The distribution of a tensor's values as an SVG of bars."""

from __future__ import annotations

from typing import Any

import numpy as np

from ruda.display.palette import Scale
from ruda.display.summary import Summary

WIDTH, HEIGHT = 260, 72
BINS = 40


def bars(summary: Summary, scale: Scale, integer: bool) -> Any:
    """Counts of equally wide bins over the scale; what lies outside goes to the outer bins."""
    low, high = limits(summary, scale)
    values = np.clip(summary.sample, low, high)
    bins = BINS
    if integer and high - low < BINS:
        # One bar for each integer.
        low, high, bins = low - 0.5, high + 0.5, int(high - low) + 1
    if not high > low:
        return np.array([values.size])
    # Halved, since the difference of two float64 may not be one.
    part = (values / 2 - low / 2) / (high / 2 - low / 2)
    return np.bincount(np.minimum((part * bins).astype(np.int64), bins - 1), minlength=bins)


def limits(summary: Summary, scale: Scale) -> tuple[float, float]:
    """The values at the left and the right end."""
    low, high = float(summary.low), float(summary.high)
    if scale.values is None:
        return max(low, scale.low), min(high, scale.high)
    return low, high


def svg(counts: Any, zero: float | None) -> str:
    """Bars of ``counts``; ``zero`` is where the value zero lies, from 0 to 1, to be marked."""
    step = WIDTH / len(counts)
    gap = min(1.5, step / 5)
    peak = max(int(counts.max()), 1)
    shapes = []
    for i, count in enumerate(counts.tolist()):
        if not count:
            continue
        # A bin that holds anything can be seen.
        height = max(count / peak * (HEIGHT - 2), 1.0)
        shapes.append(
            f'<rect x="{i * step + gap / 2:.4g}" y="{HEIGHT - height:.4g}" '
            f'width="{step - gap:.4g}" height="{height:.4g}" rx="{min(1.5, step / 4):.2g}"/>'
        )
    if zero is not None:
        x = f"{zero * WIDTH:.4g}"
        shapes.append(f'<line x1="{x}" x2="{x}" y1="0" y2="{HEIGHT}" class="ruda-zero"/>')
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    return (
        f'<svg class="ruda-bars" {size} role="img" aria-label="histogram">{"".join(shapes)}</svg>'
    )
