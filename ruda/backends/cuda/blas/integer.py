"""Products of integers: exact, and wrapping around like every other arithmetic on integers."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, stored
from ruda.core.dtypes import DType
from ruda.core.errors import StrategyError
from ruda.core.shapes import Shape, broadcast_strides
from ruda.core.spec import Spec

TILE, THREADS = 64, 256
_AXES = 8
# What the second and third dimension of a grid can count.
_MOST = 65535


def source(x: DType, y: DType, bias: DType, out: DType) -> tuple[str, str]:
    """Name and CUDA C of the kernel for these dtypes."""
    name = f"matmul_{code_of(x)}_{code_of(y)}_{code_of(bias)}_{code_of(out)}"
    acc = "u64" if out.itemsize == 8 else "u32"
    types = {"TX": stored(x), "TY": stored(y), "TB": stored(bias), "TO": stored(out), "ACC": acc}
    return name, instance(__file__, NAME=name, **types)


def bind(client: Any, x: Spec, y: Spec, bias: Spec | None, out: Spec) -> Callable[..., Any]:
    """The function from handles to ``x @ y``, plus ``bias`` on each row; no operand is empty."""
    name, text = source(x.dtype, y.dtype, (bias or out).dtype, out.dtype)
    (m, k, xr, xc), (_, n, yr, yc) = _matrix(x, left=True), _matrix(y, left=False)
    lead = out.shape[: out.ndim - (x.ndim > 1) - (y.ndim > 1)]
    axes = [
        (size, sx, sy)
        for size, sx, sy in zip(lead, _batch(x, lead), _batch(y, lead), strict=True)
        if size > 1
    ]
    if len(axes) > _AXES:
        raise StrategyError("matmul", f"more than {_AXES} batch axes", lead, hint="reshape")
    batch = out.size // (m * n)
    axes = [(1, 0, 0)] * (_AXES - len(axes)) + axes
    step = 0 if bias is None else bias.strides[0]
    numbers = [m, n, k, batch, xr, xc, yr, yc, step]
    numbers += [axis[i] for i in range(3) for axis in axes]
    grid = (-(-n // TILE), min(-(-m // TILE), _MOST), min(batch, _MOST))
    launch = Launcher(
        client,
        text,
        name,
        grid,
        THREADS,
        (1, 1, 1, 1),
        [struct.pack(f"<{len(numbers)}q", *numbers)],
    )

    def run(hx: Any, hy: Any, hb: Any = None) -> Any:
        result = allocate(client.pool, out)
        launch(result.address, hx.address, hy.address, 0 if hb is None else hb.address)
        return result

    return run


def _matrix(spec: Spec, left: bool) -> tuple[int, int, int, int]:
    """Rows and columns of an operand, and the strides along both."""
    if spec.ndim > 1:
        return (*spec.shape[-2:], *spec.strides[-2:])  # type: ignore[return-value]
    n, step = spec.shape[0], spec.strides[0]
    return (1, n, 0, step) if left else (n, 1, step, 0)


def _batch(spec: Spec, lead: Shape) -> Shape:
    shape, strides = spec.shape[:-2], spec.strides[:-2]
    own = tuple(0 if n == 1 else s for n, s in zip(shape, strides, strict=True))
    return broadcast_strides("matmul", shape, own, lead)
