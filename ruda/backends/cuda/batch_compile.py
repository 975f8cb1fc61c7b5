"""Many kernels compiled at once: a few programs, one thread each.

Starting NVRTC on a program costs more than most kernels do, so kernels share programs: each source
lies in a namespace of its own behind the headers of all. The code of a program is kept on disk
once, and beside it, for each source, a file that names it. NVRTC lets go of the interpreter while
it works.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ruda.backends.cuda import cache, compiler

_DEFINED = re.compile(r"^#define (\w+)", re.MULTILINE)
_CAPITALS = re.compile(r"\b[A-Z][A-Z_]+\b")
_NAMED = re.compile(r"ruda/(\w+)\.cuh")
_POWER = re.compile(r"\bpow\(")
_MOST_PROGRAMS = 8
# Headers that have names in common, so that no program includes both.
_APART = (frozenset({"fold", "rows"}), frozenset({"keys", "philox"}))
# Milliseconds that kernels of these headers take beside those for each 1000 characters of text and
# for each power in double precision, as measured; starting a program takes 36.
_EFFORT = {"shared_rows": 220, "scores": 200, "rows": 60, "fold": 25}
_LENGTH, _EACH_POWER = 15, 100


class Loadable(NamedTuple):
    """Machine code, and the (source, name) of the kernels in it that are wanted."""

    code: bytes
    kernels: tuple[tuple[str, str], ...]


def loadable(wanted: Sequence[tuple[str, str]], arch: str) -> list[Loadable]:
    """The code of all ``wanted`` kernels, each a (source, name): from disk, or compiled now."""
    names: dict[str, list[str]] = {}
    for source, name in dict.fromkeys(wanted):
        names.setdefault(source, []).append(name)
    found: dict[bytes, list[str]] = {}
    missing = []
    for source in names:
        code = cache.find(source, names[source][0], arch)
        if code is None:
            missing.append(source)
        else:
            found.setdefault(code, []).append(source)
    for code, sources in _compiled(missing, names, arch):
        found.setdefault(code, []).extend(sources)
    return [
        Loadable(code, tuple((s, name) for s in sources for name in names[s]))
        for code, sources in found.items()
    ]


def headers_of(source: str) -> tuple[str, ...]:
    """The lines that include something: what two of them define may have the same names."""
    return tuple(line for line in source.splitlines() if line.startswith("#include"))


def program(sources: Sequence[str]) -> str:
    """One program with the kernels of all ``sources``, whose headers may be included together."""
    headers = dict.fromkeys(line for source in sources for line in headers_of(source))
    parts = []
    for k, source in enumerate(sources):
        lines = source.splitlines()
        rest = "\n".join(line for line in lines if not line.startswith("#include"))
        undone = "\n".join(f"#undef {name}" for name in dict.fromkeys(_DEFINED.findall(rest)))
        parts.append(f"namespace part_{k} {{\n{rest}\n}}\n{undone}\n")
    return "\n".join([*headers, *parts])


class _Names(NamedTuple):
    """The headers of sources with those that they include, and names in capitals of their own.

    ``capitals`` are those that would be taken for macros if a header had such ones.
    """

    headers: frozenset[str]
    capitals: frozenset[str]

    def beside(self, other: _Names) -> _Names | None:
        """Both together; None if one would mean something else beside the other."""
        headers, capitals = self.headers | other.headers, self.capitals | other.capitals
        if any(two <= headers for two in _APART) or capitals & _macros(headers):
            return None
        return _Names(headers, capitals)


@functools.lru_cache(maxsize=256)
def _macros(headers: frozenset[str]) -> frozenset[str]:
    texts = (compiler.header(f"ruda/{name}.cuh") for name in headers)
    return frozenset(name for text in texts for name in _DEFINED.findall(text))


def _names_of(source: str) -> _Names:
    headers = frozenset(_NAMED.findall(" ".join(compiler.headers_of(source))))
    return _Names(headers, frozenset(_CAPITALS.findall(source)) - _macros(headers))


def grouped(sources: Sequence[str], most: int) -> list[list[str]]:
    """``sources`` in at most ``most`` programs that take about as long as each other.

    Sources that cannot share a program are apart, in a program for each kind at least.
    """
    kinds: list[tuple[_Names, list[str]]] = []
    for source in sources:
        names = _names_of(source)
        for k, (known, members) in enumerate(kinds):
            both = known.beside(names)
            if both is not None:
                kinds[k] = both, [*members, source]
                break
        else:
            kinds.append((names, [source]))
    counts = [1] * len(kinds)
    works = [sum(map(effort, members)) for _, members in kinds]
    while sum(counts) < min(most, len(sources)):
        shares = [
            work / count if count < len(members) else 0.0
            for work, count, (_, members) in zip(works, counts, kinds, strict=True)
        ]
        counts[shares.index(max(shares))] += 1
    return [
        group
        for (_, members), count in zip(kinds, counts, strict=True)
        for group in shared(members, count)
    ]


def _compiled(
    sources: Sequence[str], names: dict[str, list[str]], arch: str
) -> list[tuple[bytes, list[str]]]:
    if not sources:
        return []
    groups = grouped(sources, min(_MOST_PROGRAMS, os.cpu_count() or 1))

    def compiled(group: list[str]) -> list[tuple[bytes, list[str]]]:
        if len(group) == 1:
            return [(cache.cubin(group[0], names[group[0]][0], arch), group)]
        text = program(group)
        title = f"batch_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        try:
            code = compiler.compile_cubin(text, title, arch)[0]
        except compiler.CompileError:
            # Two of them have a name in common that no namespace parts, or one is wrong: alone it
            # says so.
            return [found for source in group for found in compiled([source])]
        cache.keep_together(code, title, [(s, names[s][0]) for s in group], arch)
        return [(code, group)]

    with ThreadPoolExecutor(len(groups)) as threads:
        return [found for part in threads.map(compiled, groups) for found in part]


def effort(source: str) -> float:
    """About how many milliseconds a source takes to compile."""
    header = max((_EFFORT.get(name, 0) for name in _names_of(source).headers), default=0)
    return header + _LENGTH * len(source) / 1000 + _EACH_POWER * len(_POWER.findall(source))


def shared(sources: Sequence[str], count: int) -> list[list[str]]:
    """``sources`` in ``count`` groups of about the same effort."""
    groups: list[list[str]] = [[] for _ in range(count)]
    works = [0.0] * count
    for source in sorted(sources, key=effort, reverse=True):
        least = works.index(min(works))
        groups[least].append(source)
        works[least] += effort(source)
    return groups
