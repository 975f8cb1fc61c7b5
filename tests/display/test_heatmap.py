"""Heat maps: a PNG that other readers open, colours that mean what they should, marks kept."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.display.heatmap import HEIGHT, WIDTH, Picture, heat_map
from ruda.display.html import EXACT
from ruda.display.palette import DIVERGING, MARKS, MINUS, NAN, PLUS
from ruda.display.summary import summarize
from tests.display.kinds import KINDS, noise, with_specials

DRAWN = [name for name in KINDS if name not in ("scalar", "leaf", "empty")]


def draw(x: Any) -> Picture:
    return heat_map(x, summarize(x, EXACT))


def pixels(picture: Picture) -> Any:
    """The RGBA pixels as Pillow decodes them."""
    image = pytest.importorskip("PIL.Image").open(io.BytesIO(picture.png))
    image.load()
    return np.asarray(image.convert("RGBA"))


def cell(picture: Picture, row: int, column: int, shape: tuple[int, int]) -> tuple[int, ...]:
    """The colour of the lower right pixel of a cell of a single map, inside its frame of 1."""
    image = pixels(picture)
    tall, wide = (image.shape[0] - 2) // shape[0], (image.shape[1] - 2) // shape[1]
    return tuple(image[(row + 1) * tall, (column + 1) * wide].tolist())


@pytest.mark.parametrize("name", DRAWN)
def test_another_reader_opens_every_picture(name: str) -> None:
    picture = draw(KINDS[name]())
    assert pixels(picture).shape == (picture.height, picture.width, 4)
    assert 3 <= picture.width <= WIDTH + 2 and 3 <= picture.height <= HEIGHT + 2
    assert len(picture.png) < 200_000


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("matrix", "diverging"),
        ("integers", "diverging"),
        ("positive", "sequential"),
        ("negative", "sequential"),
        ("bytes", "sequential"),
        ("complex", "sequential"),
        ("bool", "boolean"),
        ("few integers", "categorical"),
        ("constant", "sequential"),
    ],
)
def test_colours_suit_the_values(name: str, kind: str) -> None:
    assert draw(KINDS[name]()).scale.kind == kind


def test_diverging_colours_are_centred_at_zero() -> None:
    picture = draw(ruda.asarray(np.array([[-4.0, 0.0, 1.0, 4.0]])))
    assert (picture.scale.low, picture.scale.high) == (-4, 4)
    colors = [cell(picture, 0, i, (1, 4)) for i in range(4)]
    assert colors[0] == tuple(DIVERGING[0]) and colors[3] == tuple(DIVERGING[-1])
    assert colors[1][3] == 0, "zero lets the page through"
    blue, red = colors[0], colors[3]
    assert blue[2] > blue[0] and red[0] > red[2] and 0 < colors[2][3] < 255


def test_sequential_colours_grow_lighter() -> None:
    picture = draw(ruda.asarray(np.arange(12.0)[None] ** 2))
    brightness = [sum(cell(picture, 0, i, (1, 12))[:3]) for i in range(12)]
    assert brightness == sorted(brightness) and brightness[-1] > 3 * brightness[0]


def test_categories_have_colours_of_their_own() -> None:
    picture = draw(ruda.asarray(np.array([[-3, 10**15, 0, 2]])))
    assert picture.scale.values.tolist() == [-3, 0, 2, 10**15]
    assert len({cell(picture, 0, i, (1, 4)) for i in range(4)}) == 4


def test_marks_stand_where_the_values_are() -> None:
    picture = draw(ruda.asarray(with_specials(noise(4, 6))))
    assert picture.marks == (NAN, PLUS, MINUS)
    for column, code in enumerate((NAN, PLUS, MINUS)):
        assert cell(picture, 0, column, (4, 6)) == (*MARKS[code], 255)
    assert cell(picture, 1, 0, (4, 6))[:3] not in MARKS.values()


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2"])
def test_marks_of_half_and_storage_types(dtype: str) -> None:
    x = ruda.asarray(with_specials(noise(4, 6))).astype(dtype)
    assert draw(x).marks == (NAN, PLUS, MINUS)


def test_a_single_nan_survives_downsampling() -> None:
    values = np.zeros((1500, 1700), np.float32)
    values[777, 1234] = np.nan
    picture = draw(ruda.asarray(values))
    assert picture.marks == (NAN,)
    assert "a cell shows one of" in picture.notes[0]
    rows, columns = np.nonzero((pixels(picture)[..., :3] == MARKS[NAN]).all(axis=-1))
    assert rows.mean() / picture.height == pytest.approx(777 / 1500, abs=0.01)
    assert columns.mean() / picture.width == pytest.approx(1234 / 1700, abs=0.01)


def test_an_outlier_does_not_take_the_scale() -> None:
    scale = draw(KINDS["outlier"]()).scale
    assert scale.clipped and scale.high < 4
    assert not draw(KINDS["matrix"]()).scale.clipped


def test_tiles_are_all_there() -> None:
    values = np.arange(6.0)[:, None, None] * np.ones((1, 4, 4))
    image = pixels(draw(ruda.asarray(values)))
    framed = {tuple(color) for color in image.reshape(-1, 4).tolist()}
    # Six tiles, the frame and the gap.
    assert len(framed) == 8


def test_what_is_left_out_is_noted() -> None:
    assert draw(KINDS["grid of tiles"]()).notes == ("the first 8 × 8 of 32 × 16",)
    assert draw(KINDS["five axes"]()).notes == ("index 0 of the leading axes",)
    assert draw(KINDS["matrix"]()).notes == ()


def test_a_view_is_drawn_as_its_copy() -> None:
    values = noise(60, 80)[10:40, 5:25].T[::-1]
    view = ruda.asarray(noise(60, 80))[10:40, 5:25].T[::-1]
    assert draw(view).png == draw(ruda.asarray(values.copy())).png
