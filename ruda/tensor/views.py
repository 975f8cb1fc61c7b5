"""Who shares memory with whom: views are noted, weakly, on the base handle.

An in-place change must reach every live view's node (design note on mutation). The list holds weak
references to tensors, so it keeps nothing alive; dead entries are swept when it has doubled.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

_lock = threading.Lock()
_SWEEP_FROM = 16


class Views(list[Any]):
    """Weak references to tensors, and the length at which the dead ones are swept out."""

    __slots__ = ("limit",)

    limit: int


def register_view(x: Any, out: Any) -> None:
    """Note that ``out`` shows memory of ``x``; nothing to note when ``out`` is a fresh copy."""
    root = out.handle.root
    if root is None:
        return
    owner = x.handle.owner if x.handle.root is not None else None
    out.handle.owner = weakref.ref(x) if owner is None else owner
    note(root, out)


def note(root: Any, tensor: Any) -> None:
    """Add ``tensor`` to the tensors that share the memory of the base handle ``root``."""
    with _lock:
        views = root.views
        if views is None:
            root.views = views = Views()
            views.limit = _SWEEP_FROM
        elif len(views) >= views.limit:
            # Twice what is alive: a million slices of one tensor stay cheap, whatever else lives.
            views[:] = [r for r in views if r() is not None]
            views.limit = max(2 * len(views), _SWEEP_FROM)
        views.append(weakref.ref(tensor))


def sharing(root: Any) -> list[Any]:
    """The live tensors noted on ``root``."""
    with _lock:
        refs = list(root.views or ())
    return [t for t in (r() for r in refs) if t is not None]


def owner_of(tensor: Any) -> Any:
    """The tensor that ``tensor`` is a view of, itself for a base, None when that one is gone."""
    handle = tensor.handle
    if handle.root is None or handle.owner is None:
        return tensor
    return handle.owner()


def family(tensor: Any) -> list[Any]:
    """The live views that share an owner with ``tensor``, itself included if it is one."""
    handle = tensor.handle
    if handle.root is None:
        root, reference = handle, weakref.ref(tensor)
    elif handle.owner is None:
        root, reference = handle.root, weakref.ref(tensor)
    else:
        root, reference = handle.root, handle.owner
    return [t for t in sharing(root) if t.handle.owner is reference]
