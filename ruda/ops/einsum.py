"""Sums of products in Einstein's notation, lowered to diagonals, sums, matrix products.

A call is read once per pattern and shapes: the labels of each operand, and the order of the
pairwise contractions. Labels are letters, integers (interleaved form), or ``("...", i)`` for axis
``i``, counted from the right, of those an ellipsis stands for.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from ruda.core.shapes import Shape
from ruda.ops.contraction import Label, Labels, Path, contraction_path
from ruda.ops.matmul import matmul
from ruda.ops.movement import expand_dims, permute_dims, reshape, squeeze
from ruda.ops.reduce import sum as _sum
from ruda.ops.strides import diagonal_view
from ruda.ops.table import composite
from ruda.tensor.tensor import RudaTensor

_ELLIPSIS = "..."
_ORDERS = ("auto", "optimal", "greedy", "left")


class _Program(NamedTuple):
    """What a pattern means for given shapes; ``kept`` are the labels left of each term at first."""

    terms: tuple[Labels, ...]
    kept: tuple[Labels, ...]
    out: Labels
    sizes: Mapping[Label, int]
    path: Path


@composite
def einsum(subscripts: Any, /, *operands: Any, optimize: str = "auto") -> RudaTensor:
    """Sum of products of ``operands`` over the labels that ``subscripts`` leaves out of the result.

    ``"ij,jk->ik"`` names the axes of each operand by letters. A label repeated in one operand takes
    its diagonal; ``...`` stands for further axes, which broadcast; without ``->`` the result has
    the ellipsis and then, in order, the labels that appear once. The interleaved form gives
    operands and sequences of integers (or ``...``) in turns: ``einsum(x, [0, 1], y, [1, 2])``.
    Axes of length 1 broadcast. Dtypes are promoted, and integers stay as narrow as they are.

    ``optimize`` orders the products: ``"optimal"`` (least multiplications), ``"greedy"`` (least
    memory at each step), ``"left"`` (as written) or ``"auto"`` (optimal up to six operands). Raises
    ``ArgumentError`` for a pattern that does not parse and ``ShapeError`` where lengths differ.

    >>> einsum("ij,j->i", ruda.asarray([[1, 2], [3, 4]]), ruda.asarray([1, 10])).tolist()
    [21, 43]
    """
    if optimize not in _ORDERS:
        raise ArgumentError("einsum", "unknown optimize", repr(optimize), f"one of {_ORDERS}")
    inputs: Any
    if isinstance(subscripts, str):
        inputs, pattern = list(operands), _parsed(subscripts)
    else:
        inputs, pattern = _interleaved((subscripts, *operands))
    for x in inputs:
        if x.__class__ is not RudaTensor:
            raise DTypeError("einsum", "an operand is not a tensor", type(x).__name__)
    terms, out = pattern
    program = _program(terms, out, tuple(x.shape for x in inputs), optimize)
    return _run(program, inputs)


@functools.lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple[tuple[Labels, ...], Labels | None]:
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = tuple(_letters(term, text) for term in left.split(","))
    return terms, _letters(right, text) if arrow else None


def _letters(term: str, text: str) -> Labels:
    """The labels of one term; the ellipsis stays one label for now."""
    before, dots, after = term.partition(_ELLIPSIS)
    for letter in before + after:
        if not (letter.isascii() and letter.isalpha()):
            expected = 'letters, commas, "..." once per operand and one "->"'
            raise ArgumentError("einsum", f"cannot read {letter!r} in {text!r}", term, expected)
    return (*before, *((_ELLIPSIS,) if dots else ()), *after)


def _interleaved(arguments: Sequence[Any]) -> tuple[list[Any], Any]:
    count = len(arguments) // 2
    inputs = list(arguments[: 2 * count : 2])
    terms = tuple(_integers(term) for term in arguments[1 : 2 * count : 2])
    return inputs, (terms, _integers(arguments[-1]) if len(arguments) % 2 else None)


def _integers(term: Any) -> Labels:
    if isinstance(term, str) or not isinstance(term, Sequence):
        expected = "a pattern first, or operands and sequences of labels in turns"
        raise ArgumentError("einsum", "not a sequence of labels", repr(term)[:60], expected)
    labels = tuple(_ELLIPSIS if label is Ellipsis else label for label in term)
    for label in labels:
        if label != _ELLIPSIS and (label.__class__ is not int or label < 0):
            raise ArgumentError("einsum", "not a label", repr(label), "integers from 0, or ...")
    if labels.count(_ELLIPSIS) > 1:
        raise ArgumentError("einsum", "an operand has two ellipses", term)
    return labels


@functools.lru_cache(maxsize=4096)
def _program(
    terms: tuple[Labels, ...], out: Labels | None, shapes: tuple[Shape, ...], optimize: str
) -> _Program:
    if len(terms) != len(shapes):
        got, expected = f"{len(shapes)} operands", f"{len(terms)}, one for each term"
        raise ArgumentError("einsum", "operands and terms do not pair up", got, expected)
    full = tuple(_spelled(t, s) for t, s in zip(terms, shapes, strict=True))
    sizes = _sizes(full, shapes)
    dots = sorted((label for label in sizes if label.__class__ is tuple), reverse=True)
    result = _implicit(full, dots) if out is None else _explicit(out, full, dots)
    kept = tuple(_kept(t, s, sizes) for t, s in zip(full, shapes, strict=True))
    return _Program(full, kept, result, sizes, contraction_path(kept, result, sizes, optimize))


def _spelled(term: Labels, shape: Shape) -> Labels:
    """``term`` with one label per axis of ``shape``."""
    hidden = len(shape) - len(term) + 1 if _ELLIPSIS in term else 0
    named = len(term) - (_ELLIPSIS in term)
    if named + hidden != len(shape) or hidden < 0:
        expected = f"{named} axes" + (" or more" if _ELLIPSIS in term else "")
        raise ShapeError("einsum", f"{_text(term)!r} does not fit an operand", shape, expected)
    if _ELLIPSIS not in term:
        return term
    at = term.index(_ELLIPSIS)
    axes = tuple((_ELLIPSIS, i) for i in reversed(range(hidden)))
    return (*term[:at], *axes, *term[at + 1 :])


def _text(labels: Labels) -> str:
    return "".join(label if isinstance(label, str) else f"[{label}]" for label in labels)


def _sizes(terms: Sequence[Labels], shapes: Sequence[Shape]) -> dict[Label, int]:
    sizes: dict[Label, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, size in zip(term, shape, strict=True):
            known = sizes.get(label, 1)
            if known != 1 and size not in (1, known):
                got = f"{known} and {size} in {' and '.join(map(str, shapes))}"
                what = f"the lengths of {_text((label,))!r} differ"
                raise ShapeError("einsum", what, got, "equal lengths, or 1")
            sizes[label] = size if known == 1 else known
    return sizes


def _kept(term: Labels, shape: Shape, sizes: Mapping[Label, int]) -> Labels:
    """The different labels of an operand; an axis of length 1 that broadcasts says nothing."""
    pairs = zip(term, shape, strict=True)
    return tuple(dict.fromkeys(label for label, n in pairs if n == sizes[label]))


def _implicit(terms: Sequence[Labels], dots: list[Any]) -> Labels:
    named = [label for term in terms for label in term if label.__class__ is not tuple]
    return (*dots, *sorted(label for label in named if named.count(label) == 1))


def _explicit(out: Labels, terms: Sequence[Labels], dots: list[Any]) -> Labels:
    if dots and _ELLIPSIS not in out:
        expected = '"..." in the result, or none in the operands'
        raise ArgumentError("einsum", "the ellipsis is missing", _text(out), expected)
    labels: list[Any] = []
    for label in out:
        labels += dots if label == _ELLIPSIS else [label]
    if len(set(labels)) != len(labels):
        raise ArgumentError("einsum", "a label is twice in the result", _text(out))
    known = {label for term in terms for label in term}
    unknown = [label for label in labels if label not in known]
    if unknown:
        raise ArgumentError(
            "einsum", "the result has a label that no operand has", _text(tuple(unknown))
        )
    return tuple(labels)


def _run(program: _Program, inputs: Sequence[RudaTensor]) -> RudaTensor:
    terms, kept, out, sizes, path = program
    work = []
    for i, (x, term) in enumerate(zip(inputs, terms, strict=True)):
        others = {label for j, t in enumerate(kept) if j != i for label in t}
        work.append(_prepared(x, term, others | set(out), sizes))
    for i, j in path:
        second, first = work.pop(j), work.pop(i)
        needed = set(out).union(*(labels for _, labels in work))
        if not work and _starts_with_second(out, first[1], second[1]):
            first, second = second, first
        work.append(_pair(*first, *second, needed))
    ((x, labels),) = work
    return _permuted(x, labels, out)


def _prepared(
    x: RudaTensor, term: Labels, needed: set[Label], sizes: Mapping[Label, int]
) -> tuple[RudaTensor, Labels]:
    """``x`` without axes that broadcast, repeated labels, or labels that nothing else needs."""
    alone = tuple(i for i, n in enumerate(x.shape) if n != sizes[term[i]])
    labels = [label for i, label in enumerate(term) if i not in alone]
    x = squeeze(x, alone) if alone else x
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            i = labels.index(label)
            j = labels.index(label, i + 1)
            x = diagonal_view(x, 0, i, j)
            labels = [*(a for k, a in enumerate(labels) if k not in (i, j)), label]
    summed = tuple(i for i, label in enumerate(labels) if label not in needed)
    if summed:
        x = _sum(x, axis=summed, dtype=x.dtype)
    return x, tuple(label for label in labels if label in needed)


def _starts_with_second(out: Labels, first: Labels, second: Labels) -> bool:
    """Whether the first label of the result that only one operand has is the second's."""
    alone = [label for label in out if (label in first) != (label in second)]
    return bool(alone) and alone[0] in second


def _permuted(x: RudaTensor, labels: Labels, wanted: Labels) -> RudaTensor:
    if labels == wanted:
        return x
    return permute_dims(x, [labels.index(label) for label in wanted])


def _pair(
    x: RudaTensor, x_labels: Labels, y: RudaTensor, y_labels: Labels, needed: set[Label]
) -> tuple[RudaTensor, Labels]:
    """The product of two operands, summed over the labels that nothing else needs."""
    both = [label for label in x_labels if label in y_labels]
    batch = tuple(label for label in both if label in needed)
    x_free = tuple(label for label in x_labels if label not in y_labels)
    y_free = tuple(label for label in y_labels if label not in x_labels)
    # The larger operand keeps the order of its axes, and so may need no copy.
    order = x_labels if x.size >= y.size else y_labels
    inner = tuple(label for label in order if label in both and label not in needed)
    x = _permuted(x, x_labels, (*batch, *x_free, *inner))
    y = _permuted(y, y_labels, (*batch, *inner, *y_free))
    b, m, n = len(batch), len(x_free), len(y_free)
    labels = (*batch, *x_free, *y_free)
    if not inner:
        x = expand_dims(x, tuple(range(b + m, b + m + n))) if n else x
        y = expand_dims(y, tuple(range(b, b + m))) if m else y
        return x * y, labels
    shape = x.shape[: b + m] + y.shape[b + len(inner) :]
    k = math.prod(y.shape[b : b + len(inner)])
    left = _as_matrices(x, b, math.prod(x.shape[b : b + m]), k)
    right = _as_matrices(y, b, k, math.prod(y.shape[b + len(inner) :]))
    return _reshaped(matmul(left, right), shape), labels


def _as_matrices(x: RudaTensor, batch: int, m: int, n: int) -> RudaTensor:
    return _reshaped(x, (*x.shape[:batch], m, n))


def _reshaped(x: RudaTensor, shape: Shape) -> RudaTensor:
    return x if x.shape == shape else reshape(x, shape)
