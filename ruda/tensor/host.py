"""Where values meet the host: reading, showing, and taking over arrays."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ruda.core.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from ruda.core.mode import MODE


def read(tensor: Any, op: str, copy: bool = False) -> Any:
    """The values of ``tensor`` as an ndarray; raises ``CaptureError`` inside a trace."""
    values = _values(tensor, op)
    if copy:
        return values.copy()
    values = values.view()
    # Writing through a shared array would go past the version counter.
    values.flags.writeable = False
    return values


def _values(tensor: Any, op: str) -> Any:
    """As ``read``, for one look: writing to what it returns would go past the version counter."""
    tracer = MODE.get().tracer
    if tracer is not None:
        return tracer.read(tensor.spec, tensor.handle, op)
    if tensor.spec.weak:
        return np.asarray(tensor.handle)
    return tensor.spec.client.read(tensor.spec, tensor.handle)


def address(tensor: Any, op: str) -> int:
    """Where the first element lies; a trace has no memory yet."""
    tracer = MODE.get().tracer
    if tracer is not None:
        tracer.read(tensor.spec, tensor.handle, op)
    return tensor.spec.client.address(tensor.handle)  # type: ignore[no-any-return]


def item(tensor: Any, op: str) -> Any:
    """The one value of ``tensor`` as a Python scalar."""
    if tensor.spec.size != 1:
        hint = "any(), all() or comparing sizes" if op == "bool" else "tolist()"
        raise ShapeError(op, "needs exactly one element", got=tensor.spec.shape, hint=hint)
    value = _values(tensor, op).item()
    kind = tensor.spec.dtype.kind
    return float(value) if kind in ("float", "storage") else value


def real_item(tensor: Any, op: str) -> Any:
    """The one value of a tensor that is not complex."""
    if tensor.spec.dtype.kind == "complex":
        hint = "real(x) or complex(x)"
        raise DTypeError(op, "a complex value is not a real number", tensor.spec.dtype, hint=hint)
    return item(tensor, op)


def integer_item(tensor: Any) -> int:
    """The one value of a 0-d integer tensor, for use as an index."""
    if not tensor.spec.dtype.is_integer or tensor.spec.shape != ():
        raise DTypeError("index", "not an index", tensor.spec, "a 0-d integer tensor")
    return int(item(tensor, "index"))


def tolist(tensor: Any) -> Any:
    """The values as nested lists; half and storage types become Python floats."""
    values = read(tensor, "tolist")
    if values.dtype.kind not in "biufc":
        values = values.astype(np.float64)
    return values.tolist()


def array(tensor: Any, dtype: Any, copy: bool | None) -> Any:
    """What ``np.asarray(tensor)`` gives; only for tensors on the CPU."""
    if tensor.spec.client.device.kind != "cpu":
        hint = 'x.to("cpu") first'
        raise DeviceError("__array__", "not on the CPU", tensor.spec.client.device, hint=hint)
    if tensor.node is not None:
        # matplotlib and NumPy users mean the value here; the tape is not affected by reading it.
        tensor = tensor.detach()
    values = read(tensor, "__array__", bool(copy))
    if dtype is not None and np.dtype(dtype) != values.dtype:
        if copy is False:
            raise ArgumentError("__array__", "a cast needs a copy", got="copy=False")
        return values.astype(dtype)
    return values


def text(tensor: Any, op: str) -> str:
    """The tensor as text; inside a trace, which has no values, only ``repr`` has an answer."""
    tracer = MODE.get().tracer
    if tracer is None:
        shown: str = importlib.import_module("ruda.display.text").describe(tensor)
        return shown
    return f"tensor(<traced>, {tensor.spec})" if op == "repr" else read(tensor, op)


def html(tensor: Any) -> str:
    """The tensor as HTML for notebooks; inside a trace its facts alone."""
    traced = MODE.get().tracer is not None
    shown: str = importlib.import_module("ruda.display.html").card(tensor, traced)
    return shown


def draw_number(generator: Any) -> Any:
    """The number of the next draw of ``generator``, which every random operator asks for here.

    A trace gives a value that each replay renews, ``checkpoint`` the same number in both runs.
    """
    recorder = MODE.get().recorder
    return fresh_draw(generator) if recorder is None else recorder.draw(generator)


def fresh_draw(generator: Any) -> Any:
    """``draw_number`` without regard to ``checkpoint``, which asks this itself."""
    tracer = MODE.get().tracer
    return generator.advance(1) if tracer is None else tracer.draw(generator)


def check_untraced(op: str, what: str) -> None:
    """Raise ``CaptureError`` inside a trace, whose replays would not do ``what`` again."""
    tracer = MODE.get().tracer
    if tracer is not None:
        tracer.refuse(op, what)


def seed_number(generator: Any) -> Any:
    """The seed of ``generator``; inside a trace a value that each replay renews."""
    tracer = MODE.get().tracer
    return generator.seed if tracer is None else tracer.seed(generator)
