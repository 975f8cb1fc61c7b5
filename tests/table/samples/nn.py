"""Samples of convolution, pooling, norms, losses, attention, embedding and dropout."""

from __future__ import annotations

import numpy as np

import ruda
from ruda.core.dtypes import FLOAT
from ruda.core.errors import (
    ArgumentError,
    ConvDTypeError,
    ConvShapeError,
    DTypeError,
    IndexRangeError,
    NormalizationDTypeError,
    NormalizationError,
    NormalizationShapeError,
    ShapeError,
)
from ruda.ops.adaptive_pool import adaptive_avg_pool2d
from ruda.ops.conv import (
    ConvArgumentError,
    ConvStrategyError,
    conv1d,
    conv2d,
    conv_forward_nhwc,
)
from ruda.ops.conv_transpose import conv_transpose1d, conv_transpose2d, conv_transpose3d
from ruda.ops.cross_entropy import cross_entropy
from ruda.ops.dropout import dropout, dropout1d, dropout2d, dropout3d
from ruda.ops.embed import embedding
from ruda.ops.loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)
from ruda.ops.norm import layer_norm, rms_norm
from ruda.ops.pool import avg_pool2d, max_pool2d
from ruda.ops.softmax import softmax
from ruda.ops.standard_norm import batch_norm, group_norm, instance_norm
from tests.table.sample import Bad, Composed, Sample

# Stride, padding, dilation, groups, layout, strategy.
PLAIN = ((1,), ((0, 0),), (1,), 1, "nchw", "auto")
UNEVEN = ((2, 1), ((1, 0), (0, 2)), (1, 2), 2, "nchw", "auto")
LAST, LAST_DIRECT = ((*UNEVEN[:4], "nhwc", how) for how in ("auto", "direct"))
SOLID = ((1, 1, 2), ((1, 1),) * 3, (1, 1, 1), 1, "nchw", "auto")

# Kernel, stride, padding, then dilation and ceil mode or what averages have.
PAIR = ((2,), (2,), ((0, 0),))
PATCH = ((3, 2), (2, 1), ((1, 1), (0, 1)))


def distinct(*shape: int) -> np.ndarray:
    """Values far enough apart that a small step changes no maximum."""
    order = np.random.default_rng(0).permutation(np.prod(shape, dtype=int))
    return order.reshape(shape).astype(np.float64) / 8 - 2


def indices(high: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, high, shape)


SAMPLES = {
    "conv": [
        Sample(((2, 3, 7), (4, 3, 3)), PLAIN),
        Sample(((2, 4, 5, 6), (6, 2, 3, 2)), UNEVEN),
        Sample(((1, 2, 3, 4, 5), (2, 2, 2, 3, 2)), SOLID),
        Sample(((0, 3, 7), (4, 3, 3)), PLAIN),
        Sample(((2, 5, 6, 4), (6, 3, 2, 2)), LAST),
        Sample(((2, 5, 6, 4), (6, 3, 2, 2)), LAST_DIRECT),
    ],
    "conv_data_backward": [
        Sample(((2, 4, 5), (4, 3, 3)), ((2, 3, 7), *PLAIN)),
        Sample(((2, 6, 2, 6), (6, 2, 3, 2)), ((2, 4, 5, 6), *UNEVEN)),
        Sample(((0, 4, 5), (4, 3, 3)), ((0, 3, 7), *PLAIN)),
        Sample(((2, 2, 6, 6), (6, 3, 2, 2)), ((2, 5, 6, 4), *LAST)),
        Sample(((2, 2, 6, 6), (6, 3, 2, 2)), ((2, 5, 6, 4), *LAST_DIRECT)),
    ],
    "conv_weight_backward": [
        Sample(((2, 4, 5), (2, 3, 7)), ((4, 3, 3), *PLAIN)),
        Sample(((2, 6, 2, 6), (2, 4, 5, 6)), ((6, 2, 3, 2), *UNEVEN)),
        Sample(((0, 4, 5), (0, 3, 7)), ((4, 3, 3), *PLAIN)),
        Sample(((2, 2, 6, 6), (2, 5, 6, 4)), ((6, 3, 2, 2), *LAST)),
        Sample(((2, 2, 6, 6), (2, 5, 6, 4)), ((6, 3, 2, 2), *LAST_DIRECT)),
    ],
    "max_pool": [
        Sample((distinct(2, 3, 8),), (*PAIR, (1,), False)),
        Sample((distinct(2, 5, 6),), (*PATCH, (1, 2), True)),
        Sample(((0, 3, 8),), (*PAIR, (1,), False)),
    ],
    "max_pool_backward": [
        Sample(((2, 3), np.array([[0, 2, -1], [1, 1, 3]])), ((2, 4), 1, None)),
        Sample(((1, 2, 2), np.array([[[0, 5], [5, 3]]])), ((1, 2, 3), 2, None)),
    ],
    "max_pool_pick": [
        Sample(((2, 4), np.array([[0, 2, -1], [1, 1, 3]])), (1, None)),
        Sample(((1, 2, 3), np.array([[[0, 5], [5, 3]]])), (2, None)),
    ],
    "moving_statistics": [
        Sample(((3,), (3,), np.array(4), (3,), (1, 3, 1)), (7, 0.25), FLOAT),
        Sample(((3,), (3,), np.array(4), (1, 3), (3,)), (7, None), FLOAT),
    ],
    "max_pool_last": [
        Sample((distinct(2, 8, 3),), (*PAIR, (1,), False)),
        Sample((distinct(2, 5, 6, 3),), (*PATCH, (1, 2), True)),
        Sample(((0, 8, 3),), (*PAIR, (1,), False)),
    ],
    "max_pool_last_backward": [
        Sample(((1, 2, 2), np.array([[[0, 1], [255, 0]]], np.uint8)), ((1, 4, 2), *PAIR, (1,))),
        Sample(
            ((1, 1, 2, 2), np.array([[[[5, 0], [1, 3]]]], np.uint8)),
            ((1, 3, 3, 2), (3, 2), (2, 1), ((0, 0), (0, 0)), (1, 1)),
        ),
    ],
    "max_pool_last_pick": [
        Sample(((1, 4, 2), np.array([[[0, 1], [255, 0]]], np.uint8)), (*PAIR, (1,))),
    ],
    "avg_pool": [
        Sample(((2, 3, 8),), (*PAIR, False, True, None)),
        Sample(((2, 5, 6),), (*PATCH, True, False, None)),
        Sample(((2, 5, 6),), (*PATCH, True, True, None)),
        Sample(((2, 5, 6),), (*PATCH, False, True, 5)),
    ],
    "avg_pool_backward": [
        Sample(((2, 3, 4),), ((2, 3, 8), *PAIR, False, True, None)),
        Sample(((2, 3, 6),), ((2, 5, 6), *PATCH, False, False, None)),
    ],
    "adaptive_max_pool": [Sample((distinct(2, 5, 6),), ((2, 4),))],
    "adaptive_avg_pool": [Sample(((2, 5, 6),), ((2, 4),)), Sample(((2, 3),), ((5,),))],
    "adaptive_avg_pool_backward": [Sample(((2, 2, 4),), ((2, 5, 6), 2))],
    "softmax": [Sample(((3, 4),), (1,)), Sample(((2, 3, 4),), (1,)), Sample(((0, 4),), (1,))],
    "softmax_backward": [Sample(((3, 4), (3, 4)), (1,)), Sample(((2, 3), (2, 3)), (0,))],
    "log_softmax": [Sample(((3, 4),), (1,)), Sample(((2, 3, 4),), (0,))],
    "log_softmax_backward": [Sample(((3, 4), (3, 4)), (1,)), Sample(((2, 3), (2, 3)), (0,))],
    "layer_norm": [
        Sample(((3, 4), (4,), (4,)), (1, 1e-5)),
        Sample(((2, 3, 4), None, (3,)), (1, 1e-5)),
        Sample(((2, 3), None, None), (1, 1e-5)),
        Sample(((0, 3), (3,), None), (1, 1e-5)),
    ],
    "layer_norm_backward": [
        Sample(((3, 4), (3, 4), (4,), (3,), (3,)), (1,)),
        Sample(((2, 3, 4), (2, 3, 4), None, (2, 4), (2, 4)), (1,)),
    ],
    "rms_norm": [
        Sample(((3, 4), (4,)), (1, 1e-5)),
        Sample(((2, 3, 4), None), (1, 1e-5)),
    ],
    "rms_norm_backward": [
        Sample(((3, 4), (3, 4), (4,), (3,)), (1,)),
        Sample(((2, 3, 4), (2, 3, 4), None, (2, 4)), (1,)),
    ],
    "standard_norm": [
        Sample(((3, 2, 4), (1, 2, 1), (1, 2, 1)), ((0, 2), 1e-5)),
        Sample(((3, 2, 4), None, None), ((2,), 1e-5)),
        Sample(((3, 2, 4), None, (1, 2, 1)), ((2,), 1e-5)),
    ],
    "standard_norm_relu_backward": [
        Sample(
            ((3, 2, 4), (3, 2, 4), (2, 1), (2, 1), (1, 2, 1), np.array([[[0.5], [1.5]]])),
            ((0, 2), 0.1, (2, 1)),
        ),
        Sample(((3, 2), (3, 2), None, None, (1, 2), np.array([[0.5, 2.0]])), ((0,), 0.1, (1, 2))),
    ],
    "standard_norm_backward": [
        Sample(
            ((3, 2, 4), (3, 2, 4), (1, 2, 1), (1, 2, 1), np.array([[[0.5], [1.5]]])),
            ((0, 2), 1e-5, (1, 2, 1)),
        ),
        Sample(((3, 2), (3, 2), None, (3, 1), np.array([[0.5], [1.5], [1.0]])), ((1,), 1e-5, ())),
    ],
    "cross_entropy": [
        Sample(((3, 4), np.array([1, -100, 3]), (4,)), (1, -100, 0.1, 0.01)),
        Sample(((2, 4, 3), indices(4, 2, 3), None), (1, -100, 0.0, 0.0)),
        Sample(((0, 4), indices(4, 0), None), (1, -100, 0.2, 0.0)),
    ],
    "cross_entropy_backward": [
        Sample(((3,), (3, 4), np.array([1, -100, 3]), (3,), (4,)), (1, -100, 0.1, 0.01)),
        Sample(((2, 3), (2, 4, 3), indices(4, 2, 3), (2, 3), None), (1, -100, 0.0, 0.0)),
    ],
    "cross_entropy_joint": [
        Sample(((3,), (3, 4), np.array([1, -100, 3]), (4,)), (1, -100, 0.1, 0.01)),
        Sample(((2, 3), (2, 4, 3), indices(4, 2, 3), None), (1, -100, 0.0, 0.0)),
        Sample(((0,), (0, 4), indices(4, 0), None), (1, -100, 0.2, 0.0)),
        Sample((None, (3, 4), np.array([1, -100, 3]), None), (1, -100, 0.1, 0.01)),
    ],
    "cross_entropy_ahead": [
        Sample(((3, 4), np.array([1, -100, 3])), (-100, 0.1, 0.01, True, False)),
        Sample(((2, 3, 4), indices(4, 2, 3)), (-100, 0.0, 0.0, False, False)),
    ],
    "over_counted": [
        Sample(((), np.array([1, -100, 3])), (-100,)),
        Sample(((3,), indices(4, 2, 3)), (2,)),
    ],
    "mean_where_counted": [
        Sample(((3,), np.array([1, -100, 3])), (-100,)),
        Sample(((2, 3), indices(4, 2, 3)), (2,)),
        Sample(((), np.array(1)), (-1,)),
    ],
    "embedding": [
        Sample(((5, 3), indices(5, 2, 4)), (-1,), grad=True),
        Sample(((5, 3), indices(5, 0)), (-1,)),
        Sample(((5, 3), 3), (-1,)),
    ],
    "embedding_backward": [
        Sample(((2, 4, 3), indices(5, 2, 4)), (5, -1)),
        Sample(((4, 3), np.array([1, 1, 2, 4])), (5, 1)),
        Sample(((0, 3), indices(5, 0)), (5, -1)),
    ],
    "dropout": [
        Sample(((3, 5), 0.4, 7, 2)),
        Sample(((0, 5), 0.4, 7, 2)),
    ],
}

X = ruda.ones((1, 4, 5))
W = ruda.ones((2, 4, 3))
LABELS = ruda.zeros(4, dtype="int64")
IMAGE = ruda.ones((1, 3, 4, 4))

BAD = [
    Bad(lambda: conv1d(X, W, groups=3), ConvShapeError, "conv: channels do not divide"),
    Bad(lambda: conv1d(X, ruda.ones((2, 3, 3))), ConvShapeError, "do not fit the weight"),
    Bad(lambda: conv1d(X, ruda.ones((2, 4, 9))), ConvShapeError, "no window fits"),
    Bad(lambda: conv2d(X, W), ConvShapeError, "conv2d: ranks"),
    Bad(lambda: conv1d(X, W.astype("float64")), ConvDTypeError, "x and w differ"),
    Bad(lambda: conv1d(X, W, ruda.ones(3)), ConvShapeError, "bias does not fit"),
    Bad(lambda: conv1d(X, W, stride=0), ConvArgumentError, "stride is too small"),
    Bad(lambda: conv1d(X, W, padding=-1), ConvArgumentError, "padding is negative"),
    Bad(lambda: conv1d(X, W, padding="full"), ConvArgumentError, "unknown padding"),
    Bad(lambda: conv1d(X, W, stride=2, padding="same"), ConvArgumentError, "stride of 1"),
    Bad(lambda: conv1d(X, W, layout="nwc"), ConvArgumentError, "unknown layout"),
    Bad(lambda: conv1d(X, W, strategy="fft"), ConvArgumentError, "unknown strategy"),
    Bad(lambda: conv1d(X, W, strategy="vendor"), ConvStrategyError, "conv: no vendor library"),
    Bad(lambda: conv_forward_nhwc(X, W[0]), ConvShapeError, "conv_forward_nhwc: ranks"),
    Bad(lambda: conv_transpose1d(X, W), ConvShapeError, "input channels do not fit"),
    Bad(lambda: conv_transpose1d(X, W[0]), ConvShapeError, "conv_transpose1d: ranks"),
    Bad(
        lambda: conv_transpose1d(X, ruda.ones((4, 2, 3)), output_padding=1),
        ConvArgumentError,
        "output_padding is too large",
    ),
    Bad(
        lambda: conv_transpose1d(X, ruda.ones((4, 2, 3)), padding=4),
        ConvShapeError,
        "the padding leaves nothing",
    ),
    Bad(
        lambda: conv_transpose1d(X, ruda.ones((4, 2, 3)), ruda.ones(4)),
        ConvShapeError,
        "bias does not fit",
    ),
    Bad(lambda: max_pool2d(IMAGE, 9), ShapeError, "max_pool: no window fits"),
    Bad(lambda: max_pool2d(IMAGE, 2, padding=2), ArgumentError, "half of the kernel"),
    Bad(lambda: avg_pool2d(IMAGE, 2, divisor_override=0), ArgumentError, "divisor is zero"),
    Bad(lambda: avg_pool2d(ruda.ones(4), 2), ShapeError, "avg_pool2d: wrong rank"),
    Bad(lambda: adaptive_avg_pool2d(IMAGE, (0, 1)), ArgumentError, "output_size is too small"),
    Bad(lambda: softmax(ruda.arange(3)), NormalizationDTypeError, "softmax: dtype"),
    Bad(lambda: softmax(ruda.ones((3, 0))), NormalizationShapeError, "axis is empty"),
    Bad(lambda: layer_norm(X, ruda.ones(4)), NormalizationShapeError, "weight does not fit"),
    Bad(lambda: layer_norm(X, (5,)), NormalizationDTypeError, "weight is no tensor"),  # type: ignore[arg-type]
    Bad(lambda: layer_norm(X, eps=float("nan")), NormalizationError, "eps is not allowed"),
    Bad(
        lambda: rms_norm(X, ruda.ones(5, dtype="float64")),
        NormalizationDTypeError,
        "weight does not fit the dtype",
    ),
    Bad(lambda: batch_norm(ruda.ones((1, 3)), training=True), NormalizationError, "no variance"),
    Bad(lambda: batch_norm(IMAGE), NormalizationError, "needs running statistics"),
    Bad(lambda: batch_norm(IMAGE, weight=ruda.ones(2)), NormalizationShapeError, "channels"),
    Bad(lambda: group_norm(IMAGE, 2), NormalizationError, "num_groups does not fit"),
    Bad(
        lambda: cross_entropy(ruda.ones((2, 4, 3)), ruda.zeros((2, 3), dtype="int64")),
        ShapeError,
        "Try axis=1",
    ),
    Bad(lambda: cross_entropy(X[0], LABELS[:2]), ShapeError, "target does not fit"),
    Bad(lambda: cross_entropy(X[0], LABELS + 5), IndexRangeError, "no such class"),
    Bad(lambda: cross_entropy(X[0], LABELS - 1), IndexRangeError, "Got -1 at"),
    Bad(lambda: cross_entropy(X[0], LABELS, reduction="avg"), ArgumentError, "reduction"),
    Bad(lambda: cross_entropy(X[0], LABELS, label_smoothing=2), ArgumentError, "not allowed"),
    Bad(lambda: cross_entropy(X[0], LABELS, z_loss=-1), ArgumentError, "z_loss"),
    Bad(lambda: cross_entropy(X[0], LABELS, weight=ruda.ones(4)), ShapeError, "per class"),
    Bad(lambda: cross_entropy(X[0], ruda.ones((4, 5), dtype="float64")), DTypeError, "astype"),
    Bad(lambda: nll_loss(X[0], LABELS - 1), IndexRangeError, "out of range"),
    Bad(lambda: mse_loss(ruda.ones((3, 1)), ruda.ones(3)), ShapeError, "do not broadcast"),
    Bad(lambda: mse_loss(X, X.astype("float64")), DTypeError, "differ in dtype"),
    Bad(lambda: l1_loss(X, X, reduction="avg"), ArgumentError, "unknown reduction"),
    Bad(lambda: huber_loss(X, X, delta=0.0), ArgumentError, "delta is not allowed"),
    Bad(lambda: smooth_l1_loss(X, X, beta=-1.0), ArgumentError, "beta is not allowed"),
    Bad(
        lambda: binary_cross_entropy_with_logits(X, X, ruda.ones((3, 4, 5))),
        ShapeError,
        "weight does not fit",
    ),
    Bad(lambda: embedding(ruda.asarray([3]), ruda.ones((3, 2))), IndexRangeError, "no such row"),
    Bad(lambda: embedding(ruda.asarray([-1]), ruda.ones((3, 2))), IndexRangeError, "Got -1 at"),
]

UNIT = np.random.default_rng(2).uniform(0.1, 0.9, (2, 3, 4))

COMPOSED = [
    Composed("mse_loss", mse_loss, ((3, 4), (3, 4))),
    Composed("l1_loss", lambda x: l1_loss(x, ruda.ones_like(x) * 3), ((3, 4),)),
    Composed("smooth_l1_loss", smooth_l1_loss, ((3, 4), (3, 4))),
    Composed("huber_loss", huber_loss, ((3, 4), (3, 4))),
    Composed("binary_cross_entropy", binary_cross_entropy, (UNIT[0], UNIT[1])),
    Composed(
        "binary_cross_entropy_with_logits",
        lambda x, t, w: binary_cross_entropy_with_logits(x, t, w, pos_weight=w),
        ((3, 4), (3, 4), (4,)),
    ),
    Composed("kl_div", lambda x, t: kl_div(x, t, reduction="batchmean"), (UNIT[0], UNIT[1])),
    Composed("kl_div-log", lambda x, t: kl_div(x, t, log_target=True), ((3, 4), (3, 4))),
    Composed(
        "nll_loss", lambda x, w: nll_loss(x, ruda.asarray([0, 2, -100]), w), ((3, 4), UNIT[0, 0])
    ),
    Composed(
        "cross_entropy-weighted",
        lambda x, w: cross_entropy(x, ruda.asarray([0, 2, -100]), weight=w, label_smoothing=0.1),
        ((3, 4), UNIT[0, 0]),
    ),
    Composed("cross_entropy-mean", lambda x: cross_entropy(x, ruda.asarray([0, 2])), ((2, 3),)),
    Composed(
        "cross_entropy-probabilities",
        lambda x, t: cross_entropy(x, t, label_smoothing=0.1, z_loss=0.1),
        ((3, 4), (3, 4)),
    ),
    Composed("dropout-all", lambda x: dropout(x, 1.0), ((3, 4),)),
    Composed("dropout1d", lambda x: dropout1d(x, 1.0), ((2, 3, 4),)),
    Composed("dropout2d", lambda x: dropout2d(x, 1.0), ((2, 3, 2, 2),)),
    Composed("dropout3d", lambda x: dropout3d(x, 1.0), ((4, 1, 2, 2),)),
    Composed(
        "conv2d-bias",
        lambda x, w, b: conv2d(x, w, b, stride=2, padding="valid"),
        ((1, 2, 5, 5), (3, 2, 2, 2), (3,)),
    ),
    Composed("conv1d-same", lambda x, w: conv1d(x, w, padding="same"), ((2, 7), (3, 2, 4))),
    Composed(
        "conv_transpose1d",
        lambda x, w, b: conv_transpose1d(x, w, b, 2, output_padding=1),
        ((1, 2, 4), (2, 3, 3), (3,)),
    ),
    Composed(
        "conv_transpose2d",
        lambda x, w: conv_transpose2d(x, w, padding=1, groups=2, dilation=(1, 2)),
        ((1, 4, 3, 3), (4, 1, 3, 2)),
    ),
    Composed("conv_transpose3d", conv_transpose3d, ((2, 2, 2, 2), (2, 1, 1, 2, 2))),
    Composed("max_pool2d", lambda x: max_pool2d(x, 2), (distinct(1, 2, 4, 4),)),
    Composed("avg_pool2d", lambda x: avg_pool2d(x, 3, 2, 1), ((1, 2, 5, 5),)),
    Composed(
        "batch_norm",
        lambda x, w, b: batch_norm(x, weight=w, bias=b, training=True),
        ((3, 2, 4), (2,), (2,)),
    ),
    Composed("instance_norm", instance_norm, ((3, 2, 4),)),
    Composed("group_norm", lambda x, w: group_norm(x, 2, w), ((3, 4, 2), (4,))),
    Composed("layer_norm-axes", lambda x, w: layer_norm(x, w, axis=(1, 2)), ((3, 2, 4), (2, 4))),
]
