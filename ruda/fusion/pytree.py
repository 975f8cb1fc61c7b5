"""Arguments and results: nested containers taken apart into leaves, and put together again."""

from __future__ import annotations

import copy
import dataclasses
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

from ruda.core.nesting import loop_in
from ruda.fusion.lines import refusal
from ruda.tensor.node import Leaf
from ruda.tensor.tensor import RudaTensor

_DICTS = (dict, OrderedDict, defaultdict)
_CONSTANTS = (bool, int, str, bytes, type(None))


class Given:
    """The arguments of one call: leaves (tensors and floats), and a key of everything else.

    The key holds the spec of each tensor, whether it has a node and a gradient, which tensors share
    memory, and the constants. A float in a dataclass, or beside the items of a container, is
    configuration and so a constant; elsewhere it is a value. ``objects`` are the arguments that are
    compared by identity, with their paths.
    """

    __slots__ = ("key", "leaves", "objects", "paths", "places", "roots")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.leaves: list[Any] = []
        self.paths: list[str] = []
        self.objects: list[tuple[str, Any]] = []
        # The path of each entry of the key.
        self.places = ["the names of the arguments"]
        # In the order of the call, which a function with **kwargs may go by.
        key: list[Any] = [(len(args), *kwargs)]
        try:
            for i, value in enumerate(args):
                self._take(value, f"argument {i}", key)
            for name, value in kwargs.items():
                self._take(value, f"argument {name!r}", key)
        except RecursionError:
            for place, value in (*enumerate(args), *kwargs.items()):
                refuse_loop(value, f"argument {place!r}")
            raise
        handles = [t.handle for t in self.leaves if t.__class__ is RudaTensor]
        self.roots = [h if h.root is None else h.root for h in handles]
        if len(handles) > 1:
            first: dict[int, int] = {}
            key.append(tuple([first.setdefault(id(r), i) for i, r in enumerate(self.roots)]))
            if len(first) < len(handles):
                # One view given twice is one to a trace, but not two views of the same memory.
                first = {}
                key.append(tuple([first.setdefault(id(h), i) for i, h in enumerate(handles)]))
        self.key = tuple(key)

    def difference(self, key: tuple[Any, ...]) -> str:
        """Where this call's key first differs from ``key``, in words."""
        places = [*self.places, *("which arguments share memory",) * 2]
        for mine, other, place in zip(self.key, key, places, strict=False):
            if mine != other:
                return place
        return "the mode (no_grad, autocast, precision)"

    def _take(self, value: Any, path: str, key: list[Any]) -> None:
        """Append one entry for ``value`` to the key, and those of its items."""
        cls = value.__class__
        self.places.append(path)
        if cls is RudaTensor:
            if value.qparams is not None:
                hint = "dequantizing it, or reaching it through a closure"
                raise refusal("compile", f"{path} is quantized", value.spec, hint)
            node = value.node
            kind = node if node is None else node.__class__
            grad = node.grad.spec if kind is Leaf and node.grad is not None else None
            key.append((value.spec, kind, grad))
            self.leaves.append(value)
            self.paths.append(path)
        elif cls is float:
            key.append(float)
            self.leaves.append(value)
            self.paths.append(path)
        elif cls in _CONSTANTS:
            key.append((cls, value))
        elif cls is complex:
            key.append(repr(value))
        else:
            self._take_container(value, cls, path, key)

    def _take_container(self, value: Any, cls: type, path: str, key: list[Any]) -> None:
        if isinstance(value, tuple | list) or cls is deque:
            key.append((cls, len(value), value.maxlen if cls is deque else None))
            for i, item in enumerate(value):
                self._take(item, f"{path}[{i}]", key)
            self._take_beside(value, path, key)
        elif cls in _DICTS:
            # Keys that are equal may differ: 1 and True.
            key.append((cls, *value, *map(type, value)))
            for name, item in value.items():
                self._take(item, f"{path}[{name!r}]", key)
            self._take_beside(value, path, key)
        elif is_record(value):
            self._take_fields(_fields(value), cls, path, key)
        elif cls.__module__ == "numpy" and hasattr(value, "__array_interface__"):
            key.append((cls, _content(value, path)))
        else:
            key.append(id(value))
            self.objects.append((path, value))

    def _take_beside(self, value: Any, path: str, key: list[Any]) -> None:
        """An entry for what a container has besides its items, if there is anything."""
        cls = value.__class__
        if cls in (tuple, list, dict, deque):
            return
        fields = _beside(value)
        if cls is defaultdict:
            fields["default_factory"] = value.default_factory
        if fields:
            self.places.append(f"the attributes of {path}")
            self._take_fields(fields, cls, path, key)

    def _take_fields(self, fields: dict[str, Any], cls: type, path: str, key: list[Any]) -> None:
        rates = [repr(item) for item in fields.values() if item.__class__ is float]
        key.append((cls, *fields, *rates))
        for name, item in fields.items():
            if item.__class__ is not float:
                self._take(item, f"{path}.{name}", key)


def refuse_loop(value: Any, path: str) -> None:
    """Raise ``CaptureError`` if ``value``, which is known as ``path``, contains itself."""
    place = loop_in(value, path)
    if place is not None:
        hint = "passing what is in it once"
        raise refusal("compile", f"{place} is a container that it lies in itself", hint=hint)


def _content(value: Any, path: str) -> bytes:
    if value.ndim:
        what = f"{path} is a NumPy array, whose values would be frozen into the step"
        raise refusal("compile", what, hint="ruda.asarray(array), which shares its memory")
    return value.tobytes()  # type: ignore[no-any-return]


def is_record(value: Any) -> bool:
    """Whether ``value`` is a dataclass instance, which is taken apart as containers are."""
    is_instance = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return is_instance and not hasattr(value, "_ruda_version")


def _fields(value: Any) -> dict[str, Any]:
    if hasattr(value, "__dict__"):
        return dict(vars(value))
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _beside(value: Any) -> dict[str, Any]:
    """The attributes of a container, by name, those in slots as well."""
    state: Any = object.__getstate__(value)
    own, slots = state if state.__class__ is tuple else (state, None)
    return {**(own or {}), **(slots or {})}


def rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """New containers like those of ``value``, with ``change`` applied to the leaves.

    Leaves are whatever is not a tuple, list, deque, dict or dataclass instance, or beside the items
    of such a container.
    """
    cls = value.__class__
    if isinstance(value, tuple | list) or cls is deque:
        made = _row_like(value, [rebuilt(item, change) for item in value])
        return made if cls in (tuple, list, deque) else _with_fields(made, _beside(value), change)
    if cls in _DICTS:
        # A copy keeps what a defaultdict makes.
        made = {} if cls is dict else copy.copy(value)
        made.update((name, rebuilt(item, change)) for name, item in value.items())
        return _with_fields(made, _beside(value), change) if cls is OrderedDict else made
    if is_record(value):
        return _with_fields(copy.copy(value), _fields(value), change)
    return change(value)


def _with_fields(made: Any, fields: dict[str, Any], change: Callable[[Any], Any]) -> Any:
    """``made`` with ``fields``, to whose leaves but floats ``change`` was applied."""
    for name, item in fields.items():
        kept = item.__class__ is float
        object.__setattr__(made, name, item if kept else rebuilt(item, change))
    return made


def _row_like(value: Any, items: list[Any]) -> Any:
    """A tuple, list or deque like ``value``, of whatever class, with other items."""
    if value.__class__ is deque:
        return deque(items, value.maxlen)
    if isinstance(value, tuple):
        return tuple.__new__(value.__class__, items)
    out = copy.copy(value)
    out[:] = items
    return out
