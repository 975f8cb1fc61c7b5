"""Containers that contain themselves: where, for those who would go through them without end."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any


def loop_in(value: Any, path: str) -> str | None:
    """The place in ``value``, which is known as ``path``, of a container that it lies in itself.

    Containers are tuples, lists, deques, mappings and dataclasses; None where there is no loop.

    >>> row = [1.0]
    >>> row.append({"again": row})
    >>> loop_in(row, "row")
    "row[1]['again']"
    """
    above = {id(value)}
    # A container to come back from has no parts left: then it is not above any more.
    stack = [(value, path, _parts(value))]
    while stack:
        holder, path, parts = stack[-1]
        suffix, item = next(parts, (None, None))
        if suffix is None:
            above.discard(id(holder))
            stack.pop()
        elif id(item) in above:
            return path + suffix
        elif _is_container(item):
            above.add(id(item))
            stack.append((item, path + suffix, _parts(item)))
    return None


def _is_record(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _is_container(value: Any) -> bool:
    return isinstance(value, tuple | list | deque | Mapping) or _is_record(value)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What a container holds, each with what leads there."""
    if isinstance(value, Mapping):
        yield from ((f"[{name!r}]", item) for name, item in value.items())
    elif isinstance(value, tuple | list | deque):
        yield from ((f"[{i}]", item) for i, item in enumerate(value))
    elif _is_record(value):
        for field in dataclasses.fields(value):
            yield f".{field.name}", getattr(value, field.name, None)
