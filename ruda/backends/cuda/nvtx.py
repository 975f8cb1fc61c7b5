"""Ranges for profilers: which operator queues a kernel, and which line of the user's called it.

They are off unless ``ruda.cuda.nvtx`` turns them on; plans are bound anew then, so that eager calls
cost nothing otherwise. A range inside of another one is left out: an operator may run others.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ruda.backends.cuda.user_code import user_line


class _Here(threading.local):
    inside = False


class Ranges:
    """The switch of all GPUs, and the ranges of the calling thread."""

    def __init__(self) -> None:
        self.enabled = False
        self._here = _Here()

    @contextmanager
    def open(self, driver: Any, name: str) -> Iterator[None]:
        """A range around what the block queues."""
        if self._here.inside:
            yield
            return
        self._here.inside = True
        driver.range_begin(name)
        try:
            yield
        finally:
            driver.range_end()
            self._here.inside = False

    def eager(self, driver: Any, op: str, run: Callable[..., Any]) -> Callable[..., Any]:
        """``run`` in a range with the line that calls it."""

        @functools.wraps(run)
        def call(*handles: Any) -> Any:
            with self.open(driver, named(op, user_line())):
                return run(*handles)

        return call

    def traced(
        self, driver: Any, op: str, line: str, run: Callable[..., Any]
    ) -> Callable[..., Any]:
        """``run`` in a range with the line that was traced, while ranges are on."""

        def call(*handles: Any) -> Any:
            if not self.enabled:
                return run(*handles)
            with self.open(driver, named(op, line)):
                return run(*handles)

        return call


def named(op: str, place: str) -> str:
    """``op file.py:line`` of a place with the whole path."""
    return f"{op} {Path(place).name}"


ranges = Ranges()
