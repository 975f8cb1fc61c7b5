"""One pool of Python threads for the whole process, and BLAS on one thread inside of its tasks.

A second pool beside it would compete for the same cores: BLAS threads spin for a while after their
last product. So what runs here is NumPy, BLAS on one thread, and kernels that give up the
interpreter lock; the caller takes part and is never kept waiting by a thread that has not begun.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from ctypes import c_int
from functools import cache
from itertools import pairwise, product
from queue import SimpleQueue
from typing import Any

# Handing a task to a thread costs some 20 us. Tiles depend on the size alone, never on the number
# of threads: sums over tiles must not either.
TILE = 1 << 18


def tiles(size: int, step: int = TILE) -> list[slice]:
    """``range(size)`` in slices of ``step``; the last one is shorter, or up to half longer."""
    count = max((size + step // 2) // step, 1)
    edges = [i * step for i in range(count)] + [size]
    return [slice(a, b) for a, b in pairwise(edges)]


class _Job:
    """Calls of one function with 0 to ``count - 1``, taken one by one by whoever is free."""

    def __init__(self, function: Callable[[int], object], count: int) -> None:
        self.function = function
        self.numbers = iter(range(count))
        self.left = count
        self.error: BaseException | None = None
        self.lock = threading.Lock()
        self.done = threading.Event()

    def work(self) -> None:
        # An iterator over a range hands out each number once, whatever the number of threads.
        for number in self.numbers:
            try:
                if self.error is None:
                    self.function(number)
            except BaseException as error:  # noqa: BLE001 - raised again by the caller
                self.error = error
            with self.lock:
                self.left -= 1
                if self.left == 0:
                    self.done.set()


class Pool:
    """Threads that are started by the first job which has work for them."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[Any] = SimpleQueue()
        self.helpers = 0
        self.lock = threading.Lock()

    @property
    def threads(self) -> int:
        """How many threads a job can have, the caller among them: one for each usable core."""
        return _cores()

    def run(self, function: Callable[[int], object], count: int) -> None:
        """Call ``function(i)`` for each i below ``count``; raises the first error of a call."""
        if count == 1:
            function(0)
            return
        helpers = min(self.threads, count) - 1
        if helpers <= 0:
            for number in range(count):
                function(number)
            return
        job = _Job(function, count)
        self.invite(job, helpers)
        job.work()
        job.done.wait()
        if job.error is not None:
            raise job.error

    def invite(self, job: Any, helpers: int) -> None:
        """Have ``helpers`` threads call ``job.work()`` when they come to it, beside the caller."""
        self._start(helpers)
        for _ in range(helpers):
            self.jobs.put(job)

    def _start(self, wanted: int) -> None:
        if self.helpers >= wanted:
            return
        with self.lock:
            while self.helpers < wanted:
                self.helpers += 1
                name = f"ruda-{self.helpers}"
                threading.Thread(target=self._help, name=name, daemon=True).start()

    def _help(self) -> None:
        while True:
            self.jobs.get().work()


@cache
def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


POOL = Pool()


def _forget_threads() -> None:
    """A forked child has none of its parent's threads, nor can it trust the locks they held."""
    POOL.__init__()  # type: ignore[misc]
    BLAS.__init__()  # type: ignore[misc]


class _Blas:
    """As a context: NumPy's BLAS runs on one thread while anybody is inside.

    Where threadpoolctl, which finds the library, is absent or finds another one than OpenBLAS,
    nothing changes. The library's functions are called directly: threadpoolctl lets none but the
    first thread set the number.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.before = 1
        self.functions: tuple[Any, Any] | None = None
        self.searched = False

    def __enter__(self) -> None:
        with self.lock:
            if not self.searched:
                self.functions, self.searched = _blas_threads(), True
            self.inside += 1
            if self.inside == 1 and self.functions is not None:
                get, put = self.functions
                self.before = get()
                put(1)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0 and self.functions is not None:
                self.functions[1](self.before)


def numpys_blas() -> list[Any]:
    """The OpenBLAS that serves np.matmul, if threadpoolctl is there and finds it."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return []
    loaded = ThreadpoolController().lib_controllers
    # SciPy brings a second copy.
    return [x.dynlib for x in loaded if x.internal_api == "openblas" and "numpy" in x.filepath]


def _blas_threads() -> tuple[Any, Any] | None:
    """The functions that read and set the number of threads of the BLAS that NumPy calls."""
    for library, prefix, suffix in product(numpys_blas(), ("", "scipy_"), ("", "64_", "_64")):
        names = [f"{prefix}openblas_{verb}_num_threads{suffix}" for verb in ("get", "set")]
        get, put = (getattr(library, name, None) for name in names)
        if get is not None and put is not None:
            get.restype, put.argtypes = c_int, [c_int]
            return get, put
    return None


BLAS = _Blas()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
