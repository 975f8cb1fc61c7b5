"""Batches in an order that follows from the seed and the epoch alone, resumable anywhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ruda.core.errors import ArgumentError, DTypeError, RudaError, ShapeError
from ruda.ops.create import asarray
from ruda.ops.generator import Generator
from ruda.ops.sampling import permutation
from ruda.tensor.tensor import RudaTensor, from_array


class SampleError(RudaError, RuntimeError):
    """A dataset that raised; the message names the index, the cause is chained."""


class DataLoader:
    """Iterates over ``dataset`` in batches; each ``iter`` is the next epoch.

    With ``shuffle`` epoch e is in the order of Generator(seed, e), whatever was drawn elsewhere.
    ``drop_last`` leaves out a last batch that is not full. Samples are joined by ``collate``;
    without one, a dataset's own ``batch`` method is used where it has one. Batches are on the CPU.
    ``state_dict`` in the middle of an epoch says where to go on. ``num_workers`` is 0 until loading
    beside the training loop exists, and anything else raises ``ArgumentError``.

    >>> from ruda.data import ArrayDataset
    >>> loader = DataLoader(ArrayDataset(np.arange(5)), batch_size=2)
    >>> [batch.tolist() for (batch,) in loader]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        *,
        seed: int = 0,
        drop_last: bool = False,
        collate: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
    ) -> None:
        if batch_size < 1:
            raise ArgumentError("DataLoader", "batch_size is too small", batch_size, "at least 1")
        if num_workers != 0:
            what, hint = "there are no workers yet", "num_workers=0"
            raise ArgumentError("DataLoader", what, f"num_workers={num_workers}", hint=hint)
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.collate = collate
        self.epoch = 0
        self.position = 0
        self._resumed = False

    def __len__(self) -> int:
        """How many batches an epoch has."""
        batches = len(self.dataset) / self.batch_size
        return math.floor(batches) if self.drop_last else math.ceil(batches)

    def __iter__(self) -> Iterator[Any]:
        if self.position and not self._resumed:
            # The epoch before was left in the middle: this is the next one.
            self.epoch, self.position = self.epoch + 1, 0
        self._resumed = False
        return self._batches(self.epoch, self.position)

    def _batches(self, epoch: int, start: int) -> Iterator[Any]:
        order = self._order(epoch)
        length = len(order) - (len(order) % self.batch_size if self.drop_last else 0)
        while start < length:
            indices = order[start : min(start + self.batch_size, length)]
            batch, start = self._batch(indices), start + len(indices)
            # Moved on before the batch is handed out: a state saved beside it is of the next one.
            self.epoch, self.position = (epoch, start) if start < length else (epoch + 1, 0)
            yield batch

    def _order(self, epoch: int) -> Any:
        length = len(self.dataset)
        if not self.shuffle:
            return np.arange(length)
        return permutation(length, device="cpu", generator=Generator(self.seed, epoch)).numpy()

    def _batch(self, indices: Any) -> Any:
        if self.collate is None and hasattr(self.dataset, "batch"):
            return self.dataset.batch(indices)
        samples = [self._sample(int(i)) for i in indices]
        return (self.collate or collate)(samples)

    def _sample(self, index: int) -> Any:
        try:
            return self.dataset[index]
        except Exception as error:
            what = f"dataset[{index}] raised {type(error).__name__}: {error}"
            raise SampleError("DataLoader", what) from error

    def state_dict(self) -> dict[str, int]:
        """Where the next batch comes from, in samples: a batch size may change in between."""
        length = len(self.dataset)
        state = {"seed": self.seed, "epoch": self.epoch, "position": self.position}
        return state | {"length": length}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Let the next ``iter`` go on from ``state_dict``; raises for another dataset's length."""
        if state["length"] != len(self.dataset):
            what = "the state is of a dataset of another length"
            raise ArgumentError("load_state_dict", what, state["length"], len(self.dataset))
        self.seed, self.epoch = int(state["seed"]), int(state["epoch"])
        self.position = int(state["position"])
        self._resumed = True


def collate(samples: Sequence[Any]) -> Any:
    """Join samples into a batch, structure by structure.

    Numbers and arrays become one tensor with a leading axis, as do CPU tensors; tuples, lists and
    mappings are joined part by part; strings and None stay a list.

    >>> collate([(1, {"x": 2.0}), (3, {"x": 4.0})])[0].tolist()
    [1, 3]
    """
    first = samples[0]
    if isinstance(first, Mapping):
        return {key: collate([_part(s, key, first) for s in samples]) for key in first}
    if isinstance(first, tuple | list):
        lengths = {len(s) for s in samples}
        if len(lengths) != 1:
            raise ShapeError("collate", "samples of different lengths", sorted(lengths))
        parts = [collate(part) for part in zip(*samples, strict=True)]
        named = hasattr(first, "_fields")
        return type(first)(*parts) if named else type(first)(parts)
    if first is None or isinstance(first, str | bytes):
        return list(samples)
    if isinstance(first, bool | int | float | complex) and not isinstance(first, np.generic):
        return asarray(list(samples), device="cpu")
    return _stacked(samples)


def _part(sample: Any, key: Any, first: Mapping[Any, Any]) -> Any:
    if key not in sample or len(sample) != len(first):
        got, expected = sorted(map(str, sample)), sorted(map(str, first))
        raise ArgumentError("collate", "samples with different keys", got, expected)
    return sample[key]


def _stacked(samples: Sequence[Any]) -> RudaTensor:
    arrays = [s.numpy() if isinstance(s, RudaTensor) else s for s in samples]
    for a in arrays:
        if not isinstance(a, np.ndarray | np.generic):
            hint = "a collate function of your own"
            raise DTypeError("collate", "cannot join", type(a).__name__, hint=hint)
    shapes = {np.shape(a) for a in arrays}
    if len(shapes) != 1:
        hint = "a collate function that pads"
        raise ShapeError("collate", "samples of different shapes", sorted(shapes), hint=hint)
    return from_array(np.stack(arrays), "cpu")
