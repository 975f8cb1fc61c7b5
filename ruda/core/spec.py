"""What is known of a tensor without looking at its values, interned: identity compares it."""

from __future__ import annotations

import math
import threading
import weakref
from typing import TYPE_CHECKING, Any

from ruda.core import dtypes
from ruda.core.dtypes import DType
from ruda.core.shapes import Shape, contiguous_strides, is_contiguous

if TYPE_CHECKING:
    from ruda.core.contracts import Client


class Spec:
    """Client, shape, strides (in elements), dtype, quantization scheme and alignment of a tensor.

    ``weak`` marks a Python scalar: its "handle" is the scalar itself, and its dtype gives way in
    promotion. Specs are interned: two equal specs are the same object, which makes them cheap keys
    of plan caches. Identity is a speed-up and never a meaning.
    """

    __slots__ = (
        "__weakref__",
        "align",
        "client",
        "contiguous",
        "dtype",
        "nbytes",
        "ndim",
        "scheme",
        "shape",
        "size",
        "strides",
        "weak",
    )

    client: Client
    shape: Shape
    strides: Shape
    dtype: DType
    scheme: Any
    align: int
    weak: bool
    size: int
    nbytes: int
    ndim: int
    contiguous: bool

    def __repr__(self) -> str:
        weak = "weak " if self.weak else ""
        layout = "" if self.contiguous else f" strides {self.strides}"
        return f"{weak}{self.dtype}{list(self.shape)}@{self.client.device}{layout}"


_specs: weakref.WeakValueDictionary[tuple[Any, ...], Spec] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def spec_of(
    client: Client,
    shape: Shape,
    dtype: DType,
    strides: Shape | None = None,
    *,
    scheme: Any = None,
    align: int = 0,
    weak: bool = False,
) -> Spec:
    """The one spec with these facts; row-major when ``strides`` is None."""
    if strides is None:
        strides = contiguous_strides(shape)
    key = (client, shape, strides, dtype, scheme, align, weak)
    spec = _specs.get(key)
    if spec is None:
        with _lock:
            spec = _specs.get(key)
            if spec is None:
                spec = _specs[key] = _make(*key)
    return spec


def _make(
    client: Client, shape: Shape, strides: Shape, dtype: DType, scheme: Any, align: int, weak: bool
) -> Spec:
    spec = Spec()
    spec.client, spec.shape, spec.strides, spec.dtype = client, shape, strides, dtype
    spec.scheme, spec.align, spec.weak = scheme, align, weak
    spec.size, spec.ndim = math.prod(shape), len(shape)
    spec.nbytes = spec.size * dtype.itemsize
    spec.contiguous = is_contiguous(shape, strides)
    return spec


_WEAK_DTYPES = {
    "bool": dtypes.bool_,
    "int": dtypes.int64,
    "float": dtypes.float64,
    "complex": dtypes.complex128,
}


def weak_spec(client: Client, kind: str) -> Spec:
    """The spec of a Python scalar of ``kind``: "bool", "int", "float" or "complex"."""
    return spec_of(client, (), _WEAK_DTYPES[kind], weak=True)


_ABSENT = "absent"
_absent: dict[Client, Spec] = {}


def absent_spec(client: Client) -> Spec:
    """The spec of an optional operand that is not given: weak, with None for its handle."""
    spec = _absent.get(client)
    if spec is None:
        spec = _absent[client] = spec_of(client, (), dtypes.bool_, scheme=_ABSENT, weak=True)
    return spec


def is_absent(spec: Spec) -> bool:
    """Whether ``spec`` stands for an optional operand that is not given."""
    return spec.scheme is _ABSENT


def promote_specs(specs: tuple[Spec, ...]) -> DType:
    """The dtype that the operands ``specs`` meet in; weak scalars give way to tensors.

    A weak scalar only adds its kind: an integer tensor with a Python float takes the default float
    of the device, a real one with a Python complex the complex type of its precision.
    """
    defaults = specs[0].client.defaults
    strong = [s.dtype for s in specs if not s.weak]
    kinds = {s.dtype.kind for s in specs if s.weak}
    if strong:
        out = dtypes.promote_all(strong)
    else:
        out = dtypes.bool_
    if "int" in kinds and out.kind == "bool":
        out = defaults.integer
    if "float" in kinds and out.kind in ("bool", "int", "uint"):
        out = defaults.floating
    if "complex" in kinds:
        out = dtypes.complex_of(out) if out.is_inexact else defaults.complex
    return out
