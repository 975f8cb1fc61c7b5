"""Attention by our own kernels without tensor cores: any float dtype, every option of the row.

The strategy ``flash_unit``: scores stay on the chip, forward in one launch and backward in two.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.random import limit_of
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import compute_of
from ruda.core.spec import Spec, is_absent, spec_of
from ruda.ops.dropout import kept_scale

_FAR = 1 << 60
_MODES = {"forward": 0, "dq": 1, "dkv": 2}


class _Kind(NamedTuple):
    """The class of kernels for some operands: padded depths, the side of a tile, what acts."""

    depth: int
    deep: int
    tile: int
    mask: Spec
    bias: Spec
    softcap: bool
    dropout: bool


def _padded(depth: int) -> int:
    """Depths are served by classes: multiples of 16 up to 64, then of 64."""
    step = 16 if depth <= 64 else 64
    return -(-depth // step) * step


def _shared(kind: _Kind, mode: str, size: int) -> int:
    """Bytes of dynamic shared memory."""
    rows = 2 * (kind.depth + 1) + (kind.deep + 1) * (1 if mode == "forward" else 2)
    return kind.tile * (rows + (kind.tile + 1) * (2 if mode == "dkv" else 1)) * size


def _kind(client: Any, specs: tuple[Spec, ...], attrs: tuple[Any, ...]) -> _Kind | None:
    """The class of q, k, v, mask, bias, and dropout's operands; None if no tile fits the chip."""
    q, _, v, mask, bias, *random = specs
    dropout = bool(random) and not is_absent(random[0])
    size = compute_of(q.dtype).itemsize
    for tile in (64, 32, 16):
        kind = _Kind(
            _padded(q.shape[3]),
            _padded(v.shape[3]),
            tile,
            mask,
            bias,
            attrs[2] is not None,
            dropout,
        )
        # Accumulators are registers: 128 at most for each thread.
        held = (kind.depth + kind.deep) // 16 * (tile // 16) * (size // 4)
        if _shared(kind, "dkv", size) <= client.driver.shared_memory and held <= 128:
            return kind
    return None


def lack(client: Any, specs: tuple[Spec, ...], attrs: tuple[Any, ...]) -> str | None:
    """Why these kernels cannot run, or None."""
    if _kind(client, specs, attrs) is None:
        return (
            f"depths {specs[0].shape[3]} and {specs[2].shape[3]} need more memory than a block has"
        )
    return None


def _broadcast(spec: Spec, scores: tuple[int, ...]) -> tuple[int, ...]:
    """Strides along the axes of the scores, 0 where ``spec`` repeats or is absent."""
    if is_absent(spec):
        return (0, 0, 0, 0)
    steps = (0 if n == 1 else s for n, s in zip(spec.shape, spec.strides, strict=True))
    return (*(0,) * (4 - spec.ndim), *steps)


def _geometry(
    specs: tuple[Spec, ...], dy: Spec, attrs: tuple[Any, ...]
) -> Callable[[tuple[Any, ...]], bytes]:
    """From dropout's operands to the struct Geometry."""
    q, k, v, mask, bias = specs[:5]
    is_causal, scale, softcap, window, _ = attrs
    left, right = (_FAR if side is None else side for side in window or (None, None))
    right = min(right, 0) if is_causal else right
    scores = (*q.shape[:3], k.shape[2])
    sizes = (q.shape[2], k.shape[2], q.shape[3], v.shape[3], q.shape[1] // k.shape[1], q.shape[1])
    strides = (*q.strides, *k.strides, *v.strides, *dy.strides)
    strides += _broadcast(mask, scores) + _broadcast(bias, scores)
    head = struct.pack("<32q", *sizes, left, right, *strides)

    def packed(random: tuple[Any, ...]) -> bytes:
        rate, seed, draw = random if random and random[0] is not None else (None, 0, 0)
        factor, limit = (1.0, 0) if rate is None else (kept_scale(rate), limit_of(rate))
        keys = (int(seed) & (2**64 - 1), int(draw), limit)
        return head + struct.pack("<3d3Q", scale, softcap or 0.0, factor, *keys)

    return packed


class _Kernel:
    """One of the three kernels for one plan; with dropout its geometry is another in each call."""

    def __init__(
        self, client: Any, mode: str, kind: _Kind, q: Spec, grid: Any, pointers: int, dlse: bool
    ) -> None:
        masked, biased = not is_absent(kind.mask), not is_absent(kind.bias)
        flags = (kind.softcap, masked, biased, kind.dropout, dlse)
        marks = "".join(c for c, on in zip("cmbdl", flags, strict=True) if on)
        bias = f"_{code_of(kind.bias.dtype)}" if biased else ""
        size = f"{kind.depth}x{kind.deep}t{kind.tile}"
        name = f"attention_{mode}_{code_of(q.dtype)}_{size}{'_' * bool(marks)}{marks}{bias}"
        settings = {"S": stored(q.dtype), "T": computed(q.dtype), "MODE": _MODES[mode]}
        settings |= {"DK": kind.depth, "DV": kind.deep, "TILE": kind.tile, "NAME": name}
        settings |= {"MASK_T": "bool", "BIAS_T": stored(kind.bias.dtype) if biased else "float"}
        names = ("SOFTCAP", "MASK", "BIAS", "DROPOUT", "DLSE")
        settings |= {key: int(on) for key, on in zip(names, flags, strict=True)}
        text, shared = (
            instance(__file__, **settings),
            _shared(kind, mode, compute_of(q.dtype).itemsize),
        )
        self.make = lambda geometry: Launcher(
            client, text, name, grid, 256, (1,) * pointers, [geometry], shared
        )
        self.fixed: Launcher | None = None
        self.dropout = kind.dropout

    def run(self, geometry: Callable[..., bytes], random: tuple[Any, ...], *addresses: int) -> None:
        """Queue it."""
        if self.dropout:
            self.make(geometry(random))(*addresses)
            return
        if self.fixed is None:
            self.fixed = self.make(geometry(()))
        self.fixed(*addresses)


def _at(handle: Any) -> int:
    return 0 if handle is None else int(handle.address)


def forward(client: Any, plan: Any) -> Callable[..., Any] | None:
    """The function from q, k, v, mask, bias and dropout's operands to out and lse."""
    specs, (out, lse) = plan.specs, plan.out
    q, k = specs[:2]
    kind = _kind(client, specs, plan.attrs)
    if kind is None or out.size == 0 or k.shape[2] == 0:
        return None
    grid = (-(-q.shape[2] // kind.tile), q.shape[1], q.shape[0])
    kernel = _Kernel(client, "forward", kind, q, grid, 7, False)
    geometry = _geometry(specs, q, plan.attrs)

    def run(hq: Any, hk: Any, hv: Any, mask: Any, bias: Any, *random: Any) -> Any:
        made, level = allocate(client.pool, out), allocate(client.pool, lse)
        given = (made, level, hq, hk, hv, mask, bias)
        kernel.run(geometry, random, *map(_at, given))
        return made, level

    return run


def backward(client: Any, plan: Any) -> Callable[..., Any] | None:
    """The function from the gradients and the forward's operands to dq, dk, dv.

    A gradient of the bias needs all scores: then None, and the body runs.
    """
    dy, dlse, q, k, v, out, lse, mask, bias, *random = plan.specs
    known = (q, k, v, mask, bias, *random)
    kind = _kind(client, known, plan.attrs)
    wide = compute_of(q.dtype)
    levels = [s for s in (lse, dlse) if not is_absent(s)]
    dense = out.contiguous and all(s.contiguous and s.dtype is wide for s in levels)
    if kind is None or is_absent(dy) or not is_absent(bias) or not dense:
        return None
    if min(q.size, k.size, v.size) == 0:
        return None
    tiles = [-(-n // kind.tile) for n in (q.shape[2], k.shape[2])]
    has_dlse = not is_absent(dlse)
    first = _Kernel(client, "dq", kind, q, (tiles[0], q.shape[1], q.shape[0]), 11, has_dlse)
    second = _Kernel(client, "dkv", kind, q, (tiles[1], k.shape[1], k.shape[0]), 10, False)
    geometry = _geometry(known, dy, plan.attrs)
    less = spec_of(client, lse.shape, compute_of(q.dtype))

    def run(*handles: Any) -> Any:
        gy, gl, hq, hk, hv, ho, level, hm, hb, *drawn = handles
        made = [allocate(client.pool, s) for s in plan.out]
        delta = allocate(client.pool, less)
        dq, dk, dv, _ = made
        given = (dq, delta, gy, gl, hq, hk, hv, ho, level, hm, hb)
        first.run(geometry, tuple(drawn), *map(_at, given))
        given = (dk, dv, gy, delta, hq, hk, hv, level, hm, hb)
        second.run(geometry, tuple(drawn), *map(_at, given))
        return tuple(made)

    return run
