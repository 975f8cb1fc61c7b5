"""Composed samples of losses with margins, of vectors, and of likelihoods."""

from __future__ import annotations

import numpy as np

import ruda
from ruda.ops.likelihood import (
    dice_loss,
    gaussian_nll_loss,
    log_cosh_loss,
    lp_loss,
    msle_loss,
    poisson_nll_loss,
    quantile_loss,
    sigmoid_focal_loss,
)
from ruda.ops.margin import (
    hinge_embedding_loss,
    hinge_loss,
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    soft_margin_loss,
)
from ruda.ops.similarity import (
    contrastive_loss,
    cosine_embedding_loss,
    cosine_similarity,
    gram_matrix_loss,
    info_nce_loss,
    pairwise_distance,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from tests.table.sample import Composed

PAIR = ((3, 4), (3, 4))
UNIT = tuple(np.random.default_rng(5).uniform(0.1, 0.9, (2, 3, 4)))
SIGNS = ruda.asarray(np.random.default_rng(6).choice([-1.0, 1.0], (3, 4)))
CLASSES = ruda.asarray([2, 0, 3])
LISTS = ruda.asarray([[2, 0, -1, 1], [-1, 0, 0, 0], [3, 1, 2, 0]])

COMPOSED = [
    Composed("poisson_nll_loss", lambda x, t: poisson_nll_loss(x, t * t + 1.5, full=True), PAIR),
    Composed(
        "gaussian_nll_loss", lambda x, t, v: gaussian_nll_loss(x, t, v * v + 0.1), (*PAIR, (3, 1))
    ),
    Composed("sigmoid_focal_loss", sigmoid_focal_loss, (PAIR[0], UNIT[0])),
    Composed("dice_loss", dice_loss, UNIT),
    Composed("log_cosh_loss", log_cosh_loss, PAIR),
    Composed("msle_loss", msle_loss, UNIT),
    Composed("lp_loss", lambda x, t: lp_loss(x, t, p=3.0), PAIR),
    Composed("quantile_loss", lambda x, t: quantile_loss(x, t, q=0.3), PAIR),
    Composed("hinge_embedding_loss", lambda x: hinge_embedding_loss(x, SIGNS), PAIR[:1]),
    Composed("hinge_loss", lambda x: hinge_loss(x, SIGNS), PAIR[:1]),
    Composed("soft_margin_loss", lambda x: soft_margin_loss(x, SIGNS), PAIR[:1]),
    Composed(
        "margin_ranking_loss", lambda x, y: margin_ranking_loss(x, y, SIGNS, margin=0.5), PAIR
    ),
    Composed("multi_margin_loss", lambda x: multi_margin_loss(x, CLASSES, p=2), PAIR[:1]),
    Composed("multilabel_margin_loss", lambda x: multilabel_margin_loss(x, LISTS), PAIR[:1]),
    Composed("multilabel_soft_margin_loss", multilabel_soft_margin_loss, PAIR),
    Composed("cosine_similarity", cosine_similarity, ((3, 4), (1, 4))),
    Composed("pairwise_distance", lambda x, y: pairwise_distance(x, y, 3.0), PAIR),
    Composed("cosine_embedding_loss", lambda x, y: cosine_embedding_loss(x, y, SIGNS[:, 0]), PAIR),
    Composed("contrastive_loss", lambda x, y: contrastive_loss(x, y, CLASSES, margin=5.0), PAIR),
    Composed("triplet_margin_loss", triplet_margin_loss, (*PAIR, (3, 4))),
    Composed(
        "triplet_margin_with_distance_loss",
        lambda a, p, n: triplet_margin_with_distance_loss(a, p, n, margin=3.0, swap=True),
        (*PAIR, (3, 4)),
    ),
    Composed("info_nce_loss", info_nce_loss, (*PAIR, (2, 4))),
    Composed("gram_matrix_loss", gram_matrix_loss, ((2, 3, 4), (2, 3, 4))),
]
