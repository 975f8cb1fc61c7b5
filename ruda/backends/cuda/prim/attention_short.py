"""Attention of at most 128 queries and keys: what each head needs lies in one block's memory.

Part of the strategy ``flash_unit``: forward is one launch and backward another. Results may have
any strides, so that what reads them finds them where it wants them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.prim.scores import Marks, geometry
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, stored
from ruda.core.dtypes import float32
from ruda.core.spec import Spec, is_absent

# Queries and keys, and depth: beyond that a head has no room in a block, or not in registers.
_LONGEST, _DEEPEST = 128, 128
_CLASSES = (32, 64, 128)


class _Kind(NamedTuple):
    """Padded keys and depth, and how many queries are in work at a time."""

    keys: int
    depth: int
    rows: int
    shared: int


def _kind(client: Any, specs: tuple[Spec, ...], mode: str) -> _Kind | None:
    q, k, v = specs[:3]
    deep = max(q.shape[3], v.shape[3])
    if q.dtype.itemsize > 4 or max(q.shape[2], k.shape[2]) > _LONGEST or deep > _DEEPEST:
        return None
    keys, depth = (next(c for c in _CLASSES if n <= c) for n in (k.shape[2], deep))
    rows = 32 if q.shape[2] <= 32 or (keys == 128 and mode == "backward") else 64
    if mode == "forward":
        shared = (rows + 2 * keys) * (depth + 4) + rows * (keys + 4)
    else:
        shared = 2 * (rows + keys) * (depth + 4) + 2 * rows * (keys + 4)
    fits = 4 * shared <= client.driver.shared_memory
    return _Kind(keys, depth, rows, 4 * shared) if fits else None


def _kernel(mode: str, kind: _Kind, q: Spec, marks: Marks) -> tuple[str, str]:
    """The source and the name of a class of kernels."""
    size = f"{kind.rows}x{kind.keys}d{kind.depth}"
    name = f"attention_short_{mode}_{code_of(q.dtype)}_{size}{marks.suffix}"
    settings = {"S": stored(q.dtype), "MODE": int(mode == "backward"), "NAME": name}
    settings |= {"ROWS": kind.rows, "KEYS": kind.keys, "DEPTH": kind.depth}
    return instance(__file__, **settings, **marks.settings), name


def _strides(specs: Sequence[Spec]) -> bytes:
    steps = [s for spec in specs for s in spec.strides]
    return struct.pack("<16q", *steps, *(0,) * (16 - len(steps)))


def fits(client: Any, plan: Any) -> bool:
    """Whether ``forward`` or ``backward``, as the row says, has a kernel for ``plan``."""
    known = _forward_kind if plan.op.name == "attention" else _backward_kind
    return known(client, plan) is not None


def _forward_kind(client: Any, plan: Any) -> _Kind | None:
    specs, out = plan.specs, plan.out[0]
    empty = out.size == 0 or specs[1].shape[2] == 0
    return None if empty else _kind(client, specs, "forward")


def _backward_kind(client: Any, plan: Any) -> _Kind | None:
    dy, dlse, q, k, v, _, lse, _, bias, *_ = plan.specs
    levels = [s for s in (lse, dlse) if not is_absent(s)]
    dense = all(s.contiguous and s.dtype is float32 for s in levels)
    if not dense or is_absent(dy) or not is_absent(bias) or min(q.size, k.size, v.size) == 0:
        return None
    return _kind(client, (q, k, v), "backward")


def forward(client: Any, plan: Any) -> Callable[..., None] | None:
    """What writes out and lse to addresses, from handles; None where a head has no room.

    ``plan.out`` may have any strides for out; lse is row-major.
    """
    specs, kind = plan.specs, _forward_kind(client, plan)
    if kind is None:
        return None
    q, marks = specs[0], Marks.of(specs, plan.attrs, False)
    source, name = _kernel("forward", kind, q, marks)
    grid = q.shape[0] * q.shape[1], -(-q.shape[2] // kind.rows)
    fixed, steps = geometry(specs, q, plan.attrs), _strides(plan.out[:1])
    return _runner(client, (source, name, grid, 256), 2, fixed, steps, kind, marks)


def backward(client: Any, plan: Any) -> Callable[..., None] | None:
    """What writes dq, dk and dv to addresses, from the handles of all operands.

    ``plan.out`` may have any strides; a gradient of the bias is not made: None.
    """
    dy, dlse, q, k, v, out, _, mask, bias, *random = plan.specs
    kind = _backward_kind(client, plan)
    if kind is None:
        return None
    known = (q, k, v, mask, bias, *random)
    marks = Marks.of(known, plan.attrs, not is_absent(dlse))
    source, name = _kernel("backward", kind, q, marks)
    grid = k.shape[0] * k.shape[1]
    fixed, steps = geometry(known, dy, plan.attrs), _strides((*plan.out[:3], out))
    return _runner(client, (source, name, grid, 256), 3, fixed, steps, kind, marks)


def _runner(
    client: Any,
    launch: tuple[str, str, Any, int],
    outs: int,
    fixed: Callable[[tuple[Any, ...]], bytes],
    steps: bytes,
    kind: _Kind,
    marks: Marks,
) -> Callable[..., None]:
    """From addresses of results and handles to a launch, made for each call with dropout.

    The handles that a kernel reads stand before those of dropout.
    """

    # Both read so many operands beside dropout's: forward 5, backward 9.
    count = 7 if outs == 2 else 12

    def make(random: tuple[Any, ...]) -> Launcher:
        return Launcher(client, *launch, (1,) * count, [fixed(random), steps], kind.shared)

    only = None if marks.dropout else make(())

    def run(results: Sequence[int], handles: tuple[Any, ...]) -> None:
        read, random = handles[:-3], handles[-3:]
        queue = make(random) if only is None else only
        queue(*results[:outs], *(0 if h is None else h.address for h in read))

    return run
