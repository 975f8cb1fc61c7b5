"""A tensor inside of a larger one of one value: one launch where the value is a number."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.gather import UNITS, unit_of
from ruda.backends.cuda.prim.pointing import THREADS, blocks, integers, is_wide, packed
from ruda.backends.cuda.source import instance
from ruda.core.spec import spec_of


def _bind(client: Any, plan: Any) -> Callable[..., Any]:
    (_, value), out = plan.specs, plan.out
    if not out.size:
        return lambda *_: allocate(client.pool, out)
    return _of_number(client, plan) if value.weak else _of_tensor(client, plan)


def _of_number(client: Any, plan: Any) -> Callable[..., Any]:
    out, axes = plan.out, _axes(plan)
    dtype = out.dtype
    unit = dtype.itemsize
    *outer, (total, low, own, stride) = axes
    if stride == 1:
        unit = unit_of(unit, total, (low, own, *(axis[3] for axis in outer)))
    made = {unit: _launcher(client, plan, axes, unit)}

    def run(hx: Any, number: Any) -> Any:
        result = allocate(client.pool, out)
        fits = unit if (result.address | hx.address) % unit == 0 else dtype.itemsize
        if fits not in made:
            made[fits] = _launcher(client, plan, axes, fits)
        bits = np.asarray(number).astype(dtype.numpy).tobytes() * (fits // dtype.itemsize)
        slots = (int.from_bytes(bits[at : at + 8], "little") for at in range(0, fits, 8))
        made[fits](result.address, hx.address, *slots)
        return result

    return run


def _axes(plan: Any) -> list[tuple[int, int, int, int]]:
    """(size padded, before, own size, stride) of each axis, joined where nothing is between."""
    x, (widths,) = plan.specs[0], plan.attrs
    joined: list[tuple[int, int, int, int]] = []
    for own, stride, (low, high) in zip(x.shape, x.strides, widths, strict=True):
        axis = (own + low + high, low, own, stride)
        if joined and low == high == 0 and joined[-1][3] == own * stride:
            size, before, outer, _ = joined[-1]
            joined[-1] = (size * own, before * own, outer * own, stride)
        else:
            joined.append(axis)
    return joined or [(1, 0, 1, 0)]


def _launcher(client: Any, plan: Any, axes: Any, unit: int) -> Launcher:
    x, out = plan.specs[0], plan.out
    each, wide = unit // out.dtype.itemsize, is_wide(x, out)
    name = f"pad_{unit}b_r{len(axes)}{'_wide' * wide}"
    source = instance(__file__, NAME=name, UNIT=UNITS[unit], RANK=len(axes), **integers(wide))
    *outer, (total, low, own, stride) = axes
    last = (total // each, low // each, own // each, stride)
    shown = [(*axis[:3], axis[3] // each) for axis in outer]
    columns = tuple(zip(*shown, last, strict=True))
    n = math.prod(columns[0])
    geometry = packed(wide, n, *columns)
    widths = (1, 1, 2 if unit == 16 else 1)
    return Launcher(client, source, name, blocks(client, n, THREADS), THREADS, widths, [geometry])


def _of_tensor(client: Any, plan: Any) -> Callable[..., Any]:
    """A value that is only on the device: everything is filled, then ``x`` written over."""
    (x, value), out, (widths,) = plan.specs, plan.out, plan.attrs
    fill = client.writer(out, value)
    write = client.writer(spec_of(client, x.shape, out.dtype, out.strides), x)
    corner = sum(low * s for (low, _), s in zip(widths, out.strides, strict=True))

    def run(hx: Any, hv: Any) -> Any:
        result = allocate(client.pool, out)
        fill(result.address, hv)
        write(result.address + corner * out.dtype.itemsize, hx)
        return result

    return run


KERNELS = {"pad_constant": _bind}
