"""Functions of complex numbers whose limits the Array API fixes and NumPy leaves open.

``real_ufunc`` is what the function is for real operands.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def expm1(x: Any) -> Any:
    """``exp(x) - 1``; a part that is infinite or NaN goes by the limits of ``exp``."""
    out = np.asarray(np.expm1(x))
    if out.dtype.kind == "c":
        odd = ~np.isfinite(x)
        out[odd] = np.exp(np.asarray(x)[odd]) - 1
        # At either zero the real part is +0.
        out.real[np.asarray(x) == 0] = 0.0
    return out


def tanh(x: Any) -> Any:
    """Hyperbolic tangent; far to the right of a positive imaginary part it is 1 + 0j."""
    out = np.asarray(np.tanh(x))
    if out.dtype.kind == "c":
        right = np.isposinf(np.real(x)) & np.isfinite(np.imag(x)) & (np.imag(x) > 0)
        out[right] = 1.0
    return out


expm1.real_ufunc = np.expm1  # type: ignore[attr-defined]
tanh.real_ufunc = np.tanh  # type: ignore[attr-defined]
