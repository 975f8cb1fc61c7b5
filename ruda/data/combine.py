"""Datasets made of datasets: mapped, filtered, reordered, joined, cut into windows.

All are read on demand; only ``filter`` goes through the data when it is called.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np

from ruda.core.errors import ArgumentError
from ruda.core.shapes import index as as_index
from ruda.data.collate import collate
from ruda.data.dataset import described, place
from ruda.ops.generator import Generator
from ruda.ops.sampling import integers, permutation


class Mapped:
    """What ``map`` returns."""

    def __init__(self, data: Any, function: Callable[[Any], Any]) -> None:
        self.data = data
        self.function = function

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return f"Mapped({described(self.data)}, {name})"

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        return self.function(self.data[place(index, len(self), "map")])


class Subset:
    """Samples of ``data`` by their ``indices``, int64 ``[n]``, in that order."""

    def __init__(self, data: Any, indices: Any) -> None:
        self.data = data
        self.indices = np.asarray(indices, np.int64)

    def __repr__(self) -> str:
        return f"Subset({len(self.indices):,} of {described(self.data)})"

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        return self.data[int(self.indices[place(index, len(self), "Subset")])]

    @property
    def batch(self) -> Callable[[Any], Any]:
        """A whole batch from ``data``; there is none where ``data`` has none."""
        whole = self.data.batch
        return lambda indices: whole(self.indices[indices])


class Concatenated:
    """What ``concat`` returns."""

    def __init__(self, *datasets: Any) -> None:
        if not datasets:
            raise ArgumentError("concat", "there are no datasets")
        self.datasets = datasets
        self.ends = list(accumulate(len(data) for data in datasets))

    def __repr__(self) -> str:
        return f"Concatenated({', '.join(described(data) for data in self.datasets)})"

    def __len__(self) -> int:
        return self.ends[-1]

    def __getitem__(self, index: int) -> Any:
        number = place(index, len(self), "concat")
        part = bisect_right(self.ends, number)
        return self.datasets[part][number - (self.ends[part - 1] if part else 0)]


class Windows:
    """What ``window`` returns."""

    def __init__(self, data: Any, size: int, stride: int = 1) -> None:
        self.data = data
        self.size = as_index(size, "window", "size")
        self.stride = as_index(stride, "window", "stride")
        if self.size < 1 or self.stride < 1:
            got = f"size={size}, stride={stride}"
            raise ArgumentError("window", "size or stride is too small", got, "at least 1")

    def __repr__(self) -> str:
        return f"Windows({described(self.data)}, size={self.size}, stride={self.stride})"

    def __len__(self) -> int:
        return max(len(self.data) - self.size, -1) // self.stride + 1

    def __getitem__(self, index: int) -> Any:
        start = place(index, len(self), "window") * self.stride
        if hasattr(self.data, "batch"):
            return self.data.batch(np.arange(start, start + self.size))
        return collate([self.data[i] for i in range(start, start + self.size)])


def map(data: Any, function: Callable[[Any], Any]) -> Mapped:
    """Sample i is ``function(data[i])``.

    Random augmentation draws from ``ruda.data.generator()``.

    >>> map(range(3), str)[2]
    '2'
    """
    return Mapped(data, function)


def filter(data: Any, predicate: Callable[[Any], Any]) -> Subset:
    """The samples for which ``predicate`` is true; reads every sample once, when called.

    >>> list(filter(range(6), lambda n: n % 2))
    [1, 3, 5]
    """
    return Subset(data, [i for i in range(len(data)) if predicate(data[i])])


def shuffle(data: Any, seed: int = 0) -> Subset:
    """The samples in one random order, the same in every epoch; a loader shuffles each anew.

    >>> sorted(shuffle(range(4), seed=3))
    [0, 1, 2, 3]
    """
    return Subset(data, _permutation(len(data), seed))


def concat(*datasets: Any) -> Concatenated:
    """One dataset after the other.

    >>> list(concat("ab", "c"))
    ['a', 'b', 'c']
    """
    return Concatenated(*datasets)


def window(data: Any, size: int, stride: int = 1) -> Windows:
    """Every ``stride``-th run of ``size`` consecutive samples, joined by ``collate``.

    A rest too short for a window is left out.

    >>> [w.tolist() for w in window(range(5), 3, stride=2)]
    [[0, 1, 2], [2, 3, 4]]
    """
    return Windows(data, size, stride)


def sample(data: Any, count: int, seed: int = 0, *, replacement: bool = False) -> Subset:
    """``count`` samples drawn at random, the same ones for one seed.

    Raises ``ArgumentError`` for more than there are without ``replacement``.

    >>> len(sample(range(100), 5))
    5
    """
    number = as_index(count, "sample", "count")
    most = len(data)
    if number < 0 or (number > most and (not replacement or most == 0)):
        raise ArgumentError("sample", "cannot draw so many", number, f"0 to {most}")
    if not replacement or number == 0:
        return Subset(data, _permutation(most, seed)[:number])
    draws = Generator(seed)
    drawn = integers(0, most, (number,), dtype="int64", device="cpu", generator=draws)
    return Subset(data, drawn.numpy())


def split(data: Any, *parts: float, seed: int = 0) -> list[Subset]:
    """Disjoint random parts, by their lengths or by their fractions of the whole.

    Lengths may leave samples over, fractions sum to 1 and leave none. Raises ``ArgumentError``
    otherwise.

    >>> [len(part) for part in split(range(10), 0.75, 0.25)]
    [8, 2]
    """
    ends = list(accumulate(_lengths(len(data), parts)))
    order = _permutation(len(data), seed)
    return [Subset(data, order[a:b]) for a, b in zip([0, *ends], ends, strict=False)]


def _lengths(length: int, parts: tuple[float, ...]) -> list[int]:
    if any(part < 0 for part in parts):
        raise ArgumentError("split", "a part is negative", parts)
    if all(isinstance(part, int) for part in parts):
        if sum(parts) > length:
            raise ArgumentError("split", "the parts are too long", parts, f"at most {length}")
        return [int(part) for part in parts]
    if not math.isclose(math.fsum(parts), 1.0, rel_tol=1e-9):
        raise ArgumentError("split", "the fractions do not sum to 1", parts)
    # Rounding the ends, not the lengths, leaves nothing over.
    ends = [math.floor(length * math.fsum(parts[: i + 1]) + 0.5) for i in range(len(parts))]
    return [b - a for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def _permutation(length: int, seed: int) -> Any:
    return permutation(length, device="cpu", generator=Generator(seed)).numpy()
