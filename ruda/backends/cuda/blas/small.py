"""Products of float32 that are too small for the libraries' tiles: a kernel of our own.

Factors are float32 as they are, and sums are doubles, on the tensor cores for doubles: those of
sm_90 are as fast as its units for float32, and have less to read for it. Results are rounded once
for each part of the depth. Infinities and NaN of operands go on as in float32; a sum that float32
would overflow on its way, and not at its end, stays finite within a part.

A training step of a small model is many products of a few microseconds. What they cost depends on
how evenly their tiles fill the device, so there are several sizes of tiles, and blocks that share
the depth of one. Which of them a product gets follows from its shape and the device alone.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ruda.backends.cuda.blas.layout import Geometry, Side
from ruda.backends.cuda.blas.small_epilogue import PLAIN, End
from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.source import instance

_DEPTH, _STAGES = 32, 4
# Multiply-adds of a product between which this kernel was measured to be the quicker one.
_LEAST, _MOST = 1 << 18, 1 << 33
# Of one that has to be read in single elements.
_MOST_SINGLE = 1 << 22
# The fewest rows and columns, and how many times the cycles that a full device would take, and how
# many more, a product may take.
_FEWEST, _SLOWEST, _SLACK = 10, 1.7, 10000
# Above this tiles of 32 x 32 would read their operands too often.
_LARGE = 1 << 28
_MOST_ELEMENTS = 1 << 30
_CLUSTERS = (1, 2, 4, 8)
# How many of the tiles are timed where products are.
_TRIED = 6


class Tile(NamedTuple):
    """The outputs of a block, the squares of 32 x 32 of a warp, and how many share their depth.

    The last two are multiply-adds of a multiprocessor in a cycle, of the 128 that it could do, as
    measured on an H200: where an operand lies along the depth, and where none does.
    """

    rows: int
    columns: int
    high: int
    wide: int
    slices: int
    speed: int
    speed_across: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.rows * self.columns // (32 * self.high * self.wide) * self.slices


TILES = (
    Tile(32, 32, 1, 1, 2, 97, 90),
    Tile(64, 32, 1, 1, 2, 97, 88),
    Tile(64, 64, 2, 1, 2, 94, 90),
)
# Cycles that joining the blocks of a cluster takes.
_JOINING = {1: 0, 2: 1000, 4: 1900, 8: 3000}
# Warps of a multiprocessor below which it is slower, and its speed then: where an operand lies
# along the depth, and where none does.
_BUSY = (((4, 0.5), (8, 0.8)), ((6, 0.58),))


class Kernel(NamedTuple):
    """A class of kernels; ``end`` is what is done to the result."""

    tile: Tile
    cluster: int
    a_deep: bool
    b_deep: bool
    a_unit: int
    b_unit: int
    sums: bool
    relu: bool
    end: End

    @property
    def name(self) -> str:
        tile, sides = self.tile, f"{'nt'[not self.a_deep]}{'nt'[self.b_deep]}"
        units = f"_{self.a_unit}{self.b_unit}" * (self.a_unit * self.b_unit < 16)
        more = "_sums" * self.sums + "_relu" * self.relu
        shape = f"{tile.rows}x{tile.columns}_{tile.high}x{tile.wide}x{tile.slices}"
        return f"small_product_{sides}_{shape}_c{self.cluster}{units}{more}{self.end.name}"

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a block."""
        tile = self.tile
        outputs = tile.rows * tile.columns
        parts = outputs * tile.slices if tile.slices > 1 else outputs * (self.cluster > 1)
        room = max(_STAGES * _DEPTH * (tile.rows + tile.columns), parts)
        return 4 * (room + self.sums * tile.slices * tile.rows)

    def source(self) -> str:
        """CUDA C of the kernel."""
        tile = self.tile
        text = instance(
            __file__, NAME=self.name, TM=tile.rows, TN=tile.columns, UM=tile.high, UN=tile.wide,
            SLICES=tile.slices, STAGES=_STAGES, CLUSTER=self.cluster, A_DEEP=int(self.a_deep),
            B_DEEP=int(self.b_deep), A_UNIT=self.a_unit, B_UNIT=self.b_unit, SUMS=int(self.sums),
            RELU=int(self.relu), **self.end.settings,
        )  # fmt: skip
        return "// Architectures: sm_90a.\n" + self.end.functions + text


class Choice(NamedTuple):
    """A tile, and how many blocks share its depth."""

    tile: Tile
    cluster: int


def fits(client: Any, shape: Geometry) -> bool:
    """Whether a product of float32 is one for this kernel: in one call, and quicker than elsewhere.

    Other devices than those of sm_90 have tensor cores for doubles that are slow, or none.
    """
    if not client.driver.arch.startswith("sm_90") or not _is_possible(shape):
        return False
    return _is_good(shape, client.driver.multiprocessors)


def _is_possible(shape: Geometry) -> bool:
    call = shape.calls[0]
    evenly = len(shape.calls) == 1 and (call.count == 1 or shape.steps[2] == shape.m * shape.n)
    spread = (_extent(shape.x, shape.m, shape.k), _extent(shape.y, shape.k, shape.n))
    batches = (call.count * abs(step) for step in shape.steps)
    return evenly and max(*spread, *batches) < _MOST_ELEMENTS and call.count * 8 <= 65535


@functools.lru_cache(maxsize=4096)
def _is_good(shape: Geometry, multiprocessors: int) -> bool:
    m, n, k, count = shape.m, shape.n, shape.k, shape.calls[0].count
    work = count * m * n * k
    if not _LEAST <= work <= _MOST or min(m, n) < _FEWEST:
        return False
    # Single elements are copied at a quarter of the speed.
    (a_deep, b_deep), (sx, sy, _) = (not shape.x.transposed, shape.y.transposed), shape.steps
    a, b = (
        _unit(True, shape.x, k if a_deep else m, sx),
        _unit(True, shape.y, k if b_deep else n, sy),
    )
    if min(a, b) < 4 and work > _MOST_SINGLE:
        return False
    # Too few tiles for a great depth, or a depth that fills no piece.
    smallest = count * max(m, 32) * max(n, 32) * k / (128 * multiprocessors)
    needed = expected(shape, choices(shape, multiprocessors)[0], multiprocessors)
    return needed < _SLOWEST * smallest + _SLACK


def _extent(side: Side, rows: int, columns: int) -> int:
    return side.leading * (columns if side.transposed else rows)


@functools.lru_cache(maxsize=4096)
def choices(shape: Geometry, multiprocessors: int) -> tuple[Choice, ...]:
    """The tiles for a product, the one that is expected to be the quickest first."""
    found = []
    work = shape.calls[0].count * shape.m * shape.n * shape.k
    for tile in TILES[work > _LARGE and min(shape.m, shape.n) > 32 :]:
        for cluster in _CLUSTERS:
            if cluster == 1 or _up(shape.k, _DEPTH) >= 2 * cluster:
                choice = Choice(tile, cluster)
                found.append((expected(shape, choice, multiprocessors), choice))
    return tuple(choice for _, choice in sorted(found, key=lambda pair: pair[0]))


def expected(shape: Geometry, choice: Choice, multiprocessors: int) -> float:
    """About how many cycles a product takes: what the fullest multiprocessor has to do."""
    tile, cluster = choice
    tiles = _up(shape.m, tile.rows) * _up(shape.n, tile.columns) * shape.calls[0].count
    # Large clusters of large blocks find no place in the corners of the device.
    room = multiprocessors * (0.8 if cluster > 2 and tile.rows > 32 else 1.0)
    most = math.ceil(tiles * cluster / room)
    pieces = _up(_up(shape.k, _DEPTH), cluster)
    across = shape.x.transposed and not shape.y.transposed
    speed: float = tile.speed_across if across else tile.speed
    warps = most * tile.threads // 32
    speed *= next((share for least, share in _BUSY[across] if warps < least), 1.0)
    return most * pieces * _DEPTH * tile.rows * tile.columns / speed + _JOINING[cluster]


def _up(size: int, unit: int) -> int:
    return -(-size // unit)


def candidates(client: Any, shape: Geometry) -> tuple[Choice, ...]:
    """The tiles worth a trial, the one that the rule takes first."""
    return choices(shape, client.driver.multiprocessors)[:_TRIED]


def best(client: Any, shape: Geometry) -> Choice | None:
    """What the rule takes for a product of float32; None if it is not for this kernel."""
    return candidates(client, shape)[0] if fits(client, shape) else None


class Bound:
    """A product with its tile: call it with the addresses that its kernel takes.

    Which of the operands and results lie at multiples of 16 bytes is seen when it is called; sums
    are the same wherever they lie.
    """

    def __init__(
        self, client: Any, shape: Geometry, choice: Choice, sums: bool, relu: bool, end: End
    ) -> None:
        self.client, self.shape, self.choice = client, shape, choice
        self.sums, self.relu, self.end = sums, relu, end
        self._launchers: dict[tuple[bool, bool, bool], Launcher] = {}
        self._ready = self._launcher(True, True, True)

    def __call__(self, ends: Sequence[int], x: int, y: int, bias: int = 0, sums: int = 0) -> None:
        """Queue it; ``ends`` are the addresses of results and operands of what is done to them."""
        joint = 0
        for address in ends:
            joint |= address
        launch = self._ready
        if (joint | x | y) & 15:
            launch = self._launcher(not x & 15, not y & 15, not joint & 15)
        launch(*ends, x, y, bias, sums)

    def _launcher(self, a: bool, b: bool, packs: bool) -> Launcher:
        found = self._launchers.get((a, b, packs))
        if found is None:
            found = self._launchers[a, b, packs] = self._made(a, b, packs)
        return found

    def _made(self, a: bool, b: bool, packs: bool) -> Launcher:
        shape, (tile, cluster) = self.shape, self.choice
        m, n, k = shape.m, shape.n, shape.k
        a_deep, b_deep = not shape.x.transposed, shape.y.transposed
        a_unit = _unit(a, shape.x, k if a_deep else m, shape.steps[0])
        b_unit = _unit(b, shape.y, k if b_deep else n, shape.steps[1])
        kernel = Kernel(
            tile, cluster, a_deep, b_deep, a_unit, b_unit, self.sums, self.relu, self.end
        )
        pieces = _up(_up(k, _DEPTH), cluster)
        packed = packs and n % 4 == 0
        fixed = struct.pack(
            "<2q8i", shape.steps[0], shape.steps[1], m, n, k, shape.x.leading, shape.y.leading,
            pieces, packed, 0,
        )  # fmt: skip
        grid = (_up(n, tile.columns), _up(m, tile.rows), cluster * shape.calls[0].count)
        widths = (1,) * (self.end.count + 4)
        source, name = kernel.source(), kernel.name
        return Launcher(
            self.client, source, name, grid, tile.threads, widths, [fixed], kernel.shared
        )


def _unit(aligned: bool, side: Side, along: int, step: int) -> int:
    """Elements that are copied at once: four where every four lie at a multiple of 16 bytes."""
    return 4 if aligned and not (side.leading | along | step) & 3 else 1


def product(
    client: Any, shape: Geometry, choice: Choice, relu: bool = False
) -> Callable[..., None]:
    """The function that queues ``out = x @ y`` at the addresses (x, y, out[, bias])."""
    bound = Bound(client, shape, choice, False, relu, PLAIN)
    return lambda x, y, out, bias=0: bound((out,), x, y, bias)


def product_and_sums(client: Any, shape: Geometry, choice: Choice) -> Callable[..., None]:
    """As ``product``, at (x, y, out, sums): also the sums of the rows of x."""
    bound = Bound(client, shape, choice, True, False, PLAIN)
    return lambda x, y, out, sums: bound((out,), x, y, 0, sums)
