"""Tensors from a rule, made on the device: arange, linspace, eye."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from ruda.backends.cuda import source
from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.types import code_of, stored

_THREADS, _BLOCKS_PER_MULTIPROCESSOR = 256, 16
_RULE = struct.Struct("<4q8d")


def _rule(n: int, **numbers: float) -> bytes:
    """The bytes of the struct Rule."""
    whole = [numbers.get(k, 0) for k in ("start", "step", "width")]
    wrapped = [(int(v) + 2**63) % 2**64 - 2**63 for v in whole]
    real = [numbers.get(k, 0.0) for k in ("first", "by", "last", "delta")]
    imag = [numbers.get(k, 0.0) for k in ("first_i", "by_i", "last_i", "delta_i")]
    return _RULE.pack(n, *wrapped, *real, *imag)


def _made(client: Any, plan: Any, value: str) -> Callable[[bytes], Any]:
    """The function from the bytes of a rule to the tensor."""
    out, pool = plan.out, client.pool
    if not out.size:
        return lambda rule: allocate(pool, out)
    name = f"{plan.op.name}_{value.split('(')[0]}_{code_of(out.dtype)}"
    text = source.instance(__file__, NAME=name, OUT=stored(out.dtype), VALUE=value)
    most = client.driver.multiprocessors * _BLOCKS_PER_MULTIPROCESSOR
    grid = min(-(-out.size // _THREADS), most)

    def run(rule: bytes) -> Any:
        result = allocate(pool, out)
        # The rule is by value, and start and step differ from call to call.
        Launcher(client, text, name, grid, _THREADS, (1,), [rule])(result.address)
        return result

    return run


def arange(client: Any, plan: Any) -> Callable[..., Any] | None:
    """``start + i * step``: in whole numbers for an integer dtype or integer arguments."""
    if plan.out.dtype.kind == "storage":
        return None
    whole = [spec.dtype.kind != "float" for spec in plan.specs]
    integers = plan.out.dtype.is_integer or all(whole)
    mixed = "mixed(i, at)" if whole[1] else "spaced(i, at)"
    run = _made(client, plan, "counted(i, at)" if integers else mixed)
    n = plan.out.size

    def make(start: Any, step: Any) -> Any:
        if integers:
            return run(_rule(n, start=start, step=step))
        by = {"step": step} if whole[1] else {"by": step}
        return run(_rule(n, first=start, **by))

    return make


def linspace(client: Any, plan: Any) -> Callable[..., Any] | None:
    """Evenly spaced values as ``np.linspace`` rounds them."""
    if plan.out.dtype.kind == "storage":
        return None
    out, endpoint = plan.out, plan.attrs[2]
    n = out.size
    gaps = n - 1 if endpoint else n
    floors = "floor" if out.dtype.is_integer else ""
    complex_ = out.dtype.kind == "complex" or any(s.dtype.kind == "complex" for s in plan.specs)
    run = _made(client, plan, "line_of_complex(i, at)" if complex_ else f"{floors}(line(i, at))")

    def make(start: Any, stop: Any) -> Any:
        ends = np.array([start, stop], np.complex128 if complex_ else np.float64)
        delta = ends[1] - ends[0]
        by = delta / gaps if gaps else delta
        last = ends[1] if endpoint and n > 1 else None
        facts = {"first": ends[0], "by": by, "last": last or 0.0, "delta": delta}
        parts = {k: v.real for k, v in facts.items()}
        parts |= {f"{k}_i": v.imag for k, v in facts.items()}
        later = gaps if by == 0 else 0
        return run(_rule(n, step=0 if last is None else n, width=later, **parts))

    return make


def eye(client: Any, plan: Any) -> Callable[..., Any] | None:
    """Ones on diagonal ``k``."""
    out = plan.out
    if out.dtype.kind == "storage":
        return None
    run = _made(client, plan, "diagonal(i, at)")
    return lambda k: run(_rule(out.size, start=k, width=out.shape[1]))


KERNELS = {"arange": arange, "linspace": linspace, "eye": eye}
