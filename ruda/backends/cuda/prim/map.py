"""Map kernels: one launch for an elementwise row over any layout.

Flat where all operands lie alike; by packs where each is dense or repeats along the last
dimension; in tiles where one lies densely along another dimension; else element by element.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda import codegen
from ruda.backends.cuda.codegen_steps import THREADS, blocks_of, compared
from ruda.backends.cuda.geometry import (
    Layout,
    by_packs,
    by_pairs,
    by_tiles,
    layout_of,
    needs_wide,
    packed,
)
from ruda.backends.cuda.launch import Launcher, raw_bits
from ruda.backends.cuda.memory import allocate
from ruda.core.dtypes import compute_of
from ruda.core.spec import Spec


def kernel_of(
    name: str,
    expr: str,
    args: Any,
    specs: Any,
    wanted: Any,
    out: Any,
    layout: Layout,
    wide: bool,
    header: str = "",
) -> codegen.Map:
    """The class of kernel for these operands."""
    operands = tuple(
        codegen.Operand(arg, spec.dtype, compute_of(dtype or spec.dtype), form)
        for arg, spec, dtype, form in zip(args, specs, wanted, layout.forms, strict=True)
    )
    rank = 0 if layout.is_flat else len(layout.sizes)
    scatters = layout.scatters and not layout.tile
    return codegen.Map(
        name, expr, operands, out.dtype, rank, wide, scatters, layout.count, layout.tile, header
    )


def bind(
    client: Any,
    plan: Any,
    name: str,
    expr: str,
    args: Any,
    specs: Any,
    wanted: Any,
    header: str = "",
) -> Callable[..., Any]:
    """The function from handles to a fresh output for ``expr`` over ``specs``."""
    run = bind_into(client, plan.out, name, expr, args, specs, wanted, header)
    pool, spec = client.pool, plan.out

    def launch(*handles: Any) -> Any:
        out = allocate(pool, spec)
        run(out.address, *handles)
        return out

    return launch


def bind_into(
    client: Any,
    out: Spec,
    name: str,
    expr: str,
    args: Any,
    specs: tuple[Spec, ...],
    wanted: Any,
    header: str = "",
) -> Callable[..., None]:
    """As ``bind``, writing to the address that the function is called with first."""
    if out.size == 0:
        return lambda address, *handles: None
    wide = needs_wide((*specs, out), out.shape)
    if out.dtype.kind == "bool":
        expr = compared(expr, args, specs, wanted)

    def made(layout: Layout) -> tuple[codegen.Map, Any]:
        kernel = kernel_of(name, expr, args, specs, wanted, out, layout, wide, header)
        reads = [raw_bits(o.computed) if o.form == "value" else _address for o in kernel.operands]
        return kernel, reads

    layout = layout_of(specs, out)
    if layout.is_flat:
        return _flat(client, *made(layout), out.size)
    sizes = (*(spec.dtype.itemsize for spec in specs), out.dtype.itemsize)
    packs = by_packs(layout, sizes)
    if packs is not None:
        return _by_packs(client, layout, packs, made, wide)
    tiles = by_tiles(layout, sizes)
    pairs = by_pairs(tiles, sizes) if tiles is not None else None
    if tiles is not None and pairs is not None:
        return _by_packs(client, tiles, pairs, made, wide)
    return _strided(client, *made(tiles or layout), tiles or layout, wide)


def _widths(kernel: codegen.Map) -> list[int]:
    """Slots of the output's address and of each operand."""
    twice = (o.form == "value" and o.computed.itemsize == 16 for o in kernel.operands)
    return [1, *(2 if two else 1 for two in twice)]


def _grid(client: Any, kernel: codegen.Map, work: int) -> int:
    light = codegen.is_light_map(kernel)
    return blocks_of(work, client.driver.multiprocessors, light)


def _flat(client: Any, kernel: codegen.Map, reads: Any, n: int) -> Callable[..., None]:
    text = codegen.source(kernel)
    grid = _grid(client, kernel, -(-n // codegen.vector(kernel)))
    size = struct.pack("<Q" if kernel.wide else "<I", n)
    pair = tuple(
        Launcher(
            client,
            text,
            kernel.name,
            grid,
            THREADS,
            _widths(kernel),
            [size, struct.pack("<I", flag)],
        )
        for flag in (0, 1)
    )
    return _aligned(pair, reads, [i for i, o in enumerate(kernel.operands) if o.form == "dense"])


def _strided(
    client: Any, kernel: codegen.Map, reads: Any, layout: Layout, wide: bool
) -> Callable[..., None]:
    """One launch with a struct Geometry."""
    if layout.tile:
        *rest, high, across = layout.sizes
        grid = math.prod(rest) * -(-high // layout.tile) * -(-across // layout.tile)
    else:
        grid = _grid(client, kernel, math.prod(layout.sizes))
    text, widths = codegen.source(kernel), _widths(kernel)
    fixed = [packed(layout, wide)]
    return _plain(Launcher(client, text, kernel.name, grid, THREADS, widths, fixed), reads)


def _by_packs(
    client: Any,
    layout: Layout,
    packs: Layout,
    made: Callable[[Layout], tuple[codegen.Map, Any]],
    wide: bool,
) -> Callable[..., None]:
    """By packs where all addresses are multiples of one, else as ``layout`` says."""
    kernel, reads = made(packs)
    fast = _strided(client, kernel, reads, packs, wide)
    moving = [i for i, o in enumerate(kernel.operands) if o.form in ("run", "dense", "turned")]
    largest = max(kernel.out.itemsize, *(kernel.operands[i].dtype.itemsize for i in moving), 1)
    mask = packs.count * largest - 1
    spare: list[Callable[..., None]] = []

    def run(address: int, *handles: Any) -> None:
        joint = address
        for i in moving:
            joint |= handles[i].address
        if joint & mask == 0:
            fast(address, *handles)
            return
        if not spare:
            spare.append(_strided(client, *made(layout), layout, wide))
        spare[0](address, *handles)

    return run


def _address(handle: Any) -> tuple[int, ...]:
    return (handle.address,)


def _plain(launcher: Launcher, reads: Any) -> Callable[..., None]:
    def run(address: int, *handles: Any) -> None:
        values = [address]
        for read, handle in zip(reads, handles, strict=True):
            values += read(handle)
        launcher(*values)

    return run


def _aligned(pair: Any, reads: Any, dense: list[int]) -> Callable[..., None]:
    """Choose by the addresses whether 16-byte accesses are allowed."""
    if all(read is _address for read in reads) and len(dense) == len(reads) and len(reads) <= 2:
        return _addresses1(pair) if len(reads) == 1 else _addresses2(pair)

    def run(address: int, *handles: Any) -> None:
        values = [address]
        joint = address
        for read, handle in zip(reads, handles, strict=True):
            values += read(handle)
        for i in dense:
            joint |= handles[i].address
        pair[(joint & 15) == 0](*values)

    return run


def _addresses1(pair: Any) -> Callable[..., None]:
    def run(address: int, hx: Any) -> None:
        x = hx.address
        pair[((address | x) & 15) == 0](address, x)

    return run


def _addresses2(pair: Any) -> Callable[..., None]:
    def run(address: int, hx: Any, hy: Any) -> None:
        x, y = hx.address, hy.address
        pair[((address | x | y) & 15) == 0](address, x, y)

    return run
