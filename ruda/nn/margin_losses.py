"""Losses with margins, and of pairs and triplets of vectors, as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.nn.losses import Loss
from ruda.nn.module import Module
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
from ruda.tensor.tensor import RudaTensor


class HingeLoss(Loss):
    """``max(0, 1 - target input)`` for targets 1 and -1."""

    _function = staticmethod(hinge_loss)

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction)


class SoftMarginLoss(Loss):
    """``log(1 + exp(-target input))`` for targets 1 and -1."""

    _function = staticmethod(soft_margin_loss)

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction)


class HingeEmbeddingLoss(Loss):
    """``input`` where ``target`` is 1, ``max(0, margin - input)`` where it is -1."""

    _function = staticmethod(hinge_embedding_loss)

    def __init__(self, margin: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(reduction, margin=margin)


class MarginRankingLoss(Loss):
    """``max(0, margin - target (input1 - input2))``."""

    _function = staticmethod(margin_ranking_loss)

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction, margin=margin)


class MultiMarginLoss(Loss):
    """``sum_j max(0, margin - input[target] + input[j])^p / C`` over the other classes."""

    _function = staticmethod(multi_margin_loss)

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: RudaTensor | None = None,
        *,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction, p=p, margin=margin, weight=weight)


class MultiLabelMarginLoss(Loss):
    """``sum_jk max(0, 1 - input[j] + input[k]) / C`` over labels and other classes."""

    _function = staticmethod(multilabel_margin_loss)

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction)


class MultiLabelSoftMarginLoss(Loss):
    """``BCEWithLogitsLoss`` averaged over the classes, the last axis."""

    _function = staticmethod(multilabel_soft_margin_loss)

    def __init__(self, weight: RudaTensor | None = None, *, reduction: str = "mean") -> None:
        super().__init__(reduction, weight=weight)


class CosineEmbeddingLoss(Loss):
    """``1 - cos`` where ``target`` is 1, ``max(0, cos - margin)`` where it is -1."""

    _function = staticmethod(cosine_embedding_loss)

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction, margin=margin)


class ContrastiveLoss(Loss):
    """Half the squared distance of alike pairs, of ``max(0, margin - distance)`` otherwise."""

    _function = staticmethod(contrastive_loss)

    def __init__(self, margin: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(reduction, margin=margin)


class TripletMarginLoss(Loss):
    """``max(0, margin + d(anchor, positive) - d(anchor, negative))`` of distances of order p."""

    _function = staticmethod(triplet_margin_loss)

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction, margin=margin, p=p, eps=eps, swap=swap)


class TripletMarginWithDistanceLoss(Loss):
    """``TripletMarginLoss`` with a distance of the caller's."""

    _function = staticmethod(triplet_margin_with_distance_loss)

    def __init__(
        self,
        *,
        distance_function: Callable[[Any, Any], Any] = pairwise_distance,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction, distance_function=distance_function, margin=margin, swap=swap)


class InfoNCELoss(Loss):
    """Cross-entropy of finding each query's key among all keys, by cosine over temperature."""

    _function = staticmethod(info_nce_loss)

    def __init__(self, temperature: float = 0.1, reduction: str = "mean") -> None:
        super().__init__(reduction, temperature=temperature)


class GramMatrixLoss(Loss):
    """The squared difference of Gram matrices of channels."""

    _function = staticmethod(gram_matrix_loss)

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction)


class CosineSimilarity(Module):
    """``cosine_similarity`` along ``axis``."""

    def __init__(self, axis: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.axis = axis
        self.eps = eps

    def forward(self, x1: RudaTensor, x2: RudaTensor) -> RudaTensor:
        """The cosine of the angle between vectors along the axis."""
        return cosine_similarity(x1, x2, self.axis, self.eps)


class PairwiseDistance(Module):
    """``pairwise_distance`` of order ``p``."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdims = keepdims

    def forward(self, x1: RudaTensor, x2: RudaTensor) -> RudaTensor:
        """The distance of vectors along the last axis."""
        return pairwise_distance(x1, x2, self.norm, self.eps, self.keepdims)
