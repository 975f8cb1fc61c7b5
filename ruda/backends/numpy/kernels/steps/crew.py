"""A table of stages, and the threads that work through it together.

A stage is a list of tasks that do not wait for each other. Every thread goes through all stages:
it takes tasks while there are some, then waits until those of the others are done. A thread that
comes late finds nothing left, so nobody ever waits for one that has not begun. Counters say in
which run they count: one that has been kept from working since an earlier run takes nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from ruda.backends.numpy.kernels.compiler import Kernel, kernel
from ruda.backends.numpy.kernels.steps.atoms import add, load, perform, step_aside, store, swap
from ruda.backends.numpy.memory import address
from ruda.backends.numpy.pool import BLAS, POOL

# Bytes of the head and of a stage, and what lies where: counters that threads change while others
# read have cache lines of their own.
_HEAD, _STAGE, _ITEM = 256, 384, 24
_STAGES, _ITEMS, _YIELD, _STATUS = 0, 8, 16, 128
_START, _COUNT, _TAKEN, _DONE = 0, 8, 128, 256
# Tasks of a stage at most.
_RUN = 1 << 20
# Turns of waiting before the core is offered to others: some 50 us.
_PATIENCE = 1 << 13


@kernel("void(i8, i8)")
def open_run(table, number):
    """Set the counters for run ``number``, before any thread works on it."""
    store(table + _STATUS, 0)
    for i in range(load(table + _STAGES)):
        stage = table + _HEAD + i * _STAGE
        store(stage + _TAKEN, number * _RUN)
        store(stage + _DONE, number * _RUN)


@kernel("i8(i8, i8)")
def work(table, number):
    """Do what is left of run ``number``; gives 1 + the number of a task that failed, or 0."""
    items, give_way, base = load(table + _ITEMS), load(table + _YIELD), number * _RUN
    for i in range(load(table + _STAGES)):
        stage = table + _HEAD + i * _STAGE
        start, count = load(stage + _START), load(stage + _COUNT)
        while True:
            taken = load(stage + _TAKEN)
            own = taken - base
            if own < 0 or own >= count:
                break
            if not swap(stage + _TAKEN, taken, taken + 1):
                continue
            if load(table + _STATUS) == 0:
                item = items + (start + own) * _ITEM
                if perform(load(item), load(item + 8), load(item + 16)) != 0:
                    store(table + _STATUS, start + own + 1)
            add(stage + _DONE, 1)
        turns = 0
        while load(stage + _DONE) - base < count:
            turns += 1
            if turns > _PATIENCE and give_way != 0:
                step_aside(give_way)
    return load(table + _STATUS)


KERNELS: dict[str, Kernel] = {"open_run": open_run, "work": work}


class Item(NamedTuple):
    """One task: the address of its function, that of its cells, and its part."""

    function: int
    cells: int
    part: int


class Table:
    """Stages of tasks, ready to be run any number of times, by one caller at a time."""

    def __init__(self, stages: Sequence[Sequence[Item]]) -> None:
        self.work, self.opens = work.ready(), open_run.ready()
        self.items = np.array([i for stage in stages for i in stage], np.int64).reshape(-1, 3)
        self.memory = np.zeros(_HEAD + len(stages) * _STAGE + 64, np.uint8)
        self.address = address(self.memory)
        self.address += -self.address % 64
        self.numbers = count(1)
        self.helpers = min(POOL.threads, max(map(len, stages), default=1)) - 1
        head = self._words(0, _HEAD)
        head[[_STAGES // 8, _ITEMS // 8, _YIELD // 8]] = len(stages), address(self.items), _yield()
        start = 0
        for i, stage in enumerate(stages):
            self._words(_HEAD + i * _STAGE, _STAGE)[:2] = start, len(stage)
            start += len(stage)

    def _words(self, offset: int, size: int) -> Any:
        start = self.address - address(self.memory) + offset
        return self.memory[start : start + size].view(np.int64)

    def run(self) -> int:
        """Do all tasks; gives the number of one that failed, or -1."""
        number = next(self.numbers)
        self.opens(self.address, number)
        with BLAS:
            if self.helpers > 0:
                POOL.invite(_Part(self, number), self.helpers)
            return int(self.work(self.address, number)) - 1


class _Part:
    """What a thread of the pool does in a run."""

    __slots__ = ("number", "table")

    def __init__(self, table: Table, number: int) -> None:
        self.table = table
        self.number = number

    def work(self) -> None:
        self.table.work(self.table.address, self.number)


@cache
def _yield() -> int:
    """The address of ``sched_yield``, 0 where the system has none."""
    try:
        function = ctypes.CDLL(None).sched_yield
    except (AttributeError, OSError, TypeError):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0
