"""Rows of benchmarks: `python -m benchmarks ROW...` runs some, without a row it lists them all.

A row is a function in a module of this folder, registered under its name. It checks its result,
times ruda and its peers in interleaved rounds, and yields one line for each of its cases:

    @row("P9", "recorded add of 4 elements, over np.add")
    def recorded_add():
        times = interleave({"ruda": ..., "numpy": ...})
        yield line("P9", "recorded", "ns", times, goal=..., ...)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Line = dict[str, Any]


class Row(NamedTuple):
    """A registered row: its name, a letter and a number, and what it measures."""

    name: str
    title: str
    run: Callable[[], Iterator[Line]]


ROWS: dict[str, Row] = {}

# Only cases with this in their names, where a row can leave the others out.
only = ""


def wanted(case: str) -> bool:
    """Whether a row shall run its cases ``case``: all, unless one was asked for."""
    return only in case


def row(name: str, title: str) -> Callable[[Callable[[], Iterator[Line]]], Row]:
    """Register a function that yields lines. Raises `ValueError` for a name already taken."""

    def register(run: Callable[[], Iterator[Line]]) -> Row:
        if name in ROWS:
            raise ValueError(f"row: {name} is taken. Got {title!r}. It is {ROWS[name].title!r}.")
        ROWS[name] = Row(name, title, run)
        return ROWS[name]

    return register
