"""Which tensors are parameters: a mark, not a class, since there is one tensor class."""

from __future__ import annotations

import weakref
from typing import Any

# By id, because comparing tensors is elementwise; the reference tells when an id is free again.
_marked: dict[int, weakref.ref[Any]] = {}


def mark(tensor: Any) -> Any:
    """Note that ``tensor`` is a parameter; returns it."""
    key = id(tensor)
    _marked[key] = weakref.ref(tensor, lambda _: _marked.pop(key, None))
    return tensor


def is_parameter(value: Any) -> bool:
    """Whether ``value`` is a tensor marked as a parameter."""
    reference = _marked.get(id(value))
    return reference is not None and reference() is value
