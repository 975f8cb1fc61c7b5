"""What a trace may freeze without an error: clocks, foreign random numbers, the environment."""

from __future__ import annotations

import builtins
import io
import os
from types import BuiltinFunctionType, CodeType, MethodType, MethodWrapperType, ModuleType
from typing import Any, NamedTuple

from ruda.fusion.bytecode import facts_of

_CLOCKS = ("time", "datetime", "random", "secrets", "uuid", "numpy.random")
_UNSEEN = ("eval", "exec", "globals", "locals")
_MODULES = {("sys", "modules"), ("importlib", "import_module")}
_BOUND = (BuiltinFunctionType, MethodType, MethodWrapperType)
_NOW = ("now", "utcnow", "today")


class Finding(NamedTuple):
    """Something to look at: ``what`` it is, ``where``, and what to do (``hint``)."""

    what: str
    where: str
    hint: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}. Try {self.hint}."


def changing(value: Any) -> str | None:
    """The name of ``value`` if what it gives differs from call to call, else None."""
    if value is os.environ or value is os.getenv or value is os.urandom:
        return "os.environ" if value is not os.urandom else "os.urandom"
    if isinstance(value, ModuleType):
        return None
    if isinstance(value, io.StringIO | io.BytesIO):
        return f"what is in an io.{type(value).__name__}"
    if any(cls.__module__ == "_ctypes" for cls in type(value).__mro__[1:]):
        return f"a value of ctypes ({type(value).__name__})"
    # A function of the time or random module, a bound method of a generator, or a generator.
    owner = value.__self__ if isinstance(value, _BOUND) else None
    for thing in (value, type(value), type(owner)):
        module = getattr(thing, "__module__", None) or ""
        if module in _CLOCKS[:1] + _CLOCKS[2:] or module.startswith("numpy.random."):
            return f"{module}.{getattr(value, '__name__', type(value).__name__)}"
    if isinstance(owner, ModuleType) and owner.__name__ in _CLOCKS:
        return f"{owner.__name__}.{value.__name__}"
    return None


def _resolved(chain: tuple[str, ...], scope: dict[str, Any]) -> str | None:
    value = scope.get(chain[0], getattr(builtins, chain[0], None))
    for name in chain[1:]:
        found = changing(value)
        if found is not None:
            return found
        if isinstance(value, type) and value.__module__ == "datetime" and name in _NOW:
            return f"datetime.{value.__name__}.{name}"
        if not isinstance(value, ModuleType):
            return None
        value = vars(value).get(name)
    return changing(value)


def findings(code: CodeType, scope: dict[str, Any]) -> list[Finding]:
    """The clocks, random numbers and unguarded reads of ``code``, with the globals ``scope``."""
    facts = facts_of(code)
    names = {_resolved(chain, scope) for chain in facts.chains}
    names |= {name for name, _ in facts.imports if name in _CLOCKS}
    where = f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}"
    found = [frozen(name, where) for name in sorted(names - {None})]  # type: ignore[type-var]
    unseen = {f"{name}()" for name in facts.globals.intersection(_UNSEEN) - scope.keys()}
    unseen |= {".".join(chain) for chain in facts.chains & _MODULES}
    for name in sorted(unseen):
        hint = "naming what is read, so that a change of it is seen"
        found.append(Finding(f"what {name} reads is not guarded", where, hint))
    return found


def frozen(name: str | None, where: str) -> Finding:
    """The finding for a value that is read once, in the trace."""
    hint = "passing the value as an argument, or ruda.random for random numbers"
    return Finding(f"{name} is read once, while tracing, and frozen", where, hint)
