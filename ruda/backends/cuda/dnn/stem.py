"""Convolutions of images with a handful of channels and a stride of two, as networks begin.

Tensor cores want channels by eights. Two by two pixels together are as many channels four times
over, at half the size: the same sums are those of a kernel of half the size with a stride of one.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, stored
from ruda.core.dtypes import DType
from ruda.core.shapes import Shape
from ruda.core.spec import Spec, spec_of

# Fewer windows are over sooner than the copies are.
LEAST = 1 << 17
_LARGEST = 2**31
_BLOCKS_PER_MULTIPROCESSOR = 16
Bind = Callable[[Any, Any], Callable[..., Any] | None]


class Inner(NamedTuple):
    """What stands for the plan of the convolution with a stride of one."""

    op: Any
    specs: tuple[Spec, ...]
    attrs: tuple[Any, ...]
    out: Spec
    precision: Any


class Halved(NamedTuple):
    """Shapes of images and kernels with two by two pixels as channels."""

    image: Shape
    kernel: Shape
    low: tuple[int, int]

    def plan(self, plan: Any, specs: tuple[Spec, ...], out: Spec, attrs: Any, lead: Any) -> Inner:
        """The inner plan, with ``lead`` before the settings that are left."""
        settings = ((1, 1), ((0, 0),) * 2, (1, 1), 1, *attrs[4:])
        return Inner(plan.op, specs, (*lead, *settings), out, plan.precision)


def halved(x: Shape, w: Shape, y: Shape, dtype: DType, attrs: tuple[Any, ...]) -> Halved | None:
    """How ``x [N, H, W, C]``, ``w [O, KH, KW, C]`` are made half as large; None where not."""
    stride, padding, dilation, groups, layout, strategy = attrs
    plain = (stride, dilation, groups, layout, strategy) == ((2, 2), (1, 1), 1, "nhwc", "auto")
    if not plain or not dtype.is_half or len(x) != 4 or not 1 <= x[-1] <= 4 or min(w[1:3]) < 3:
        return None
    kernel = tuple(-(-k // 2) for k in w[1:3])
    width = _width(x[-1])
    sizes = tuple(n + k - 1 for n, k in zip(y[1:3], kernel, strict=True))
    image = (x[0], *sizes, width)
    if math.prod(y[:3]) < LEAST or max(math.prod(image), math.prod(x)) >= _LARGEST:
        return None
    return Halved(image, (w[0], *kernel, width), (padding[0][0], padding[1][0]))


def text(pack: bool, dtype: DType, channels: int) -> tuple[str, str]:
    """Name and source of the kernel that packs pixels, or brings them back."""
    name = f"pixels_{'packed' if pack else 'apart'}_{code_of(dtype)}x{channels}"
    sizes = {"PACK": int(pack), "CHANNELS": channels, "WIDTH": _width(channels)}
    return name, instance(__file__, NAME=name, S=stored(dtype), **sizes)


def _width(channels: int) -> int:
    """Channels of four pixels, by eights."""
    return -(-4 * channels // 8) * 8


def _launcher(
    client: Any, pack: bool, image: Spec, half: Shape, low: tuple[int, int]
) -> Callable[..., None]:
    """From addresses of target and source; ``image`` is the spec of the one with pixels apart."""
    sizes = (*image.shape[:3], *half[1:3], *low, 0)
    fixed = struct.pack("<8i4q", *sizes, *image.strides)
    total = math.prod(half) // 8 if pack else image.size
    grid = min(-(-total // 256), client.driver.multiprocessors * _BLOCKS_PER_MULTIPROCESSOR)
    name, source = text(pack, image.dtype, image.shape[-1])
    return Launcher(client, source, name, grid, 256, (1, 1), [fixed])


def forward(client: Any, plan: Any, how: Halved, bind: Bind) -> Callable[..., Any]:
    """``conv``, whose inner convolution ``bind`` makes."""
    x, w = plan.specs
    image, kernel = (spec_of(client, shape, x.dtype) for shape in (how.image, how.kernel))
    inner = bind(client, how.plan(plan, (image, kernel), plan.out, plan.attrs, ()))
    assert inner is not None
    packs = (
        (image, _launcher(client, True, x, how.image, how.low)),
        (kernel, _launcher(client, True, w, how.kernel, (0, 0))),
    )

    def run(*handles: Any) -> Any:
        return inner(*(_packed(client, *p, h) for p, h in zip(packs, handles, strict=True)))

    run.strategy = getattr(inner, "strategy", None)  # type: ignore[attr-defined]
    return run


def _packed(client: Any, spec: Spec, launch: Callable[..., None], handle: Any) -> Any:
    out = allocate(client.pool, spec)
    launch(out.address, handle.address)
    return out


def weight_backward(client: Any, plan: Any, how: Halved, bind: Bind) -> Callable[..., Any]:
    """``conv_weight_backward``: the gradient of the half-size kernel, taken apart again."""
    dy, x = plan.specs
    image, kernel = (spec_of(client, shape, x.dtype) for shape in (how.image, how.kernel))
    inner = bind(client, how.plan(plan, (dy, image), kernel, plan.attrs[1:], (how.kernel,)))
    assert inner is not None
    pack = _launcher(client, True, x, how.image, how.low)
    apart = _launcher(client, False, plan.out, how.kernel, (0, 0))

    def run(hdy: Any, hx: Any) -> Any:
        made = inner(hdy, _packed(client, image, pack, hx))
        out = allocate(client.pool, plan.out)
        apart(out.address, made.address)
        return out

    return run
