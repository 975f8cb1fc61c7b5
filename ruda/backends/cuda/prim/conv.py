"""Convolution by our own kernels, in any dtype: directly, or as products of matrices in tiles."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.shapes import Shape
from ruda.core.spec import Spec

_THREADS, _TILE = 256, 64
_BLOCKS_PER_MULTIPROCESSOR = 16
# Channels of a group below which tiles of 64 would be all but empty.
_FEW = 8


def _geometry(
    x: Any, w: Any, y: Any, mode: int, attrs: tuple[Any, ...]
) -> tuple[bytes, int, int, int]:
    """The struct Geometry, the rows and columns of a group's product, and the results in all.

    ``x``, ``w`` and ``y`` are pairs of shape and strides in the order of ``layout``.
    """
    stride, padding, dilation, groups, layout, _ = attrs
    (xs, xt), (ws, wt), (ys, yt) = (_three(s, t, layout) for s, t in (x, w, y))
    n, c, o = xs[0], ws[1], ws[0] // groups
    taps, pixels, windows = (math.prod(s[2:]) for s in (ws, xs, ys))
    sizes = {
        0: (n * windows, o, c * taps),
        1: (n * pixels, c, o * taps),
        2: (o, c * taps, n * windows),
    }[mode]
    total = sizes[0] * sizes[1] * groups
    low = tuple(p[0] for p in padding)
    steps = (*_led(stride, 1), *_led(low, 0), *_led(dilation, 1))
    numbers = (n, groups, c, o, *xs[2:], *ys[2:], *ws[2:], *steps, *xt, *wt, *yt, *sizes, total)
    return struct.pack(f"<{len(numbers)}q", *numbers), sizes[0], sizes[1], total


def _led(values: Any, by: int) -> tuple[int, ...]:
    """``values`` of one to three spatial axes as of three."""
    return (by,) * (3 - len(values)) + tuple(values)


def _three(shape: Shape, strides: Shape, layout: str) -> tuple[Shape, Shape]:
    """Shape and strides as [N, C, D, H, W]."""
    if layout == "nhwc":
        shape, strides = ((s[0], s[-1], *s[1:-1]) for s in (shape, strides))
    return (*shape[:2], *_led(shape[2:], 1)), (*strides[:2], *_led(strides[2:], 0))


def _bind(client: Any, plan: Any, mode: int, attrs: tuple[Any, ...]) -> Callable[..., Any]:
    out = plan.out
    a, b = plan.specs
    trio = {0: (a, b, out), 1: (out, b, a), 2: (b, out, a)}[mode]
    x, w, y = ((s.shape, s.strides) for s in trio)
    if out.size == 0 or min(s.size for s in plan.specs) == 0:
        return _zeros(client, out)
    geometry, rows, columns, total = _geometry(x, w, y, mode, attrs)
    strategy, groups = attrs[5], attrs[3]
    direct = strategy == "direct" or (strategy != "implicit_gemm" and min(rows, columns) < _FEW)
    name = f"{plan.op.name}_{'direct' if direct else 'tiled'}_{code_of(out.dtype)}"
    settings = {"NAME": name, "S": stored(out.dtype), "T": computed(out.dtype), "MODE": mode}
    text = instance(__file__, **settings, **({"DIRECT": 1} if direct else {}))
    most = client.driver.multiprocessors * _BLOCKS_PER_MULTIPROCESSOR
    tiles = (-(-rows // _TILE), -(-columns // _TILE), groups)
    grid = (min(-(-total // _THREADS), most), 1, 1) if direct else tiles
    launcher = Launcher(client, text, name, grid, _THREADS, (1, 1, 1), [geometry])

    def run(ha: Any, hb: Any) -> Any:
        h = allocate(client.pool, out)
        launcher(h.address, ha.address, hb.address)
        return h

    run.strategy = "direct" if direct else "implicit_gemm"  # type: ignore[attr-defined]
    return run


def _zeros(client: Any, out: Spec) -> Callable[..., Any]:
    def run(ha: Any, hb: Any) -> Any:
        h = allocate(client.pool, out)
        client.fill_zero(h.address, out.nbytes)
        return h

    return run


KERNELS: dict[str, Callable[[Any, Any], Callable[..., Any]]] = {
    "conv": lambda client, plan: _bind(client, plan, 0, plan.attrs),
    "conv_data_backward": lambda client, plan: _bind(client, plan, 1, plan.attrs[1:]),
    "conv_weight_backward": lambda client, plan: _bind(client, plan, 2, plan.attrs[1:]),
}
