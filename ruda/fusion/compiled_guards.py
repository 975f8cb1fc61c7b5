"""The guards of a trace as one function: a chain of ``is`` that runs without a call for each.

A step of a small network has a hundred guards, and all of them hold at nearly every call. So they
are written out once as a Python expression over the objects themselves. It says yes only where
each guard would; a no means that the guards have to be asked one by one.

What a call costs after other code has run is the memory that it touches rather than the terms. So
versions and nodes, of which there are many and which change through few functions, are looked at
when those functions have left another mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import MethodType
from typing import Any

from ruda.core.mode import CHANGES, NODES, Changes
from ruda.fusion.guards import (
    SCALARS,
    Absent,
    Contents,
    Guard,
    Guards,
    Shape,
    Versioned,
    class_attribute,
    same,
)
from ruda.tensor.tensor import RudaTensor


class _Since:
    """Guards that are looked at when ``changes`` has moved."""

    def __init__(self, changes: Changes, guards: Sequence[Guard | Versioned]) -> None:
        self.changes, self.guards = changes, guards
        # The mark of a time when all of them held: none so far.
        self.seen = Changes()

    def hold(self) -> bool:
        """Whether each of them holds."""
        mark = self.changes.mark
        if not all(guard.holds() for guard in self.guards):
            return False
        self.seen.mark = mark
        return True


class _Chain:
    """The terms so far, and the objects that they are about, by name."""

    def __init__(self) -> None:
        self.terms: list[str] = []
        self.objects: dict[str, Any] = {"same": same, "vars": vars, "len": len}
        # By id: what has a name is kept by it, so that no other object gets its id.
        self._names: dict[int, str] = {}

    def name(self, value: Any) -> str:
        """The name of an object in the expression."""
        name = self._names.get(id(value))
        if name is None:
            name = self._names[id(value)] = f"o{len(self._names)}"
            self.objects[name] = value
        return name

    def expect(self, place: str, expected: Any) -> None:
        """``place`` means what it meant."""
        if expected is None:
            self.terms.append(f"{place} is None")
            return
        name = self.name(expected)
        # Equal scalars, and methods of one object, are new objects each time.
        equal = expected.__class__ in SCALARS or expected.__class__ is MethodType
        term = f"{place} is {name}"
        self.terms.append(f"({term} or same({place}, {name}))" if equal else term)

    def guard(self, guard: Guard) -> None:
        """A guard holds."""
        if guard.__class__ is Shape:
            self.terms.append(f"{self.name(guard)}.holds()")
        else:
            self.expect(self._place(guard), guard.expected)

    def _place(self, guard: Guard) -> str:
        holder, key = self.name(guard.holder), guard.name
        if guard.get is getattr and key.isidentifier():
            return f"{holder}.{key}"
        text = repr(key) if key.__class__ is str else self.name(key)
        if guard.get is class_attribute:
            return f"vars({holder})[{text}]"
        if guard.get is dict.get and type(guard.holder) is dict and guard.expected is not None:
            return f"{holder}[{text}]"
        return f"{self.name(guard.get)}({holder}, {text})"

    def contents(self, content: Contents) -> None:
        """A container has the items that it had."""
        holder, items = content.holder, content.snapshot
        if isinstance(holder, dict) and type(holder).__getitem__ is dict.__getitem__:
            pairs: Iterable[tuple[Any, Any]] = items.items()
        elif type(holder) in (list, tuple):
            pairs = enumerate(items)
        else:
            self.terms.append(f"{self.name(content)}.holds()")
            return
        name = self.name(holder)
        self.terms.append(f"len({name}) == {len(items)}")
        if isinstance(holder, dict):
            self._order(name, list(items))
        for key, value in pairs:
            text = repr(key) if key.__class__ in (str, int) else self.name(key)
            self.expect(f"{name}[{text}]", value)

    def _order(self, name: str, keys: list[Any]) -> None:
        """The keys of a dict come in the order in which they came; 1 and True are not the same."""
        if len(keys) > 1:
            self.terms.append(f"[*{name}] == {self.name(keys)}")
        if any(key.__class__ is not str for key in keys):
            self.terms.append(f"all(map(same, {name}, {self.name(keys)}))")

    def absent(self, absent: Absent) -> None:
        """A namespace has as many names as when none was among them that must not be."""
        found = self.name(absent)
        count = f"len({self.name(absent.space)}) == {found}.count"
        self.terms.append(f"({count} or {found}.holds())")

    def since(self, changes: Changes, guards: Sequence[Guard | Versioned]) -> None:
        """Nothing has changed since all of these guards held last."""
        if guards:
            found = _Since(changes, guards)
            still = f"{self.name(changes)}.mark is {self.name(found.seen)}.mark"
            self.terms.append(f"({still} or {self.name(found)}.hold())")

    def function(self) -> Callable[[], bool]:
        """What tells whether all of it holds."""
        chain = " and\n    ".join(self.terms) or "True"
        code = compile(f"def check():\n    return (\n    {chain})\n", "<guards>", "exec")
        exec(code, self.objects)
        check: Callable[[], bool] = self.objects.pop("check")
        return check


def compiled_check(guards: Guards, bare: Iterable[Any]) -> Callable[[], bool]:
    """Whether surely all ``guards`` hold and no leaf of ``bare`` has a gradient.

    It is made from guards that hold. What it looks for may be gone, which raises.
    """
    chain = _Chain()
    # A tensor has one handle as long as it lives, and who changes its node says so.
    tensors: list[Guard] = []
    for guard in guards.plain:
        if _is_of_a_tensor(guard):
            tensors.append(guard)
        else:
            chain.guard(guard)
    for content in guards.contents:
        chain.contents(content)
    for absent in guards.absent:
        chain.absent(absent)
    chain.since(NODES, tensors)
    chain.since(CHANGES, guards.versioned)
    for leaf in bare:
        chain.terms.append(f"{chain.name(leaf)}.grad is None")
    return chain.function()


def _is_of_a_tensor(guard: Guard) -> bool:
    """Whether a guard is on what a tensor is made of."""
    return guard.holder.__class__ is RudaTensor and guard.name in ("handle", "node")
