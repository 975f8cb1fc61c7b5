"""Maximum pooling with channels last: a thread has 16 bytes of channels of one position."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.planes import axes_bytes, dense_copy
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import DType
from ruda.core.shapes import Shape

# The kernels by their numbers in ``pool_last.cu``.
_OPS = (
    "max_pool_last",
    "max_pool_last_backward",
    "max_pool_last_pick",
    "max_pool_last_backward_by_four",
)
_MAX, _BACKWARD, _PICK, _BY_FOUR = range(len(_OPS))
_BLOCKS_PER_MULTIPROCESSOR = 32
_LARGEST = 2**30


def text(op: int, dtype: DType, vec: int) -> tuple[str, str]:
    """Name and source of a kernel."""
    name = f"{_OPS[op]}_{code_of(dtype)}x{vec}"
    types = {"STORED": stored(dtype), "REAL": computed(dtype)}
    return name, instance(__file__, NAME=name, OP=op, VEC=vec, **types)


class _Kernel:
    """The launches over one geometry; the one without packs is made when it is needed."""

    def __init__(self, client: Any, op: int, dtype: DType, x: Shape, y: Shape, attrs: Any) -> None:
        kernel, stride, padding, dilation = attrs[:4]
        if op == _BACKWARD and stride[-2:] == (2, 2) and all(gap == 1 for gap in dilation):
            op = _BY_FOUR
        self.client, self.op, self.dtype = client, op, dtype
        lows, highs = (tuple(pair[i] for pair in padding) for i in (0, 1))
        self.axes = axes_bytes(x[1:-1], y[1:-1], kernel, stride, lows, highs, dilation)
        ends = (-(-x[-3] // 2), -(-x[-2] // 2)) if op == _BY_FOUR else x[-3:-1]
        back = op in (_BACKWARD, _BY_FOUR)
        self.positions = math.prod((*x[:-3], *ends) if back else y[:-1])
        self.channels = x[-1]
        # Each channel of a pick reads where its own code says; more than 8 take too many registers.
        self.vec = 1 if op == _PICK else math.gcd(min(8, 16 // dtype.itemsize), self.channels)
        self.made: dict[int, Launcher] = {}

    def __call__(self, out: int, codes: int, x: int) -> None:
        """Queue it, for addresses; a byte of code stands beside each element."""
        size = self.dtype.itemsize
        whole = (out | x) % 16 == 0 and codes % max(1, 16 // size) == 0
        vec = self.vec if whole else 1
        launch = self.made.get(vec)
        if launch is None:
            launch = self.made[vec] = self._make(vec)
        launch(out, codes, x)

    def _make(self, vec: int) -> Launcher:
        packs = self.channels // vec
        across = min(256, 1 << (packs - 1).bit_length())
        tiles = -(-packs // across)
        most = self.client.driver.multiprocessors * _BLOCKS_PER_MULTIPROCESSOR
        blocks = min(-(-self.positions // (256 // across)), max(1, most // tiles))
        fixed = self.axes + struct.pack("<3I", self.positions, across, self.channels)
        name, source = text(self.op, self.dtype, vec)
        return Launcher(self.client, source, name, (blocks, tiles), 256, (1, 1, 1), [fixed])


def _supported(x: Shape, y: Shape) -> bool:
    return max(math.prod(x[:-1]), math.prod(y[:-1])) < _LARGEST


def forward(client: Any, plan: Any) -> Callable[..., Any] | None:
    """Values and codes of windows."""
    x, (values, codes) = plan.specs[0], plan.out
    if values.size == 0:
        return lambda h: (allocate(client.pool, values), allocate(client.pool, codes))
    if not _supported(x.shape, values.shape):
        return None
    kernel = _Kernel(client, _MAX, x.dtype, x.shape, values.shape, plan.attrs)
    settle = dense_copy(client, x)

    def run(h: Any) -> Any:
        out, found, x = allocate(client.pool, values), allocate(client.pool, codes), settle(h)
        kernel(out.address, found.address, x.address)
        return out, found

    return run


def backward(client: Any, plan: Any) -> Callable[..., Any] | None:
    """From gradients of windows to those of elements."""
    (dy, codes), out = plan.specs, plan.out
    if 0 in (out.size, dy.size):
        return _zeros(client, out)
    if not _supported(out.shape, dy.shape):
        return None
    kernel = _Kernel(client, _BACKWARD, dy.dtype, out.shape, dy.shape, plan.attrs[1:])
    return _coded(client, plan, kernel, dense_copy(client, dy), dense_copy(client, codes))


def pick(client: Any, plan: Any) -> Callable[..., Any] | None:
    """Each window reads the element that it chose."""
    (x, codes), out = plan.specs, plan.out
    if 0 in (out.size, x.size):
        return _zeros(client, out)
    if not _supported(x.shape, out.shape):
        return None
    kernel = _Kernel(client, _PICK, x.dtype, x.shape, out.shape, plan.attrs)
    return _coded(client, plan, kernel, dense_copy(client, x), dense_copy(client, codes))


def _coded(client: Any, plan: Any, kernel: _Kernel, *settle: Any) -> Callable[..., Any]:
    def run(h: Any, codes: Any) -> Any:
        out, given, found = allocate(client.pool, plan.out), settle[0](h), settle[1](codes)
        kernel(out.address, found.address, given.address)
        return out

    return run


def _zeros(client: Any, out: Any) -> Callable[..., Any]:
    def run(*_: Any) -> Any:
        h = allocate(client.pool, out)
        client.fill_zero(h.address, out.nbytes)
        return h

    return run


KERNELS = {
    "max_pool_last": forward,
    "max_pool_last_backward": backward,
    "max_pool_last_pick": pick,
}
