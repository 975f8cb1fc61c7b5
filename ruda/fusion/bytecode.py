"""What a function's code mentions: the globals it loads and the names of attributes it touches."""

from __future__ import annotations

import dis
from types import CodeType
from typing import Any, NamedTuple

_LOADS = ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR", "LOAD_SUPER_ATTR")


class Facts(NamedTuple):
    """``globals`` and ``attributes`` by name; ``chains`` as ``("np", "random", "rand")``.

    ``imports`` are modules imported by the code itself, as (name, level). Functions that are
    defined inside count too: they may run on what the outer one reached.
    """

    globals: frozenset[str]
    attributes: frozenset[str]
    chains: frozenset[tuple[str, ...]]
    imports: frozenset[tuple[str, int]]


# By id, since hashing a code object walks all of it; the code is kept so that its id stays its own.
_known: dict[int, tuple[CodeType, Facts]] = {}


def facts_of(code: CodeType) -> Facts:
    """The facts of ``code``, read off its instructions once."""
    found = _known.get(id(code))
    if found is None:
        found = _known[id(code)] = (code, _read(code))
    return found[1]


def _read(code: CodeType) -> Facts:
    names: set[str] = set()
    attributes: set[str] = set()
    chains: set[tuple[str, ...]] = set()
    imports: set[tuple[str, int]] = set()
    chain: tuple[str, ...] = ()
    level: list[Any] = []
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_CONST":
            level.append(instruction.argval)
        if instruction.opname == "IMPORT_NAME":
            # The level of a relative import and the names to import were put on the stack before.
            imports.add((instruction.argval, level[-2]))
            attributes.update(level[-1] or ())
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL"):
            chain = (instruction.argval,)
            names.add(instruction.argval)
        elif instruction.opname in _LOADS:
            chain = (*chain, instruction.argval) if chain else ()
            attributes.add(instruction.argval)
        else:
            chain = ()
        if chain:
            chains.add(chain)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = facts_of(constant)
            names |= inner.globals
            attributes |= inner.attributes
            chains |= inner.chains
            imports |= inner.imports
        elif isinstance(constant, str) and constant.isidentifier():
            # What getattr(x, "name") reads.
            attributes.add(constant)
    return Facts(frozenset(names), frozenset(attributes), frozenset(chains), frozenset(imports))
