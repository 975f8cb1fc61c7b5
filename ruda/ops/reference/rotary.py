"""Pairs of features turned by angles."""

from __future__ import annotations

from typing import Any

import numpy as np


def rotary(x: Any, cos: Any, sin: Any, interleaved: bool, back: bool) -> Any:
    """``x [..., 2 R]`` turned by the angles of ``cos`` and ``sin [..., R]``.

    >>> rotary(np.array([1.0, 2.0]), np.array([0.0]), np.array([1.0]), False, False)
    array([-2.,  1.])
    """
    half = x.shape[-1] // 2
    one = (..., slice(None, None, 2) if interleaved else slice(half))
    two = (..., slice(1, None, 2) if interleaved else slice(half, None))
    first, second = x[one], x[two]
    out = np.empty(x.shape, np.result_type(x, cos, sin))
    out[one] = first * cos
    out[two] = second * cos
    if back:
        out[one] += second * sin
        out[two] -= first * sin
    else:
        out[one] -= second * sin
        out[two] += first * sin
    return out
