"""Map kernels: one launch for an elementwise row over any layout."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda import codegen
from ruda.backends.cuda.geometry import Layout, layout_of, needs_wide, packed
from ruda.backends.cuda.launch import Launcher, raw_bits
from ruda.backends.cuda.memory import allocate
from ruda.core.dtypes import compute_of
from ruda.core.spec import Spec

# Enough blocks to fill the device several times over; more would only add launch work.
_BLOCKS_PER_MULTIPROCESSOR = 16


def kernel_of(
    name: str, expr: str, args: Any, specs: Any, wanted: Any, out: Any, layout: Layout, wide: bool
) -> codegen.Map:
    """The class of kernel for these operands."""
    operands = tuple(
        codegen.Operand(arg, spec.dtype, compute_of(dtype or spec.dtype), form)
        for arg, spec, dtype, form in zip(args, specs, wanted, layout.forms, strict=True)
    )
    rank = 0 if layout.is_flat else len(layout.sizes)
    return codegen.Map(name, expr, operands, out.dtype, rank, wide, layout.scatters)


def bind(
    client: Any, plan: Any, name: str, expr: str, args: Any, specs: Any, wanted: Any
) -> Callable[..., Any]:
    """The function from handles to a fresh output for ``expr`` over ``specs``."""
    run = bind_into(client, plan.out, name, expr, args, specs, wanted)
    pool, spec = client.pool, plan.out

    def launch(*handles: Any) -> Any:
        out = allocate(pool, spec)
        run(out.address, *handles)
        return out

    return launch


def bind_into(
    client: Any, out: Spec, name: str, expr: str, args: Any, specs: tuple[Spec, ...], wanted: Any
) -> Callable[..., None]:
    """As ``bind``, writing to the address that the function is called with first."""
    if out.size == 0:
        return lambda address, *handles: None
    layout = layout_of(specs, out)
    wide = needs_wide((*specs, out), out.shape)
    kernel = kernel_of(name, expr, args, specs, wanted, out, layout, wide)
    text = codegen.source(kernel)
    n = out.size
    work = n if kernel.rank else -(-n // codegen.vector(kernel))
    grid = min(
        -(-work // codegen.THREADS), client.driver.multiprocessors * _BLOCKS_PER_MULTIPROCESSOR
    )
    reads = [raw_bits(o.computed) if o.form == "value" else _address for o in kernel.operands]
    widths = [
        1,
        *(2 if o.form == "value" and o.computed.itemsize == 16 else 1 for o in kernel.operands),
    ]
    if kernel.rank:
        return _plain(
            Launcher(
                client, text, kernel.name, grid, codegen.THREADS, widths, [packed(layout, wide)]
            ),
            reads,
        )
    fixed = [struct.pack("<Q" if wide else "<I", n)]
    pair = tuple(
        Launcher(
            client,
            text,
            kernel.name,
            grid,
            codegen.THREADS,
            widths,
            [*fixed, struct.pack("<I", flag)],
        )
        for flag in (0, 1)
    )
    dense = [i for i, o in enumerate(kernel.operands) if o.form == "dense"]
    return _aligned(pair, reads, dense)


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
