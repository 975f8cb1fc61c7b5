"""Losses against PyTorch, or against their formula in PyTorch; their modules, errors, dtypes."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn
from ruda.core.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
from tests.ops.peer import assert_near, assert_same, torch

REDUCTIONS = ("none", "mean", "sum")
SHAPE = (5, 4)
CLASSES = np.array([1, 0, 3, 3, 2])
LISTS = np.array([[1, 3, -1, 0], [-1, 2, 2, 2], [0, 1, 2, 3], [2, 2, -1, 0], [3, -1, -1, -1]])
WEIGHT = np.array([0.5, 2.0, 1.5, 0.25])


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def shares(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).uniform(0.05, 0.95, shape)


def signs(*shape: int) -> Any:
    return np.random.default_rng(7).choice([-1.0, 1.0], shape)


def theirs(name: str) -> Any:
    return getattr(torch().nn.functional, name)


def constants(arrays: dict[str, Any], make: Callable[[Any], Any]) -> dict[str, Any]:
    """Arrays as tensors of one library, anything else as it is."""
    return {k: make(v) if isinstance(v, np.ndarray) else v for k, v in arrays.items()}


X, Y, Z = values(*SHAPE), values(*SHAPE, seed=1), values(*SHAPE, seed=2)
COUNTS = np.array([[0.0, 1.0, 2.0, 5.0]] * 5)

# name: arrays that get a gradient, then what stays as it is, by PyTorch's parameter names.
PAIRS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("poisson_nll_loss", (X,), {"target": COUNTS}),
    ("poisson_nll_loss", (X,), {"target": COUNTS, "full": True}),
    ("poisson_nll_loss", (shares(*SHAPE),), {"target": COUNTS, "log_input": False, "eps": 1e-4}),
    ("gaussian_nll_loss", (X, Y, shares(*SHAPE)), {}),
    ("gaussian_nll_loss", (X, Y, shares(5, 1)), {"full": True}),
    ("gaussian_nll_loss", (X, Y, shares(5)), {}),
    ("gaussian_nll_loss", (X, Y), {"var": 0.7}),
    ("hinge_embedding_loss", (X,), {"target": signs(*SHAPE), "margin": 0.6}),
    ("soft_margin_loss", (X,), {"target": signs(*SHAPE)}),
    ("margin_ranking_loss", (X, Y), {"target": signs(*SHAPE), "margin": 0.3}),
    ("multi_margin_loss", (X,), {"target": CLASSES}),
    ("multi_margin_loss", (X,), {"target": CLASSES, "p": 2, "margin": 0.8, "weight": WEIGHT}),
    ("multi_margin_loss", (X[0],), {"target": np.array(1)}),
    ("multilabel_margin_loss", (X,), {"target": LISTS}),
    ("multilabel_margin_loss", (X[0],), {"target": LISTS[0]}),
    ("multilabel_soft_margin_loss", (X, shares(*SHAPE)), {}),
    ("multilabel_soft_margin_loss", (X, shares(*SHAPE)), {"weight": WEIGHT}),
    ("cosine_embedding_loss", (X, Y), {"target": signs(5), "margin": -0.2}),
    ("cosine_embedding_loss", (X[0], Y[0]), {"target": np.array(1.0)}),
    ("triplet_margin_loss", (X, Y, Z), {}),
    ("triplet_margin_loss", (X, Y, Z), {"margin": 2.0, "p": 3.0, "swap": True}),
    ("triplet_margin_with_distance_loss", (X, Y, Z), {"margin": 2.0, "swap": True}),
]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("case", PAIRS, ids=lambda c: c[0])
def test_as_pytorch(case: tuple[str, tuple[Any, ...], dict[str, Any]], reduction: str) -> None:
    name, moving, rest = case
    judge = theirs(name)
    mine = constants(rest, ruda.asarray) | {"reduction": reduction}
    peer = constants(rest, torch().tensor) | {"reduction": reduction}
    if name in ("multilabel_margin_loss", "multi_margin_loss", "soft_margin_loss"):
        # PyTorch has no second derivative of these.
        assert_near(
            getattr(F, name)(ruda.asarray(moving[0]), **mine), judge(*tensors(moving), **peer)
        )
        assert_first_order(
            lambda x: getattr(F, name)(x, **mine), lambda x: judge(x, **peer), *moving
        )
        return
    assert_same(lambda *x: getattr(F, name)(*x, **mine), lambda *x: judge(*x, **peer), *moving)


def tensors(arrays: tuple[Any, ...]) -> list[Any]:
    return [torch().tensor(a) for a in arrays]


def assert_first_order(mine: Any, peer: Any, array: Any) -> None:
    x, y = ruda.tensor(array, requires_grad=True), torch().tensor(array, requires_grad=True)
    ruda.sum(mine(x)).backward()
    peer(y).sum().backward()
    assert_near(x.grad, y.grad)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cosine_similarity(axis: int) -> None:
    judge = theirs("cosine_similarity")
    other = Y[:, :1] if axis == 0 else Y[:1]
    assert_same(
        lambda x, y: F.cosine_similarity(x, y, axis), lambda x, y: judge(x, y, axis), X, other
    )
    assert F.cosine_similarity(ruda.zeros((1, 3)), ruda.ones((1, 3))).item() == 0


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
def test_pairwise_distance(p: float) -> None:
    judge = theirs("pairwise_distance")
    # Cubed, since the gradient of a distance has the length 1 wherever it is taken.
    assert_same(
        lambda x, y: F.pairwise_distance(x, y, p) ** 3, lambda x, y: judge(x, y, p) ** 3, X, Y
    )


def _focal(x: Any, t: Any) -> Any:
    p = torch().sigmoid(x)
    surprise = theirs("binary_cross_entropy_with_logits")(x, t, reduction="none")
    right = p * t + (1 - p) * (1 - t)
    return (surprise * (1 - right) ** 2 * (0.25 * t + 0.75 * (1 - t))).mean()


def _contrastive(a: Any, b: Any, alike: Any) -> Any:
    d = (a - b).norm(dim=-1)
    return (0.5 * torch().where(alike, d**2, (2 - d).clamp(min=0) ** 2)).mean()


def _info_nce(q: Any, k: Any, n: Any) -> Any:
    keys = torch().cat([k, n])
    cosines = theirs("cosine_similarity")(q[:, None], keys[None], dim=2)
    return theirs("cross_entropy")(cosines / 0.5, torch().arange(len(q)))


def _gram(x: Any, y: Any) -> Any:
    g = [torch().einsum("ncl,ndl->ncd", v, v) / (v.shape[1] * v.shape[2]) for v in (x, y)]
    return ((g[0] - g[1]) ** 2).mean()


ALIKE = np.array([1, 0, 0, 1, 0])
FORMULAS: dict[str, tuple[Any, Any, tuple[Any, ...]]] = {
    "sigmoid_focal_loss": (F.sigmoid_focal_loss, _focal, (X, shares(*SHAPE))),
    "dice_loss": (
        F.dice_loss,
        lambda p, t: (1 - (2 * (p * t).sum(1) + 1) / (p.sum(1) + t.sum(1) + 1)).mean(),
        (shares(*SHAPE), shares(*SHAPE, seed=1)),
    ),
    "log_cosh_loss": (
        F.log_cosh_loss,
        lambda x, y: torch().log(torch().cosh(x - y)).mean(),
        (X, Y),
    ),
    "msle_loss": (
        F.msle_loss,
        lambda x, y: ((torch().log1p(x) - torch().log1p(y)) ** 2).mean(),
        (shares(*SHAPE), shares(*SHAPE, seed=1)),
    ),
    "lp_loss": (
        lambda x, y: F.lp_loss(x, y, p=3.0, reduction="sum"),
        lambda x, y: ((x - y).abs() ** 3).sum(),
        (X, Y),
    ),
    "quantile_loss": (
        lambda x, y: F.quantile_loss(x, y, q=0.8),
        lambda x, y: torch().maximum(0.8 * (y - x), -0.2 * (y - x)).mean(),
        (X, Y),
    ),
    "hinge_loss": (
        lambda x: F.hinge_loss(x, ruda.asarray(signs(*SHAPE))),
        lambda x: (1 - torch().tensor(signs(*SHAPE)) * x).clamp(min=0).mean(),
        (X,),
    ),
    "contrastive_loss": (
        lambda x, y: F.contrastive_loss(x, y, ruda.asarray(ALIKE), margin=2.0),
        lambda x, y: _contrastive(x, y, torch().tensor(ALIKE == 1)),
        (X, Y),
    ),
    "info_nce_loss": (
        lambda q, k, n: F.info_nce_loss(q, k, n, temperature=0.5),
        _info_nce,
        (X, Y, values(3, 4)),
    ),
    "gram_matrix_loss": (F.gram_matrix_loss, _gram, (values(2, 3, 5), values(2, 3, 5, seed=1))),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_by_formula(name: str) -> None:
    mine, peer, arrays = FORMULAS[name]
    # A cosine divides by roots of squares that are 1e-12 larger than PyTorch's.
    if name == "info_nce_loss":
        own, judge = [ruda.asarray(a) for a in arrays], tensors(arrays)
        assert_near(mine(*own), peer(*judge), 1e-11)
        return
    assert_same(mine, peer, *arrays)


def test_extremes_are_finite() -> None:
    far, none = ruda.asarray([1e4, -1e4]), ruda.zeros(2)
    assert F.log_cosh_loss(far, none, reduction="none").tolist() == pytest.approx(
        [1e4 - math.log(2)] * 2
    )
    assert F.soft_margin_loss(far, ruda.asarray([-1.0, 1.0])).item() == 1e4
    assert F.sigmoid_focal_loss(far, ruda.asarray([0.0, 1.0]), alpha=-1.0).item() == 1e4
    x = ruda.ones((1, 3)).requires_grad_()
    F.cosine_embedding_loss(x, ruda.zeros((1, 3)), ruda.ones(1)).backward()
    assert np.isfinite(x.grad.numpy()).all()


def test_variance_below_eps_counts_as_eps() -> None:
    mine, peer = torch().tensor([0.0, 0.5], dtype=torch().float64, requires_grad=True), None
    var = ruda.tensor(np.array([0.0, 0.5]), requires_grad=True)
    x, y = np.array([0.1, 0.2]), np.array([0.3, 0.1])
    F.gaussian_nll_loss(ruda.asarray(x), ruda.asarray(y), var, eps=0.1).backward()
    peer = theirs("gaussian_nll_loss")(torch().tensor(x), torch().tensor(y), mine, eps=0.1)
    peer.backward()
    assert_near(var.grad, mine.grad)


MODULES: list[tuple[nn.Module, tuple[Any, ...], str]] = [
    (nn.PoissonNLLLoss(full=True), (X, COUNTS), "poisson_nll_loss"),
    (nn.GaussianNLLLoss(), (X, Y, shares(*SHAPE)), "gaussian_nll_loss"),
    (nn.HingeEmbeddingLoss(margin=0.5), (X, signs(*SHAPE)), "hinge_embedding_loss"),
    (nn.HingeLoss(), (X, signs(*SHAPE)), "hinge_loss"),
    (nn.SoftMarginLoss(), (X, signs(*SHAPE)), "soft_margin_loss"),
    (nn.MarginRankingLoss(margin=0.5), (X, Y, signs(*SHAPE)), "margin_ranking_loss"),
    (nn.MultiMarginLoss(p=2), (X, CLASSES), "multi_margin_loss"),
    (nn.MultiLabelMarginLoss(), (X, LISTS), "multilabel_margin_loss"),
    (nn.MultiLabelSoftMarginLoss(), (X, shares(*SHAPE)), "multilabel_soft_margin_loss"),
    (nn.CosineEmbeddingLoss(margin=0.1), (X, Y, signs(5)), "cosine_embedding_loss"),
    (nn.ContrastiveLoss(margin=3.0), (X, Y, ALIKE), "contrastive_loss"),
    (nn.TripletMarginLoss(swap=True), (X, Y, Z), "triplet_margin_loss"),
    (nn.InfoNCELoss(temperature=0.2), (X, Y), "info_nce_loss"),
    (nn.GramMatrixLoss(), (X[None], Y[None]), "gram_matrix_loss"),
    (nn.SigmoidFocalLoss(alpha=0.5), (X, shares(*SHAPE)), "sigmoid_focal_loss"),
    (nn.DiceLoss(smooth=2.0), (shares(*SHAPE), shares(*SHAPE)), "dice_loss"),
    (nn.LogCoshLoss(), (X, Y), "log_cosh_loss"),
    (nn.MSLELoss(), (shares(*SHAPE), shares(*SHAPE)), "msle_loss"),
    (nn.LpLoss(p=3.0), (X, Y), "lp_loss"),
    (nn.QuantileLoss(q=0.3), (X, Y), "quantile_loss"),
]


@pytest.mark.parametrize("case", MODULES, ids=lambda c: type(c[0]).__name__)
def test_modules_hold_the_settings(case: tuple[nn.Module, tuple[Any, ...], str]) -> None:
    module, arrays, name = case
    inputs = [ruda.asarray(a) for a in arrays]
    tensors_of = dict(module.named_buffers())
    expected = getattr(F, name)(*inputs, **tensors_of, **module.settings)
    assert pickle.loads(pickle.dumps(module))(*inputs).item() == expected.item()
    assert all(f"{k}={v!r}" in repr(module) for k, v in module.settings.items())
    with pytest.raises(ArgumentError, match="unknown reduction"):
        type(module)(reduction="avg")


def test_modules_of_distances() -> None:
    a, b = ruda.asarray(X), ruda.asarray(Y)
    assert nn.CosineSimilarity(axis=0)(a, b).tolist() == F.cosine_similarity(a, b, 0).tolist()
    assert nn.PairwiseDistance(3.0)(a, b).tolist() == F.pairwise_distance(a, b, 3.0).tolist()
    loss = nn.TripletMarginWithDistanceLoss(
        distance_function=lambda x, y: F.cosine_similarity(x, y)
    )
    c = ruda.asarray(Z)
    near, far = F.cosine_similarity(a, b), F.cosine_similarity(a, c)
    assert loss(a, b, c).item() == pytest.approx(ruda.mean(F.relu(near - far + 1)).item())
    x = F.log_softmax(ruda.asarray(values(6, 2, 4)), -1)
    arguments = ruda.asarray([[1, 2], [3, 1]]), [6, 6], [2, 1]
    assert nn.CTCLoss()(x, *arguments).item() == F.ctc_loss(x, *arguments).item()
    y = ruda.asarray(values(2, 6, 3, 4))
    assert nn.RNNTLoss(blank=0)(y, *arguments).item() == F.rnnt_loss(y, *arguments, 0).item()


TWO = ruda.ones((3, 1)), ruda.ones(3)
ROWS, MANY = ruda.ones((3, 4)), ruda.ones(3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: F.poisson_nll_loss(*TWO),
        lambda: F.gaussian_nll_loss(*TWO, 1.0),
        lambda: F.gaussian_nll_loss(ROWS, ROWS, ruda.ones(4)),
        lambda: F.hinge_embedding_loss(*TWO),
        lambda: F.hinge_loss(*TWO),
        lambda: F.soft_margin_loss(*TWO),
        lambda: F.margin_ranking_loss(TWO[0], TWO[0], TWO[1]),
        lambda: F.multi_margin_loss(ROWS, ruda.zeros(4, dtype="int64")),
        lambda: F.multi_margin_loss(ROWS, ruda.zeros(3, dtype="int64"), weight=MANY),
        lambda: F.multilabel_margin_loss(ROWS, ruda.zeros((3, 3), dtype="int64")),
        lambda: F.multilabel_soft_margin_loss(*TWO),
        lambda: F.multilabel_soft_margin_loss(ROWS, ROWS, ruda.ones((2, 3, 4))),
        lambda: F.cosine_embedding_loss(ROWS, ROWS, ruda.ones((3, 1))),
        lambda: F.cosine_embedding_loss(ROWS, MANY, MANY),
        lambda: F.contrastive_loss(ROWS, ROWS, ruda.ones(4)),
        lambda: F.triplet_margin_loss(ROWS, ROWS, MANY),
        lambda: F.info_nce_loss(MANY, MANY),
        lambda: F.info_nce_loss(ROWS, ROWS, ruda.ones((3, 5))),
        lambda: F.gram_matrix_loss(ROWS, ROWS),
        lambda: F.sigmoid_focal_loss(*TWO),
        lambda: F.dice_loss(MANY, MANY),
        lambda: F.log_cosh_loss(*TWO),
        lambda: F.msle_loss(*TWO),
        lambda: F.lp_loss(*TWO),
        lambda: F.quantile_loss(*TWO),
    ],
)
def test_shapes_do_not_broadcast(call: Callable[[], Any]) -> None:
    with pytest.raises(ShapeError):
        call()


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: F.log_cosh_loss(MANY, MANY.astype("float64")), DTypeError, "differ in dtype"),
        (lambda: F.multi_margin_loss(ROWS, MANY), DTypeError, "not of class indices"),
        (lambda: F.multilabel_margin_loss(ROWS, ROWS), DTypeError, "not of class indices"),
        (
            lambda: F.multi_margin_loss(ROWS, ruda.full((3,), 4, dtype="int64")),
            IndexRangeError,
            "out of range",
        ),
        (
            lambda: F.multi_margin_loss(ROWS, ruda.zeros(3, dtype="int64"), p=3),
            ArgumentError,
            "p is not allowed",
        ),
        (lambda: F.lp_loss(MANY, MANY, p=0.0), ArgumentError, "p is not allowed"),
        (lambda: F.quantile_loss(MANY, MANY, q=1.5), ArgumentError, "q is not allowed"),
        (lambda: F.triplet_margin_loss(ROWS, ROWS, ROWS, margin=-1.0), ArgumentError, "margin"),
        (
            lambda: F.hinge_embedding_loss(MANY, MANY, margin="x"),
            DTypeError,
            "margin is no real number",
        ),
        (lambda: F.cosine_similarity(ROWS, ROWS.astype("float16")), DTypeError, "dtype"),
        (lambda: F.info_nce_loss(ROWS, ROWS, temperature=0.0), ArgumentError, "temperature"),
        (lambda: F.gaussian_nll_loss(MANY, MANY, -1.0), ArgumentError, "var"),
    ],
)
def test_errors(call: Callable[[], Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()


HALF = [name for name, moving, rest in PAIRS if len(moving) > 1 and not rest] + ["log_cosh_loss"]


@pytest.mark.parametrize("name", sorted({*HALF, "lp_loss", "quantile_loss", "sigmoid_focal_loss"}))
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_rounds_once(name: str, dtype: str) -> None:
    count = {"gaussian_nll_loss": 3, "triplet_margin_loss": 3}.get(name, 2)
    low = [ruda.asarray(a).astype(dtype) for a in (X, Y, shares(*SHAPE))[:count]]
    wide = getattr(F, name)(*[v.astype("float32") for v in low])
    got = getattr(F, name)(*low)
    assert (got.dtype, got.item()) == (dtype, wide.astype(dtype).item())
