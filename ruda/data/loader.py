"""Batches in an order that follows from the seed and the epoch alone, resumable anywhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from ruda.core.errors import ArgumentError, IndexRangeError, ShapeError
from ruda.data.batch import BatchMaker, Job
from ruda.data.dataset import described
from ruda.data.errors import MissingExtraError
from ruda.data.processes import ProcessMaker, packed
from ruda.data.samplers import Sampler, SequentialSampler, ShuffleSampler
from ruda.data.workers import Maker, ThreadMaker, prefetched
from ruda.tensor.host import check_untraced


class DataLoader:
    """Iterates over ``dataset`` in batches; each ``iter`` is the next epoch.

    With ``shuffle`` epoch e is in the order of Generator(seed, e), whatever was drawn elsewhere;
    a ``sampler`` has an order of its own. ``drop_last`` leaves out a last batch that is not full.
    Samples are joined by ``collate``; without one, a dataset's own ``batch`` method is used where
    it has one. Batches are on the CPU. ``state_dict`` in the middle of an epoch says where to go
    on: with the first batch that was not handed out, however many were prefetched.

    ``num_workers`` threads make batches beside the loop, each up to ``prefetch`` ahead of it;
    with ``processes`` each thread leads a spawned process, for datasets that hold the
    interpreter's lock, and tensors come back through shared memory. Order, contents and draws from
    ``ruda.data.generator()`` do not depend on either. Workers end with the iterator.

    Raises ``SampleError`` where the dataset or ``collate`` raised, with the index, and
    ``WorkerError`` for a process that died.

    >>> from ruda.data import ArrayDataset
    >>> loader = DataLoader(ArrayDataset(np.arange(5)), batch_size=2, num_workers=2)
    >>> [batch.tolist() for (batch,) in loader]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        *,
        sampler: Sampler | None = None,
        seed: int = 0,
        drop_last: bool = False,
        collate: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        processes: bool = False,
        prefetch: int = 2,
    ) -> None:
        _check_counts(batch_size, num_workers, prefetch)
        _check_choices(shuffle, sampler, processes, num_workers)
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.sampler = sampler
        self.seed = seed
        self.drop_last = drop_last
        self.collate = collate
        self.num_workers = num_workers
        self.processes = processes
        self.prefetch = prefetch
        self.epoch = 0
        self.position = 0
        self._resumed = False

    def __repr__(self) -> str:
        order = f"shuffle={self.shuffle}" if self.sampler is None else f"sampler={self.sampler!r}"
        facts = f"batch_size={self.batch_size}, {order}, seed={self.seed}"
        place = f"epoch={self.epoch}, position={self.position}"
        return f"DataLoader({described(self.dataset)}, {facts}, {place})"

    def __len__(self) -> int:
        """How many batches an epoch has."""
        batches = len(self._sampler()) / self.batch_size
        return math.floor(batches) if self.drop_last else math.ceil(batches)

    def __iter__(self) -> Iterator[Any]:
        if self.position and not self._resumed:
            # The epoch before was left in the middle: this is the next one.
            self.epoch, self.position = self.epoch + 1, 0
        self._resumed = False
        return self._batches(self.epoch, self.position)

    def _batches(self, epoch: int, start: int) -> Iterator[Any]:
        check_untraced("DataLoader", "batches are loaded")
        order = self._order(epoch)
        length = len(order) - (len(order) % self.batch_size if self.drop_last else 0)
        with closing(self._made(self._jobs(epoch, order, start, length))) as made:
            for job, batch in made:
                # Moved on before the batch is handed out: a state saved beside it is of the next.
                done = job.stop >= length
                self.epoch, self.position = (epoch + 1, 0) if done else (epoch, job.stop)
                yield batch
                check_untraced("DataLoader", "batches are loaded")

    def _jobs(self, epoch: int, order: Any, start: int, length: int) -> Iterator[Job]:
        repeats = _repeats(order)
        for first in range(start, length, self.batch_size):
            stop = min(first + self.batch_size, length)
            yield Job(epoch, order[first:stop], repeats[first:stop], stop)

    def _made(self, jobs: Iterator[Job]) -> Any:
        make = BatchMaker(self.dataset, self.collate, self.seed)
        if self.num_workers == 0:
            return ((job, make(job)) for job in jobs)
        makers: Sequence[Maker]
        if self.processes:
            payload = packed(make)
            makers = [ProcessMaker(payload) for _ in range(self.num_workers)]
        else:
            makers = [ThreadMaker(make) for _ in range(self.num_workers)]
        return prefetched(makers, jobs, self.num_workers * self.prefetch)

    def _sampler(self) -> Sampler:
        if self.sampler is not None:
            return self.sampler
        kind = ShuffleSampler if self.shuffle else SequentialSampler
        return kind(len(self.dataset))

    def _order(self, epoch: int) -> Any:
        order = np.asarray(self._sampler().order(self.seed, epoch))
        if order.ndim != 1 or order.dtype.kind not in "iu" or len(order) != len(self._sampler()):
            expected = f"{len(self._sampler())} integers"
            raise ShapeError("DataLoader", "not an order", f"{order.dtype} {order.shape}", expected)
        if self.sampler is not None and len(order):
            low, high, length = int(order.min()), int(order.max()), len(self.dataset)
            if low < 0 or high >= length:
                what, got = "the sampler's indices leave the dataset", f"{low} to {high}"
                raise IndexRangeError("DataLoader", what, got, f"0 to {length - 1}")
        return order.astype(np.int64, copy=False)

    def state_dict(self) -> dict[str, int]:
        """Where the next batch comes from, in samples: a batch size may change in between."""
        length = len(self.dataset)
        state = {"seed": self.seed, "epoch": self.epoch, "position": self.position}
        return state | {"length": length}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Let the next ``iter`` go on from ``state_dict``; raises for another dataset's length."""
        if set(state) != {"seed", "epoch", "position", "length"}:
            raise ArgumentError("load_state_dict", "not a loader's state", sorted(map(str, state)))
        if state["length"] != len(self.dataset):
            what = "the state is of a dataset of another length"
            raise ArgumentError("load_state_dict", what, state["length"], len(self.dataset))
        if not 0 <= state["position"] <= len(self._sampler()):
            what, expected = "the position is outside of an epoch", f"0 to {len(self._sampler())}"
            raise ArgumentError("load_state_dict", what, state["position"], expected)
        self.seed, self.epoch = int(state["seed"]), int(state["epoch"])
        self.position = int(state["position"])
        self._resumed = True


def progress(loader: DataLoader, **options: Any) -> Any:
    """One epoch of ``loader`` with a bar of tqdm, which begins where a resumed epoch does.

    ``options`` are those of tqdm, such as ``desc`` and ``disable``. Raises ``MissingExtraError``
    without tqdm.
    """
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise MissingExtraError("progress", "tqdm") from error
    resumed = loader.position if loader._resumed else 0
    facts = {"initial": resumed // loader.batch_size, "total": len(loader), "unit": "batch"}
    # tqdm takes more than one iterator of what it is given, and each is an epoch.
    return tqdm(iter(loader), **(facts | options))


def _repeats(order: Any) -> Any:
    """For each index how often it came before."""
    ranks = np.argsort(order, kind="stable")
    ordered = order[ranks]
    begins = np.flatnonzero(np.diff(ordered, prepend=-1))
    sizes = np.diff(begins, append=len(order))
    out = np.empty(len(order), np.int64)
    out[ranks] = np.arange(len(order)) - np.repeat(begins, sizes)
    return out


def _check_counts(batch_size: int, num_workers: int, prefetch: int) -> None:
    for name, value, least in (
        ("batch_size", batch_size, 1),
        ("num_workers", num_workers, 0),
        ("prefetch", prefetch, 1),
    ):
        if value < least:
            raise ArgumentError("DataLoader", f"{name} is too small", value, f"at least {least}")


def _check_choices(shuffle: bool, sampler: Any, processes: bool, num_workers: int) -> None:
    if sampler is not None and not isinstance(sampler, Sampler):
        expected = "an object with len() and order(seed, epoch)"
        raise ArgumentError("DataLoader", "not a sampler", type(sampler).__name__, expected)
    if sampler is not None and shuffle:
        hint = "sampler alone"
        raise ArgumentError("DataLoader", "a sampler has an order of its own", "shuffle", hint=hint)
    if processes and num_workers == 0:
        got = "processes=True, num_workers=0"
        raise ArgumentError("DataLoader", "there are no workers", got, hint="num_workers=2")
