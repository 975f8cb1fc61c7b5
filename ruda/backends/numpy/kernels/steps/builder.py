"""Collecting the tasks of a step, each in the first stage in which all that it reads is there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ruda.backends.numpy.kernels.compiler import Task
from ruda.backends.numpy.kernels.steps.crew import Item, Table
from ruda.backends.numpy.kernels.steps.places import Block, Place, lay_out
from ruda.backends.numpy.memory import address

Cell = int | float | Place


class Builder:
    """Tasks so far, by stage, and the cells that they read."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        # (stage, weight, task, first cell, part, who asked for it)
        self.tasks: list[tuple[int, float, Task, int, int, int]] = []
        self.cells: list[Cell] = []
        # The step that is being taken apart, for errors.
        self.owner = 0

    def block(self, size: int) -> Block:
        """``size`` bytes of the arena, for as long as tasks read them."""
        block = Block(size)
        self.blocks.append(block)
        return block

    def scratch(self, shape: Sequence[int], spec: Any) -> Place:
        """Room for float32 of ``shape`` between two tasks."""
        return Place(self.block(4 * math.prod(shape)), 0, spec)

    def add(
        self,
        task: Task,
        parts: int,
        cells: Sequence[Cell],
        writes: Iterable[Place],
        *,
        work: float = 0.0,
        also: Iterable[Place] = (),
    ) -> None:
        """``parts`` parts of a task that reads the places among its ``cells``, and ``also``.

        Of each stage the tasks with most ``work`` a part are begun first.
        """
        written = {id(place.block) for place in writes}
        met = [c for c in (*cells, *also) if isinstance(c, Place)]
        read = [place.block for place in met if id(place.block) not in written]
        stage = max((block.made for block in read), default=-1) + 1
        for place in writes:
            block = place.block
            block.made = max(block.made, stage)
        for block in [p.block for p in met]:
            block.last = max(block.last, stage)
        start = len(self.cells)
        self.cells += cells
        self.tasks += [(stage, work, task, start, i, self.owner) for i in range(parts)]


class Laid:
    """The table of a builder's tasks, and what has to be filled in before it runs."""

    def __init__(self, builder: Builder) -> None:
        self.size = lay_out(builder.blocks)
        cells = builder.cells
        self.cells = np.zeros(max(len(cells), 1), np.int64)
        numbers = self.cells.view(np.float64)
        found = []
        for i, cell in enumerate(cells):
            if isinstance(cell, Place):
                found.append((i, cell.block.slot, cell.block.offset + cell.offset))
            elif isinstance(cell, float):
                numbers[i] = cell
            else:
                self.cells[i] = cell
        self.places, self.slots, self.offsets = np.array(found, np.int64).reshape(-1, 3).T.copy()
        order = sorted(builder.tasks, key=lambda t: (t[0], -t[1]))
        self.owners = [owner for *_, owner in order]
        first = address(self.cells)
        stages: list[list[Item]] = [[] for _ in range(order[-1][0] + 1 if order else 0)]
        for stage, _, task, start, part, _ in order:
            stages[stage].append(Item(task.address, first + 8 * start, part))
        self.table = Table([s for s in stages if s])

    def run(self, bases: Any) -> int:
        """Run on these base addresses; gives the number of the step that failed, or -1."""
        self.cells[self.places] = bases[self.slots] + self.offsets
        failed = self.table.run()
        return -1 if failed < 0 else self.owners[failed]
