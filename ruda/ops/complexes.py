"""Parts of complex numbers.

A real tensor is its own conjugate and its own real part, and both cost nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ruda.core import dtypes
from ruda.core.dtypes import COMPLEX, FLOAT
from ruda.ops import rules
from ruda.ops.movement import transposed
from ruda.ops.table import unary
from ruda.tensor.operands import WeakScalar
from ruda.tensor.tensor import RudaTensor


def is_real(x: Any) -> bool:
    """Whether ``x``, a tensor or scalar, has no imaginary part by its type."""
    if x.__class__ is RudaTensor:
        return x.spec.dtype.kind != "complex"
    return isinstance(x, bool | int | float | WeakScalar)


_conj = unary(
    "conj",
    np.conj,
    "conj(x)",
    lambda g: conj(g),
    "Complex conjugate.",
    dtype=rules.promote,
    accepts=COMPLEX,
)
_real = unary(
    "real",
    np.real,
    "real(x)",
    lambda g: as_complex(g),
    "Real part.",
    dtype=rules.real_part,
    accepts=COMPLEX,
)
_imag = unary(
    "imag",
    np.imag,
    "imag(x)",
    lambda g: as_complex(g) * 1j,
    "Imaginary part.",
    dtype=rules.real_part,
    accepts=COMPLEX,
)


def _complex_dtype(op: Any, specs: Any) -> Any:
    dtype = dtypes.complex_of(specs[0].dtype)
    return dtype, dtype


as_complex = unary(
    "as_complex",
    np.asarray,
    "complex(x, 0)",
    lambda g: real(g),
    "A real tensor as the real part of a complex one.",
    dtype=_complex_dtype,
    accepts=FLOAT,
)


def conj(x: Any, /) -> Any:
    """Complex conjugate, elementwise; a real tensor is returned as it is, a scalar as a scalar.

    >>> conj(ruda.asarray([1 + 2j])).tolist()
    [(1-2j)]
    """
    if x.__class__ is complex:
        return x.conjugate()
    return x if is_real(x) else _conj(x)


def real(x: Any, /) -> Any:
    """Real part, elementwise, in the dtype of the parts; a real tensor is returned as is."""
    return x if is_real(x) else _real(x)


def imag(x: Any, /) -> Any:
    """Imaginary part, elementwise, in the real dtype of the parts. Raises for a real tensor."""
    return _imag(x)


def conjugate_transpose(x: Any, /) -> Any:
    """``x.H``: a matrix transposed and conjugated; a view of a real one."""
    return conj(transposed(x))
