"""Nested tuples, lists and dicts of tensors, taken apart and put together again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.core.errors import ArgumentError, DTypeError
from ruda.core.nesting import loop_in
from ruda.tensor.tensor import RudaTensor


def flatten(tree: Any) -> list[RudaTensor]:
    """The tensors of ``tree`` in order; dicts by insertion. Other leaves raise ``DTypeError``."""
    found: list[RudaTensor] = []
    rebuilt(tree, lambda t: found.append(t) or t)  # type: ignore[func-returns-value]
    return found


def rebuilt(tree: Any, change: Callable[[RudaTensor], Any]) -> Any:
    """``tree`` with every tensor replaced by ``change`` of it."""
    try:
        return _rebuilt(tree, change)
    except RecursionError:
        place = loop_in(tree, "the tree")
        if place is None:
            raise
        what, expected = f"{place} is a container that it lies in itself", "each container once"
        raise ArgumentError("grad", what, type(tree).__name__, expected) from None


def _rebuilt(tree: Any, change: Callable[[RudaTensor], Any]) -> Any:
    if tree.__class__ is RudaTensor:
        return change(tree)
    if isinstance(tree, dict):
        return {key: _rebuilt(value, change) for key, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_rebuilt(value, change) for value in tree))
    if isinstance(tree, tuple | list):
        return type(tree)(_rebuilt(value, change) for value in tree)
    if tree is None:
        return None
    hint = "ruda.asarray, or another argnums"
    expected = "tensors in tuples, lists or dicts"
    raise DTypeError("grad", "not a tensor", type(tree).__name__, expected, hint)
