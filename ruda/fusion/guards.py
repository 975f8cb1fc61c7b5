"""What a compiled step relies on, and the cheap look whether it still holds.

Guarded are the arguments (``tree.py``), the globals, closure cells and defaults of every user
function that ran in the trace, and the fields of the objects reached through them whose names that
code mentions. Scalars are compared by value, tensors by handle, containers item by item, everything
else by identity. A NumPy array is compared by content, and is refused when it is large.

What modules, optimizers, schedules and generators owe to compiled steps:

* **Modules, optimizers, schedules** ("versioned objects") have a ``__dict__`` and an int attribute
  ``_ruda_version`` (write ``_ruda_version = 0`` in the class). Their ``__setattr__`` and
  ``__delattr__``, ``train``, ``eval`` and ``load_state_dict`` call
  ``ruda.core.mode.state_changed(self, name, value)`` *before* the change. That function does the
  rest: it counts the version up, it refuses inside of a trace, and it lets pass what is no change,
  so ``model.train()`` in a step is fine while the model is in training. The version is a speed-up:
  when it moved, the fields are compared, so a switch to ``eval`` and back costs no new trace.
* Containers in fields whose name starts with ``_`` are changed only by methods that announce it
  under the field's name; containers in public fields (``param_groups``) are compared at each call.
* What changes from step to step is a tensor that ``assign`` updates: learning rate, step count,
  loss scale, running statistics, moments. A Python float in a field is a guard: it costs a new
  trace each time it changes. State tensors are made in the constructor, not in the first step: a
  traced tensor that is stored in an object is refused.
* Update through ``with no_grad(): p.assign(new)``; a value kept across steps must be detached.
  ``p.grad`` may be read, set, and set to None.
* **Generators** have attributes ``seed`` and ``draw`` (ints), a method ``advance(n)`` that adds
  ``n`` to ``draw`` and returns what it was, and ``advancing(n)``, the same as one call in C that a
  commit makes: ``(function, *arguments)``. Random operators take both as weak integer
  operands and get them from ``host.seed_number(generator)`` and ``host.draw_number(generator)``.
  The default generator is one object for the life of the process; reseeding changes attributes.
* **Schedules** are pure functions of the step in operators, valid for a number or a 0-d tensor.
"""

from __future__ import annotations

import collections
import functools
import operator
import types
from collections.abc import Callable
from operator import is_
from types import FunctionType
from typing import Any

from ruda.fusion.code import Facts, facts_of
from ruda.fusion.lines import is_user_file, refusal
from ruda.tensor.tensor import RudaTensor

_SCALARS = (bool, int, float, complex, str, bytes, type(None))
_LARGEST = 10_000
_MISSING = object()


def same(a: Any, b: Any) -> bool:
    """Whether two values mean the same to a trace."""
    if a is b:
        return True
    if a.__class__ is not b.__class__:
        return False
    if a.__class__ in _SCALARS:
        return repr(a) == repr(b)
    if a.__class__ is RudaTensor:
        return a.handle is b.handle and a.spec is b.spec and a.node is b.node
    if a.__class__.__module__ == "numpy" and not hasattr(a, "setflags"):
        return False
    return a.__class__ is types.MethodType and bool(a == b)


class Guard:
    """``get(holder, name)`` gave ``expected`` while tracing, and has to give the same at a call."""

    __slots__ = ("expected", "get", "holder", "name", "path")

    def __init__(
        self, path: str, get: Callable[..., Any], holder: Any, name: Any, expected: Any
    ) -> None:
        self.path = path
        self.get = get
        self.holder = holder
        self.name = name
        self.expected = expected

    def current(self) -> Any:
        """What is there now."""
        try:
            return self.get(self.holder, self.name)
        except (AttributeError, LookupError, ValueError):
            return _MISSING

    def holds(self) -> bool:
        """Whether it means the same as in the trace."""
        return same(self.current(), self.expected)

    def restore(self) -> None:
        """Put back what was there."""
        if self.get is dict.get:
            self.holder[self.name] = self.expected
        elif self.get is getattr:
            object.__setattr__(self.holder, self.name, self.expected)
        elif self.get is _class_attribute:
            type.__setattr__(self.holder, self.name, self.expected)


def _class_attribute(holder: type, name: str) -> Any:
    return vars(holder)[name]


class Shape(Guard):
    """A tensor that the trace has looked at without using its values."""

    __slots__ = ()

    def holds(self) -> bool:
        """Whether a tensor of the same spec is there."""
        found = self.current()
        return found.__class__ is RudaTensor and found.spec is self.expected.spec


class Contents:
    """The items of a container, or the values of an array, as they were while tracing."""

    __slots__ = ("holder", "path", "snapshot")

    def __init__(self, path: str, holder: Any) -> None:
        self.path = path
        self.holder = holder
        self.snapshot = _snapshot(holder)

    def holds(self) -> bool:
        """Whether each item means the same."""
        holder, snapshot = self.holder, self.snapshot
        if snapshot.__class__ is bytes:
            return bool(_snapshot(holder) == snapshot)
        if len(holder) != len(snapshot):
            return False
        if snapshot.__class__ is dict:
            return all(same(holder.get(k, _MISSING), v) for k, v in snapshot.items())
        return all(map(same, holder, snapshot))

    def restore(self) -> None:
        """Put back the items that were there."""
        holder, snapshot = self.holder, self.snapshot
        if isinstance(holder, list):
            holder[:] = snapshot
        elif isinstance(holder, dict | set):
            holder.clear()
            holder.update(snapshot)
        elif hasattr(holder, "extend"):
            holder.clear()
            holder.extend(snapshot)


def _snapshot(holder: Any) -> Any:
    if isinstance(holder, dict):
        return dict(holder)
    if hasattr(holder, "tobytes"):
        return f"{holder.dtype}{holder.shape}".encode() + holder.tobytes()
    return tuple(holder)


class Versioned:
    """A module, optimizer or schedule: its fields are compared when its version has moved."""

    __slots__ = ("count", "fields", "owner", "path", "version")

    def __init__(self, path: str, owner: Any) -> None:
        self.path = path
        self.owner = owner
        self.version = owner._ruda_version
        self.count = len(vars(owner))
        self.fields: list[Guard | Contents] = [
            Guard(f"{path}.{name}", dict.get, vars(owner), name, value)
            for name, value in vars(owner).items()
            if name != "_ruda_version"
        ]

    def holds(self) -> bool:
        """Whether nothing has changed, or what has changed is back as it was."""
        version = self.owner._ruda_version
        if version == self.version:
            return True
        if len(vars(self.owner)) != self.count or self.failure() is not None:
            return False
        self.version = version
        return True

    def failure(self) -> str | None:
        """The path of a field that has changed."""
        return next((field.path for field in self.fields if not field.holds()), None)

    def restore(self) -> None:
        """Put back the fields that were there."""
        for field in self.fields:
            if not field.holds():
                field.restore()


class Guards:
    """All that one trace relies on besides the arguments."""

    def __init__(self) -> None:
        self.plain: list[Guard] = []
        self.contents: list[Contents] = []
        self.versioned: list[Versioned] = []
        self.tensors: list[tuple[str, RudaTensor]] = []
        self.changing: list[tuple[str, Any]] = []
        self._seen: set[tuple[int, Any]] = set()
        self._visited: set[tuple[int, int]] = set()
        # Alive objects that belong to nobody inside the trace, with the path to each.
        self._paths: dict[int, str] = {}
        self._kept: list[Any] = []

    def root(self, path: str, value: Any) -> None:
        """Start from ``value``: the function itself, or an argument compared by identity."""
        self._paths[id(value)] = path
        self._walk(path, value, _NOTHING)

    def enter(self, frame: Any, functions: list[FunctionType]) -> None:
        """A user function begins: guard what its code can reach."""
        code = frame.f_code
        facts, scope, local = facts_of(code), frame.f_globals, frame.f_locals
        for name in facts.globals & scope.keys():
            self._reach(name, dict.get, scope, name, scope[name], facts)
        for function in functions:
            self._enter_function(function, local, facts)
        count = code.co_argcount + code.co_kwonlyargcount + 2
        for name in code.co_varnames[:count]:
            value = local.get(name)
            path = self._paths.get(id(value))
            if path is not None:
                self._walk(path, value, facts)

    def _enter_function(self, function: FunctionType, local: Any, facts: Facts) -> None:
        names, cells = function.__code__.co_freevars, function.__closure__ or ()
        if not all(_shows(c, local, n) for c, n in zip(cells, names, strict=True)):
            return
        path = function.__qualname__
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            value = getattr(function, name)
            self._reach(f"{path}.{name}", getattr, function, name, value, facts)
        for name, cell in zip(names, cells, strict=True):
            if name in local:
                self._reach(name, getattr, cell, "cell_contents", local[name], facts)

    def _reach(
        self, path: str, get: Callable[..., Any], holder: Any, name: Any, value: Any, facts: Facts
    ) -> None:
        if (id(holder), name) not in self._seen:
            self._seen.add((id(holder), name))
            self._kept.append(holder)
            self.plain.append(Guard(path, get, holder, name, value))
        self._walk(path, value, facts)

    def _walk(self, path: str, value: Any, facts: Facts) -> None:
        stack = [(path, value)]
        while stack:
            path, value = stack.pop()
            if value.__class__ in _SCALARS or (id(value), id(facts)) in self._visited:
                continue
            self._visited.add((id(value), id(facts)))
            self._kept.append(value)
            if value.__class__ is RudaTensor:
                self.tensors.append((path, value))
                continue
            self.changing.append((path, value))
            self._paths.setdefault(id(value), path)
            stack += self._children(path, value, facts)

    def _children(self, path: str, value: Any, facts: Facts) -> list[tuple[str, Any]]:
        if isinstance(value, list | tuple | dict | set | frozenset) or _is_deque(value):
            return self._items(path, value)
        if hasattr(type(value), "_ruda_version") or "_ruda_version" in _fields(value):
            return self._versioned(path, value)
        if value.__class__.__module__ == "numpy" and hasattr(value, "setflags"):
            return self._array(path, value)
        if isinstance(value, types.MethodType):
            return [(path, value.__self__)]
        if isinstance(value, functools.partial):
            return [(path, value.func), (path, value.args), (path, value.keywords)]
        if isinstance(value, types.ModuleType) and not is_user_file(_file(value)):
            return []
        if isinstance(value, type) or type(value).__module__.partition(".")[0] != "ruda":
            return self._attributes(path, value, facts)
        return []

    def _items(self, path: str, value: Any) -> list[tuple[str, Any]]:
        if len(value) > _LARGEST:
            hint = "passing what the step needs of it as an argument"
            raise refusal("compile", f"{path} has too many items to guard", len(value), hint)
        if (id(value), _ITEMS) not in self._seen:
            self._seen.add((id(value), _ITEMS))
            if not isinstance(value, tuple | frozenset):
                self.contents.append(Contents(path, value))
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        return [(f"{path}[{name!r}]", item) for name, item in pairs]

    def _versioned(self, path: str, value: Any) -> list[tuple[str, Any]]:
        fields = {k: v for k, v in vars(value).items() if k != "_ruda_version"}
        if (id(value), _ITEMS) not in self._seen:
            self._seen.add((id(value), _ITEMS))
            found = Versioned(path, value)
            self.versioned.append(found)
            for name, item in fields.items():
                if name.startswith("_") and isinstance(item, dict | list | set):
                    # Private containers change only with the version: no look at each call.
                    self._seen.add((id(item), _ITEMS))
                    found.fields.append(Contents(f"{path}.{name}", item))
        return [(f"{path}.{name}", item) for name, item in fields.items()]

    def _array(self, path: str, value: Any) -> list[tuple[str, Any]]:
        if value.size > _LARGEST:
            hint = "ruda.asarray(array) once, outside of the step"
            what = f"{path} is a NumPy array, too large to watch for changes"
            raise refusal("compile", what, value.shape, hint)
        if (id(value), _ITEMS) not in self._seen:
            self._seen.add((id(value), _ITEMS))
            self.contents.append(Contents(path, value))
        return []

    def _attributes(self, path: str, value: Any, facts: Facts) -> list[tuple[str, Any]]:
        """The fields of an object or class that the running code has names for."""
        out = []
        fields = {} if isinstance(value, type) else _fields(value)
        classes = value.__mro__ if isinstance(value, type) else type(value).__mro__
        for name in facts.attributes:
            if name in fields:
                found: tuple[Any, ...] = (dict.get, fields, fields[name])
            else:
                found = _inherited(value, classes, name)
            if found:
                get, holder, item = found
                if (id(holder), name) not in self._seen:
                    self._seen.add((id(holder), name))
                    self.plain.append(Guard(f"{path}.{name}", get, holder, name, item))
                out.append((f"{path}.{name}", item))
        return out

    def settle(self, is_met: Callable[[Any], bool]) -> None:
        """The trace is over: relax guards on tensors whose values it did not use; ready to check.

        ``is_met(handle)`` tells whether the trace used the memory of a handle.
        """
        for guard in self.plain:
            if guard.expected.__class__ is RudaTensor and not is_met(guard.expected.handle):
                guard.__class__ = Shape
        self._columns = [
            [getattr(guard, name) for guard in self.plain]
            for name in ("get", "holder", "name", "expected")
        ]

    def hold(self) -> bool:
        """Whether everything is as it was while tracing."""
        get, holder, name, expected = self._columns
        try:
            identical = all(map(is_, map(operator.call, get, holder, name), expected))
        except (AttributeError, LookupError, ValueError):
            return False
        if not identical and not all(guard.holds() for guard in self.plain):
            return False
        for content in self.contents:
            if not content.holds():
                return False
        return all(owner.holds() for owner in self.versioned)

    def failure(self) -> str | None:
        """The path of something that has changed, or None."""
        for guard in (*self.plain, *self.contents):
            if not guard.holds():
                return guard.path
        for owner in self.versioned:
            if not owner.holds():
                return owner.failure() or owner.path
        return None

    def paths(self) -> list[str]:
        """What is guarded, by path."""
        found = (*self.plain, *self.contents, *self.versioned)
        return sorted({guard.path for guard in found})

    def restore(self) -> None:
        """Put back what a trace that failed has changed in the user's objects."""
        for guard in (*self.plain, *self.contents, *self.versioned):
            if not guard.holds():
                guard.restore()


_NOTHING = Facts(frozenset(), frozenset(), frozenset())
_ITEMS = object()


def _is_deque(value: Any) -> bool:
    return isinstance(value, collections.deque)


def _fields(value: Any) -> dict[str, Any]:
    fields = getattr(value, "__dict__", None)
    return fields if isinstance(fields, dict) else {}


def _file(module: types.ModuleType) -> str:
    return getattr(module, "__file__", None) or "<frozen>"


def _shows(cell: Any, local: Any, name: str) -> bool:
    try:
        return bool(cell.cell_contents is local.get(name, _MISSING))
    except ValueError:
        return name not in local


def _inherited(value: Any, classes: tuple[type, ...], name: str) -> tuple[Any, ...]:
    """A slot of ``value`` or a plain attribute of its classes: (get, holder, value)."""
    for cls in classes:
        if name not in vars(cls):
            continue
        item = vars(cls)[name]
        if isinstance(item, types.MemberDescriptorType):
            found = _MISSING if isinstance(value, type) else getattr(value, name, _MISSING)
            return () if found is _MISSING else (getattr, value, found)
        if hasattr(item, "__get__") or cls.__module__ == "builtins":
            return ()
        return _class_attribute, cls, item
    return ()
