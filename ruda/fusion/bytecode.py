"""What a function's code mentions: the globals it loads and the names of attributes it touches."""

from __future__ import annotations

import dis
import re
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Any, NamedTuple

from ruda.fusion.lookups import NAMES

_WORD = re.compile(r"[^\W\d]\w*")
# Functions and attributes that read whatever there is, and those that do unless they say a name.
_READ_ALL = (
    *("vars", "dir", "deepcopy", "asdict", "astuple", "getmembers", "getattr_static"),
    *("__dict__", "__getattribute__", "__getstate__", "__reduce_ex__"),
)
# What finds all arguments of a call on the stack: in Python 3.11 an instruction ahead of the call.
_CALL = "PRECALL" if "PRECALL" in dis.opmap else "CALL"
_LOADS = ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR", "LOAD_SUPER_ATTR")


class Facts(NamedTuple):
    """``globals`` and ``attributes`` by name; ``chains`` as ``("np", "random", "rand")``.

    ``imports`` are modules imported by the code itself, as (name, level). ``lookups`` are those of
    ``getattr`` and its like that get names which stand nowhere in the code, ``computed`` says that
    all attributes may be read together. Functions that are defined inside count too: they may run
    on what the outer one reached.
    """

    globals: frozenset[str]
    attributes: frozenset[str]
    chains: frozenset[tuple[str, ...]]
    imports: frozenset[tuple[str, int]]
    lookups: frozenset[str] = frozenset()
    computed: bool = False


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
    instructions = list(dis.get_instructions(code))
    lookups, computed = _computed_lookups(instructions), False
    for instruction in instructions:
        if instruction.opname == "LOAD_CONST":
            level.append(instruction.argval)
        if instruction.opname == "IMPORT_NAME":
            # The level of a relative import and the names to import were put on the stack before.
            imports.add((instruction.argval, level[-2]))
            attributes.update(level[-1] or ())
            attributes.update(instruction.argval.split(".")[1:])
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
            lookups |= inner.lookups
            computed |= inner.computed
        else:
            attributes.update(_words(constant))
    computed |= not (names | attributes).isdisjoint(_READ_ALL) or ("copy", "copy") in chains
    parts = frozenset(names), frozenset(attributes), frozenset(chains), frozenset(imports)
    return Facts(*parts, frozenset(lookups), computed)


def _words(constant: Any) -> Iterator[str]:
    """The names in a constant: what ``getattr(x, "name")`` or "{x.name}".format(...) reads."""
    if isinstance(constant, tuple | frozenset):
        for item in constant:
            yield from _words(item)
    elif isinstance(constant, str) and not any(map(str.isspace, constant)):
        yield from _WORD.findall(constant)


def _computed_lookups(instructions: Sequence[dis.Instruction]) -> set[str]:
    """Those of ``getattr`` and its like that are not just called with a constant."""
    return {
        load.argval
        for i, load in enumerate(instructions)
        if load.opname in ("LOAD_GLOBAL", "LOAD_NAME")
        and load.argval in NAMES
        and not _says_name(instructions[i + 1 :])
    }


def _says_name(rest: Sequence[dis.Instruction]) -> bool:
    """Whether the function that is on the stack when ``rest`` begins gets a constant for a name."""
    depth, second = 0, None
    for instruction in rest:
        if instruction.opname == _CALL and instruction.arg == depth:
            return isinstance(second, str)
        if instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs:
            return False
        before = depth
        depth += dis.stack_effect(instruction.opcode, instruction.arg)
        if depth == 2:
            is_given = before == 1 and instruction.opname == "LOAD_CONST"
            second = instruction.argval if is_given else None
    return False
