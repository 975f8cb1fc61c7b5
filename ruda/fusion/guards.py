"""What a compiled step relies on, and the cheap look whether it still holds.

Guarded are the arguments (``pytree.py``), the globals, closure cells and defaults of every user
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
  when it moved, the fields are compared, so a switch to ``eval`` and back costs no new trace, and
  while none in the process has moved, none is looked at.
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

import types
from array import array
from collections.abc import Callable
from typing import Any, Protocol

from ruda.fusion.lookups import lent, own
from ruda.tensor.tensor import RudaTensor

SCALARS = (bool, int, float, complex, str, bytes, type(None))
MISSING = object()


def same(a: Any, b: Any) -> bool:
    """Whether two values mean the same to a trace."""
    if a is b:
        return True
    if a.__class__ is not b.__class__:
        return False
    if a.__class__ in SCALARS:
        return repr(a) == repr(b)
    if a.__class__ is RudaTensor:
        return a.handle is b.handle and a.spec is b.spec and a.node is b.node
    if a.__class__.__module__ == "numpy" and not hasattr(a, "setflags"):
        return False
    return a.__class__ is types.MethodType and bool(a == b)


class Watched(Protocol):
    """Something that a trace relies on, and the path by which people know it."""

    @property
    def path(self) -> str: ...

    def holds(self) -> bool: ...

    def restore(self) -> None: ...


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
            return MISSING

    def holds(self) -> bool:
        """Whether it means the same as in the trace."""
        return same(self.current(), self.expected)

    def restore(self) -> None:
        """Put back what was there."""
        if self.get is dict.get:
            self.holder[self.name] = self.expected
        elif self.get is getattr:
            object.__setattr__(self.holder, self.name, self.expected)
        elif self.get is class_attribute:
            type.__setattr__(self.holder, self.name, self.expected)
        elif self.get is slot:
            object.__delattr__(self.holder, self.name)


def class_attribute(holder: type, name: str) -> Any:
    """What ``holder`` itself has under ``name``, a descriptor as it is."""
    return vars(holder)[name]


def slot(holder: Any, name: str) -> Any:
    """What is in a slot, or ``MISSING``."""
    return getattr(holder, name, MISSING)


class Shape(Guard):
    """A tensor that the trace has looked at without using its values."""

    __slots__ = ()

    def holds(self) -> bool:
        """Whether a tensor of the same spec is there."""
        found, before = self.current(), self.expected
        if found.__class__ is not RudaTensor:
            return False
        return found.spec is before.spec and found.requires_grad == before.requires_grad


class Contents:
    """The items of a container, or the values of an array, as they were while tracing."""

    __slots__ = ("holder", "kept", "path", "snapshot")

    def __init__(self, path: str, holder: Any) -> None:
        self.path = path
        self.holder = holder
        self.snapshot = _snapshot(holder)
        # The values of an array as they can be put back.
        self.kept = holder.copy() if self.snapshot.__class__ is bytes else None

    def holds(self) -> bool:
        """Whether each item means the same."""
        holder, snapshot = self.holder, self.snapshot
        if snapshot.__class__ is bytes:
            return bool(_snapshot(holder) == snapshot)
        if len(holder) != len(snapshot):
            return False
        if snapshot.__class__ is dict:
            # Code may go through a dict in its order.
            in_order = all(map(same, holder, snapshot))
            return in_order and all(same(holder.get(k, MISSING), v) for k, v in snapshot.items())
        return all(map(same, holder, snapshot))

    def restore(self) -> None:
        """Put back the items that were there."""
        holder, snapshot = self.holder, self.snapshot
        if self.kept is not None:
            # Whoever has turned it in place gets the values in that shape.
            holder.reshape(self.kept.shape)[...] = self.kept
        elif isinstance(holder, list):
            holder[:] = snapshot
        elif isinstance(holder, array):
            holder[:] = array(holder.typecode, snapshot)
        elif isinstance(holder, dict | set):
            holder.clear()
            holder.update(snapshot)
        elif hasattr(holder, "clear"):
            holder.clear()
            holder.extend(snapshot)


class Absent:
    """Names that a namespace does not have, though the code that ran asks for them.

    ``space`` shows the names of a function's globals, of an object or of a class, ``owner``.
    """

    __slots__ = ("count", "names", "owner", "space", "where")

    def __init__(self, where: str, owner: Any, space: Any) -> None:
        self.where = where
        self.owner = owner
        self.space = space
        self.names: set[str] = set()
        # How many names there were when none of these was among them.
        self.count = -1

    @property
    def path(self) -> str:
        """The path of a name that is there now."""
        found = sorted(own(self.space, self.names))
        return f"{self.where}.{found[0]}" if found else self.where

    def holds(self) -> bool:
        """Whether none of the names is there now."""
        if not self.space.keys().isdisjoint(self.names) and own(self.space, self.names):
            return False
        self.count = len(self.space) - lent(self.space)
        return True

    def restore(self) -> None:
        """Take away those that a trace has put there."""
        for name in own(self.space, self.names):
            if isinstance(self.owner, type):
                type.__delattr__(self.owner, name)
            else:
                del self.space[name]


def _snapshot(holder: Any) -> Any:
    if isinstance(holder, dict):
        return dict(holder)
    if hasattr(holder, "setflags"):
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
    """All that one trace relies on besides the arguments; ``guard_builder.py`` fills it."""

    def __init__(self) -> None:
        self.plain: list[Guard] = []
        self.contents: list[Contents] = []
        self.absent: list[Absent] = []
        self.versioned: list[Versioned] = []
        # Tensors in private dicts, which are looked at only if the trace has used them.
        self.bindings: list[Guard] = []

    def settle(self, is_met: Callable[[Any], bool]) -> None:
        """The trace is over: relax guards on tensors whose values it did not use.

        ``is_met(handle)`` tells whether the trace used the memory of a handle.
        """
        for guard in self.plain:
            if guard.expected.__class__ is RudaTensor and not is_met(guard.expected.handle):
                guard.__class__ = Shape
        self.plain += [guard for guard in self.bindings if is_met(guard.expected.handle)]

    def hold(self) -> bool:
        """Whether everything is as it was while tracing."""
        if not all(guard.holds() for guard in self.plain):
            return False
        rest: tuple[Watched, ...] = (*self.contents, *self.absent, *self.versioned)
        return all(watched.holds() for watched in rest)

    def failure(self) -> str | None:
        """The path of something that has changed, or None."""
        watched: tuple[Watched, ...] = (*self.plain, *self.contents, *self.absent)
        for guard in watched:
            if not guard.holds():
                return guard.path
        for owner in self.versioned:
            if not owner.holds():
                return owner.failure() or owner.path
        return None

    def paths(self) -> list[str]:
        """What is guarded, by path."""
        found: tuple[Watched, ...] = (*self.plain, *self.contents, *self.versioned)
        return sorted({guard.path for guard in found})

    def restore(self) -> None:
        """Put back what a trace that failed has changed in the user's objects."""
        rest: tuple[Watched, ...] = (*self.contents, *self.absent, *self.versioned)
        for guard in (*self.plain, *rest):
            if not guard.holds():
                guard.restore()
