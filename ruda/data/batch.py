"""Making one batch: the same work in the training loop, in a thread and in a process."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from typing import Any, NamedTuple

from ruda.data import draws
from ruda.data.collate import collate
from ruda.data.errors import SampleError

# One label more than any sample has: the stream of a whole batch is apart from all of theirs.
_WHOLE = 0


class Job(NamedTuple):
    """A batch to make: its samples, and for each how often the epoch had it before."""

    epoch: int
    indices: Any
    repeats: Any
    stop: int


class Stopped(Exception):
    """Nobody waits for this batch any longer."""


def _never() -> bool:
    return False


class BatchMaker:
    """Makes the batch of a ``Job`` from a dataset, in a context of its own.

    The caller's modes (autocast, ``no_grad``, a trace) do not reach the samples: they would depend
    on the number of workers otherwise.
    """

    def __init__(self, dataset: Any, join: Callable[[list[Any]], Any] | None, seed: int) -> None:
        self.dataset = dataset
        self.join = join
        self.seed = seed

    def __call__(self, job: Job, stopped: Callable[[], bool] = _never) -> Any:
        return Context().run(self._made, job, stopped)

    def _made(self, job: Job, stopped: Callable[[], bool]) -> Any:
        if self.join is None and hasattr(self.dataset, "batch"):
            return self._whole(job, "dataset.batch", self.dataset.batch, job.indices)
        samples = []
        for index, repeat in zip(job.indices.tolist(), job.repeats.tolist(), strict=True):
            if stopped():
                raise Stopped
            samples.append(self._sample(job.epoch, index, repeat))
        return self._whole(job, "collate", self.join or collate, samples)

    def _sample(self, epoch: int, index: int, repeat: int) -> Any:
        draws.enter(self.seed, epoch, index, *([repeat] if repeat else []))
        try:
            return self.dataset[index]
        except Exception as error:
            what = f"dataset[{index}] raised {type(error).__name__}: {error}"
            raise SampleError("DataLoader", what, index) from error

    def _whole(self, job: Job, name: str, join: Callable[[Any], Any], samples: Any) -> Any:
        first, repeat = int(job.indices[0]), int(job.repeats[0])
        draws.enter(self.seed, job.epoch, first, repeat, _WHOLE)
        try:
            return join(samples)
        except Exception as error:
            what = f"{name} of samples {listed(job.indices)} raised {type(error).__name__}: {error}"
            raise SampleError("DataLoader", what) from error


def listed(indices: Any) -> str:
    """Indices for a message: all of a few, else the first ones."""
    few = ", ".join(map(str, indices[:8].tolist()))
    return f"[{few}]" if len(indices) <= 8 else f"[{few}, … {len(indices)} in all]"
