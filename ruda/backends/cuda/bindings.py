"""Bindings of one library of nvmath-python without those of all others.

Importing the package loads every library that it binds, and what its own functions need: half a
second of a process that multiplies matrices alone. One binding takes 0.03 s.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_ROOT, _BINDINGS = "nvmath", "nvmath.bindings"
# Packages that stand for the real ones are there for one thread at a time.
_lock = threading.Lock()


def binding(name: str) -> Any:
    """The module ``nvmath.bindings.NAME``; raises ``ImportError`` where it is not installed."""
    full = f"{_BINDINGS}.{name}"
    with _lock:
        if full in sys.modules or _ROOT in sys.modules:
            return importlib.import_module(full)
        spec = importlib.util.find_spec(_ROOT)
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError(f"No module named {_ROOT!r}", name=_ROOT)
        with _bare(list(spec.submodule_search_locations)):
            return importlib.import_module(full)


@contextmanager
def _bare(places: list[str]) -> Iterator[None]:
    """Packages in which modules are found in the block, and whose own code has not run.

    Whoever imports nvmath-python afterwards gets all of it. Another thread of the user that does so
    during the block gets these packages, which have submodules and no functions of their own:
    nothing that is not asked to take the lock can be kept from that, so import nvmath-python before
    the first operator if several threads of yours use it.
    """
    root, bindings = ModuleType(_ROOT), ModuleType(_BINDINGS)
    root.__path__ = places
    bindings.__path__ = [f"{place}/bindings" for place in places]
    made = {_ROOT: root, _BINDINGS: bindings}
    sys.modules.update(made)
    try:
        yield
    finally:
        for name, module in made.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
