"""Products of at most 16 rows or columns, whose cost is to read the other operand once.

Both shapes are one: a thin operand [thin, depth] against a wide one, with the result written
through strides. Sums are added in a fixed order, so results do not depend on timing.

Where cuBLASLt is there, it has what it does better on an H200: half types of more than two rows,
which it reads by the copy engine, and wide operands of which the columns have no gaps.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ruda.backends.cuda.blas.layout import Geometry
from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, stored
from ruda.core.dtypes import DType, float32

_MOST, _MOST_FLOATS, _FEW = 16, 8, 2
# Below this the whole product is a few microseconds wherever it runs.
_LEAST_DEPTH = 256
_FLOAT = str(Path(__file__).with_name("skinny_float.py"))
_SUMS = str(Path(__file__).with_name("skinny_few.py"))
# Warps of a multiprocessor that have a kernel of few rows at once.
_RESIDENT = 24


class Kernel(NamedTuple):
    """A class of kernels: ``thin`` is its rows in eights for half types, the rows for float32."""

    operand: DType
    result: DType
    columns: bool
    thin: int
    row_warps: int
    depth_warps: int

    @property
    def name(self) -> str:
        form = "columns" if self.columns else "rows"
        types = f"{code_of(self.operand)}_{code_of(self.result)}"
        return f"skinny_{form}_{types}_{self.thin}_{self.row_warps}x{self.depth_warps}"

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.row_warps * self.depth_warps

    @property
    def tile(self) -> int:
        """Outputs of the wide operand that one block makes."""
        if self.operand is float32:
            return self.row_warps * (128 if self.columns else 4)
        return self.row_warps * (64 if self.columns else 16)

    def source(self) -> str:
        """CUDA C of the kernel."""
        settings: dict[str, object] = {
            "NAME": self.name,
            "COLUMNS": int(self.columns),
            "ROW_WARPS": self.row_warps,
            "DEPTH_WARPS": self.depth_warps,
        }
        if self.operand is float32:
            return instance(_FLOAT, THIN=self.thin, **settings)
        types = {"T": stored(self.operand), "TO": stored(self.result)}
        return instance(__file__, EIGHTS=self.thin, **types, **settings)


class Few(NamedTuple):
    """A class of kernels of half types for ``thin`` rows (1, 2), by sums without tensor cores.

    A warp reads ``rows`` of the wide operand, ``ahead`` times 512 bytes of each at once.
    """

    operand: DType
    result: DType
    thin: int
    rows: int
    ahead: int

    @property
    def name(self) -> str:
        types = f"{code_of(self.operand)}_{code_of(self.result)}"
        return f"skinny_few_{types}_{self.thin}_{self.rows}x{self.ahead}"

    @property
    def threads(self) -> int:
        """Of a block."""
        return 256

    @property
    def tile(self) -> int:
        """Outputs of the wide operand that one block makes."""
        return self.threads // 32 * self.rows

    def source(self) -> str:
        """CUDA C of the kernel."""
        return instance(
            _SUMS,
            NAME=self.name,
            T=stored(self.operand),
            TO=stored(self.result),
            THIN=self.thin,
            ROWS=self.rows,
            AHEAD=self.ahead,
        )


class _Thin(NamedTuple):
    """A thin product: sizes, steps of both operands and of the result, whether x is thin."""

    thin: int
    wide: int
    columns: bool
    thin_step: int
    wide_step: int
    left: bool


def bind(
    client: Any, operand: DType, result: DType, shape: Geometry, plain: bool, library: bool
) -> Callable[..., None] | None:
    """The function of the addresses (x, y, out[, bias]), or None where no kernel fits.

    It takes operands at multiples of 16 bytes. ``plain``: sums are kept in float32, factors as they
    are. ``library``: whether None means cuBLASLt, which some products are left to then.
    """
    floats = operand is result is float32
    if not plain or not (floats or operand.is_half) or not shape.is_single:
        return None
    found = _found(shape, _MOST_FLOATS if floats else _MOST)
    unit = 16 // operand.itemsize
    if found is None or shape.k < _LEAST_DEPTH or shape.k % unit:
        return None
    if library and (found.columns or (operand.is_half and found.thin > _FEW)):
        return None
    if found.wide_step % unit or found.thin_step % unit or (found.columns and found.wide % unit):
        return None
    kernel = _kernel(client, operand, result, found)
    blocks = -(-found.wide // kernel.tile)
    # A device half empty reads at half of its speed.
    if 2 * blocks < client.driver.multiprocessors:
        return None
    return _launched(client, kernel, blocks, found, shape)


def _found(shape: Geometry, most: int) -> _Thin | None:
    if shape.m <= most:
        thin, other, left = shape.x, shape.y, True
        ready = not thin.transposed
    elif shape.n <= most:
        thin, other, left = shape.y, shape.x, False
        ready = thin.transposed or (shape.n == 1 and thin.leading == 1)
    else:
        return None
    if not ready:
        return None
    columns = other.transposed != left
    rows, wide = (shape.m, shape.n) if left else (shape.n, shape.m)
    # The step of a single row means nothing.
    return _Thin(rows, wide, columns, 0 if rows == 1 else thin.leading, other.leading, left)


def _kernel(client: Any, operand: DType, result: DType, found: _Thin) -> Kernel | Few:
    """Few blocks take more warps each; many rows of thin are read by more rows of wide at once."""
    if operand.is_half and found.thin <= _FEW and not found.columns:
        return _few(client, operand, result, found)
    if operand is float32:
        thin = next(n for n in (1, 2, 4, 8) if n >= found.thin)
        return Kernel(operand, result, found.columns, thin, *((1, 8) if found.columns else (2, 4)))
    eights = 1 if found.thin <= 8 else 2
    if found.columns or found.thin <= 4:
        return Kernel(operand, result, found.columns, eights, 1, 8)
    many = found.wide // 32 >= 2 * client.driver.multiprocessors
    return Kernel(operand, result, False, eights, 2, 4 if many else 8)


def _few(client: Any, operand: DType, result: DType, found: _Thin) -> Few:
    """Long stretches of one row, unless with shorter ones of two all warps are there at once."""

    def share(rows: int) -> float:
        """How full the device is over all of its rounds of warps."""
        rounds = found.wide / (rows * _RESIDENT * client.driver.multiprocessors)
        return rounds / math.ceil(rounds) if rounds > 1 else 1.0

    rows, ahead = (2, 4) if share(2) > share(1) else (1, 8)
    return Few(operand, result, found.thin, rows, ahead)


def _launched(
    client: Any, kernel: Kernel | Few, blocks: int, found: _Thin, shape: Geometry
) -> Callable[..., None]:
    """The result is row-major [m, n]; the bias lies along n."""
    along, across = (1, shape.n) if found.left else (shape.n, 1)
    bias = (1, 0) if found.left else (0, 1)
    fixed = struct.pack(
        "<6q4i", found.wide_step, found.thin_step, along, across, *bias, found.wide, found.thin,
        shape.k, 0,
    )  # fmt: skip
    widths, source = (1, 1, 1, 1), kernel.source()
    launch = Launcher(client, source, kernel.name, blocks, kernel.threads, widths, [fixed])
    if found.left:
        return lambda x, y, out, bias=0: launch(out, y, x, bias)
    return lambda x, y, out, bias=0: launch(out, x, y, bias)
