"""The public names of ruda, for type checkers alone.

Written by `python -m ruda.stubs --write`.
"""

from ruda.core.devices import Device, default_device, set_default_device
from ruda.core.dtypes import DType, bfloat16, complex64, complex128, finfo, float4_e2m1, float8_e4m3, float8_e5m2, float16, float32, float64, iinfo, int8, int16, int32, int64, isdtype, uint8, uint16, uint32, uint64
from ruda.core.dtypes import bool_ as bool
from ruda.core.errors import ArgumentError, AxisError, CaptureError, DeviceError, DTypeError, GradientError, IndexRangeError, IntegerRangeError, LinAlgError, OutOfMemoryError, RudaError, ShapeError, StoreError, StrategyError, VersionError
from ruda.core.mode import autocast, enable_grad, inference_mode, is_grad_enabled, no_grad
from ruda.core.precision import explain_precision, precision
from ruda.namespace import __array_namespace_info__
from ruda.ops.activation import celu, elu, gelu, glu, hardshrink, hardsigmoid, hardswish, hardtanh, leaky_relu, mish, prelu, relu, relu6, selu, silu, softplus, softshrink, softsign, swiglu, tanhshrink, threshold
from ruda.ops.arith import abs, absolute, add, copysign, divide, floor_divide, hypot, maximum, minimum, multiply, negative, nextafter, positive, pow, reciprocal, remainder, rsqrt, sign, sqrt, square, subtract
from ruda.ops.bitwise import bitwise_and, bitwise_invert, bitwise_left_shift, bitwise_or, bitwise_right_shift, bitwise_xor
from ruda.ops.cast import astype, to
from ruda.ops.closeness import allclose, isclose
from ruda.ops.compare import equal, greater, greater_equal, isfinite, isinf, isnan, less, less_equal, logical_and, logical_not, logical_or, logical_xor, not_equal, signbit
from ruda.ops.complexes import conj, imag, real
from ruda.ops.conversion import asarray, from_dlpack
from ruda.ops.create import arange, empty, empty_like, full, full_like, linspace, ones, ones_like, set_default_dtypes, zeros, zeros_like
from ruda.ops.diagonal import diag, diagonal, eye, meshgrid, tri, tril, triu
from ruda.ops.einsum import einsum
from ruda.ops.explog import exp, exp2, expm1, log, log1p, log2, log10, log_sigmoid, logaddexp, logit, sigmoid, xlogy
from ruda.ops.folding import fold, unfold
from ruda.ops.gather import gather, index_add, index_put, masked_select, one_hot, scatter, take, take_along_axis
from ruda.ops.hyper import acosh, asinh, atanh, cosh, sinh, tanh
from ruda.ops.join import chunk, concat, split, stack, unstack
from ruda.ops.matmul import matmul, tensordot, vecdot
from ruda.ops.movement import broadcast_arrays, broadcast_to, contiguous, copy, expand_dims, flatten, flip, matrix_transpose, moveaxis, permute, permute_dims, reshape, squeeze, swapaxes, transpose, unflatten
from ruda.ops.promotion import can_cast, result_type
from ruda.ops.quantile import median, quantile
from ruda.ops.reduce import all, any, argmax, argmin, count_nonzero, max, min, prod, sum
from ruda.ops.round import ceil, floor, round, trunc
from ruda.ops.scan import cumlogsumexp, cummax, cummin, cumprod, cumsum, cumulative_prod, cumulative_sum, diff
from ruda.ops.segment import segment_max, segment_mean, segment_min, segment_sum
from ruda.ops.select import clip, lerp, where
from ruda.ops.sets import bincount, histogram, nonzero, unique, unique_all, unique_counts, unique_inverse, unique_values
from ruda.ops.sort import argsort, argtopk, searchsorted, sort, topk
from ruda.ops.special import digamma, erf, erfc, erfinv, lgamma, polygamma
from ruda.ops.statistics import logsumexp, mean, norm, std, var
from ruda.ops.tiling import pad, repeat, roll, tile
from ruda.ops.trig import acos, asin, atan, atan2, cos, sin, tan
from ruda.tensor.determinism import deterministic
from ruda.tensor.tensor import RudaTensor
from ruda.tensor.transaction import read_many, transaction
from ruda import autodiff
from ruda import cuda
from ruda import data
from ruda import fft
from ruda import linalg
from ruda import nn
from ruda import optim
from ruda import random
from ruda import store
from ruda import testing
from ruda.fusion.bucket import bucket
from ruda.fusion.bucket import bucket_size
from ruda.autodiff.checkpoint import checkpoint
from ruda.fusion.api import compile
from ruda.autodiff.custom import custom_op
from ruda.ops.explain import explain
from ruda.autodiff.api import grad
from ruda.autodiff.api import gradients
from ruda.autodiff.api import hessian
from ruda.autodiff.api import jvp
from ruda.store import load
from ruda.store import save
from ruda.ops.support import supports
from ruda.autodiff.api import value_and_grad
from ruda.autodiff.api import vjp
from ruda.ops.conversion import tensor

Tensor = RudaTensor
newaxis: None
__version__: str
__array_api_version__: str
e: float
inf: float
nan: float
pi: float

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
    "LinAlgError",
    "OutOfMemoryError",
    "RudaError",
    "RudaTensor",
    "ShapeError",
    "StoreError",
    "StrategyError",
    "Tensor",
    "VersionError",
    "__array_api_version__",
    "__array_namespace_info__",
    "__version__",
    "abs",
    "absolute",
    "acos",
    "acosh",
    "add",
    "all",
    "allclose",
    "any",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "argtopk",
    "asarray",
    "asin",
    "asinh",
    "astype",
    "atan",
    "atan2",
    "atanh",
    "autocast",
    "autodiff",
    "bfloat16",
    "bincount",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "bool",
    "broadcast_arrays",
    "broadcast_to",
    "bucket",
    "bucket_size",
    "can_cast",
    "ceil",
    "celu",
    "checkpoint",
    "chunk",
    "clip",
    "compile",
    "complex128",
    "complex64",
    "concat",
    "conj",
    "contiguous",
    "copy",
    "copysign",
    "cos",
    "cosh",
    "count_nonzero",
    "cuda",
    "cumlogsumexp",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "cumulative_prod",
    "cumulative_sum",
    "custom_op",
    "data",
    "default_device",
    "deterministic",
    "diag",
    "diagonal",
    "diff",
    "digamma",
    "divide",
    "e",
    "einsum",
    "elu",
    "empty",
    "empty_like",
    "enable_grad",
    "equal",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expand_dims",
    "explain",
    "explain_precision",
    "expm1",
    "eye",
    "fft",
    "finfo",
    "flatten",
    "flip",
    "float16",
    "float32",
    "float4_e2m1",
    "float64",
    "float8_e4m3",
    "float8_e5m2",
    "floor",
    "floor_divide",
    "fold",
    "from_dlpack",
    "full",
    "full_like",
    "gather",
    "gelu",
    "glu",
    "grad",
    "gradients",
    "greater",
    "greater_equal",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hessian",
    "histogram",
    "hypot",
    "iinfo",
    "imag",
    "index_add",
    "index_put",
    "inf",
    "inference_mode",
    "int16",
    "int32",
    "int64",
    "int8",
    "is_grad_enabled",
    "isclose",
    "isdtype",
    "isfinite",
    "isinf",
    "isnan",
    "jvp",
    "leaky_relu",
    "lerp",
    "less",
    "less_equal",
    "lgamma",
    "linalg",
    "linspace",
    "load",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_sigmoid",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logit",
    "logsumexp",
    "masked_select",
    "matmul",
    "matrix_transpose",
    "max",
    "maximum",
    "mean",
    "median",
    "meshgrid",
    "min",
    "minimum",
    "mish",
    "moveaxis",
    "multiply",
    "nan",
    "negative",
    "newaxis",
    "nextafter",
    "nn",
    "no_grad",
    "nonzero",
    "norm",
    "not_equal",
    "one_hot",
    "ones",
    "ones_like",
    "optim",
    "pad",
    "permute",
    "permute_dims",
    "pi",
    "polygamma",
    "positive",
    "pow",
    "precision",
    "prelu",
    "prod",
    "quantile",
    "random",
    "read_many",
    "real",
    "reciprocal",
    "relu",
    "relu6",
    "remainder",
    "repeat",
    "reshape",
    "result_type",
    "roll",
    "round",
    "rsqrt",
    "save",
    "scatter",
    "searchsorted",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_sum",
    "selu",
    "set_default_device",
    "set_default_dtypes",
    "sigmoid",
    "sign",
    "signbit",
    "silu",
    "sin",
    "sinh",
    "softplus",
    "softshrink",
    "softsign",
    "sort",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "store",
    "subtract",
    "sum",
    "supports",
    "swapaxes",
    "swiglu",
    "take",
    "take_along_axis",
    "tan",
    "tanh",
    "tanhshrink",
    "tensor",
    "tensordot",
    "testing",
    "threshold",
    "tile",
    "to",
    "topk",
    "transaction",
    "transpose",
    "tri",
    "tril",
    "triu",
    "trunc",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "unflatten",
    "unfold",
    "unique",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "unstack",
    "value_and_grad",
    "var",
    "vecdot",
    "vjp",
    "where",
    "xlogy",
    "zeros",
    "zeros_like",
]
