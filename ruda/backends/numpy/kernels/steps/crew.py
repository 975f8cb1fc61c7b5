"""A table of stages, and the threads that work through it together.

A stage is a list of tasks that do not wait for each other. Every thread goes through all stages:
it takes tasks while there are some, then waits until those of the others are done. A thread that
comes late finds nothing left, so nobody ever waits for one that has not begun. Counters say in
which run they count: one that has been kept from working since an earlier run takes nothing.

A helper that is done looks at a notice for a while before it goes to sleep: waking up takes some
50 us, and what follows a step of 1 ms is mostly the next one.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Sequence
from functools import cache
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from ruda.backends.numpy.kernels.compiler import Kernel, inline, kernel
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
# The notice: the run that was announced last, and how many helpers look at it.
_TABLE, _NUMBER, _PRESENT, _NOTICE = 0, 8, 128, 256
# Looks of a helper that finds nothing new, before it goes to sleep: some 0.3 ms; and those before
# it offers its core to others.
_LINGER, _LOOKS = 1 << 17, 1 << 8


@inline
def _attempt(table, items, index):
    """Do a task unless one has failed; should this one fail, the table says so."""
    if load(table + _STATUS) == 0:
        item = items + index * _ITEM
        if perform(load(item), load(item + 8), load(item + 16)) != 0:
            store(table + _STATUS, index + 1)


@inline
def _work(table, number):
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
            _attempt(table, items, start + own)
            add(stage + _DONE, 1)
        turns = 0
        # Memory of a table is another table's when its own is gone, with later numbers.
        while 0 <= load(stage + _DONE) - base < count:
            turns += 1
            if turns > _PATIENCE and give_way != 0:
                step_aside(give_way)
    return load(table + _STATUS)


@kernel("i8(i8, i8)")
def work(table, number):
    """As a kernel."""
    return _work(table, number)


@kernel("i8(i8, i8, i8)")
def announce(table, number, notice):
    """Set the counters for run ``number`` and tell all who look; gives how many these are."""
    store(table + _STATUS, 0)
    for i in range(load(table + _STAGES)):
        stage = table + _HEAD + i * _STAGE
        store(stage + _TAKEN, number * _RUN)
        store(stage + _DONE, number * _RUN)
    store(notice + _TABLE, table)
    store(notice + _NUMBER, number)
    return load(notice + _PRESENT)


@kernel("void(i8, i8, i8)")
def help_on(notice, number, give_way):
    """Work on the runs that are announced, until none is for a while; ``number``: the last seen."""
    add(notice + _PRESENT, 1)
    idle = 0
    while idle < _LINGER:
        found = load(notice + _NUMBER)
        if found == number:
            idle += 1
            if give_way != 0 and idle % _LOOKS == 0:
                step_aside(give_way)
            continue
        # A table and a number that do not belong together have no tasks to take.
        _work(load(notice + _TABLE), found)
        number, idle = found, 0
    add(notice + _PRESENT, -1)


KERNELS: dict[str, Kernel] = {"announce": announce, "help_on": help_on, "work": work}


class Item(NamedTuple):
    """One task: the address of its function, that of its cells, and its part."""

    function: int
    cells: int
    part: int


_NUMBERS = count(1)


class _Memory:
    """Memory that threads may look at when its owner is gone: it is used again, never freed."""

    def __init__(self) -> None:
        self.free: dict[int, list[Any]] = {}

    def take(self, size: int) -> Any:
        """An array of ``size`` bytes and an aligned line more."""
        size = 1 << (size + 64).bit_length()
        free = self.free.setdefault(size, [])
        return free.pop() if free else np.zeros(size, np.uint8)

    def give(self, array: Any) -> None:
        """Take an array back, without any tasks: a helper may be late.

        Old counters beside new numbers of tasks would look like tasks that nobody has taken.
        """
        array[:] = 0
        self.free[array.size].append(array)


_MEMORY = _Memory()


def _aligned(array: Any) -> int:
    start = address(array)
    return start + -start % 64


class Table:
    """Stages of tasks, ready to be run any number of times, by one caller at a time."""

    def __init__(self, stages: Sequence[Sequence[Item]]) -> None:
        self.work, self.announce = work.ready(), announce.ready()
        help_on.ready()
        self.items = np.array([i for stage in stages for i in stage], np.int64).reshape(-1, 3)
        self.memory = _MEMORY.take(_HEAD + len(stages) * _STAGE)
        weakref.finalize(self, _MEMORY.give, self.memory)
        self.address = _aligned(self.memory)
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
        number = next(_NUMBERS)
        with BLAS:
            missing = self.helpers - self.announce(self.address, number, _BOARD.address)
            if missing > 0:
                POOL.invite(_BOARD, missing)
            return int(self.work(self.address, number)) - 1


class _Board:
    """Where runs are announced, and what a thread of the pool does when it is woken for one."""

    def __init__(self) -> None:
        self.memory = np.zeros(_NOTICE + 64, np.uint8)
        self.address = _aligned(self.memory)

    def work(self) -> None:
        """Look for runs until there is none for a while."""
        help_on.ready()(self.address, 0, _yield())


_BOARD = _Board()


def _forget_helpers() -> None:
    """A forked child has none of those that looked at the notice."""
    _BOARD.memory[:] = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_helpers)


@cache
def _yield() -> int:
    """The address of ``sched_yield``, 0 where the system has none."""
    try:
        function = ctypes.CDLL(None).sched_yield
    except (AttributeError, OSError, TypeError):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0
