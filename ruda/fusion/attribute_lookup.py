"""Where attributes are found: the fields of an object, its classes, and whose they are."""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
from argparse import Namespace
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from ruda.fusion.guards import MISSING, class_attribute, slot
from ruda.fusion.lines import is_user_file

# Functions are guarded where they run.
_PLAIN = (FunctionType, types.GetSetDescriptorType)


@functools.cache
def finds_attributes(cls: type) -> bool:
    """Whether a class of an installed package has ``__getattr__`` or ``__getitem__`` in Python."""
    hooks = ("__getattr__", "__getattribute__", "__getitem__")
    found = (vars(c).get(hook) for c in cls.__mro__ for hook in hooks)
    return any(
        isinstance(f, FunctionType) and not is_user_file(f.__code__.co_filename) for f in found
    )


@functools.cache
def is_users(cls: type) -> bool:
    """Whether a class is from a user's file."""
    module = sys.modules.get(cls.__module__)
    return cls.__module__ == "__main__" or (module is not None and is_user_file(file_of(module)))


def is_open(value: Any) -> bool:
    """Whether any attribute of ``value`` may be read by a name that is computed."""
    if isinstance(value, types.ModuleType):
        return True
    cls = value if isinstance(value, type) else type(value)
    known = isinstance(value, types.SimpleNamespace | Namespace) or dataclasses.is_dataclass(value)
    return known or is_users(cls)


def common_names(value: Any) -> set[str]:
    """The names in the classes of ``value`` that are a user's."""
    classes = value.__mro__ if isinstance(value, type) else type(value).__mro__
    return {n for c in classes if is_users(c) for n in vars(c) if not n.startswith("__")}


def fields_of(value: Any) -> dict[str, Any]:
    fields = getattr(value, "__dict__", None)
    return fields if isinstance(fields, dict) else {}


def file_of(module: types.ModuleType) -> str:
    return getattr(module, "__file__", None) or "<frozen>"


def first_with(classes: Sequence[type], name: str, lacking: dict[type, set[str]]) -> type | None:
    """The first of ``classes`` with ``name``; ``lacking`` is told of those before it."""
    for cls in classes:
        if name in vars(cls):
            return cls
        if cls in lacking:
            lacking[cls].add(name)
    return None


def place_of(value: Any, cls: type, name: str, item: Any) -> tuple[Any, ...]:
    """How to look at what ``value`` has from ``cls``: (get, holder, what is there), or nothing."""
    if isinstance(item, types.MemberDescriptorType):
        found = MISSING if isinstance(value, type) else getattr(value, name, MISSING)
        if isinstance(value, type):
            return ()
        return (slot if found is MISSING else getattr), value, found
    if hasattr(item, "__get__") and (item.__class__ in _PLAIN or not is_users(cls)):
        return ()
    return () if cls.__module__ == "builtins" else (class_attribute, cls, item)
