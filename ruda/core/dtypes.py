"""Element types, their categories, and how they combine.

A ``DType`` is one of a fixed set of objects (``ruda.float32`` and so on) compared by identity.
The promotion rules are those of the Array API where it fixes them; where it leaves them open they
are: integer with float gives the float, float16 with bfloat16 gives float32, bool gives way to
anything, and int64 with uint64 raises because no integer type holds both.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from ruda.core.errors import ArgumentError, DTypeError


class DType:
    """An element type: its name, kind, size in bytes and NumPy counterpart.

    ``kind`` is one of ``"bool" "int" "uint" "float" "complex" "storage"``; storage types (fp8,
    fp4) hold codes and refuse arithmetic.
    """

    __slots__ = ("bits", "itemsize", "kind", "name", "numpy")

    def __init__(self, name: str, kind: str, bits: int, numpy: Any) -> None:
        self.name = name
        self.kind = kind
        self.bits = bits
        self.numpy: np.dtype[Any] = np.dtype(numpy)
        self.itemsize: int = self.numpy.itemsize

    def __repr__(self) -> str:
        return f"ruda.{self.name}"

    def __str__(self) -> str:
        return self.name

    # NumPy dtypes and names compare too: a silent False for `x.dtype == np.float32` would mislead.
    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self is other
        return isinstance(other, np.dtype | type | str) and _BY_KEY.get(_key(other)) is self

    __hash__ = object.__hash__

    def __reduce__(self) -> str:
        return _REDUCED[self.name]

    @property
    def is_floating(self) -> bool:
        """Whether this is a real floating type."""
        return self.kind == "float"

    @property
    def is_inexact(self) -> bool:
        """Whether this is a real or complex floating type: what a gradient can have."""
        return self.kind == "float" or self.kind == "complex"

    @property
    def is_integer(self) -> bool:
        """Whether this is a signed or unsigned integer type."""
        return self.kind == "int" or self.kind == "uint"

    @property
    def is_half(self) -> bool:
        """Whether arithmetic on this type computes in float32 and rounds once per operator."""
        return self is float16 or self is bfloat16


DTypeLike: TypeAlias = "DType | str | type | np.dtype[Any]"

bool_ = DType("bool", "bool", 8, np.bool_)
int8 = DType("int8", "int", 8, np.int8)
int16 = DType("int16", "int", 16, np.int16)
int32 = DType("int32", "int", 32, np.int32)
int64 = DType("int64", "int", 64, np.int64)
uint8 = DType("uint8", "uint", 8, np.uint8)
uint16 = DType("uint16", "uint", 16, np.uint16)
uint32 = DType("uint32", "uint", 32, np.uint32)
uint64 = DType("uint64", "uint", 64, np.uint64)
float16 = DType("float16", "float", 16, np.float16)
bfloat16 = DType("bfloat16", "float", 16, ml_dtypes.bfloat16)
float32 = DType("float32", "float", 32, np.float32)
float64 = DType("float64", "float", 64, np.float64)
complex64 = DType("complex64", "complex", 64, np.complex64)
complex128 = DType("complex128", "complex", 128, np.complex128)
float8_e4m3 = DType("float8_e4m3", "storage", 8, ml_dtypes.float8_e4m3fn)
float8_e5m2 = DType("float8_e5m2", "storage", 8, ml_dtypes.float8_e5m2)
float4_e2m1 = DType("float4_e2m1", "storage", 4, ml_dtypes.float4_e2m1fn)

SIGNED = (int8, int16, int32, int64)
UNSIGNED = (uint8, uint16, uint32, uint64)
INTEGER = SIGNED + UNSIGNED
FLOAT = (float16, bfloat16, float32, float64)
COMPLEX = (complex64, complex128)
INEXACT = FLOAT + COMPLEX
PRECISE = (float32, float64, complex64, complex128)
REAL = INTEGER + FLOAT
NUMERIC = REAL + COMPLEX
BOOL = (bool_,)
ARITHMETIC = BOOL + NUMERIC
STORAGE = (float8_e4m3, float8_e5m2, float4_e2m1)
ALL = ARITHMETIC + STORAGE

# A value loses its kind where it is stored under a lower number.
KIND_ORDER = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3, "storage": 4}

CATEGORIES: dict[str, tuple[DType, ...]] = {
    "bool": BOOL,
    "signed integer": SIGNED,
    "unsigned integer": UNSIGNED,
    "integral": INTEGER,
    "real floating": FLOAT,
    "complex floating": COMPLEX,
    "numeric": NUMERIC,
}
CATEGORY_NAMES: dict[tuple[DType, ...], str] = {
    BOOL: "bool",
    SIGNED: "a signed integer",
    INTEGER: "an integer",
    FLOAT: "a real floating",
    INEXACT: "a floating",
    PRECISE: "a float32, float64 or complex",
    COMPLEX: "a complex",
    REAL: "a real",
    NUMERIC: "a numeric",
    ARITHMETIC: "an arithmetic",
    BOOL + INTEGER: "a bool or integer",
    BOOL + REAL: "a real or bool",
}


def _key(value: Any) -> Any:
    if isinstance(value, str):
        return value
    try:
        return np.dtype(value)
    except TypeError:
        return None


_BY_KEY: dict[Any, DType] = {d.name: d for d in ALL} | {d.numpy: d for d in ALL}
# What other libraries call some of them.
_ELSEWHERE = {
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "int": "int32",
    "long": "int64",
    "short": "int16",
}
_REDUCED = {d.name: ("bool_" if d is bool_ else d.name) for d in ALL}


def as_dtype(value: Any, op: str = "dtype") -> DType:
    """Return the ``DType`` that ``value`` (a DType, name, NumPy dtype or type) means.

    >>> as_dtype("float32"), as_dtype(np.int8)
    (ruda.float32, ruda.int8)
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, type) and value in (int, float, complex):
        hint = "a sized dtype such as ruda.float32; Python's own types name no size"
        raise DTypeError(op, "a dtype with a size is needed", got=value.__name__, hint=hint)
    found = None if value is None else _BY_KEY.get(_key(value))
    if found is None:
        got, named, names = repr(value), str(value), [d.name for d in ALL]
        meant = [_ELSEWHERE[named]] if named in _ELSEWHERE else get_close_matches(named, names, 1)
        likely = repr(meant[0]) if meant else None
        expected = "one of " + ", ".join(names)
        raise DTypeError(op, "not a dtype of ruda", got, expected, likely)
    return found


_COMPLEX_OF = {float16: complex64, bfloat16: complex64, float32: complex64, float64: complex128}
_REAL_OF = {complex64: float32, complex128: float64}


def complex_of(dtype: DType) -> DType:
    """The complex type whose parts hold ``dtype``."""
    return _COMPLEX_OF.get(dtype, dtype)


def real_of(dtype: DType) -> DType:
    """The real type of the parts of ``dtype``; a real type is its own."""
    return _REAL_OF.get(dtype, dtype)


def compute_of(dtype: DType) -> DType:
    """The type in which arithmetic on ``dtype`` is done: float32 for the half types."""
    return float32 if dtype.is_half else dtype


_ORDER = {"bool": 0, "int": 1, "uint": 1, "float": 2, "complex": 3}


def _promote_integers(a: DType, b: DType) -> DType:
    if a.kind == b.kind:
        return a if a.bits >= b.bits else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if unsigned.bits < signed.bits:
        return signed
    if unsigned.bits < 64:
        return {8: int16, 16: int32, 32: int64}[unsigned.bits]
    raise DTypeError(
        "promotion",
        "no integer type holds both operands",
        got=f"{a} and {b}",
        hint="casting one of them with astype",
    )


@functools.cache
def promote(a: DType, b: DType) -> DType:
    """The type that holds both ``a`` and ``b`` by ruda's promotion rules."""
    if a is b:
        return a
    if a.kind == "storage" or b.kind == "storage":
        hint = "dequantizing or casting with astype first"
        raise DTypeError("promotion", "storage types have no arithmetic", f"{a} and {b}", hint=hint)
    low, high = sorted((a, b), key=lambda d: _ORDER[d.kind])
    if low.kind == "bool":
        return high
    if a.is_integer and b.is_integer:
        return _promote_integers(a, b)
    if low.is_integer:
        return high
    if low.kind == high.kind:
        if low.bits == high.bits:
            return float32
        return low if low.bits > high.bits else high
    return complex128 if low is float64 else high


def promote_all(dtypes: Iterable[DType]) -> DType:
    """Fold ``promote`` over ``dtypes``."""
    return functools.reduce(promote, dtypes)


class Defaults:
    """The dtypes that a device gives to values without one: float, integer, complex, index."""

    __slots__ = ("boolean", "complex", "floating", "index", "integer")

    def __init__(self, floating: DType = float32, integer: DType = int32) -> None:
        if not floating.is_floating:
            raise ArgumentError("set_default_dtypes", "not a float dtype", got=floating)
        if not integer.is_integer:
            raise ArgumentError("set_default_dtypes", "not an integer dtype", got=integer)
        self.floating = floating
        self.integer = integer
        self.complex = complex_of(floating)
        self.boolean = bool_
        self.index = int64


class finfo:
    """Machine limits of a floating dtype: bits, eps, max, min, smallest_normal, dtype.

    >>> finfo(float32).bits
    32
    """

    __slots__ = ("bits", "dtype", "eps", "max", "min", "resolution", "smallest_normal", "tiny")

    def __init__(self, type: Any, /) -> None:
        dtype = as_dtype(getattr(type, "dtype", type), "finfo")
        if not dtype.is_inexact:
            raise DTypeError("finfo", "no limits of a float", dtype, "a floating dtype", "iinfo")
        real = real_of(dtype)
        info: Any = ml_dtypes.finfo(real.numpy)  # type: ignore[no-untyped-call]
        self.bits = real.bits
        self.dtype = real
        self.eps = float(info.eps)
        self.max = float(info.max)
        self.min = float(info.min)
        self.resolution = float(info.resolution)
        self.smallest_normal = self.tiny = float(info.smallest_normal)

    def __repr__(self) -> str:
        return f"finfo({self.dtype}: eps={self.eps}, max={self.max})"


class iinfo:
    """Machine limits of an integer dtype: bits, max, min, dtype.

    >>> iinfo(int8).max
    127
    """

    __slots__ = ("bits", "dtype", "max", "min")

    def __init__(self, type: Any, /) -> None:
        dtype = as_dtype(getattr(type, "dtype", type), "iinfo")
        if not dtype.is_integer:
            raise DTypeError("iinfo", "no limits of an integer", dtype, "an integer dtype", "finfo")
        self.bits = dtype.bits
        self.dtype = dtype
        self.max = 2 ** (dtype.bits - (dtype.kind == "int")) - 1
        self.min = -(2 ** (dtype.bits - 1)) if dtype.kind == "int" else 0

    def __repr__(self) -> str:
        return f"iinfo({self.dtype}: {self.min} to {self.max})"


_LARGEST = int(float64.numpy.type(np.finfo(np.float64).max))


def integer_range(dtype: DType) -> tuple[int, int]:
    """The lowest and highest Python integer that may become ``dtype``.

    A floating dtype takes every integer that a Python float holds, be it rounded or infinite.
    """
    if not dtype.is_integer:
        return -_LARGEST, _LARGEST
    limits = iinfo(dtype)
    return limits.min, limits.max


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether ``dtype`` is of ``kind``: a dtype, a category name, or a tuple of either.

    >>> isdtype(float32, ("bool", "real floating"))
    True
    """
    dtype = as_dtype(dtype, "isdtype")
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str) and kind in CATEGORIES:
        return dtype in CATEGORIES[kind]
    if isinstance(kind, str) and kind not in _BY_KEY:
        raise ArgumentError("isdtype", "unknown kind", repr(kind), f"one of {list(CATEGORIES)}")
    return dtype is as_dtype(kind, "isdtype")
