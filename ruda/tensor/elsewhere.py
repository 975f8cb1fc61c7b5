"""What tensors of PyTorch and NumPy have under another name; only errors read this."""

from __future__ import annotations

from typing import Any

NAMES = {
    "add": "x + y",
    "add_": "x += y",
    "bfloat16": 'x.astype("bfloat16")',
    "bmm": "x @ y",
    "bool": 'x.astype("bool")',
    "byte": 'x.astype("uint8")',
    "clamp": "x.clip",
    "clone": "x.copy",
    "data": "x.detach()",
    "detach_": "x.detach",
    "dim": "x.ndim",
    "div": "x / y",
    "div_": "x /= y",
    "dot": "x @ y",
    "double": 'x.astype("float64")',
    "element_size": "x.itemsize",
    "eq": "x == y",
    "equal": "ruda.all(x == y)",
    "expand": "x.broadcast_to",
    "expand_as": "x.broadcast_to",
    "fill": "x.assign",
    "fill_": "x.assign",
    "float": 'x.astype("float32")',
    "ge": "x >= y",
    "gt": "x > y",
    "half": 'x.astype("float16")',
    "index_select": "x.take",
    "int": 'x.astype("int32")',
    "is_cuda": "x.device",
    "le": "x <= y",
    "log_softmax": "ruda.nn.functional.log_softmax",
    "long": 'x.astype("int64")',
    "lt": "x < y",
    "masked_fill": "ruda.where",
    "masked_fill_": "x[mask] = value",
    "mm": "x @ y",
    "mul": "x * y",
    "mul_": "x *= y",
    "ne": "x != y",
    "neg": "-x",
    "new_ones": "ruda.ones",
    "new_zeros": "ruda.zeros",
    "normal_": "x.assign, or ruda.nn.init.normal_",
    "numel": "x.size",
    "ravel": "x.flatten",
    "repeat_interleave": "x.repeat",
    "scatter_add": 'x.scatter(..., mode="add")',
    "softmax": "ruda.nn.functional.softmax",
    "stride": "x.strides",
    "sub": "x - y",
    "sub_": "x -= y",
    "swapdims": "x.swapaxes",
    "t": "x.T",
    "type": "x.astype",
    "type_as": "x.astype",
    "unbind": "x.unstack",
    "uniform_": "x.assign, or ruda.nn.init.uniform_",
    "unsqueeze": "x.expand_dims",
    "view": "x.reshape",
    "view_as": "x.reshape",
    "where": "ruda.where",
    "zero_": "x.assign(0)",
}


class Elsewhere:
    """An attribute that is not there: reading it raises ``AttributeError`` with ruda's name.

    A ``__getattr__`` on the class would say as much, and make each read of what is there slower.
    The class itself shows what ruda has in its place.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<not there: try {NAMES[self.name]}>"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        what = f"'RudaTensor' object has no attribute {self.name!r}"
        raise AttributeError(f"{what}. Try {NAMES[self.name]}")
