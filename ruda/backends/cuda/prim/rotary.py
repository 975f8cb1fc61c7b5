"""Rotary positions: rows that share their angles are turned by threads that keep these."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from ruda.backends.cuda.geometry import collapsed
from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import compute_of
from ruda.core.shapes import Shape

_THREADS, _DEEP = 128, 4


class _Layout(NamedTuple):
    """Sizes of the axes with angles of their own and of those that share them, and strides.

    ``strides`` are, for x, y, cos and sin, those along both kinds of axes and along the last one.
    """

    half: int
    places: Shape
    repeats: Shape
    strides: tuple[tuple[Shape, Shape, int], ...]


def _layout(plan: Any) -> _Layout:
    x, cos, sin = plan.specs
    lead = x.ndim - 1
    shown = [x.strides[:-1], plan.out.strides[:-1]]
    for spec in (cos, sin):
        pairs = zip(spec.shape[:-1], spec.strides[:-1], strict=True)
        shown.append((0,) * (lead + 1 - spec.ndim) + tuple(0 if n == 1 else s for n, s in pairs))
    own = [i for i in range(lead) if shown[2][i] or shown[3][i]]
    shared = [i for i in range(lead) if i not in own]
    places, place_steps = _joined(x.shape, own, shown)
    repeats, repeat_steps = _joined(x.shape, shared, shown)
    last = (s.strides[-1] for s in (x, plan.out, cos, sin))
    steps = tuple(zip(place_steps, repeat_steps, last, strict=True))
    return _Layout(cos.shape[-1], places, repeats, steps)


def _joined(shape: Shape, axes: list[int], shown: list[Shape]) -> tuple[Shape, list[Shape]]:
    sizes = tuple(shape[i] for i in axes)
    return collapsed(sizes, [tuple(s[i] for i in axes) for s in shown])


def _pairs(plan: Any, layout: _Layout) -> int:
    """Pairs of a thread: 16 bytes of x, where all packs begin at whole ones."""
    together = plan.attrs[0]
    count = max(1, 16 // plan.out.dtype.itemsize // (2 if together else 1))
    # Of x a pack has both features of a pair where they lie together.
    wide = [count * (2 if together else 1)] * 2 + [count] * 2
    for (places, repeats, last), pack in zip(layout.strides, wide, strict=True):
        if last != 1 or any(s % pack for s in (*places, *repeats)):
            return 1
    return count if layout.half % count == 0 else 1


def _launcher(client: Any, plan: Any, layout: _Layout, pairs: int) -> Launcher:
    x, cos, sin = plan.specs
    together, back = plan.attrs
    wide = max((compute_of(s.dtype) for s in plan.specs), key=lambda dtype: dtype.itemsize)
    packs = -(-layout.half // pairs)
    lanes = min(_THREADS, 1 << (packs - 1).bit_length())
    ranks = len(layout.places), len(layout.repeats)
    form = (
        f"{'together' * together or 'apart'}{'_back' * back}_{lanes}x{pairs}_r{ranks[0]}{ranks[1]}"
    )
    name = f"rotary_{'_'.join(code_of(s.dtype) for s in plan.specs)}_{form}"
    source = instance(
        __file__,
        NAME=name,
        X=stored(x.dtype),
        C=stored(cos.dtype),
        S=stored(sin.dtype),
        T=computed(wide),
        N=pairs,
        LANES=lanes,
        PLACES=ranks[0],
        REPEATS=ranks[1],
        TOGETHER=int(together),
        BACK=int(back),
    )
    repeats = math.prod(layout.repeats)
    numbers = [layout.half, repeats, *layout.places, *layout.repeats]
    for places, repeated, last in layout.strides:
        numbers += [*places, *repeated, last]
    parts = -(-repeats // (_THREADS // lanes * _DEEP))
    grid = (math.prod(layout.places), min(parts, 65535))
    fixed = [struct.pack(f"<{len(numbers)}q", *numbers)]
    return Launcher(client, source, name, grid, _THREADS, (1, 1, 1, 1), fixed)


def bind(client: Any, plan: Any) -> Callable[..., Any] | None:
    """One launch; packs where addresses are whole ones. Rows are counted in 32 bits."""
    out = plan.out
    if not out.size:
        return lambda *_: allocate(client.pool, out)
    if out.size // out.shape[-1] >= 2**31:
        return None
    layout = _layout(plan)
    most = _pairs(plan, layout)
    made: dict[int, Launcher] = {}

    def run(x: Any, cos: Any, sin: Any) -> Any:
        y = allocate(client.pool, out)
        given = (y.address, x.address, cos.address, sin.address)
        joint = given[0] | given[1] | given[2] | given[3]
        pairs = most if joint & 15 == 0 else 1
        found = made.get(pairs)
        if found is None:
            found = made[pairs] = _launcher(client, plan, layout, pairs)
        found(*given)
        return y

    return run


KERNELS = {"rotary": bind}
