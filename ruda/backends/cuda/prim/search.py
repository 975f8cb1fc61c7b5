"""Searching in sorted lines, and counting integers with or without weights."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.faults import Form
from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.lines import dense, last
from ruda.backends.cuda.prim.sort import Order, sorter
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import compute_of, float64, int64
from ruda.core.errors import IndexRangeError
from ruda.core.spec import Spec, is_absent, spec_of

THREADS = 256
# Bins that a block counts in its shared memory, and parts of a bin's float weights.
_SHARED_BINS, _PARTS = 8192, 64


def searchsorted(client: Any, plan: Any) -> Callable[..., Any]:
    """The row ``searchsorted``."""
    lines, values = plan.specs
    (right,), out = plan.attrs, plan.out
    promoted = plan.op.dtype_of_operands(plan)[0]
    reach, _, n = last(client, lines, lines.ndim - 1)
    query = values.dtype if not values.weak else compute_of(promoted)
    fetch = dense(client, values, query)
    m = values.shape[-1] if lines.ndim > 1 else values.size
    compute = compute_of(promoted)
    kinds = "_".join(code_of(d) for d in (lines.dtype, query, compute))
    name = f"searchsorted_{kinds}" + "_right" * right
    settings = {
        "X": stored(lines.dtype),
        "Y": stored(query),
        "T": computed(compute),
        "RIGHT": int(right),
        "MODE": 1,
    }
    if not out.size:
        return lambda *_: allocate(client.pool, out)
    grid = _blocks(client, out.size)
    launch = _kernel(client, name, grid, (1, 1, 1), (out.size, n, m), **settings)

    def run(h_lines: Any, h_values: Any) -> Any:
        line, _lines = reach(h_lines)
        wanted, _values = fetch(h_values)
        result = allocate(client.pool, out)
        launch(result.address, line, wanted)
        return result

    return run


def _blocks(client: Any, count: int) -> int:
    return max(1, min(-(-count // THREADS), client.driver.multiprocessors * 16))


def _kernel(
    client: Any, name: str, grid: Any, widths: Any, fixed: tuple[int, ...], **settings: Any
) -> Launcher:
    shared = settings.pop("shared", 0)
    text = instance(__file__, NAME=name, **settings)
    packed = [struct.pack("<q", value) for value in fixed]
    return Launcher(client, text, name, grid, THREADS, widths, packed, shared)


def bincount(client: Any, plan: Any) -> Callable[..., Any] | None:
    """The row ``bincount``; integers add up by atomics, floats after a stable sort."""
    x, weights = plan.specs
    (length,), out = plan.attrs, plan.out
    if x.size >= 2**32:
        return None
    if not x.size or not length:
        return _without_bins(client, x, out)
    # The offsets of bad values are those of the dense copy that is counted.
    form = Form("bincount", spec_of(client, x.shape, x.dtype), (0,), (length,), False)
    if is_absent(weights):
        return _integers(client, x, None, out, form)
    if weights.dtype.is_floating:
        return _floats(client, x, weights, out, form)
    return _integers(client, x, weights, out, form)


def _without_bins(client: Any, x: Spec, out: Spec) -> Callable[..., Any]:
    def run(*_: Any) -> Any:
        if x.size:
            raise IndexRangeError("bincount", "a value has no bin", x, "no values at all")
        result = allocate(client.pool, out)
        client.fill_zero(result.address, out.nbytes)
        return result

    return run


def _integers(
    client: Any, x: Spec, weights: Spec | None, out: Spec, form: Form
) -> Callable[..., Any]:
    n, (length,), fetch = x.size, out.shape, dense(client, x)
    own = weights is None and length <= _SHARED_BINS
    dtype = int64 if weights is None else weights.dtype
    fetch_weights = None if weights is None else dense(client, weights)
    settings = {"X": stored(x.dtype), "Y": stored(dtype), "MODE": 2 if own else 3}
    name = f"bincount_{code_of(x.dtype)}_" + ("own" if own else code_of(dtype))
    shared = 4 * length if own else 0
    grid, widths = _blocks(client, n), (1, 1, 3) if own else (1, 1, 3, 1)
    launch = _kernel(client, name, grid, widths, (n, length), shared=shared, **settings)

    def run(hx: Any, hw: Any) -> Any:
        result = allocate(client.pool, out)
        client.fill_zero(result.address, out.nbytes)
        address, _x = fetch(hx)
        slots = (result.address, address, *client.faults.parameters(form))
        if own:
            launch(*slots)
        else:
            weight, _w = (0, None) if fetch_weights is None else fetch_weights(hw)
            launch(*slots, weight)
        return result

    return run


def _floats(client: Any, x: Spec, weights: Spec, out: Spec, form: Form) -> Callable[..., Any]:
    n, (length,) = x.size, out.shape
    fetch, fetch_weights = dense(client, x), dense(client, weights)
    order = sorter(client, Order(x.dtype, 1, n, False, True, True, n))
    wanted = min(client.driver.multiprocessors * 4 // length, math.ceil(n / length / 1024))
    parts = max(1, min(wanted, _PARTS))
    name = f"bincount_{code_of(x.dtype)}_{code_of(weights.dtype)}"
    settings = {"X": stored(x.dtype), "Y": stored(weights.dtype)}
    widths = (1, 1, 3, 1, 1)
    add = _kernel(client, name, (length, parts), widths, (n, length), MODE=4, **settings)
    settings = {"X": stored(x.dtype), "Y": stored(out.dtype)}
    grid = -(-length // THREADS)
    name = f"bincount_fold_{code_of(out.dtype)}"
    fold = _kernel(client, name, grid, (1, 1), (length, parts), MODE=5, **settings)
    line, places = spec_of(client, (n,), x.dtype), spec_of(client, (n,), int64)
    partial = spec_of(client, (length, parts), float64)

    def run(hx: Any, hw: Any) -> Any:
        result, sums = allocate(client.pool, out), allocate(client.pool, partial)
        values, where = allocate(client.pool, line), allocate(client.pool, places)
        address, _x = fetch(hx)
        weight, _w = fetch_weights(hw)
        order(address, values.address, where.address, 0)
        faults = client.faults.parameters(form)
        add(sums.address, values.address, *faults, where.address, weight)
        fold(result.address, sums.address)
        return result

    return run


KERNELS = {"searchsorted": searchsorted, "bincount": bincount}
