"""What colour a value has: diverging, sequential, two colours or categories, and marks for NaN.

Colours are made in OKLCH (Björn Ottosson, "A perceptual color space for image processing", 2020),
whose lightness is even to the eye. The diverging ones fade into the page at zero instead of into
white, so that they read the same on light and dark pages.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ruda.display.summary import Summary
from ruda.display.words import number

# Entries of the 256 colours that no value has, from LEVELS on. An odd number of levels has a
# middle, which is the colour of zero.
LEVELS = 247
NAN, PLUS, MINUS, INK, FRAME, BLANK = range(LEVELS, LEVELS + 6)
MARKS = {NAN: (255, 0, 200), PLUS: (255, 196, 0), MINUS: (0, 190, 80)}
# As many integers as there are colours that are told apart at a glance.
MOST_CATEGORIES = 8
# Beyond this multiple of the outer quantiles a value is an outlier and does not stretch the scale.
OUTLIER = 4.0


class Scale(NamedTuple):
    """How values become colours.

    ``kind`` is "diverging", "sequential", "boolean" or "categorical". ``low`` and ``high`` are the
    values of the first and last of ``colors`` (n, 4), RGBA; ``values`` are the integers that
    categories stand for. ``clipped`` says that values outside take the nearest colour, ``empty``
    that there is no value to have one.
    """

    kind: str
    low: float
    high: float
    colors: Any
    values: Any = None
    clipped: bool = False
    empty: bool = False


def scale_for(dtype: Any, summary: Summary, cells: Any) -> Scale:
    """The scale that suits ``cells`` of a tensor of ``dtype`` with these statistics."""
    if dtype.kind == "bool":
        return Scale("boolean", 0, 1, _BOOLEAN, np.array([False, True]))
    if dtype.is_integer:
        distinct = np.unique(cells)
        if 0 < distinct.size <= MOST_CATEGORIES:
            return Scale("categorical", 0, 1, _CATEGORIES[: distinct.size], distinct)
    if summary.low is None:
        return Scale("sequential", 0, 1, SEQUENTIAL, empty=True)
    low, high, clipped = _bounds(summary)
    if low < 0 < high:
        reach = max(-low, high)
        return Scale("diverging", -reach, reach, DIVERGING, None, clipped)
    return Scale("sequential", low, high, SEQUENTIAL, None, clipped)


def _bounds(summary: Summary) -> tuple[float, float, bool]:
    low, high = float(summary.low), float(summary.high)
    first, last = summary.quantiles[0], summary.quantiles[-1]
    spread = OUTLIER * (last - first)
    if spread <= 0:
        return low, high, False
    inner = max(low, first - spread), min(high, last + spread)
    # A clip is worth its note only where the outliers would have taken most of the scale.
    if high - low < 2 * (inner[1] - inner[0]):
        return low, high, False
    return max(low, first), min(high, last), True


def encode(scale: Scale, cells: Any) -> Any:
    """The number of the colour of each cell; the caller marks what is not finite."""
    if scale.values is not None:
        return np.searchsorted(scale.values, cells).astype(np.uint8)
    # Halved, since the difference of two float64 may not be one.
    x = np.clip(np.nan_to_num(cells.astype(np.float64)), scale.low, scale.high)
    low, width = scale.low / 2, scale.high / 2 - scale.low / 2
    part = (x / 2 - low) / width if width > 0 else np.full(x.shape, 0.5)
    return np.rint(part * (LEVELS - 1)).astype(np.uint8)


def table(scale: Scale) -> Any:
    """The 256 RGBA colours of a picture: those of ``scale``, then marks, ink, frame and blank."""
    out = np.zeros((256, 4), np.uint8)
    out[: len(scale.colors)] = scale.colors
    for code, color in MARKS.items():
        out[code] = (*color, 255)
    out[INK] = (20, 20, 20, 255)
    out[FRAME] = (128, 128, 128, 110)
    return out


def css(color: Any) -> str:
    """An RGBA colour as CSS."""
    red, green, blue, alpha = (int(part) for part in color)
    return f"rgba({red},{green},{blue},{alpha / 255:.3g})"


def labels(scale: Scale) -> list[tuple[str, str]]:
    """The colour and the name of each category of ``scale``."""
    return [
        (css(color), str(value) if scale.kind == "boolean" else number(int(value)))
        for color, value in zip(scale.colors, scale.values, strict=True)
    ]


def _rgb(lightness: Any, chroma: Any, hue: Any) -> Any:
    """OKLCH, hue in degrees, to sRGB bytes (..., 3); what leaves the gamut is clipped."""
    angle = np.deg2rad(hue)
    a, b = chroma * np.cos(angle), chroma * np.sin(angle)
    lms = np.stack(
        [
            lightness + 0.3963377774 * a + 0.2158037573 * b,
            lightness - 0.1055613458 * a - 0.0638541728 * b,
            lightness - 0.0894841775 * a - 1.2914855480 * b,
        ],
        axis=-1,
    )
    to_linear = np.array(
        [
            [4.0767416621, -3.3077115913, 0.2309699292],
            [-1.2684380046, 2.6097574011, -0.3413193965],
            [-0.0041960863, -0.7034186147, 1.7076147010],
        ]
    )
    linear = np.clip(lms**3 @ to_linear.T, 0, 1)
    encoded = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.rint(255 * encoded).astype(np.uint8)


def _opaque(rgb: Any) -> Any:
    return np.concatenate([rgb, np.full((len(rgb), 1), 255, np.uint8)], axis=-1)


def _sequential() -> Any:
    """Dark indigo through blue and teal to a pale mint; lightness rises evenly."""
    t = np.linspace(0, 1, LEVELS)
    return _opaque(_rgb(0.27 + 0.68 * t, 0.125 - 0.075 * t**2, 285 - 110 * t))


def _diverging() -> Any:
    """Blue below zero, orange-red above, transparent at zero."""
    t = np.linspace(-1, 1, LEVELS)
    strength = np.abs(t)
    rgb = _rgb(0.69 - 0.11 * strength, 0.15 + 0.06 * strength, np.where(t < 0, 256.0, 36.0))
    alpha = np.rint(255 * strength**0.75).astype(np.uint8)
    return np.concatenate([rgb, alpha[:, None]], axis=-1)


def _categories() -> Any:
    lightness = np.array([0.60, 0.76, 0.62, 0.70, 0.52, 0.84, 0.72, 0.80])
    chroma = np.array([0.15, 0.15, 0.18, 0.13, 0.16, 0.14, 0.11, 0.10])
    hue = np.array([256.0, 70.0, 20.0, 170.0, 300.0, 105.0, 220.0, 340.0])
    return _opaque(_rgb(lightness, chroma, hue))


SEQUENTIAL = _sequential()
DIVERGING = _diverging()
_CATEGORIES = _categories()
# False is a veil over the page, light or dark.
_BOOLEAN = np.stack([np.array([128, 128, 128, 64], np.uint8), _CATEGORIES[0]])
