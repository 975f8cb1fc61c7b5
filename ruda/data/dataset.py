"""Where samples come from: anything with a length and an index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ruda.core.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
from ruda.core.shapes import index as as_index
from ruda.tensor.tensor import RudaTensor, from_array


@runtime_checkable
class Dataset(Protocol):
    """What ``DataLoader`` needs: ``len(dataset)`` and ``dataset[i]``, one sample.

    A dataset that can make a whole batch at once, faster than by samples, also has
    ``batch(indices)``, which takes an int64 ndarray. Workers read one dataset in several threads
    at a time, or a pickled copy of it in each process.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def described(data: Any) -> str:
    """A dataset in a line: in its own words if it is ruda's, else by class and length."""
    own = type(data).__module__.startswith("ruda.data.")
    return repr(data) if own else f"{type(data).__name__} of {len(data):,}"


class ArrayDataset:
    """Arrays and CPU tensors of one length; sample i is the tuple of their rows i.

    Rows are tensors. Raises ``ShapeError`` for different lengths.

    >>> data = ArrayDataset(np.arange(6.0).reshape(3, 2), np.array([0, 1, 0]))
    >>> len(data), data[1][0].tolist()
    (3, [2.0, 3.0])
    """

    def __init__(self, *arrays: Any) -> None:
        if not arrays:
            raise ArgumentError("ArrayDataset", "there are no arrays")
        self.arrays = tuple(_array(a) for a in arrays)
        lengths = [len(a) for a in self.arrays]
        if len(set(lengths)) != 1:
            raise ShapeError("ArrayDataset", "the lengths differ", lengths)

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, index: int) -> tuple[RudaTensor, ...]:
        # Copies: whoever changes a sample in place does not mean the data.
        return tuple(from_array(np.array(a[index]), "cpu") for a in self.arrays)

    def __repr__(self) -> str:
        arrays = ", ".join(f"{a.dtype}{list(a.shape)}" for a in self.arrays)
        return f"{type(self).__name__}({arrays})"

    def batch(self, indices: Sequence[int]) -> tuple[RudaTensor, ...]:
        """The rows ``indices`` of each array, stacked."""
        return tuple(from_array(a[indices], "cpu") for a in self.arrays)


class TensorDataset(ArrayDataset):
    """``ArrayDataset`` by the name that PyTorch gave it."""


def place(index: Any, length: int, op: str) -> int:
    """``index`` counted from the beginning; raises ``IndexRangeError`` outside of the dataset."""
    number = as_index(index, op, "index")
    if not -length <= number < length:
        raise IndexRangeError(
            op, "the index leaves the dataset", number, f"{-length} to {length - 1}"
        )
    return number + length if number < 0 else number


def _array(value: Any) -> Any:
    if isinstance(value, RudaTensor):
        value = value.numpy()
    if not isinstance(value, np.ndarray):
        hint = "numpy.asarray"
        raise DTypeError("ArrayDataset", "not an array or tensor", type(value).__name__, hint=hint)
    if value.ndim == 0:
        raise ShapeError("ArrayDataset", "a 0-d array has no rows", value.shape)
    return value
