"""Builds the guards of a trace: from the user functions that run to what their code can reach.

A function's globals, closure cells and defaults are where it starts; from there it follows the
attribute names that the running code mentions, into containers, objects, classes and modules. A
value is noted when the function begins, before it can change it, so that a change is seen at the
end of the trace.
"""

from __future__ import annotations

import collections
import functools
import gc
import io
import sys
import types
import weakref
from array import array
from collections.abc import Callable, Iterator, Sequence, Set
from contextvars import ContextVar
from enum import Enum, EnumType
from importlib.util import resolve_name
from types import FunctionType
from typing import Any

from ruda.fusion.attribute_lookup import (
    common_names,
    fields_of,
    file_of,
    finds_attributes,
    first_with,
    is_open,
    is_users,
    place_of,
)
from ruda.fusion.bytecode import Facts, facts_of
from ruda.fusion.guards import (
    MISSING,
    SCALARS,
    Absent,
    Contents,
    Guard,
    Guards,
    Versioned,
    class_attribute,
)
from ruda.fusion.indirect_reads import (
    called_by,
    cell_value,
    held_by,
    is_cached,
    kept_by,
    lineage,
    names_of,
    names_read,
    reads_any,
)
from ruda.fusion.lines import is_user_file, refusal
from ruda.fusion.lookups import Lookups, own
from ruda.fusion.pytree import is_record
from ruda.tensor.tensor import RudaTensor

_LARGEST = 10_000


class GuardBuilder:
    """Fills ``guards``. ``tensors`` and ``objects`` are what was reached, each with its path."""

    def __init__(self) -> None:
        self.guards = Guards()
        self.tensors: list[tuple[str, RudaTensor]] = []
        self.objects: list[tuple[str, Any]] = []
        self._seen: set[tuple[int, Any]] = set()
        self._imports: dict[tuple[tuple[str, int], Any], Facts] = {}
        self._visited: set[tuple[int, int | str]] = set()
        self._absent: dict[int, Absent] = {}
        # Alive objects that belong to nobody inside the trace, with the path to each.
        self._paths: dict[int, str] = {}
        # Ids stand for objects here, so the objects must live as long.
        self._kept: list[Any] = []
        # What getters read, which may stand in no code: names, and whether it may be any.
        self._learned = _NOTHING
        # What is to be looked at when the trace is over: caches, and fields that are computed once.
        self._caches: list[tuple[str, Any, Facts]] = []
        self._once: list[tuple[str, Any, str, Facts]] = []
        # What is told of names that are computed, and facts with such a name, by code.
        self.lookups = Lookups(self._looked_up)
        self._named: dict[tuple[int, str], Facts] = {}
        # Functions that are guarded though they may not run, by the id of their code.
        self._unseen: set[int] = set()

    def root(self, path: str, value: Any) -> None:
        """Start from ``value``: the function itself, or an argument compared by identity."""
        self._paths[id(value)] = path
        self._walk(path, value, _NOTHING)

    def enter(self, frame: Any, functions: list[FunctionType]) -> None:
        """A user function begins: guard what its code can reach."""
        code = frame.f_code
        facts, scope, local = facts_of(code), frame.f_globals, frame.f_locals
        self.lookups.watch(scope, facts.lookups)
        self._enter_globals(scope, facts)
        for module in facts.imports:
            # Its first import may still be to come: looked at again when the trace is over.
            self._imports[module, scope.get("__package__")] = facts
        self._enter_imports()
        for function in functions:
            self._enter_function(function, local, facts)
        self._enter_method(code, functions, local)
        count = code.co_argcount + code.co_kwonlyargcount + 2
        for name in code.co_varnames[:count]:
            value = local.get(name)
            if is_record(value):
                # Its fields are of the call; what all of its kind have is not.
                self._walk(type(value).__qualname__, type(value), facts)
            path = self._paths.get(id(value))
            if path is not None:
                self._walk(path, value, facts)

    def _enter_globals(self, scope: dict[str, Any], facts: Facts) -> None:
        there = own(scope, facts.globals)
        for name in sorted(there):
            self._reach(name, dict.get, scope, name, scope[name], facts)
        self._lack("globals", scope, scope, facts.globals - there)

    def _looked_up(self, holder: Any, name: Any, code: Any) -> None:
        """The running ``code`` is about to look at an attribute by a name that it has computed."""
        path = self._paths.get(id(holder))
        if path is None or not isinstance(name, str):
            return
        facts = self._named.get((id(code), name))
        if facts is None:
            known = facts_of(code)
            facts = known._replace(attributes=known.attributes | {name})
            self._named[id(code), name] = facts
        self._walk(path, holder, facts)

    def _enter_unseen(self, function: Any) -> None:
        """Guard what ``function`` and those that it calls can reach, though none may run."""
        todo = [function]
        while todo:
            found = todo.pop()
            if found.__class__ is not FunctionType or id(found.__code__) in self._unseen:
                continue
            if not is_user_file(found.__code__.co_filename):
                continue
            self._unseen.add(id(found.__code__))
            self._kept.append(found.__code__)
            facts = self._unseen_facts(found.__code__)
            self._enter_globals(found.__globals__, facts)
            cells = zip(found.__code__.co_freevars, found.__closure__ or (), strict=True)
            local = {name: cell_value(cell, MISSING) for name, cell in cells}
            there = {name: value for name, value in local.items() if value is not MISSING}
            self._enter_function(found, there, facts)
            todo += called_by(found, facts.globals)

    def _unseen_facts(self, code: Any) -> Facts:
        """Those of code that does not run: nobody tells which names it would compute."""
        facts = facts_of(code)
        if not facts.lookups:
            return facts
        return self._named.setdefault((id(code), ""), facts._replace(computed=True))

    def _enter_method(self, code: Any, functions: list[FunctionType], local: Any) -> None:
        """Guard that the class of the first argument has the running function for a method."""
        first = local.get(code.co_varnames[0]) if code.co_argcount else None
        for cls in type(first).__mro__:
            found = vars(cls).get(code.co_name)
            if any(found is function for function in functions):
                path = f"{cls.__qualname__}.{code.co_name}"
                self._reach(path, class_attribute, cls, code.co_name, found, _NOTHING)

    def _enter_imports(self) -> None:
        for ((name, level), package), facts in self._imports.items():
            full = resolve_name("." * level + name, package) if level else name
            for place in {full, full.partition(".")[0]} & sys.modules.keys():
                module = sys.modules[place]
                # A module that is being loaded has not all of its names yet.
                if not getattr(getattr(module, "__spec__", None), "_initializing", False):
                    self._reach(place, dict.get, sys.modules, place, module, facts)

    def finish(self) -> Guards:
        """The guards, once the trace is over."""
        self._enter_imports()
        for path, fields, name, facts in self._once:
            if name in fields:
                self._reach(f"{path}.{name}", dict.get, fields, name, fields[name], facts)
        for path, cached, facts in self._caches:
            for item in kept_by(cached)[:_LARGEST]:
                self._walk(f"{path}()", item, facts)
        return self.guards

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
            else:
                self._reach(name, cell_value, cell, MISSING, MISSING, facts)

    def _reach(
        self, path: str, get: Callable[..., Any], holder: Any, name: Any, value: Any, facts: Facts
    ) -> None:
        self._kept.append(holder)
        self._note(path, get, holder, name, value)
        self._walk(path, value, facts)

    def _walk(self, path: str, value: Any, facts: Facts) -> None:
        stack = [(path, value)]
        while stack:
            path, value = stack.pop()
            is_tensor = value.__class__ is RudaTensor
            # A tensor is noted with each path to it: people know it by the best one.
            seen = id(value), path if is_tensor else id(facts)
            if value.__class__ in SCALARS or seen in self._visited:
                continue
            self._visited.add(seen)
            self._kept.append(value)
            if is_tensor:
                self.tensors.append((path, value))
                continue
            self.objects.append((path, value))
            self._paths.setdefault(id(value), path)
            stack += self._children(path, value, facts)

    def _children(self, path: str, value: Any, facts: Facts) -> list[tuple[str, Any]]:
        if isinstance(value, _CONTAINERS):
            return self._items(path, value)
        if hasattr(type(value), "_ruda_version") or "_ruda_version" in fields_of(value):
            return self._versioned(path, value, facts)
        if value.__class__.__module__ == "numpy" and hasattr(value, "setflags"):
            return self._array(path, value)
        if isinstance(value, types.MethodType):
            return [(path, value.__self__)]
        if isinstance(value, ContextVar):
            self._note(f"{path}.get()", ContextVar.get, value, MISSING, value.get(MISSING))
            return [(f"{path}.get()", value.get(MISSING))]
        if isinstance(value, _SEEN_THROUGH):
            return self._beneath(path, value)
        if is_cached(value):
            return self._cached(path, value, facts)
        self._learn(names_read(value), reads_any(value))
        held = held_by(path, value)
        if held is not None:
            return self._wrapped(path, value, held, facts)
        if isinstance(value, weakref.ProxyTypes):
            hint = "weakref.ref, or the object itself"
            raise refusal("compile", f"{path} is a weak proxy, which hides its object", hint=hint)
        if isinstance(value, Iterator) and not isinstance(value, io.IOBase):
            hint = "taking the next item outside and passing it as an argument"
            raise refusal(
                "compile", f"{path} is an iterator, which a replay would not move", hint=hint
            )
        if isinstance(value, types.ModuleType) and not is_user_file(file_of(value)):
            return []
        if isinstance(value, type) or type(value).__module__.partition(".")[0] != "ruda":
            return self._attributes(path, value, facts)
        return []

    def _cached(self, path: str, value: Any, facts: Facts) -> list[tuple[str, Any]]:
        """A function that need not run since its results are kept: what it reads, and they."""
        inner = vars(value).get("__wrapped__")
        code = getattr(inner, "__code__", None)
        if code is None or not is_user_file(code.co_filename):
            return []
        self._caches.append((path, value, facts))
        self._enter_unseen(inner)
        for item in kept_by(value)[:_LARGEST]:
            # A key is an argument of the function, a result is read by who calls it.
            self._walk(f"{path}()", item, self._unseen_facts(code))
            self._walk(f"{path}()", item, facts)
        return self._attributes(path, value, facts)

    def _wrapped(
        self, path: str, value: Any, held: list[tuple[str, Any]], facts: Facts
    ) -> list[tuple[str, Any]]:
        if isinstance(value, functools.partial | functools.partialmethod):
            for name in ("func", "args", "keywords"):
                self._note(f"{path}.{name}", getattr, value, name, getattr(value, name))
            return [*held, *self._attributes(path, value, facts)]
        return held

    def _learn(self, names: frozenset[str], computed: bool) -> None:
        """A getter reads these names: of what was reached already as well."""
        known = self._learned
        if names <= known.attributes and computed <= known.computed:
            return
        names, computed = known.attributes | names, known.computed or computed
        facts = self._learned = _NOTHING._replace(attributes=names, computed=computed)
        self._kept.append(facts)
        for path, value in list(self.objects):
            self._walk(path, value, facts)

    def _items(self, path: str, value: Any) -> list[tuple[str, Any]]:
        if len(value) > _LARGEST:
            hint = "passing what the step needs of it as an argument"
            raise refusal("compile", f"{path} has too many items to guard", len(value), hint)
        if (id(value), _ITEMS) not in self._seen:
            self._seen.add((id(value), _ITEMS))
            if not isinstance(value, tuple | frozenset):
                self.guards.contents.append(Contents(path, value))
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        return [(f"{path}[{name!r}]", item) for name, item in pairs]

    def _versioned(self, path: str, value: Any, facts: Facts) -> list[tuple[str, Any]]:
        fields = {k: v for k, v in vars(value).items() if k != "_ruda_version"}
        if (id(value), _ITEMS) not in self._seen:
            self._seen.add((id(value), _ITEMS))
            found = Versioned(path, value)
            self.guards.versioned.append(found)
            for name, item in fields.items():
                if name.startswith("_") and isinstance(item, dict | list | set):
                    # Private containers change only with the version: no look at each call.
                    self._seen.add((id(item), _ITEMS))
                    found.fields.append(Contents(f"{path}.{name}", item))
                    self._note_bindings(f"{path}.{name}", item)
        own = [cls for cls in type(value).__mro__ if is_users(cls)]
        names: Set[str] = facts.attributes | self._learned.attributes
        if facts.computed or self._learned.computed:
            names = names | common_names(value)
        names = names - fields.keys()
        common = self._inherited(path, type(value), own, names, facts) if own else []
        return common + [(f"{path}.{name}", item) for name, item in fields.items()]

    def _note_bindings(self, path: str, container: Any) -> None:
        """The tensors of a private dict: those that the trace uses are looked at each call."""
        if isinstance(container, dict):
            self.guards.bindings += [
                Guard(f"{path}[{name!r}]", dict.get, container, name, item)
                for name, item in container.items()
                if item.__class__ is RudaTensor
            ]

    def _beneath(self, path: str, value: Any) -> list[tuple[str, Any]]:
        """What is seen through ``value``: a reference or cell, or a view of a dict or of bytes."""
        if isinstance(value, weakref.ref):
            found = value()
            self._note(f"{path}()", _referent, value, None, found)
            return [(f"{path}()", found)]
        if isinstance(value, memoryview):
            return [(path, value.obj)]
        if isinstance(value, types.CellType):
            found = cell_value(value, MISSING)
            self._note(f"{path}.cell_contents", cell_value, value, MISSING, found)
            return [(f"{path}.cell_contents", found)]
        return [(path, item) for item in gc.get_referents(value)]

    def _array(self, path: str, value: Any) -> list[tuple[str, Any]]:
        if value.size > _LARGEST:
            hint = "ruda.asarray(array) once, outside of the step"
            what = f"{path} is a NumPy array, too large to watch for changes"
            raise refusal("compile", what, value.shape, hint)
        if (id(value), _ITEMS) not in self._seen:
            self._seen.add((id(value), _ITEMS))
            self.guards.contents.append(Contents(path, value))
        return []

    def _attributes(self, path: str, value: Any, facts: Facts) -> list[tuple[str, Any]]:
        """The fields of an object or class that the running code has names for, or may read."""
        out = []
        fields = {} if isinstance(value, type) else fields_of(value)
        # Code of a library that finds attributes itself may read any field for any name.
        cls: Any = type(value)
        named = facts.attributes | self._learned.attributes
        names: Set[str] = fields.keys() if finds_attributes(cls) else named
        computed = facts.computed or self._learned.computed
        whole = (computed and is_open(value)) or isinstance(value, Enum)
        if whole:
            names = named | fields.keys() | common_names(value)
        if whole and not isinstance(value, type | types.ModuleType):
            self._note(f"{path}.__dict__", names_of, fields, cls, names_of(fields, cls))
        for name in names & fields.keys():
            self._note(f"{path}.{name}", dict.get, fields, name, fields[name])
            out.append((f"{path}.{name}", fields[name]))
        if whole:
            out = [(where, v) for where, v in out if _is_plain(where, v, named)]
        if isinstance(value, types.ModuleType):
            return out
        if not isinstance(value, type) and is_users(cls) and value.__class__ is cls:
            self._note(f"{path}.__class__", getattr, value, "__class__", cls)
        classes = (*value.__mro__, *cls.__mro__) if isinstance(value, type) else cls.__mro__
        if isinstance(value, EnumType):
            members: dict[str, Any] = {**value.__members__}
            out += [(f"{path}.{name}", member) for name, member in members.items()]
        common = self._inherited(path, value, classes, names - fields.keys(), facts)
        return out + [(w, v) for w, v in common if not whole or _is_plain(w, v, named)]

    def _inherited(
        self, path: str, value: Any, classes: Sequence[type], names: Set[str], facts: Facts
    ) -> list[tuple[str, Any]]:
        """What ``classes`` have under ``names``; that nothing comes before it is guarded."""
        out, free = [], set()
        lacking: dict[type, set[str]] = {cls: set() for cls in classes if is_users(cls)}
        own = getattr(value, "__dict__", None)
        for users in lacking:
            self._note(f"{users.__qualname__}.__mro__", lineage, users, None, users.__mro__)
        for name in names:
            cls = first_with(classes, name, lacking)
            item = MISSING if cls is None else vars(cls)[name]
            if item.__class__ is FunctionType or not hasattr(item, "__get__"):
                # The object's own attribute would come first.
                free.add(name)
            if isinstance(item, functools.cached_property) and own.__class__ is dict:
                self._once.append((path, own, name, facts))
            found = () if cls is None else place_of(value, cls, name, item)
            if found:
                get, holder, item = found
                self._note(f"{path}.{name}", get, holder, name, item)
                out.append((f"{path}.{name}", item))
        for cls, missing in lacking.items():
            self._lack(cls.__qualname__, cls, vars(cls), missing)
        if own.__class__ is dict and not isinstance(value, type):
            self._lack(path, value, own, free)
        return out

    def _note(self, path: str, get: Callable[..., Any], holder: Any, name: Any, item: Any) -> None:
        if (id(holder), name) not in self._seen:
            self._seen.add((id(holder), name))
            self.guards.plain.append(Guard(path, get, holder, name, item))

    def _lack(self, path: str, owner: Any, space: Any, names: Set[str]) -> None:
        """Guard that ``owner`` goes on having nothing under ``names``."""
        if not names:
            return
        found = self._absent.get(id(owner))
        if found is None:
            found = self._absent[id(owner)] = Absent(path, owner, space)
            self.guards.absent.append(found)
        found.names |= names


_CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque, bytearray, array)
_NOTHING = Facts(frozenset(), frozenset(), frozenset(), frozenset())
_ITEMS = object()
_SEEN_THROUGH = (weakref.ref, types.MappingProxyType, memoryview, types.CellType)


def _is_plain(path: str, value: Any, named: Set[str]) -> bool:
    """Whether what is beneath a field is followed: those without a name in code lead far away."""
    if path.rpartition(".")[2] in named:
        return True
    if isinstance(value, _CONTAINERS):
        return len(value) <= _LARGEST
    cls: Any = type(value)
    is_object = is_users(cls) and not isinstance(value, Iterator)
    return is_object or isinstance(value, RudaTensor)


def _shows(cell: Any, local: Any, name: str) -> bool:
    try:
        return bool(cell.cell_contents is local.get(name, MISSING))
    except ValueError:
        return name not in local


def _referent(reference: Any, _: Any) -> Any:
    return reference()
