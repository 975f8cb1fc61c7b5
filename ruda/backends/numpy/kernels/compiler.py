"""Compiling kernels: one by one, when a plan first asks for it, into the user's cache.

numba keeps compiled code by the file of a kernel alone, and a kernel calls functions of other
files; hence a folder for each state of all of them. A kernel that does not compile raises.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

# No exchange of the order of sums, no assumption that NaN and infinity are absent.
EXACT = {"contract"}
# Sums in the order that fills vector registers: another one than NumPy's, but always the same.
REORDERED = {"contract", "reassoc"}

# Division by zero gives what NumPy gives, without a branch that would keep loops scalar.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}

_LOCK = threading.RLock()


def cache_folder() -> Path:
    """Where compiled kernels are kept: the user's cache, by the contents of these files."""
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return base / "ruda" / "cpu" / digest.hexdigest()[:16]


def inline(function: Callable[..., Any]) -> Any:
    """A function for use inside kernels, compiled into each of them."""
    return numba.njit(function, **_OPTIONS, fastmath=EXACT)


def summed(function: Callable[..., Any]) -> Any:
    """As ``inline``, for reductions that may add in another order."""
    return numba.njit(function, **_OPTIONS, fastmath=REORDERED)


class Kernel:
    """A function of arrays and numbers, compiled by ``ready`` or else by its first call."""

    def __init__(self, function: Callable[..., Any], signature: str) -> None:
        self.function, self.signature = function, signature
        self.compiled: Any = None

    def ready(self) -> Any:
        """The compiled function."""
        with _LOCK:
            if self.compiled is None:
                self.compiled = self._compile()
        return self.compiled

    def _compile(self) -> Any:
        before = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = str(cache_folder())
        try:
            return self._make()
        finally:
            numba.config.CACHE_DIR = before

    def _make(self) -> Any:
        make = numba.njit(self.signature, cache=True, **_OPTIONS, fastmath=EXACT)
        return make(self.function)


class Task(Kernel):
    """A function of the address of its cells and of the number of a part, called by address.

    It gives 0, or 1 where it meets what its operator refuses.
    """

    def _make(self) -> Any:
        make = numba.cfunc("i8(i8, i8)", cache=True, error_model="numpy", fastmath=EXACT)
        return make(self.function)

    @property
    def address(self) -> int:
        """Where the compiled function begins."""
        return int(self.ready().address)


def task(function: Callable[..., Any]) -> Task:
    """Mark a function as a task."""
    return Task(function, "")


def kernel(signature: str) -> Callable[[Callable[..., Any]], Kernel]:
    """Mark a function as a kernel of this numba signature."""
    return lambda function: Kernel(function, signature)
