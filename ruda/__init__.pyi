"""The public names of ruda, for type checkers alone.

Written by `python -m ruda.stubs --write`.
"""

from ruda.core.devices import Device, default_device, set_default_device
from ruda.core.dtypes import DType, bfloat16, complex64, complex128, finfo, float4_e2m1, float8_e4m3, float8_e5m2, float16, float32, float64, iinfo, int8, int16, int32, int64, isdtype, uint8, uint16, uint32, uint64
from ruda.core.dtypes import bool_ as bool
from ruda.core.errors import ArgumentError, AxisError, CaptureError, DeviceError, DTypeError, GradientError, IndexRangeError, IntegerRangeError, RudaError, ShapeError, StoreError, StrategyError, VersionError
from ruda.core.mode import autocast, enable_grad, inference_mode, is_grad_enabled, no_grad
from ruda.ops.arith import add, divide, multiply, negative, subtract
from ruda.ops.cast import astype, to
from ruda.ops.complexes import conj, imag, real
from ruda.ops.create import arange, asarray, empty, empty_like, from_dlpack, full, full_like, linspace, ones, ones_like, set_default_dtypes, zeros, zeros_like
from ruda.ops.matmul import matmul, tensordot, vecdot
from ruda.ops.movement import broadcast_arrays, broadcast_to, contiguous, copy, expand_dims, flip, matrix_transpose, moveaxis, permute_dims, reshape, squeeze
from ruda.ops.reduce import sum
from ruda.tensor.tensor import RudaTensor
from ruda import autodiff
from ruda import data
from ruda import nn
from ruda import optim
from ruda import store
from ruda.ops.create import tensor

Tensor = RudaTensor
__array_api_version__: str

__all__ = [
    "ArgumentError",
    "AxisError",
    "CaptureError",
    "DType",
    "DTypeError",
    "Device",
    "DeviceError",
    "GradientError",
    "IndexRangeError",
    "IntegerRangeError",
    "RudaError",
    "RudaTensor",
    "ShapeError",
    "StoreError",
    "StrategyError",
    "Tensor",
    "VersionError",
    "__array_api_version__",
    "add",
    "arange",
    "asarray",
    "astype",
    "autocast",
    "autodiff",
    "bfloat16",
    "bool",
    "broadcast_arrays",
    "broadcast_to",
    "complex128",
    "complex64",
    "conj",
    "contiguous",
    "copy",
    "data",
    "default_device",
    "divide",
    "empty",
    "empty_like",
    "enable_grad",
    "expand_dims",
    "finfo",
    "flip",
    "float16",
    "float32",
    "float4_e2m1",
    "float64",
    "float8_e4m3",
    "float8_e5m2",
    "from_dlpack",
    "full",
    "full_like",
    "iinfo",
    "imag",
    "inference_mode",
    "int16",
    "int32",
    "int64",
    "int8",
    "is_grad_enabled",
    "isdtype",
    "linspace",
    "matmul",
    "matrix_transpose",
    "moveaxis",
    "multiply",
    "negative",
    "nn",
    "no_grad",
    "ones",
    "ones_like",
    "optim",
    "permute_dims",
    "real",
    "reshape",
    "set_default_device",
    "set_default_dtypes",
    "squeeze",
    "store",
    "subtract",
    "sum",
    "tensor",
    "tensordot",
    "to",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "vecdot",
    "zeros",
    "zeros_like",
]
