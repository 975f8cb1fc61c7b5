"""Window arithmetic against enumeration of the windows."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from ruda.ops.reference import windows

AXES = list(product([1, 4, 7], [1, 2, 3], [1, 2, 3], [(0, 0), (1, 1), (0, 2), (2, 1)], [1, 2]))


def starts(size: int, kernel: int, stride: int, padding: tuple[int, int], dilation: int) -> range:
    """Places of the windows that fit whole into the padded axis."""
    last = size + padding[1] - (dilation * (kernel - 1) + 1)
    return range(-padding[0], last + 1, stride)


@pytest.mark.parametrize("axis", AXES)
def test_window_count(axis: tuple[int, int, int, tuple[int, int], int]) -> None:
    size, kernel, stride, padding, dilation = axis
    places = starts(*axis)
    assert max(0, windows.window_count(*axis)) == len(places)
    if not places:
        return
    # One more window if it holds an element that no other has, and starts left of the far padding.
    end = places[-1] + dilation * (kernel - 1) + 1
    grows = end < size + padding[1] and places[-1] + stride < size
    assert windows.window_count(*axis, ceil_mode=True) == len(places) + grows


@pytest.mark.parametrize("axis", AXES)
def test_offset_slices(axis: tuple[int, int, int, tuple[int, int], int]) -> None:
    size, kernel, stride, padding, dilation = axis
    places = starts(*axis)
    expected = {
        (k, i, start + k * dilation)
        for i, start in enumerate(places)
        for k in range(kernel)
        if 0 <= start + k * dilation < size
    }
    seen = set()
    for k, (_, out), (_, inp) in windows.offset_slices(
        [size], [len(places)], [kernel], [stride], [padding], [dilation]
    ):
        pairs = zip(range(len(places))[out], range(size)[inp], strict=True)
        seen |= {(k, i, at) for i, at in pairs}
    assert seen == expected


def test_pad_and_crop_are_transposes() -> None:
    x = np.arange(12.0).reshape(1, 1, 3, 4)
    padding = ((1, 0), (2, 3))
    padded = windows.pad_spatial(x, padding)
    np.testing.assert_array_equal(padded, np.pad(x, ((0, 0), (0, 0), *padding)))
    np.testing.assert_array_equal(windows.crop_spatial(padded, padding), x)
    assert windows.pad_spatial(x, ((0, 0), (0, 0))) is x


def test_row_blocks_cover_every_row_once() -> None:
    for total, size, target in product([0, 1, 7], [0, 3, 100], [1, 9]):
        rows = [i for block in windows.row_blocks(total, size, target) for i in range(total)[block]]
        assert rows == list(range(total))
