"""Samples of resampling, sampling at grids, deformable convolution, columns and shuffles."""

from __future__ import annotations

import numpy as np

import ruda
from ruda.core.errors import (
    ArgumentError,
    ConvDTypeError,
    ConvShapeError,
    DTypeError,
    ShapeError,
)
from ruda.ops.columns import col2im, im2col
from ruda.ops.conv_rows import ConvArgumentError
from ruda.ops.deform import deform_conv2d
from ruda.ops.grid import affine_grid, grid_sample
from ruda.ops.pixel_shuffle import channel_shuffle, pixel_shuffle, pixel_unshuffle
from ruda.ops.resize import interpolate
from tests.table.sample import Bad, Composed, Sample


def drawn(low: float, high: float, *shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).uniform(low, high, shape)


# Axis, size, method, step, corners, antialias.
LINEAR = (1, 7, "linear", 4 / 7, False, False)
CORNERS = (1, 3, "cubic", 1.5, True, False)
WIDE = (0, 2, "lanczos", 2.0, False, True)
FLOATS = (ruda.float16, ruda.bfloat16, ruda.float32, ruda.float64, ruda.complex128)

# Stride, padding, dilation, groups, offset groups.
WINDOW = ((2, 1), ((1, 0), (0, 1)), (1, 2), 2, 2)
PLAIN = ((1, 1), ((0, 0), (0, 0)), (1, 1), 1, 1)
PATCH = ((2, 3), (2, 1), ((1, 0), (0, 2)), (1, 2))

GRID, SOLID = drawn(-1.4, 1.4, 2, 3, 2, 2), drawn(-1.4, 1.4, 1, 2, 1, 2, 3)

SAMPLES = {
    "resample": [
        Sample(((2, 4, 3),), LINEAR, FLOATS),
        Sample(((2, 4, 3),), CORNERS, FLOATS),
        Sample(((4, 3),), WIDE, FLOATS),
        Sample(((2, 4, 3),), (1, 6, "nearest", 4 / 6, False, False)),
        Sample(((0, 4, 3),), LINEAR, FLOATS),
    ],
    "resample_backward": [
        Sample(((2, 7, 3),), (1, 4, *LINEAR[2:]), FLOATS),
        Sample(((2, 3, 3),), (1, 4, *CORNERS[2:]), FLOATS),
        Sample(((2, 3),), (0, 4, *WIDE[2:]), FLOATS),
        Sample(((2, 6, 3),), (1, 4, "nearest-exact", 4 / 6, False, False)),
    ],
    "grid_sample": [
        Sample(((2, 3, 4, 5), GRID), ("bilinear", "zeros", False)),
        Sample(((2, 3, 4, 5), GRID), ("bicubic", "border", True)),
        Sample(((2, 1, 4, 5), GRID), ("bilinear", "reflection", False)),
        Sample(((1, 2, 3, 2, 4), SOLID), ("bilinear", "border", False)),
        Sample(((2, 3, 4, 5), GRID), ("nearest", "zeros", False), constants=("grid",)),
        Sample(((2, 3, 4, 5), drawn(-1, 1, 2, 0, 2, 2)), ("bilinear", "zeros", False)),
    ],
    "deform_conv2d": [
        Sample(((1, 2, 4, 4), drawn(-1, 1, 1, 8, 3, 3), (2, 2, 2, 2), None), PLAIN),
        Sample(
            ((2, 4, 5, 4), drawn(-2, 2, 2, 16, 3, 3), (4, 2, 2, 2), drawn(0, 1, 2, 8, 3, 3)),
            WINDOW,
        ),
        Sample(((0, 2, 4, 4), drawn(-1, 1, 0, 8, 3, 3), (2, 2, 2, 2), None), PLAIN),
    ],
    "im2col": [
        Sample(((2, 3, 4, 5),), PATCH),
        Sample(((0, 3, 4, 5),), PATCH),
        Sample(((2, 3, 5),), ((2,), (1,), ((0, 1),), (2,))),
    ],
    "col2im": [
        Sample(((2, 18, 6),), ((4, 5), *PATCH)),
        Sample(((0, 18, 6),), ((4, 5), *PATCH)),
    ],
}

IMAGE = ruda.ones((1, 4, 4, 4))
LINE = ruda.ones((1, 4, 4))

BAD = [
    Bad(lambda: interpolate(LINE), ArgumentError, "needs one of size and scale_factor"),
    Bad(lambda: interpolate(LINE, 2, mode="bilinear"), ShapeError, "interpolate: wrong rank"),
    Bad(lambda: interpolate(LINE, 2, mode="spline"), ArgumentError, "unknown mode"),
    Bad(lambda: interpolate(LINE, 0), ArgumentError, "a size is too small"),
    Bad(lambda: interpolate(LINE, scale_factor=-1.0), ArgumentError, "scale_factor is not"),
    Bad(lambda: interpolate(LINE, (2, 2)), ArgumentError, "size does not fit 1 axes"),
    Bad(lambda: interpolate(LINE, 2, align_corners=True), ArgumentError, "align_corners has no"),
    Bad(lambda: interpolate(LINE, 2, antialias=True), ArgumentError, "antialias has no meaning"),
    Bad(
        lambda: interpolate(IMAGE, 2, None, "bilinear", True, antialias=True),
        ArgumentError,
        "aligns no corners",
    ),
    Bad(lambda: interpolate(ruda.ones((1, 2, 0)), 2), ShapeError, "an axis to resize is empty"),
    Bad(
        lambda: interpolate(ruda.zeros((1, 2, 3), dtype="uint8"), 2, mode="linear"),
        DTypeError,
        'resample: weighted sums need floats.*mode="nearest"',
    ),
    Bad(lambda: grid_sample(IMAGE, ruda.ones((1, 2, 2, 3))), ShapeError, "grid_sample: input and"),
    Bad(lambda: grid_sample(IMAGE, ruda.ones((1, 2, 2, 2)), "cubic"), ArgumentError, "mode"),
    Bad(
        lambda: grid_sample(IMAGE, ruda.ones((1, 2, 2, 2)), padding_mode="wrap"),
        ArgumentError,
        "unknown padding",
    ),
    Bad(
        lambda: grid_sample(IMAGE, ruda.ones((1, 2, 2, 2), dtype="float64")),
        DTypeError,
        "grid has another dtype",
    ),
    Bad(
        lambda: grid_sample(ruda.ones((1, 2, 2, 2, 2)), ruda.ones((1, 2, 2, 2, 3)), "bicubic"),
        ShapeError,
        "bicubic takes two",
    ),
    Bad(
        lambda: grid_sample(ruda.ones((1, 2, 0, 2)), ruda.ones((1, 2, 2, 2))),
        ShapeError,
        "no pixel",
    ),
    Bad(lambda: affine_grid(ruda.ones((1, 2, 2)), (1, 1, 2, 2)), ShapeError, "theta and size"),
    Bad(
        lambda: deform_conv2d(IMAGE, ruda.ones((1, 8, 2, 2)), ruda.ones((2, 4, 2, 2))),
        ConvShapeError,
        "offset does not fit",
    ),
    Bad(
        lambda: deform_conv2d(IMAGE, ruda.ones((1, 8, 3, 3)), ruda.ones((2, 3, 2, 2))),
        ConvShapeError,
        "channels do not fit",
    ),
    Bad(lambda: deform_conv2d(LINE, LINE, LINE), ConvShapeError, "deform_conv2d: ranks"),
    Bad(
        lambda: deform_conv2d(IMAGE, ruda.ones((1, 8, 3, 3)), ruda.ones((2, 4, 9, 2))),
        ConvShapeError,
        "no window fits",
    ),
    Bad(
        lambda: deform_conv2d(
            IMAGE, ruda.ones((1, 8, 3, 3), dtype="float64"), ruda.ones((2, 4, 2, 2))
        ),
        ConvDTypeError,
        "offset has another dtype",
    ),
    Bad(
        lambda: deform_conv2d(
            IMAGE, ruda.ones((1, 8, 3, 3)), ruda.ones((2, 4, 2, 2)), ruda.ones(3)
        ),
        ConvShapeError,
        "bias does not fit",
    ),
    Bad(
        lambda: deform_conv2d(
            IMAGE, ruda.ones((1, 8, 3, 3)), ruda.ones((2, 4, 2, 2)), offset_groups=0
        ),
        ConvArgumentError,
        "groups are too small",
    ),
    Bad(lambda: im2col(IMAGE, 9), ShapeError, "im2col: no window fits"),
    Bad(lambda: im2col(ruda.ones((2, 2)), 2), ShapeError, "im2col: wrong rank"),
    Bad(lambda: im2col(IMAGE, 2, stride=0), ArgumentError, "stride is too small"),
    Bad(lambda: col2im(LINE, (4, 4), 2), ShapeError, "col2im: the columns do not fit"),
    Bad(lambda: col2im(IMAGE, (4, 4), 2), ShapeError, "col2im: wrong rank"),
    Bad(lambda: pixel_shuffle(IMAGE, 3), ShapeError, "pixel_shuffle: the input does not fit"),
    Bad(lambda: pixel_shuffle(IMAGE, 0), ArgumentError, "upscale_factor is too small"),
    Bad(lambda: pixel_unshuffle(IMAGE, 3), ShapeError, "pixel_unshuffle: the input does not fit"),
    Bad(lambda: channel_shuffle(IMAGE, 3), ShapeError, "channel_shuffle: the input does not fit"),
]

COMPOSED = [
    Composed("interpolate", lambda x: interpolate(x, (3, 7), mode="bicubic"), ((1, 2, 4, 5),)),
    Composed(
        "interpolate-smooth",
        lambda x: interpolate(x, (3, 2), mode="bilinear", antialias=True),
        ((1, 2, 5, 6),),
    ),
    Composed("affine_grid", lambda t: affine_grid(t, (2, 1, 3, 2), True), ((2, 2, 3),)),
    Composed("pixel_shuffle", lambda x: pixel_shuffle(x, 2), ((1, 8, 2, 3),)),
    Composed("pixel_unshuffle", lambda x: pixel_unshuffle(x, 2), ((2, 4, 6),)),
    Composed("channel_shuffle", lambda x: channel_shuffle(x, 2), ((2, 4, 3),)),
    Composed(
        "deform_conv2d-bias",
        lambda x, w, b: deform_conv2d(x, ruda.asarray(drawn(-1, 1, 1, 8, 3, 3)), w, b),
        ((1, 2, 4, 4), (2, 2, 2, 2), (2,)),
    ),
]
