"""Attention by our own kernels without tensor cores: any float dtype, every option of the row.

The strategy ``flash_unit``: scores stay on the chip, forward in one launch and backward in two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim import attention_short
from ruda.backends.cuda.prim.scores import Marks, geometry
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import compute_of
from ruda.core.spec import Spec, is_absent, spec_of

_MODES = {"forward": 0, "dq": 1, "dkv": 2}


class _Kind(NamedTuple):
    """The class of kernels for some operands: padded depths, the side of a tile, what acts."""

    depth: int
    deep: int
    tile: int
    marks: Marks


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
    q, _, v = specs[:3]
    size, marks = compute_of(q.dtype).itemsize, Marks.of(specs, attrs, False)
    for tile in (64, 32, 16):
        kind = _Kind(_padded(q.shape[3]), _padded(v.shape[3]), tile, marks)
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


class _Kernel:
    """One of the three kernels for one plan; with dropout its geometry is another in each call."""

    def __init__(
        self, client: Any, mode: str, kind: _Kind, q: Spec, grid: Any, pointers: int, dlse: bool
    ) -> None:
        marks = kind.marks._replace(dlse=dlse)
        size = f"{kind.depth}x{kind.deep}t{kind.tile}"
        name = f"attention_{mode}_{code_of(q.dtype)}_{size}{marks.suffix}"
        settings = {"S": stored(q.dtype), "T": computed(q.dtype), "MODE": _MODES[mode]}
        settings |= {"DK": kind.depth, "DV": kind.deep, "TILE": kind.tile, "NAME": name}
        text = instance(__file__, **settings, **marks.settings)
        shared = _shared(kind, mode, compute_of(q.dtype).itemsize)
        widths = (1,) * pointers
        self.make: Callable[[bytes], Launcher] = lambda fixed: Launcher(
            client, text, name, grid, 256, widths, [fixed], shared
        )
        self.fixed: Launcher | None = None
        self.dropout = marks.dropout

    def run(self, fixed: Callable[..., bytes], random: tuple[Any, ...], *addresses: int) -> None:
        """Queue it."""
        if self.dropout:
            self.make(fixed(random))(*addresses)
            return
        if self.fixed is None:
            self.fixed = self.make(fixed(()))
        self.fixed(*addresses)


def _at(handle: Any) -> int:
    return 0 if handle is None else int(handle.address)


def forward(client: Any, plan: Any) -> Callable[..., Any] | None:
    """The function from q, k, v, mask, bias and dropout's operands to out and lse."""
    short = attention_short.forward(client, plan)
    return made(client, plan.out, short) if short is not None else _forward(client, plan)


def backward(client: Any, plan: Any) -> Callable[..., Any] | None:
    """The function from the gradients and the forward's operands to dq, dk, dv.

    A gradient of the bias needs all scores: then None, and the body runs.
    """
    short = attention_short.backward(client, plan)
    return made(client, plan.out, short) if short is not None else _backward(client, plan)


def made(client: Any, outs: tuple[Spec, ...], write: Callable[..., None]) -> Callable[..., Any]:
    """``write``, which takes addresses of results and handles, with memory of its own for them."""

    def run(*handles: Any) -> Any:
        results = tuple([allocate(client.pool, spec) for spec in outs])
        write([h.address for h in results], handles)
        return results

    return run


def _forward(client: Any, plan: Any) -> Callable[..., Any] | None:
    specs, (out, lse) = plan.specs, plan.out
    q, k = specs[:2]
    kind = _kind(client, specs, plan.attrs)
    if kind is None or out.size == 0 or k.shape[2] == 0:
        return None
    grid = (-(-q.shape[2] // kind.tile), q.shape[1], q.shape[0])
    kernel = _Kernel(client, "forward", kind, q, grid, 7, False)
    fixed = geometry(specs, q, plan.attrs)

    def run(hq: Any, hk: Any, hv: Any, mask: Any, bias: Any, *random: Any) -> Any:
        result, level = allocate(client.pool, out), allocate(client.pool, lse)
        given = (result, level, hq, hk, hv, mask, bias)
        kernel.run(fixed, random, *map(_at, given))
        return result, level

    return run


def _backward(client: Any, plan: Any) -> Callable[..., Any] | None:
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
    fixed = geometry(known, dy, plan.attrs)
    less = spec_of(client, lse.shape, compute_of(q.dtype))

    def run(*handles: Any) -> Any:
        gy, gl, hq, hk, hv, ho, level, hm, hb, *drawn = handles
        results = [allocate(client.pool, s) for s in plan.out]
        delta = allocate(client.pool, less)
        dq, dk, dv, _ = results
        ahead = (dq, delta, gy, gl, hq, hk, hv, ho, level, hm, hb)
        first.run(fixed, tuple(drawn), *map(_at, ahead))
        given = (dk, dv, gy, delta, hq, hk, hv, level, hm, hb)
        second.run(fixed, tuple(drawn), *map(_at, given))
        return tuple(results)

    return run
