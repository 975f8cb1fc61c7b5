"""Optimizer steps of all parameters as one table of tasks, over the state where it lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ruda.backends.numpy.kernels import updates
from ruda.backends.numpy.kernels.compiler import Task, inline, task
from ruda.backends.numpy.kernels.steps.atoms import load, singles
from ruda.backends.numpy.kernels.steps.crew import Item, Table
from ruda.backends.numpy.memory import address

# Elements of a task, and numbers that a kernel gets beside its arrays, at most.
_PART, _CONSTANTS = 1 << 15, 8
# Cells of one parameter: its size, the addresses of its constants, gradient and state.
_CELLS, _NUMBERS, _GRADIENT, _STATE = 8, 1, 2, 3

_adamw, _momentum = inline(updates.adamw.function), inline(updates.momentum.function)


@inline
def _part(cells, place, part):
    """A part of the array whose address is at ``place``."""
    start = part * _PART
    return singles(load(cells + 8 * place) + 4 * start, min(_PART, load(cells) - start))


@task
def adamw(cells, part):
    p, g, m = _part(cells, 3, part), _part(cells, 2, part), _part(cells, 4, part)
    _adamw(p, g, m, _part(cells, 5, part), singles(load(cells + 8), _CONSTANTS))
    return 0


@task
def momentum(cells, part):
    p, g, b = _part(cells, 3, part), _part(cells, 2, part), _part(cells, 4, part)
    _momentum(p, g, b, singles(load(cells + 8), _CONSTANTS))
    return 0


TASKS: dict[str, Task] = {"adamw_step": adamw, "momentum_step": momentum}


class All:
    """The steps of one row, with state for good; ``run`` takes gradients and constants."""

    def __init__(self, name: str, state: Sequence[Sequence[Any]]) -> None:
        function = TASKS[name].address
        # The addresses in the cells are those of these arrays.
        self.state = state
        self.cells = np.zeros((len(state), _CELLS), np.int64)
        self.constants = np.zeros((len(state), _CONSTANTS), np.float32)
        items = []
        for i, arrays in enumerate(state):
            size, row = arrays[0].size, self.cells[i]
            row[0], row[_NUMBERS] = size, address(self.constants[i])
            row[_STATE : _STATE + len(arrays)] = [address(x) for x in arrays]
            parts = range(-(-size // _PART))
            items += [(min(size, _PART), Item(function, address(row), k)) for k in parts]
        # The largest first; which thread does which changes nothing.
        items.sort(key=lambda item: -item[0])
        self.table = Table([[item for _, item in items]])

    def run(self, gradients: Sequence[Any], constants: Sequence[Any]) -> None:
        """Step by flat row-major ``gradients``; ``constants`` has an array for each."""
        self.cells[:, _GRADIENT] = [address(g) for g in gradients]
        width = len(constants[0])
        self.constants[:, :width] = constants
        self.table.run()
