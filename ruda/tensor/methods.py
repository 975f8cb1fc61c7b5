"""Which operators are methods of the tensor, and under which names.

A method is the operator's entry closure, or the public function, itself: no forwarding layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ruda.tensor.dispatch import OPS
from ruda.tensor.elsewhere import NAMES, Elsewhere
from ruda.tensor.entry import entry2, reflected
from ruda.tensor.mutation import assign
from ruda.tensor.tensor import RudaTensor

UNARY = {"neg": "negative", "pos": "positive", "abs": "abs", "invert": "bitwise_invert"}
BINARY = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "matmul": "matmul",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "pow",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
}
COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}

# Functions whose first parameter is the tensor: the method has the function's own name.
METHODS = (
    "abs",
    "acos",
    "acosh",
    "all",
    "allclose",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "argtopk",
    "asin",
    "asinh",
    "astype",
    "atan",
    "atanh",
    "broadcast_to",
    "ceil",
    "chunk",
    "clip",
    "conj",
    "contiguous",
    "copy",
    "cos",
    "cosh",
    "count_nonzero",
    "cumlogsumexp",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "cumulative_prod",
    "cumulative_sum",
    "diag",
    "diagonal",
    "diff",
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expand_dims",
    "expm1",
    "flatten",
    "flip",
    "floor",
    "fold",
    "gather",
    "gelu",
    "index_add",
    "index_put",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "logical_not",
    "logsumexp",
    "masked_select",
    "matmul",
    "max",
    "maximum",
    "mean",
    "median",
    "min",
    "minimum",
    "moveaxis",
    "nonzero",
    "norm",
    "pad",
    "permute",
    "permute_dims",
    "pow",
    "prod",
    "quantile",
    "reciprocal",
    "relu",
    "repeat",
    "reshape",
    "roll",
    "round",
    "rsqrt",
    "scatter",
    "sigmoid",
    "sign",
    "signbit",
    "silu",
    "sin",
    "sinh",
    "softplus",
    "sort",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "std",
    "sum",
    "swapaxes",
    "take",
    "take_along_axis",
    "tan",
    "tanh",
    "tile",
    "to",
    "topk",
    "transpose",
    "tril",
    "triu",
    "trunc",
    "unflatten",
    "unfold",
    "unique",
    "unique_values",
    "unstack",
    "var",
)

# Methods and properties under another name than their function has among ruda's.
RENAMED = {
    "__getitem__": "_getitem",
    "__setitem__": "_setitem",
    "copy_": "_copy_",
    "cpu": "_cpu",
    "cuda": "_cuda",
    "data_ptr": "_data_ptr",
    "pin_memory": "_pin_memory",
    "to_device": "_to_device",
}
PROPERTIES = {
    "T": "_transposed",
    "mT": "matrix_transpose",
    "H": "_conjugate_transpose",
    "mH": "_adjoint",
}


def attach(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Put the methods on the class: ``METHODS`` from ``functions``, dunders from the table."""
    for name in METHODS:
        setattr(RudaTensor, name, functions[name])
    for method, name in RENAMED.items():
        setattr(RudaTensor, method, functions[name])
    for attribute, name in PROPERTIES.items():
        setattr(RudaTensor, attribute, property(functions[name]))
    for name in NAMES:
        setattr(RudaTensor, name, Elsewhere(name))
    for dunder, name in UNARY.items():
        setattr(RudaTensor, f"__{dunder}__", OPS[name].call)
    for dunder, name in COMPARISONS.items():
        setattr(RudaTensor, f"__{dunder}__", entry2(OPS[name], NotImplemented))
    for dunder, name in BINARY.items():
        op = OPS[name]
        setattr(RudaTensor, f"__{dunder}__", entry2(op, NotImplemented))
        setattr(RudaTensor, f"__r{dunder}__", reflected(op))
        setattr(RudaTensor, f"__i{dunder}__", _in_place(op))
    RudaTensor.__pow__ = _power(functions["square"])  # type: ignore[method-assign]
    RudaTensor.assign = assign  # type: ignore[method-assign, assignment]


def _power(square: Callable[..., Any]) -> Callable[..., Any]:
    """``x ** y``; the exponent 2, by far the most common, costs one multiplication."""
    call = entry2(OPS["pow"], NotImplemented)

    def power(x: RudaTensor, y: Any) -> Any:
        return square(x) if y.__class__ is int and y == 2 else call(x, y)

    return power


def _in_place(op: Any) -> Callable[..., Any]:
    """``x += y``: the dtype of ``x`` stays, so a result of another kind raises."""
    call = entry2(op, NotImplemented)

    def in_place(x: RudaTensor, y: Any) -> Any:
        result = call(x, y)
        return result if result is NotImplemented else x.assign(result)

    return in_place
