"""What the dtypes are called in CUDA C, in memory and while computing."""

from __future__ import annotations

from ruda.core import dtypes
from ruda.core.dtypes import DType, compute_of

_STORED = {
    "bool": "bool",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "float16": "half",
    "bfloat16": "bhalf",
    "float32": "float",
    "float64": "double",
    "complex64": "c64",
    "complex128": "c128",
    "float8_e4m3": "u8",
    "float8_e5m2": "u8",
    "float4_e2m1": "u8",
}


def stored(dtype: DType) -> str:
    """The C type of an element in memory."""
    return _STORED[dtype.name]


def computed(dtype: DType) -> str:
    """The C type that arithmetic on ``dtype`` is done in."""
    return _STORED[compute_of(dtype).name]


def code_of(dtype: DType) -> str:
    """A short name of ``dtype`` for kernel names: ``f32``, ``bf16``, ``i64``."""
    if dtype is dtypes.bfloat16:
        return "bf16"
    return dtype.name[0] + str(dtype.bits) if dtype.kind != "bool" else "b8"
