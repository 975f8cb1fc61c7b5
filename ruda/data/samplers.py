"""Orders in which samples are drawn: functions of seed and epoch, so that a position resumes."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from ruda.core.errors import ArgumentError, ShapeError
from ruda.core.shapes import index
from ruda.ops.conversion import asarray
from ruda.ops.generator import Generator
from ruda.ops.sampling import categorical, permutation


@runtime_checkable
class Sampler(Protocol):
    """What ``DataLoader`` takes as ``sampler``.

    ``order(seed, epoch)`` is an int64 ndarray of ``len(sampler)`` indices, the same one for the
    same arguments.
    """

    def __len__(self) -> int: ...

    def order(self, seed: int, epoch: int) -> Any: ...


class SequentialSampler:
    """The indices below ``length`` as they are."""

    def __init__(self, length: int) -> None:
        self.length = _count("SequentialSampler", "length", length, 0)

    def __repr__(self) -> str:
        return f"SequentialSampler({self.length})"

    def __len__(self) -> int:
        return self.length

    def order(self, seed: int, epoch: int) -> Any:
        """0, 1, … whatever the arguments."""
        return np.arange(self.length, dtype=np.int64)


class ShuffleSampler:
    """The indices below ``length``, shuffled anew for each epoch.

    >>> ShuffleSampler(4).order(seed=0, epoch=1).tolist()
    [1, 3, 2, 0]
    """

    def __init__(self, length: int) -> None:
        self.length = _count("ShuffleSampler", "length", length, 0)

    def __repr__(self) -> str:
        return f"ShuffleSampler({self.length})"

    def __len__(self) -> int:
        return self.length

    def order(self, seed: int, epoch: int) -> Any:
        """A permutation drawn from Generator(seed, epoch)."""
        drawn = permutation(self.length, device="cpu", generator=Generator(seed, epoch))
        return drawn.numpy()


class WeightedSampler:
    """``samples`` indices an epoch, drawn by ``weights [n]``, which need not sum to 1.

    Without ``samples`` as many as there are weights. With ``replacement=False`` no index comes
    twice in an epoch. Raises ``ArgumentError`` for weights that are negative, not finite, all zero
    or too few.

    >>> WeightedSampler([0.0, 1.0, 0.0], samples=3).order(seed=0, epoch=0).tolist()
    [1, 1, 1]
    """

    def __init__(self, weights: Any, samples: int | None = None, *, replacement: bool = True):
        self.weights = np.array(weights, np.float64)
        if self.weights.ndim != 1:
            raise ShapeError("WeightedSampler", "weights are not [n]", self.weights.shape)
        if not np.isfinite(self.weights).all() or (self.weights < 0).any():
            got = self.weights[~(self.weights >= 0) | np.isinf(self.weights)][:4].tolist()
            raise ArgumentError("WeightedSampler", "weights are negative or not finite", got)
        count = len(self.weights) if samples is None else samples
        self.samples = _count("WeightedSampler", "samples", count, 0)
        self.replacement = replacement
        usable = int(np.count_nonzero(self.weights))
        if self.samples and (usable == 0 or (not replacement and usable < self.samples)):
            what, got = "too few weights are above zero", f"{usable} for {self.samples} samples"
            raise ArgumentError("WeightedSampler", what, got)

    def __repr__(self) -> str:
        drawn = f"{self.samples} of {len(self.weights)}"
        return f"WeightedSampler({drawn}, replacement={self.replacement})"

    def __len__(self) -> int:
        return self.samples

    def order(self, seed: int, epoch: int) -> Any:
        """Indices drawn from Generator(seed, epoch)."""
        if self.samples == 0:
            return np.zeros(0, np.int64)
        weights = asarray(self.weights, device="cpu")
        draws = Generator(seed, epoch)
        drawn = categorical(weights, self.samples, replacement=self.replacement, generator=draws)
        return drawn.numpy()


class ShardSampler:
    """The part of another sampler's order that falls to one of ``world`` processes.

    Process ``rank`` takes every ``world``-th index, all of them equally many: the order is filled
    up from its own beginning, or cut with ``drop_last``. Every process must use the same seed, and
    together they see what one alone would.

    >>> [ShardSampler(SequentialSampler(5), r, 2).order(0, 0).tolist() for r in (0, 1)]
    [[0, 2, 4], [1, 3, 0]]
    """

    def __init__(self, sampler: Sampler, rank: int, world: int, *, drop_last: bool = False) -> None:
        self.sampler = sampler
        self.world = _count("ShardSampler", "world", world, 1)
        self.rank = _count("ShardSampler", "rank", rank, 0)
        self.drop_last = drop_last
        if self.rank >= self.world:
            raise ArgumentError("ShardSampler", "rank is too large", rank, f"below {world}")

    def __repr__(self) -> str:
        return f"ShardSampler({self.sampler!r}, rank={self.rank}, world={self.world})"

    def __len__(self) -> int:
        length = len(self.sampler)
        return length // self.world if self.drop_last else -(-length // self.world)

    def order(self, seed: int, epoch: int) -> Any:
        """Indices ``rank``, ``rank + world``, … of the other sampler's order."""
        order = self.sampler.order(seed, epoch)
        return np.resize(order, len(self) * self.world)[self.rank :: self.world]


def _count(op: str, name: str, value: Any, least: int) -> int:
    number = index(value, op, name)
    if number < least:
        raise ArgumentError(op, f"{name} is too small", value, f"at least {least}")
    return number
