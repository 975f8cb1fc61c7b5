"""Batch norm: one axis of channels is kept, in kernels that share out each channel's elements.

Two passes over the input forward (moments, then the result) and two over input and gradient
backward; the parts of a channel are joined in a fixed order in between.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence
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
# The passes by their numbers in ``channels.cu``: the first of each way leaves parts to be joined.
MOMENTS, RESULT, SUMS, GRADIENT = 0, 2, 3, 5
# Packs on their way in a thread, where one or two operands are read.
STEPS = {MOMENTS: 4, RESULT: 4, SUMS: 2, GRADIENT: 2}
_NAMES = {
    MOMENTS: "moments",
    RESULT: "standardise",
    SUMS: "sums",
    GRADIENT: "standardise_backward",
}
# Blocks of a multiprocessor where nothing is joined: enough to even out.
MAPPING = 16
_THREADS = 256
_LARGEST = 2**31 - 1
# Where the functions of steps stand in the text: behind the types.
_PLACE = "struct Geometry {"
_JOIN = str(Path(__file__).with_name("channels_join.py"))


class Channels(NamedTuple):
    """Dense ``[outer, count, inner]``, each channel a row of the second axis."""

    outer: int
    count: int  # type: ignore[assignment]
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


class Around(NamedTuple):
    """Elementwise steps around a pass: their text, and how many addresses they take."""

    name: str
    count: int  # type: ignore[assignment]
    functions: str
    settings: tuple[tuple[str, str], ...]


class Pass:
    """One of the kernels over all elements, for packs of ``vec``."""

    def __init__(
        self,
        client: Any,
        op: int,
        at: Channels,
        types: tuple[DType, ...],
        eps: float,
        vec: int,
        around: Around | None = None,
    ) -> None:
        last, steps = at.inner == 1, STEPS[op]
        packs = -(-at.count // (vec if last else 1))
        across = min(32, 1 << (packs - 1).bit_length()) if last else 1
        down = _THREADS // across
        total = at.outer * (at.inner // (1 if last else vec))
        self.chunks, self.chunk = -(-total // (steps * down)), steps * down
        tiles = -(-packs // across)
        self.parts = self._parts(client.driver.multiprocessors, op, tiles, around is not None)
        self.missing = self.chunks * self.chunk - total
        self.each = 1 if last else vec
        run = max(1, at.inner // vec)
        whole, rest = divmod(down, run)
        jump = down * at.count if last else whole * at.count * at.inner + rest * vec
        longs = (at.count, at.inner, jump, at.count * at.inner - run * vec)
        words = (total, self.chunks, across, down, run, rest)
        packed = struct.pack("<4q6I2d", *longs, *words, eps, at.each)
        name, text = source(op, types, vec, last, steps, around)
        count = (4 if op in (MOMENTS, SUMS) else 9) + (0 if around is None else around.count)
        grid = (tiles, self.parts)
        self.launch = Launcher(client, text, name, grid, _THREADS, (1,) * count, [packed])

    def _parts(self, multiprocessors: int, op: int, tiles: int, around: bool) -> int:
        if op in (RESULT, GRADIENT):
            most = -(-multiprocessors * MAPPING // tiles)
        else:
            # One more block than there is room for would wait for all of them.
            most = multiprocessors * _blocks(op, around) // tiles
        return max(1, min(self.chunks, most, 65535))


def _blocks(op: int, around: bool) -> int:
    """Blocks of a multiprocessor that have registers for what they keep."""
    if around:
        return 2 if op in (SUMS, GRADIENT) else 3
    return 3 if op == GRADIENT else 4


def source(
    op: int,
    types: tuple[DType, ...],
    vec: int,
    last: bool,
    steps: int,
    around: Around | None = None,
) -> tuple[str, str]:
    """Name and text of a kernel over elements of ``types[0]``, parameters of the others."""
    x, *params = types
    codes = "_".join(code_of(t) for t in types)
    name = f"channels_{_NAMES[op]}_{codes}_{'last' if last else 'first'}{vec}"
    given = zip(("WEIGHT", "BIAS"), (*params, x, x), strict=False)
    kinds = {key: stored(dtype) for key, dtype in given}
    fixed = {"OP": op, "LAST": int(last), "VEC": vec, "STEPS": steps}
    fixed["BLOCKS"] = _blocks(op, around is not None)
    kinds |= {"STORED": stored(x), "REAL": computed(x)}
    if around is None:
        return name, instance(__file__, NAME=name, **fixed, **kinds)
    name = f"{name}_{around.name}"
    text = instance(__file__, NAME=name, **fixed, **kinds, **dict(around.settings))
    return name, text.replace(_PLACE, around.functions + _PLACE, 1)


def joining(moments: bool, x: DType) -> tuple[str, str]:
    """Name and text of the kernel that joins parts."""
    name = f"channels_join_{'moments' if moments else 'sums'}_{code_of(x)}"
    return name, instance(_JOIN, NAME=name, MOMENTS=int(moments), REAL=computed(x))


class Joined:
    """A pass to parts, and what joins them."""

    def __init__(
        self,
        client: Any,
        op: int,
        at: Channels,
        types: tuple[DType, DType],
        eps: float,
        vec: int,
        around: Around | None = None,
    ) -> None:
        x, wide = types
        self.client = client
        self.first = first = Pass(client, op, at, (x,), eps, vec, around)
        turns, rest = divmod(first.chunks, first.parts)
        each = first.each
        numbers = (first.parts, at.count, first.chunk * each, turns, rest, first.missing * each)
        packed = struct.pack("<6q2d", *numbers, eps, at.each)
        name, text = joining(op == MOMENTS, x)
        grid = -(-at.count // 8)
        self.join = Launcher(client, text, name, grid, _THREADS, (1,) * 4, [packed])
        self.between = spec_of(client, (2, first.parts, at.count), wide)

    def __call__(
        self, out: tuple[int, int], x: int, dy: int, mean: int, var: int, *around: int
    ) -> None:
        """Queue both, for addresses."""
        partial = allocate(self.client.pool, self.between)
        self.first.launch(partial.address, x, dy, mean, *around)
        self.join(*out, partial.address, var)


def vector(at: Channels, x: DType) -> int:
    """Elements of a pack, 16 bytes if runs of a channel or rows of channels divide into such."""
    return math.gcd(16 // x.itemsize, at.count if at.inner == 1 else at.inner)


def pick(vec: int, *addresses: int) -> int:
    """``vec`` where all addresses allow packs, else 1."""
    joint = 0
    for address in addresses:
        joint |= address
    return vec if joint & 15 == 0 else 1


class Forward:
    """``standard_norm`` of channels, with steps that go on from its result."""

    def __init__(self, client: Any, plan: Any, at: Channels, around: Around | None = None) -> None:
        x, weight, bias = plan.specs
        self.client, self.at, self.around, self.eps = client, at, around, plan.attrs[1]
        self.x, self.wide, self.vec = x.dtype, plan.out[1].dtype, vector(at, x.dtype)
        self.params = tuple(x.dtype if is_absent(p) else p.dtype for p in (weight, bias))
        self.settle = dense_copy(client, x)
        self.kernels = functools.cache(self._kernels)
        self.kernels(self.vec)

    def _kernels(self, vec: int) -> tuple[Joined, Launcher]:
        client, at, eps = self.client, self.at, self.eps
        moments = Joined(client, MOMENTS, at, (self.x, self.wide), eps, vec)
        types = (self.x, *self.params)
        return moments, Pass(client, RESULT, at, types, eps, vec, self.around).launch

    def run(self, y: int, mean: int, var: int, given: Sequence[Any], *around: int) -> None:
        """Queue it, for addresses of results and of what steps take, and handles of operands."""
        x, weight, bias = given
        x = self.settle(x)
        moments, last = self.kernels(pick(self.vec, x.address, y, *around))
        moments((mean, var), x.address, 0, 0, 0)
        params = (0 if h is None else h.address for h in (weight, bias))
        last(y, x.address, 0, mean, var, *params, 0, 0, *around)


class Backward:
    """``standard_norm_backward`` of channels, with steps that make dy in either pass."""

    def __init__(
        self,
        client: Any,
        plan: Any,
        at: Channels,
        around: tuple[Around | None, Around | None] = (None, None),
    ) -> None:
        dy, x, weight, mean, var = plan.specs
        self.client, self.at, self.around, self.eps = client, at, around, plan.attrs[1]
        self.x, self.wide, self.vec = x.dtype, plan.out[1].dtype, vector(at, x.dtype)
        self.kind = x.dtype if is_absent(weight) else weight.dtype
        self.settle = [dense_copy(client, s) for s in (dy, x, mean, var)]
        self.kernels = functools.cache(self._kernels)
        self.kernels(self.vec)

    def _kernels(self, vec: int) -> tuple[Joined, Launcher]:
        client, at, eps, (one, two) = self.client, self.at, self.eps, self.around
        sums = Joined(client, SUMS, at, (self.x, self.wide), eps, vec, one)
        return sums, Pass(client, GRADIENT, at, (self.x, self.kind), eps, vec, two).launch

    def run(
        self,
        out: Sequence[int],
        dy: int,
        given: Sequence[Any],
        one: Sequence[int] = (),
        two: Sequence[int] = (),
    ) -> None:
        """Queue it, for addresses of results, dy and what steps take, and handles of the rest."""
        x, weight, mean, var = given
        x, mean, var = (f(h) for f, h in zip(self.settle[1:], (x, mean, var), strict=True))
        dx, dw, db = out
        sums, last = self.kernels(pick(self.vec, dy, x.address, dx, *one, *two))
        sums((dw, db), x.address, dy, mean.address, var.address, *one)
        w = 0 if weight is None else weight.address
        last(dx, x.address, dy, mean.address, var.address, w, 0, dw, db, *two)


def forward(client: Any, plan: Any, at: Channels) -> Callable[..., Any]:
    """``standard_norm`` of channels."""
    kernel = Forward(client, plan, at)

    def run(*handles: Any) -> Any:
        y, mean, var = (allocate(client.pool, spec) for spec in plan.out)
        kernel.run(y.address, mean.address, var.address, handles)
        return y, mean, var

    run.channels = at  # type: ignore[attr-defined]
    return run


def backward(client: Any, plan: Any, at: Channels) -> Callable[..., Any]:
    """``standard_norm_backward`` of channels."""
    kernel = Backward(client, plan, at)

    def run(dy: Any, *rest: Any) -> Any:
        outs = tuple([allocate(client.pool, spec) for spec in plan.out])
        dy = kernel.settle[0](dy)
        kernel.run([h.address for h in outs], dy.address, rest)
        return outs

    run.channels = at  # type: ignore[attr-defined]
    return run
