"""Threads that make batches ahead of the training loop, and always end."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import islice
from queue import SimpleQueue
from typing import Any, Protocol

from ruda.data.batch import Job

# How long to wait for threads in the middle of a sample; they end right after that sample anyway.
PATIENCE = 2.0

_Queue = SimpleQueue[tuple[Future[Any], Job] | None]


class Maker(Protocol):
    """Makes batches in one thread; ``close`` is called once, from another thread."""

    def __call__(self, job: Job, stopped: Callable[[], bool]) -> Any: ...

    def close(self) -> None: ...


class Workers:
    """One thread for each maker; jobs are taken in the order they came.

    The threads do not hold this object, so that dropping it lets ``close`` run. They are daemons
    that are closed at exit: the interpreter waits for other threads before it runs exit handlers,
    and would wait for a sample that never returns.
    """

    def __init__(self, makers: Sequence[Maker]) -> None:
        self._makers = makers
        self._jobs: _Queue = SimpleQueue()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(
                target=_serve,
                args=(self._jobs, self._stop, make),
                name=f"ruda-data-{number}",
                daemon=True,
            )
            for number, make in enumerate(makers)
        ]
        _LIVE.add(self)
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:
            self.close()
            raise

    def submit(self, job: Job) -> Future[Any]:
        """The batch of ``job``, later."""
        future: Future[Any] = Future()
        self._jobs.put((future, job))
        return future

    def close(self) -> None:
        """End threads and processes; what was not delivered is dropped. Repeating it is free."""
        if self._stop.is_set():
            return
        self._stop.set()
        for _ in self._threads:
            self._jobs.put(None)
        for make in self._makers:
            make.close()
        deadline = time.monotonic() + PATIENCE
        for thread in self._threads:
            # The garbage collector may run this in one of the threads.
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(max(deadline - time.monotonic(), 0))


_LIVE: weakref.WeakSet[Workers] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for workers in list(_LIVE):
        workers.close()


def _serve(jobs: _Queue, stop: threading.Event, make: Maker) -> None:
    while (item := jobs.get()) is not None and not stop.is_set():
        future, job = item
        try:
            future.set_result(make(job, stop.is_set))
        except BaseException as error:  # noqa: BLE001 - raised again by who waits for the batch
            future.set_exception(error)
        # A frame that waits for the next job must not keep the last batch.
        del item, future


class ThreadMaker:
    """A maker that works in the thread itself."""

    def __init__(self, make: Callable[[Job, Callable[[], bool]], Any]) -> None:
        self._make = make

    def __call__(self, job: Job, stopped: Callable[[], bool]) -> Any:
        return self._make(job, stopped)

    def close(self) -> None:
        """Nothing is held."""


def prefetched(
    makers: Sequence[Maker], jobs: Iterable[Job], ahead: int
) -> Iterator[tuple[Job, Any]]:
    """Jobs with their batches, in order, while at most ``ahead`` are made or wait for delivery."""
    workers, jobs = Workers(makers), iter(jobs)
    try:
        pending = deque((job, workers.submit(job)) for job in islice(jobs, ahead))
        while pending:
            job, future = pending.popleft()
            batch = future.result()
            pending.extend((job, workers.submit(job)) for job in islice(jobs, 1))
            del future
            yield job, batch
    finally:
        workers.close()
