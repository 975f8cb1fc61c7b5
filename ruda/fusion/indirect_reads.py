"""What objects read that run no code of the user's: getters, partial functions, caches.

The names that a getter reads and what a cache has kept stand in no code, and nothing begins that
could be watched when they are used.
"""

from __future__ import annotations

import functools
import gc
import operator
import types
from collections.abc import Iterator
from typing import Any

_CACHED = type(functools.cache(len))
_METHODS = (types.BuiltinMethodType, types.MethodWrapperType)
Paths = list[tuple[str, Any]]


def names_read(value: Any) -> frozenset[str]:
    """The attributes that an ``attrgetter`` or ``methodcaller`` reads, each step of a path."""
    if not isinstance(value, operator.attrgetter | operator.methodcaller):
        return frozenset()
    reduced: Any = value.__reduce__()
    made, given = reduced[:2]
    if isinstance(value, operator.methodcaller):
        # With keywords it is made by a partial function of its class.
        name = made.args[0] if isinstance(made, functools.partial) else given[0]
        return frozenset((name,))
    return frozenset(part for path in given for part in path.split("."))


def reads_any(value: Any) -> bool:
    """Whether ``value`` reads attributes by whatever name it is given."""
    return value is getattr or value is hasattr or value is vars or value is dir


def is_cached(value: Any) -> bool:
    """Whether ``value`` is a function that ``functools.cache`` or ``lru_cache`` has made."""
    return isinstance(value, _CACHED)


def kept_by(cached: Any) -> list[Any]:
    """The results that a cached function holds, and their keys."""
    found = [held for held in gc.get_referents(cached) if held is not vars(cached)]
    kept: list[Any] = []
    for held in found:
        # Without a bound they lie in a dict, else in links of a list, which shows them itself.
        kept += (*held, *held.values()) if held.__class__ is dict else [held]
    # An iterator is a result like any other, and nobody can look into it.
    others = (types.FunctionType, type, Iterator)
    return [item for item in kept if not isinstance(item, others) and not _is_link(item)]


def _is_link(item: Any) -> bool:
    return type(item).__module__ == "functools" and type(item).__name__ == "_lru_list_elem"


def held_by(path: str, value: Any) -> Paths | None:
    """What a wrapper in C passes on when it is used; None for anything else."""
    if isinstance(value, property):
        return [(f"{path}.fget", value.fget)]
    if isinstance(value, functools.partial | functools.partialmethod):
        names = ("func", "args", "keywords")
        return [(f"{path}.{name}", getattr(value, name)) for name in names]
    if isinstance(value, _METHODS):
        owner = getattr(value, "__self__", None)
        return [] if isinstance(owner, types.ModuleType) else [(path, owner)]
    return None


def cell_value(cell: types.CellType, missing: Any) -> Any:
    """What is in a closure's cell; ``missing`` where nothing is yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return missing


def called_by(function: types.FunctionType, names: frozenset[str]) -> Iterator[types.FunctionType]:
    """The functions that ``function`` may call by a global of ``names`` or out of its closure."""
    found = [function.__globals__.get(name) for name in names]
    found += [cell_value(cell, None) for cell in function.__closure__ or ()]
    for item in found:
        if isinstance(item, types.FunctionType):
            yield item


def lineage(cls: type, _: Any) -> tuple[type, ...]:
    """The classes that attributes of ``cls`` are looked for in."""
    return cls.__mro__


def names_of(fields: dict[str, Any], cls: Any) -> str:
    """The names of an object's fields but for those that its class computes once."""
    return " ".join(n for n in fields if not _is_computed_once(cls, n))


def _is_computed_once(cls: type, name: str) -> bool:
    found = (vars(c)[name] for c in cls.__mro__ if name in vars(c))
    return isinstance(next(found, None), functools.cached_property)
