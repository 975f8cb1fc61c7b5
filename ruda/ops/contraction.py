"""In which order to multiply several operands pair by pair, from their labels and sizes alone.

The cost of a pair is the product of the lengths of all labels it holds. Up to six operands every
order is looked at, by dynamic programming over subsets (M. Pfeifer, J. Haegeman, F. Verstraete,
"Faster identification of optimal contraction sequences for tensor networks", 2014, without its
pruning); beyond that the pair that grows memory least goes first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

Label: TypeAlias = Any
Labels: TypeAlias = tuple[Label, ...]
Path: TypeAlias = tuple[tuple[int, int], ...]

_OPTIMAL_UP_TO = 6
_Tree: TypeAlias = Any


def contraction_path(
    terms: Sequence[Labels], out: Labels, sizes: Mapping[Label, int], order: str
) -> Path:
    """Pairs of places ``i < j`` in the list of operands: both are taken out, the product appended.

    ``order`` is ``"optimal"``, ``"greedy"``, ``"left"`` (as written) or ``"auto"``.

    >>> sizes = {"a": 10, "b": 2, "c": 10, "d": 2}
    >>> contraction_path([("a", "b"), ("b", "c"), ("c", "d")], ("a", "d"), sizes, "auto")
    ((1, 2), (0, 1))
    """
    count = len(terms)
    sets = [frozenset(term) for term in terms]
    if order == "left" or count < 3:
        return tuple((0, 1) if i == 0 else (0, count - i - 1) for i in range(count - 1))
    if order == "greedy" or (order == "auto" and count > _OPTIMAL_UP_TO):
        return _greedy(sets, frozenset(out), sizes)
    return _linear(_optimal(sets, frozenset(out), sizes), count)


def _size(labels: Iterable[Label], sizes: Mapping[Label, int]) -> int:
    return math.prod(sizes[label] for label in labels)


def _greedy(
    terms: Sequence[frozenset[Label]], out: frozenset[Label], sizes: Mapping[Label, int]
) -> Path:
    work, path = list(terms), []
    while len(work) > 1:
        best: Any = None
        pairs = [(i, j) for j in range(len(work)) for i in range(j)]
        for i, j in pairs:
            rest = out.union(*(t for k, t in enumerate(work) if k not in (i, j)))
            result = (work[i] | work[j]) & rest
            growth = _size(result, sizes) - _size(work[i], sizes) - _size(work[j], sizes)
            rank = (growth, _size(work[i] | work[j], sizes))
            if best is None or rank < best[0]:
                best = rank, (i, j), result
        _, (i, j), result = best
        del work[j], work[i]
        work.append(result)
        path.append((i, j))
    return tuple(path)


def _optimal(
    terms: Sequence[frozenset[Label]], out: frozenset[Label], sizes: Mapping[Label, int]
) -> _Tree:
    """The cheapest tree of pairs: for each subset of operands, a bit mask, its cheapest halves."""
    everything = (1 << len(terms)) - 1
    held = [_held(subset, terms, out) for subset in range(everything + 1)]
    best: dict[int, tuple[int, _Tree]] = {1 << i: (0, i) for i in range(len(terms))}
    for subset in range(1, everything + 1):
        part = (subset - 1) & subset
        while part > subset ^ part:
            rest = subset ^ part
            cost = best[part][0] + best[rest][0] + _size(held[part] | held[rest], sizes)
            if subset not in best or cost < best[subset][0]:
                best[subset] = cost, (best[rest][1], best[part][1])
            part = (part - 1) & subset
    return best[everything][1]


def _held(
    subset: int, terms: Sequence[frozenset[Label]], out: frozenset[Label]
) -> frozenset[Label]:
    """The labels of the product of ``subset`` that others, or the result, still need."""
    inside = [t for i, t in enumerate(terms) if subset >> i & 1]
    outside = [t for i, t in enumerate(terms) if not subset >> i & 1]
    return frozenset().union(*inside) & out.union(*outside)


def _linear(tree: _Tree, count: int) -> Path:
    """A tree of pairs as places in a list that shrinks."""
    work: list[_Tree] = list(range(count))
    path = []

    def visit(node: _Tree) -> None:
        if node.__class__ is int:
            return
        first, second = node
        visit(first)
        visit(second)
        i, j = sorted((work.index(first), work.index(second)))
        del work[j], work[i]
        work.append(node)
        path.append((i, j))

    visit(tree)
    return tuple(path)
