"""Looking rows of a table up, and summing gradients back into the rows they came from."""

from __future__ import annotations

from typing import Any

import numpy as np

from ruda.core.dtypes import INTEGER
from ruda.core.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
from ruda.core.shapes import Shape, index
from ruda.core.spec import Spec
from ruda.ops.compare import equal
from ruda.ops.movement import expand_dims
from ruda.ops.rules import Specs
from ruda.ops.select import where
from ruda.ops.table import row
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor


def _check_indices(op: Any, indices: Spec) -> None:
    if not indices.dtype.is_integer:
        hint = 'input.astype("int64")'
        raise DTypeError(op.name, "indices are not integers", indices.dtype, "integers", hint)


def _looked_up(op: Any, specs: Specs, padding: int) -> Shape:
    weight, indices = specs
    _check_indices(op, indices)
    if not weight.shape:
        raise ShapeError(op.name, "the table has no rows", weight.shape, "[rows, ...]")
    return (*indices.shape, *weight.shape[1:])


def _summed_shape(op: Any, specs: Specs, rows: int, padding: int) -> Shape:
    dy, indices = specs
    _check_indices(op, indices)
    if dy.shape[: indices.ndim] != indices.shape:
        raise ShapeError(op.name, "gradient and indices differ", f"{dy.shape}, {indices.shape}")
    return (rows, *dy.shape[indices.ndim :])


def _lookup(weight: Any, indices: Any, padding: int) -> Any:
    # A Python integer comes as it is.
    indices = np.asarray(indices)
    bad = (indices < 0) | (indices >= len(weight))
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        got = f"{indices[place]} at {place}"
        raise IndexRangeError("embedding", "no such row", got, f"0 to {len(weight) - 1}")
    return weight[indices]


def _summed(dy: Any, indices: Any, rows: int, padding: int) -> Any:
    """Sort by row, then add up each run of equal rows: the order of addition is fixed."""
    indices = np.asarray(indices)
    flat = indices.reshape(-1)
    gradients = dy.reshape(flat.size, *dy.shape[indices.ndim :])
    out = np.zeros((rows, *gradients.shape[1:]), dy.dtype)
    if flat.size and out.size:
        order = np.argsort(flat, kind="stable")
        ordered = flat[order]
        starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        out[ordered[starts]] = np.add.reduceat(gradients[order], starts, axis=0)
    if padding >= 0:
        out[padding] = 0
    return out


_embedding = row(
    "index",
    "embedding",
    "weight indices",
    "padding",
    shape=_looked_up,
    takes={"indices": INTEGER},
    dtype=lambda op, specs, padding: ((None, None), specs[0].dtype),
    numpy=_lookup,
    vjp=(
        lambda g, indices, weight_spec, padding: _embedding_backward(
            g, indices, weight_spec.shape[0], padding
        ),
        None,
    ),
    exact=True,
    doc="Rows of ``weight [rows, ...]`` at ``indices``; no gradient for the row ``padding``.",
)


def _not_padded(g: RudaTensor, indices: RudaTensor, padding: int) -> RudaTensor:
    """The transpose of ``embedding_backward``: a lookup that finds zeros in the padding row."""
    found = _embedding(g, indices, padding)
    if padding < 0:
        return found
    trailing = tuple(range(indices.ndim, found.ndim))
    return where(expand_dims(equal(indices, padding), trailing), 0, found)


_embedding_backward = row(
    "index",
    "embedding_backward",
    "dy indices",
    "rows padding",
    shape=_summed_shape,
    takes={"indices": INTEGER},
    dtype=lambda op, specs, rows, padding: ((specs[0].dtype, None), specs[0].dtype),
    numpy=_summed,
    vjp=(lambda g, indices, padding: _not_padded(g, indices, padding), None),
    doc="Each gradient added to the row it came from; zero in the row ``padding``.",
)


@given_tensors
def embedding(input: RudaTensor, weight: RudaTensor, padding_idx: int | None = None) -> RudaTensor:
    """Rows of ``weight [rows, ...]`` at the integers ``input [*]``: ``[*, ...]``.

    The row ``padding_idx``, which may count from the end, gets no gradient. Raises
    ``IndexRangeError`` for an index outside of 0 to rows - 1, ``DTypeError`` unless ``input`` is
    of integers.

    >>> embedding(ruda.asarray([2, 0]), ruda.asarray([[1.0], [2.0], [3.0]])).tolist()
    [[3.0], [1.0]]
    """
    padding = -1
    if padding_idx is not None:
        rows = weight.shape[0] if weight.ndim else 0
        padding = index(padding_idx, "embedding", "padding_idx")
        if not -rows <= padding < rows:
            expected = f"-{rows} to {rows - 1}"
            raise ArgumentError("embedding", "padding_idx is no row", padding_idx, expected)
        padding %= rows
    return _embedding(weight, input, padding)
