"""What ``getattr`` and its like are asked for by user code that computes names, during a trace.

Such names stand nowhere in the code. For the time of a trace a module whose functions compute names
finds functions of ours in its globals, which tell what is asked for and then do it.
"""

from __future__ import annotations

import builtins
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from types import CodeType
from typing import Any

Listener = Callable[[Any, Any, CodeType], None]
NAMES = ("getattr", "hasattr", "setattr", "delattr")

# By thread: who is told.
_listeners: dict[int, list[Listener]] = {}
# By module's globals and name: those globals, and how many traces have them.
_lent: dict[tuple[int, str], tuple[dict[str, Any], int]] = {}
_turn = threading.Lock()
_ABSENT = object()


def _telling(real: Callable[..., Any]) -> Callable[..., Any]:
    def lookup(holder: Any, name: Any, /, *rest: Any) -> Any:
        listeners = _listeners.get(threading.get_ident())
        if listeners:
            listeners[-1](holder, name, sys._getframe(1).f_code)
        return real(holder, name, *rest)

    return lookup


_TELLING = {name: _telling(getattr(builtins, name)) for name in NAMES}


def own(scope: Mapping[str, Any], names: Iterable[str]) -> set[str]:
    """Those of ``names`` that ``scope`` has by itself."""
    # Each is asked for once: what another thread's trace has put there may go at any time.
    found = ((name, scope.get(name, _ABSENT)) for name in names)
    return {n for n, v in found if v is not _ABSENT and v is not _TELLING.get(n, _ABSENT)}


def lent(scope: Any) -> int:
    """How many names a trace in some thread has put into ``scope`` for now."""
    return sum((id(scope), name) in _lent for name in NAMES) if _lent else 0


class Lookups:
    """Tells ``listener(holder, name, code)`` of the calling thread's lookups, inside of a block."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self._keys: set[tuple[int, str]] = set()

    def __enter__(self) -> Lookups:
        self._listening = _listeners.setdefault(threading.get_ident(), [])
        self._listening.append(self.listener)
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.remove(self.listener)
        with _turn:
            for key in self._keys:
                scope, count = _lent.pop(key)
                if count > 1:
                    _lent[key] = scope, count - 1
                elif scope.get(key[1]) is _TELLING[key[1]]:
                    del scope[key[1]]
        self._keys.clear()

    def watch(self, scope: dict[str, Any], names: Iterable[str]) -> None:
        """Let code with the globals ``scope`` find ours under ``names``, but for its own."""
        names = set(names)
        for name in names - own(scope, names):
            key = id(scope), name
            if key in self._keys:
                continue
            self._keys.add(key)
            with _turn:
                _, count = _lent.get(key, (scope, 0))
                _lent[key] = scope, count + 1
                scope[name] = _TELLING[name]
