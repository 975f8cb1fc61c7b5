"""A tensor framework with its own device tensor.

The names of the Array API 2024.12 live here, with ruda's own beside them; ``nn``, ``optim`` and the
other packages load on first use.
"""

from __future__ import annotations

import importlib
from math import e, inf, nan, pi
from typing import Any

from ruda.core.devices import Device, default_device, set_default_device
from ruda.core.dtypes import (
    DType,
    bfloat16,
    complex64,
    complex128,
    finfo,
    float4_e2m1,
    float8_e4m3,
    float8_e5m2,
    float16,
    float32,
    float64,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    isdtype,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ruda.core.dtypes import bool_ as bool
from ruda.core.elsewhere import NAMES as _ELSEWHERE
from ruda.core.errors import (
    ArgumentError,
    AxisError,
    CaptureError,
    DeviceError,
    DTypeError,
    GradientError,
    IndexRangeError,
    IntegerRangeError,
    LinAlgError,
    OutOfMemoryError,
    RudaError,
    ShapeError,
    StoreError,
    StrategyError,
    VersionError,
)
from ruda.core.mode import autocast, enable_grad, inference_mode, is_grad_enabled, no_grad
from ruda.core.precision import explain_precision, precision
from ruda.namespace import __array_namespace_info__
from ruda.ops.activation import (
    celu,
    elu,
    gelu,
    glu,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    mish,
    prelu,
    relu,
    relu6,
    selu,
    silu,
    softplus,
    softshrink,
    softsign,
    swiglu,
    tanhshrink,
    threshold,
)
from ruda.ops.arith import (
    abs,
    absolute,
    add,
    copysign,
    divide,
    floor_divide,
    hypot,
    maximum,
    minimum,
    multiply,
    negative,
    nextafter,
    positive,
    pow,
    reciprocal,
    remainder,
    rsqrt,
    sign,
    sqrt,
    square,
    subtract,
)
from ruda.ops.bitwise import (
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
)
from ruda.ops.cast import astype, to
from ruda.ops.closeness import allclose, isclose
from ruda.ops.compare import (
    equal,
    greater,
    greater_equal,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
    signbit,
)
from ruda.ops.complexes import conj, imag, real
from ruda.ops.complexes import conjugate_transpose as _conjugate_transpose
from ruda.ops.conversion import asarray, from_dlpack
from ruda.ops.create import (
    arange,
    empty,
    empty_like,
    full,
    full_like,
    linspace,
    ones,
    ones_like,
    set_default_dtypes,
    zeros,
    zeros_like,
)
from ruda.ops.diagonal import (
    diag,
    diagonal,
    eye,
    meshgrid,
    tri,
    tril,
    triu,
)
from ruda.ops.einsum import einsum
from ruda.ops.explog import (
    exp,
    exp2,
    expm1,
    log,
    log1p,
    log2,
    log10,
    log_sigmoid,
    logaddexp,
    logit,
    sigmoid,
    xlogy,
)
from ruda.ops.folding import fold, unfold
from ruda.ops.gather import (
    gather,
    index_add,
    index_put,
    masked_select,
    one_hot,
    scatter,
    take,
    take_along_axis,
)
from ruda.ops.getitem import getitem as _getitem
from ruda.ops.getitem import setitem as _setitem
from ruda.ops.hyper import acosh, asinh, atanh, cosh, sinh, tanh
from ruda.ops.join import (
    chunk,
    concat,
    split,
    stack,
    unstack,
)
from ruda.ops.matmul import adjoint as _adjoint
from ruda.ops.matmul import matmul, tensordot, vecdot
from ruda.ops.movement import (
    broadcast_arrays,
    broadcast_to,
    contiguous,
    copy,
    expand_dims,
    flatten,
    flip,
    matrix_transpose,
    moveaxis,
    permute,
    permute_dims,
    reshape,
    squeeze,
    swapaxes,
    transpose,
    unflatten,
)
from ruda.ops.movement import transposed as _transposed
from ruda.ops.promotion import can_cast, result_type
from ruda.ops.quantile import median, quantile
from ruda.ops.reduce import all, any, argmax, argmin, count_nonzero, max, min, prod, sum
from ruda.ops.round import ceil, floor, round, trunc
from ruda.ops.scan import (
    cumlogsumexp,
    cummax,
    cummin,
    cumprod,
    cumsum,
    cumulative_prod,
    cumulative_sum,
    diff,
)
from ruda.ops.segment import (
    segment_max,
    segment_mean,
    segment_min,
    segment_sum,
)
from ruda.ops.select import clip, lerp, where
from ruda.ops.sets import (
    bincount,
    histogram,
    nonzero,
    unique,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)
from ruda.ops.sort import argsort, argtopk, searchsorted, sort, topk
from ruda.ops.special import digamma, erf, erfc, erfinv, lgamma, polygamma
from ruda.ops.statistics import logsumexp, mean, norm, std, var
from ruda.ops.tiling import (
    pad,
    repeat,
    roll,
    tile,
)
from ruda.ops.transfer import copy_ as _copy_
from ruda.ops.transfer import cpu as _cpu
from ruda.ops.transfer import cuda as _cuda
from ruda.ops.transfer import data_ptr as _data_ptr
from ruda.ops.transfer import pin_memory as _pin_memory
from ruda.ops.transfer import to_device as _to_device
from ruda.ops.trig import acos, asin, atan, atan2, cos, sin, tan
from ruda.tensor import methods as _methods
from ruda.tensor.determinism import deterministic
from ruda.tensor.tensor import RudaTensor
from ruda.tensor.transaction import read_many, transaction

Tensor = RudaTensor
newaxis = None
__version__ = "0.1.0.dev0"
__array_api_version__ = "2024.12"

_methods.attach(globals())

# Loaded on first use: importing ruda stays light.
_LAZY_MODULES = (
    "autodiff",
    "cuda",
    "data",
    "fft",
    "linalg",
    "nn",
    "optim",
    "random",
    "store",
    "testing",
)
_LAZY_NAMES: dict[str, str] = {
    "grad": "ruda.autodiff.api",
    "value_and_grad": "ruda.autodiff.api",
    "vjp": "ruda.autodiff.api",
    "jvp": "ruda.autodiff.api",
    "hessian": "ruda.autodiff.api",
    "gradients": "ruda.autodiff.api",
    "checkpoint": "ruda.autodiff.checkpoint",
    "bucket": "ruda.fusion.bucket",
    "bucket_size": "ruda.fusion.bucket",
    "compile": "ruda.fusion.api",
    "custom_op": "ruda.autodiff.custom",
    "explain": "ruda.ops.explain",
    "load": "ruda.store",
    "save": "ruda.store",
    "supports": "ruda.ops.support",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY_MODULES:
        return importlib.import_module(f"ruda.{name}")
    if name in _LAZY_NAMES:
        return getattr(importlib.import_module(_LAZY_NAMES[name]), name)
    message = f"module 'ruda' has no attribute {name!r}"
    if name in _ELSEWHERE:
        message += f". Try ruda.{_ELSEWHERE[name]}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    # What a person may type, which leaves out what only this file needs.
    hidden = {"Any", "annotations", "importlib"}
    names = {*globals(), *_LAZY_MODULES, *_LAZY_NAMES} - hidden
    return sorted(n for n in names if not n.startswith("_") or n.startswith("__"))
