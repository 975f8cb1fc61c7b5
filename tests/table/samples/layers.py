"""Samples of pooling by powers, norms with a residual, layers that draw, bags and bilinear maps."""

from __future__ import annotations

import numpy as np

import ruda
from ruda.core.errors import (
    ArgumentError,
    DTypeError,
    IndexRangeError,
    NormalizationDTypeError,
    NormalizationError,
    NormalizationShapeError,
    ShapeError,
)
from ruda.ops.add_norm import add_layer_norm, add_rms_norm
from ruda.ops.bilinear import bilinear
from ruda.ops.embed_bag import embedding_bag
from ruda.ops.local_norm import local_response_norm, normalize
from ruda.ops.noise import alpha_dropout, feature_alpha_dropout, rrelu
from ruda.ops.pool import max_pool1d, max_pool2d, max_pool3d
from ruda.ops.power_pool import (
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from ruda.ops.softmax import softmin
from tests.table.sample import Bad, Composed, Sample

SAMPLES = {
    "joint_norm": [Sample(((3, 4), (5,), ())), Sample(((2, 0), (3,)))],
    "joint_finite": [Sample(((3, 4), (5,), ())), Sample(((2, 0), (3,)))],
    "add_layer_norm": [
        Sample(((3, 4), (3, 4), (4,), (4,)), (1, 1e-5)),
        Sample(((2, 3, 4), (2, 3, 4), None, None), (1, 1e-5)),
        Sample(((0, 3), (0, 3), (3,), None), (1, 1e-5)),
    ],
    "add_rms_norm": [
        Sample(((3, 4), (3, 4), (4,)), (1, 1e-5)),
        Sample(((2, 3, 4), (2, 3, 4), None), (1, 1e-5)),
        Sample(((0, 3), (0, 3), (3,)), (1, 1e-5)),
    ],
}

X = ruda.ones((1, 4, 5))
IMAGE = ruda.ones((1, 3, 4, 4))
TABLE = ruda.ones((3, 2))
BAGS = ruda.asarray([0, 1, 2])

BAD = [
    Bad(
        lambda: add_rms_norm(X, ruda.ones((1, 4, 1))),
        NormalizationShapeError,
        "add_rms_norm: residual does not fit",
    ),
    Bad(
        lambda: add_layer_norm(X, X.astype("float64")),
        NormalizationDTypeError,
        "residual has another dtype",
    ),
    Bad(lambda: add_rms_norm(X, X, ruda.ones(4)), NormalizationShapeError, "weight does not fit"),
    Bad(lambda: normalize(X, eps=0.0), NormalizationError, "normalize: eps is not allowed"),
    Bad(lambda: local_response_norm(X, 0), NormalizationError, "size is too small"),
    Bad(lambda: local_response_norm(ruda.ones(3), 2), NormalizationShapeError, "too few axes"),
    Bad(lambda: lp_pool2d(IMAGE, 0, 2), ArgumentError, "lp_pool2d: norm_type is not allowed"),
    Bad(lambda: lp_pool1d(IMAGE, 2, 2), ShapeError, "lp_pool1d: wrong rank"),
    Bad(lambda: lp_pool3d(IMAGE, 2, 9), ShapeError, "no window fits"),
    Bad(
        lambda: max_unpool2d(IMAGE, ruda.zeros((1, 3, 4), dtype="int64"), 2),
        ShapeError,
        "max_unpool2d: input and indices differ",
    ),
    Bad(
        lambda: max_unpool1d(X, ruda.full(X.shape, 99, dtype="int64"), 2),
        IndexRangeError,
        "scatter",
    ),
    Bad(lambda: alpha_dropout(X, 2.0), ArgumentError, "alpha_dropout: p is not allowed"),
    Bad(lambda: feature_alpha_dropout(X[0, 0]), ShapeError, "feature_alpha_dropout: wrong rank"),
    Bad(lambda: rrelu(X, 2.0, 1.0), ArgumentError, "rrelu: the bounds are in disorder"),
    Bad(lambda: bilinear(X, X, X), ShapeError, "bilinear: the inputs do not fit"),
    Bad(
        lambda: bilinear(ruda.ones(2), ruda.ones(3), ruda.ones((4, 2, 3)), ruda.ones(3)),
        ShapeError,
        "bilinear: bias does not fit",
    ),
    Bad(lambda: embedding_bag(BAGS, TABLE), ShapeError, "wrong rank of the indices"),
    Bad(lambda: embedding_bag(BAGS, TABLE, BAGS, "min"), ArgumentError, "unknown mode"),
    Bad(lambda: embedding_bag(BAGS, TABLE[0], BAGS), ShapeError, "the table is no matrix"),
    Bad(lambda: embedding_bag(BAGS, TABLE, ruda.ones(2)), ShapeError, "no line of integers"),
    Bad(
        lambda: embedding_bag(BAGS, TABLE, BAGS, per_sample_weights=ruda.ones(3)),
        ArgumentError,
        "per_sample_weights need a sum",
    ),
    Bad(
        lambda: embedding_bag(BAGS, TABLE, BAGS, "sum", ruda.ones(2)),
        ShapeError,
        "per_sample_weights do not fit",
    ),
    Bad(
        lambda: embedding_bag(BAGS, TABLE, BAGS, "sum", ruda.ones(3, dtype="float64")),
        DTypeError,
        "the weights differ in dtype",
    ),
    Bad(lambda: embedding_bag(BAGS + 1, TABLE, BAGS), IndexRangeError, "no such row"),
]

POSITIVE = (0.2, 2.0)


def unpooled(pool: object, unpool: object, rank: int) -> Composed:
    """The maxima of windows that share elements, put back: only the last of equals stays."""
    values = np.random.default_rng(0).permutation(4**rank * 2).reshape(1, 2, *(4,) * rank)
    _, places = pool(ruda.asarray(values / 8.0), 2, return_indices=True)  # type: ignore[operator]
    name = f"max_unpool{rank}d"
    return Composed(name, lambda x: unpool(x, places, 2), ((1, 2, *(2,) * rank),))  # type: ignore[operator]


COMPOSED = [
    Composed("lp_pool1d", lambda x: lp_pool1d(x, 3, 2), ((1, 2, 5),), POSITIVE),
    Composed("lp_pool2d", lambda x: lp_pool2d(x, 2, (2, 3), 1), ((1, 2, 3, 4),), POSITIVE),
    Composed("lp_pool3d", lambda x: lp_pool3d(x, 1.5, 2), ((1, 3, 2, 2),), POSITIVE),
    unpooled(max_pool1d, max_unpool1d, 1),
    unpooled(max_pool2d, max_unpool2d, 2),
    unpooled(max_pool3d, max_unpool3d, 3),
    Composed("normalize", lambda x: normalize(x, 3), ((2, 3, 2),), POSITIVE),
    Composed("local_response_norm", lambda x: local_response_norm(x, 3, 0.5), ((2, 5, 3),)),
    Composed("softmin", softmin, ((3, 4),)),
    Composed("bilinear", bilinear, ((3, 2), (3, 4), (5, 2, 4), (5,))),
    Composed("alpha_dropout", lambda x: alpha_dropout(x, 1.0), ((3, 4),)),
    Composed("feature_alpha_dropout", lambda x: feature_alpha_dropout(x, 1.0), ((3, 4, 2),)),
    Composed("rrelu", rrelu, ((3, 4),), POSITIVE),
    Composed(
        "embedding_bag",
        lambda t, w: embedding_bag(BAGS, t, ruda.asarray([0, 1, 1]), "sum", w),
        ((3, 2), (3,)),
    ),
    Composed(
        "embedding_bag-mean",
        lambda t: embedding_bag(ruda.asarray([[0, 2], [1, 1]]), t, padding_idx=1),
        ((3, 2),),
    ),
]
