"""Batch norm: one axis of channels is kept, in kernels that share out each channel's elements.

Two passes over the input forward (moments, then the result) and two over input and gradient
backward; the parts of a channel are joined in a fixed order in between.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.planes import dense_copy
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import DType
from ruda.core.shapes import Shape
from ruda.core.spec import Spec, is_absent, spec_of

# Below this many elements one kernel with a block for each channel is over sooner than three.
LEAST = 1 << 17
# Packs on their way in a thread, where one or two operands are read.
STEPS = {0: 4, 2: 4, 3: 2, 5: 2}
# Blocks of a pass: all at once while there is something to join, else enough to even out.
FOLDING, MAPPING = 4, 16
_THREADS = 256
_LARGEST = 2**31 - 1
_JOIN = str(Path(__file__).with_name("channels_join.py"))


class Channels(NamedTuple):
    """Dense ``[outer, count, inner]``, each channel a row of the second axis."""

    outer: int
    count: int
    inner: int

    @property
    def each(self) -> int:
        """Elements of a channel."""
        return self.outer * self.inner


def channels_of(shape: Shape, axes: Shape) -> Channels | None:
    """``shape`` with the axes that stay as one, or None where others lie between them."""
    kept = [i for i, n in enumerate(shape) if i not in axes and n > 1]
    first, last = (kept[0], kept[-1]) if kept else (0, -1)
    if any(i in axes and shape[i] > 1 for i in range(first, last + 1)):
        return None
    sizes = (shape[:first], shape[first : last + 1], shape[last + 1 :])
    return Channels(*(math.prod(s) for s in sizes))


def _per_channel(spec: Spec, shape: Shape, axes: Shape) -> bool:
    """Whether a parameter is absent or dense with an element for each channel."""
    if is_absent(spec):
        return True
    sizes = (1,) * (len(shape) - spec.ndim) + spec.shape
    kept = tuple(1 if i in axes else n for i, n in enumerate(shape))
    return sizes == kept and spec.contiguous


def fitting(shape: Shape, axes: Shape, *params: Spec) -> Channels | None:
    """The channels of ``shape``, or None where other kernels do as well or are needed."""
    found = channels_of(shape, axes)
    size = math.prod(shape)
    if found is None or found.outer == 1 or size < LEAST or found.each > _LARGEST:
        return None
    return found if all(_per_channel(p, shape, axes) for p in params) else None


def sums_of_channels(plan: Any, at: Channels) -> bool:
    """Whether the gradients of parameters are one sum for each channel, of what the passes read."""
    dy, x, _, mean, var = plan.specs
    kept = math.prod(plan.attrs[2]) == at.count and dy.dtype is x.dtype
    return kept and mean.dtype is var.dtype is plan.out[1].dtype


class Pass:
    """One of the kernels over all elements, for packs of ``vec``."""

    def __init__(
        self, client: Any, op: int, at: Channels, types: tuple[DType, ...], eps: float, vec: int
    ) -> None:
        last, steps = at.inner == 1, STEPS[op]
        own = vec if last else 1
        packs = -(-at.count // own)
        across = min(32, 1 << (packs - 1).bit_length()) if last else 1
        down = _THREADS // across
        total = at.outer * (at.inner // (1 if last else vec))
        self.chunks, self.chunk = -(-total // (steps * down)), steps * down
        tiles = -(-packs // across)
        most = client.driver.multiprocessors * (FOLDING if op in (0, 3) else MAPPING)
        self.parts = max(1, min(self.chunks, -(-most // tiles), 65535))
        if op in (0, 3) and last:
            # One more block than there is room for would wait for all of them.
            self.parts = max(1, min(self.chunks, most // tiles, 65535))
        self.missing = self.chunks * self.chunk - total
        self.each = 1 if last else vec
        run = max(1, at.inner // vec)
        whole, rest = divmod(down, run)
        jump = down * at.count if last else whole * at.count * at.inner + rest * vec
        numbers = (at.count, at.inner, jump, at.count * at.inner - run * vec)
        packed = struct.pack(
            "<4q6I2d", *numbers, total, self.chunks, across, down, run, rest, eps, at.each
        )
        name, text = source(op, types, vec, last, steps)
        widths = (1,) * (4 if op in (0, 3) else 9)
        grid = (tiles, self.parts)
        self.launch = Launcher(client, text, name, grid, _THREADS, widths, [packed])


def source(op: int, types: tuple[DType, ...], vec: int, last: bool, steps: int) -> tuple[str, str]:
    """Name and text of a kernel over elements of ``types[0]``, parameters of the others."""
    x, *params = types
    what = ("moments", "", "standardise", "sums", "", "standardise_backward")[op]
    codes = "_".join(code_of(t) for t in types)
    name = f"channels_{what}_{codes}_{'last' if last else 'first'}{vec}"
    given = zip(("WEIGHT", "BIAS"), (*params, x, x), strict=False)
    kinds = {key: stored(dtype) for key, dtype in given}
    fixed = {"NAME": name, "OP": op, "LAST": int(last), "VEC": vec, "STEPS": steps}
    return name, instance(__file__, **fixed, STORED=stored(x), REAL=computed(x), **kinds)


def joining(moments: bool, x: DType) -> tuple[str, str]:
    """Name and text of the kernel that joins parts."""
    name = f"channels_join_{'moments' if moments else 'sums'}_{code_of(x)}"
    return name, instance(_JOIN, NAME=name, MOMENTS=int(moments), REAL=computed(x))


class Joined:
    """A pass to parts, and what joins them."""

    def __init__(
        self, client: Any, op: int, at: Channels, x: DType, wide: DType, eps: float, vec: int
    ) -> None:
        self.client = client
        self.first = first = Pass(client, op, at, (x,), eps, vec)
        turns, rest = divmod(first.chunks, first.parts)
        each = first.each
        numbers = (first.parts, at.count, first.chunk * each, turns, rest, first.missing * each)
        packed = struct.pack("<6q2d", *numbers, eps, at.each)
        name, text = joining(op == 0, x)
        grid = -(-at.count // 32)
        self.join = Launcher(client, text, name, grid, (32, 32), (1,) * 4, [packed])
        self.between = spec_of(client, (2, first.parts, at.count), wide)

    def __call__(self, out: tuple[int, int], x: int, dy: int, mean: int, var: int) -> None:
        """Queue both, for addresses."""
        partial = allocate(self.client.pool, self.between)
        self.first.launch(partial.address, x, dy, mean)
        self.join(*out, partial.address, var)


def _vector(at: Channels, x: DType) -> int:
    """Elements of a pack, 16 bytes if runs of a channel or rows of channels divide into such."""
    vec, run = 16 // x.itemsize, at.count if at.inner == 1 else at.inner
    return math.gcd(vec, run)


def _pick(vec: int, *addresses: int) -> int:
    joint = 0
    for address in addresses:
        joint |= address
    return vec if joint & 15 == 0 else 1


def forward(client: Any, plan: Any, at: Channels) -> Callable[..., Any]:
    """``standard_norm`` of channels."""
    (x, weight, bias), (_, eps) = plan.specs, plan.attrs
    settle, vec = dense_copy(client, x), _vector(at, x.dtype)
    params = tuple(x.dtype if is_absent(p) else p.dtype for p in (weight, bias))
    wide, made = plan.out[1].dtype, {}

    def kernels(vec: int) -> tuple[Any, Any]:
        moments = Joined(client, 0, at, x.dtype, wide, eps, vec)
        return moments, Pass(client, 2, at, (x.dtype, *params), eps, vec).launch

    made[vec] = kernels(vec)

    def run(hx: Any, hw: Any, hb: Any) -> Any:
        hx = settle(hx)
        y, mean, var = (allocate(client.pool, spec) for spec in plan.out)
        size = _pick(vec, hx.address, y.address)
        if size not in made:
            made[size] = kernels(size)
        moments, last = made[size]
        moments((mean.address, var.address), hx.address, 0, 0, 0)
        params = (0 if h is None else h.address for h in (hw, hb))
        last(y.address, hx.address, 0, mean.address, var.address, *params, 0, 0)
        return y, mean, var

    return run


def backward(client: Any, plan: Any, at: Channels) -> Callable[..., Any]:
    """``standard_norm_backward`` of channels."""
    (dy, x, weight, mean, var), (_, eps, _) = plan.specs, plan.attrs
    dense = [dense_copy(client, s) for s in (dy, x, mean, var)]
    vec, wide, made = _vector(at, x.dtype), plan.out[1].dtype, {}
    kind = x.dtype if is_absent(weight) else weight.dtype

    def kernels(vec: int) -> tuple[Any, Any]:
        sums = Joined(client, 3, at, x.dtype, wide, eps, vec)
        return sums, Pass(client, 5, at, (x.dtype, kind), eps, vec).launch

    made[vec] = kernels(vec)

    def run(hg: Any, hx: Any, hw: Any, hm: Any, hv: Any) -> Any:
        given = (settle(h) for settle, h in zip(dense, (hg, hx, hm, hv), strict=True))
        hg, hx, hm, hv = given
        dx, dw, db = (allocate(client.pool, spec) for spec in plan.out)
        size = _pick(vec, hg.address, hx.address, dx.address)
        if size not in made:
            made[size] = kernels(size)
        sums, last = made[size]
        sums((dw.address, db.address), hx.address, hg.address, hm.address, hv.address)
        w = 0 if hw is None else hw.address
        places = (hx.address, hg.address, hm.address, hv.address, w, 0, dw.address, db.address)
        last(dx.address, *places)
        return dx, dw, db

    return run
