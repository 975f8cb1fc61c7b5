"""Losses that hold the map to many classes: in blocks of rows, or with rare classes in clusters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ruda.core.errors import ArgumentError, IndexRangeError, ShapeError
from ruda.core.shapes import index
from ruda.nn.containers import ModuleList, Sequential
from ruda.nn.linear import Linear
from ruda.nn.module import Module
from ruda.ops.create import zeros
from ruda.ops.cross_entropy import check_reduction
from ruda.ops.gather import index_put, take, take_along_axis
from ruda.ops.join import concat
from ruda.ops.linear_cross_entropy import linear_cross_entropy
from ruda.ops.movement import expand_dims, squeeze
from ruda.ops.reduce import argmax, max, min
from ruda.ops.select import where
from ruda.ops.sets import nonzero
from ruda.ops.softmax import log_softmax
from ruda.ops.statistics import mean
from ruda.tensor.tensor import RudaTensor


class LinearCrossEntropyLoss(Module):
    """``cross_entropy`` of a linear map to ``num_classes``, whose logits never exist together.

    The map is ``linear``, a ``Linear`` layer; the settings are those of ``linear_cross_entropy``.

    >>> loss = ruda.nn.LinearCrossEntropyLoss(8, 100)
    >>> loss(ruda.ones((2, 3, 8)), ruda.zeros((2, 3), dtype="int64")).shape
    ()
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        bias: bool = False,
        reduction: str = "mean",
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        check_reduction("LinearCrossEntropyLoss", reduction)
        self.linear = Linear(in_features, num_classes, bias, device, dtype)
        self.reduction = reduction
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.z_loss = z_loss

    def forward(self, input: RudaTensor, target: RudaTensor) -> RudaTensor:
        """The loss of ``input [..., in_features]`` and classes ``target [...]``."""
        return linear_cross_entropy(
            input,
            self.linear.weight,
            target,
            bias=self.linear.bias,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            z_loss=self.z_loss,
            reduction=self.reduction,
        )

    def extra_repr(self) -> str:
        """The settings that are not those of the layer."""
        return f"reduction={self.reduction!r}"


class AdaptiveOutput(NamedTuple):
    """The log-probability of each target, and the loss: minus their mean."""

    output: RudaTensor
    loss: RudaTensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """A softmax over many classes, ordered by how frequent they are, rare ones in clusters.

    The classes below ``cutoffs[0]`` and one entry for each cluster are the ``head``; cluster i,
    from ``cutoffs[i]`` on, is a layer of ``tail`` through ``in_features / div_value ** (i + 1)``
    features, which sees only the rows that need it. How many those are depends on values, so a
    compiled step cannot hold it. Grave et al., "Efficient softmax approximation for GPUs" (2017).

    >>> softmax = ruda.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], div_value=2.0)
    >>> softmax(ruda.ones((3, 8)), ruda.asarray([0, 5, 19])).output.shape
    (3,)
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        ends = [index(c, type(self).__name__, "a cutoff") for c in cutoffs]
        if not ends or any(a >= b for a, b in pairwise([0, *ends, n_classes])):
            expected = f"increasing numbers between 0 and {n_classes}"
            raise ArgumentError(type(self).__name__, "cutoffs are no cutoffs", cutoffs, expected)
        self.in_features, self.n_classes = in_features, n_classes
        self.cutoffs = [*ends, n_classes]
        self.head = Linear(in_features, ends[0] + len(ends), head_bias, device, dtype)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            width = int(in_features // div_value ** (i + 1))
            sizes = pairwise((in_features, width, high - low))
            self.tail.append(Sequential(*(Linear(a, b, False, device, dtype) for a, b in sizes)))

    def forward(self, input: RudaTensor, target: RudaTensor) -> AdaptiveOutput:
        """Of ``input [N, in_features]`` and ``target [N]``, or of one row and one class.

        Raises ``ShapeError``, and ``IndexRangeError`` for a target that is no class.
        """
        if target.ndim > 1 or input.shape != (*target.shape, self.in_features):
            got = f"input {input.shape}, target {target.shape}"
            expected = f"[N, {self.in_features}] and [N]"
            raise ShapeError(type(self).__name__, "the target does not fit", got, expected)
        if not target.ndim:
            one = self(expand_dims(input, 0), expand_dims(target, 0))
            return AdaptiveOutput(squeeze(one.output, 0), one.loss)
        self._check(target)
        entry, inside = target, zeros(target.shape, dtype=input.dtype, device=input.device)
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            member = (target >= low) & (target < high)
            (rows,) = nonzero(member)
            entry = where(member, self.cutoffs[0] + i, entry)
            logs = log_softmax(self.tail[i](take(input, rows, axis=0)), -1)
            own = take_along_axis(logs, expand_dims(take(target, rows) - low, 1))
            inside = index_put(inside, (rows,), squeeze(own, 1))
        heads = log_softmax(self.head(input), -1)
        output = inside + squeeze(take_along_axis(heads, expand_dims(entry, 1)), 1)
        return AdaptiveOutput(output, -mean(output))

    def _check(self, target: RudaTensor) -> None:
        if target.size and not 0 <= int(min(target)) <= int(max(target)) < self.n_classes:
            got = f"values from {int(min(target))} to {int(max(target))}"
            expected = f"0 to {self.n_classes - 1}"
            raise IndexRangeError(type(self).__name__, "no such class", got, expected)

    def log_prob(self, input: RudaTensor) -> RudaTensor:
        """The log-probabilities ``[N, n_classes]`` of all classes."""
        heads, first = log_softmax(self.head(input), -1), self.cutoffs[0]
        parts = [heads[:, :first]]
        for i, tail in enumerate(self.tail):
            parts.append(log_softmax(tail(input), -1) + heads[:, first + i : first + i + 1])
        return concat(parts, axis=1)

    def predict(self, input: RudaTensor) -> RudaTensor:
        """The most probable class of each row, ``[N]``."""
        return argmax(self.log_prob(input), axis=1)

    def extra_repr(self) -> str:
        """The cutoffs."""
        return f"cutoffs={self.cutoffs[:-1]}"
