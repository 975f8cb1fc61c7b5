"""The end of a replay: all changes at once, and no interrupt between them."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import starmap
from operator import call
from typing import Any


def commit(calls: Iterable[tuple[Any, ...]]) -> None:
    """Make all ``calls`` or, when interrupted before the first, none.

    The loop, and each call if it is of a C function, runs no Python code, and only between two
    steps of Python code does an interrupt from the keyboard become an exception.
    """
    deque(starmap(call, calls), maxlen=0)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """An interrupt from the keyboard is heard at the end of the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda *what: heard.append(what))
    try:
        yield
    finally:
        # One that was set from outside of Python comes back as None and cannot be put back.
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
        if heard and callable(before):
            before(*heard[0])
