"""A tensor of 1 to 4 dimensions as a picture: strip, map, tiles, or a grid of tiles.

The picture is an indexed PNG (RFC 2083) in a ``data:`` address. A tensor with more cells than fit
shows evenly spaced ones; NaN and infinities are marked even where the cell shows a neighbour.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ruda.display import palette
from ruda.display.sample import window
from ruda.display.summary import Summary, magnitudes

WIDTH, HEIGHT = 480, 320
GAP = 5
LARGEST_CELL = 24
THINNEST = 24
MOST_TILES = 64
# A region of up to this many elements is read whole, so that no NaN in it goes unseen.
EXACT = 1 << 22


class Picture(NamedTuple):
    """A heat map: PNG bytes, size in pixels, its scale, what marks it has, and notes on it."""

    png: bytes
    width: int
    height: int
    scale: palette.Scale
    marks: tuple[int, ...]
    notes: tuple[str, ...]

    @property
    def address(self) -> str:
        """The picture as a ``data:`` address."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode("ascii")


class Plan(NamedTuple):
    """What is drawn where: the tiles (rows, columns) and the cells (height, width) of each.

    ``cell`` is the size of a cell in pixels, (height, width).
    """

    tiles: tuple[int, int]
    cells: tuple[int, int]
    cell: tuple[int, int]


def heat_map(tensor: Any, summary: Summary) -> Picture:
    """The picture of a tensor with at least one axis and one element."""
    shape, notes = tensor.spec.shape, []
    lead = max(len(shape) - 4, 0)
    if lead:
        notes.append(f"index {', '.join('0' * lead)} of the leading axes")
    grid = shape[lead : max(len(shape) - 2, 0)]
    height, width = (1, *shape)[-2:] if len(shape) == 1 else shape[-2:]
    shown = _shown_tiles(grid)
    if shown != grid:
        notes.append(f"the first {' × '.join(map(str, shown))} of {' × '.join(map(str, grid))}")
    plan = _plan(shown, height, width)
    if plan.cells != (height, width):
        ratios = (height / plan.cells[0], width / plan.cells[1])
        ratio = " × ".join(f"{r:.3g}" for r in ratios[-len(shape) :])
        notes.append(f"a cell shows one of {ratio} elements")
    cells, kinds = _read(tensor, (1,) * lead + shown, plan.cells)
    scale = palette.scale_for(tensor.spec.dtype, summary, cells)
    codes = np.where(kinds > 0, palette.NAN + 3 - kinds, palette.encode(scale, cells))
    image = _draw(codes.reshape(-1, *plan.cells), plan)
    marks = tuple(code for code in palette.MARKS if (codes == code).any())
    data = png(image, palette.table(scale))
    return Picture(data, image.shape[1], image.shape[0], scale, marks, tuple(notes))


def _shown_tiles(grid: tuple[int, ...]) -> tuple[int, ...]:
    if len(grid) < 2:
        return tuple(min(length, MOST_TILES) for length in grid)
    rows = min(grid[0], 8)
    return rows, min(grid[1], max(8, MOST_TILES // rows))


def _plan(shown: tuple[int, ...], height: int, width: int) -> Plan:
    """The arrangement with the largest cells; one axis of tiles may wrap."""
    if len(shown) == 2:
        return _fit((shown[0], shown[1]), height, width)
    count = math.prod(shown)
    plans = [
        _fit((-(-count // columns), columns), height, width) for columns in range(1, count + 1)
    ]
    return max(plans, key=lambda p: (math.prod(p.cells), math.prod(p.cell), -p.tiles[0]))


def _fit(tiles: tuple[int, int], height: int, width: int) -> Plan:
    rows, columns = tiles
    room = (
        max((HEIGHT - GAP * (rows - 1)) // rows - 2, 1),
        max((WIDTH - GAP * (columns - 1)) // columns - 2, 1),
    )
    cells = min(height, room[0]), min(width, room[1])
    side = max(min(room[0] // cells[0], room[1] // cells[1], LARGEST_CELL), 1)
    # A strip is widened until it can be seen, without leaving its room.
    tall, wide = (
        max(side, min(-(-THINNEST // count), limit // count))
        for count, limit in zip(cells, room, strict=True)
    )
    return Plan(tiles, cells, (tall, wide))


def _read(tensor: Any, shown: tuple[int, ...], cells: tuple[int, int]) -> tuple[Any, Any]:
    """Values of the cells (…, height, width), and 1, 2, 3 where -inf, inf or NaN is in a cell."""
    shape = tensor.spec.shape
    last = shape[len(shown) :]
    size = (1, *last)[-2:]
    starts, ones = (0,) * len(shape), (1,) * len(shape)
    if math.prod(shown) * math.prod(last) <= EXACT:
        values = window(tensor, starts, (*shown, *last), ones).numpy()
        rows, columns = (_middles(n, count) for n, count in zip(size, cells, strict=True))
        values = magnitudes(values).reshape(*shown, *size)
        return values[..., rows[:, None], columns], _worst(_kinds(values), cells)
    steps = [length // count for length, count in zip(size, cells, strict=True)][-len(last) :]
    counts = cells[-len(last) :]
    starts = (0,) * len(shown) + tuple(step // 2 for step in steps)
    part = window(tensor, starts, (*shown, *counts), (*ones[: len(shown)], *steps))
    values = magnitudes(part.numpy()).reshape(*shown, *cells)
    return values, _kinds(values)


def _middles(length: int, count: int) -> Any:
    return (2 * np.arange(count) + 1) * length // (2 * count)


def _kinds(values: Any) -> Any:
    """1 for -inf, 2 for inf, 3 for NaN, else 0."""
    kinds = np.zeros(values.shape, np.uint8)
    if values.dtype.kind in "biu":
        return kinds
    values = values if values.dtype.kind == "f" else values.astype(np.float32)
    kinds[values == -np.inf] = 1
    kinds[values == np.inf] = 2
    kinds[np.isnan(values)] = 3
    return kinds


def _worst(kinds: Any, cells: tuple[int, int]) -> Any:
    """The highest kind in the part of the map that each cell stands for."""
    rows, columns = (
        np.arange(count) * length // count
        for length, count in zip(kinds.shape[-2:], cells, strict=True)
    )
    return np.maximum.reduceat(np.maximum.reduceat(kinds, rows, axis=-2), columns, axis=-1)


# Drawn on marks that are large enough, for eyes that do not tell the colours apart.
_SIGNS = {
    palette.NAN: ("10001", "01010", "00100", "01010", "10001"),
    palette.PLUS: ("00100", "00100", "11111", "00100", "00100"),
    palette.MINUS: ("00000", "00000", "11111", "00000", "00000"),
}


def _draw(tiles: Any, plan: Plan) -> Any:
    """The image of ``tiles`` (n, height, width) of colours, each in a frame one pixel wide."""
    big = tiles.repeat(plan.cell[0], axis=1).repeat(plan.cell[1], axis=2)
    if min(plan.cell) >= 7:
        for code, sign in _SIGNS.items():
            big[(big == code) & _stencil(sign, plan)] = palette.INK
    height, width = big.shape[1] + 2, big.shape[2] + 2
    rows, columns = plan.tiles
    canvas = np.full(
        (rows * (height + GAP) - GAP, columns * (width + GAP) - GAP), palette.BLANK, np.uint8
    )
    for number, tile in enumerate(big):
        top, left = number // columns * (height + GAP), number % columns * (width + GAP)
        canvas[top : top + height, left : left + width] = palette.FRAME
        canvas[top + 1 : top + height - 1, left + 1 : left + width - 1] = tile
    return canvas


def _stencil(sign: Sequence[str], plan: Plan) -> Any:
    """Where ``sign`` is drawn, repeated in the middle of every cell of a tile."""
    tall, wide = plan.cell
    cell = np.zeros((tall, wide), bool)
    size = 2 if min(plan.cell) >= 14 else 1
    points = np.array([[mark == "1" for mark in line] for line in sign])
    points = points.repeat(size, axis=0).repeat(size, axis=1)
    top, left = (tall - len(points)) // 2, (wide - len(points)) // 2
    cell[top : top + len(points), left : left + len(points)] = points
    return np.tile(cell, plan.cells)


def png(codes: Any, colors: Any) -> bytes:
    """An indexed PNG of ``codes`` (height, width) into ``colors`` (256, 4), RGBA."""
    height, width = codes.shape
    # Each row begins with its filter, and 0 is none.
    rows = np.zeros((height, width + 1), np.uint8)
    rows[:, 1:] = codes
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", colors[:, :3].tobytes()),
        (b"tRNS", np.ascontiguousarray(colors[:, 3]).tobytes()),
        (b"IDAT", zlib.compress(rows.tobytes(), 6)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, body) for name, body in chunks)


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
