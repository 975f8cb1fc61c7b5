"""Many kernels compiled at once: a few programs, one thread each.

Starting NVRTC on a program costs more than most kernels do, so kernels share programs: each source
lies in a namespace of its own behind their headers. The code of a program is kept on disk once,
and beside it, for each source, a file that names it. NVRTC lets go of the interpreter while it
works.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ruda.backends.cuda import cache, compiler

_DEFINED = re.compile(r"^#define (\w+)", re.MULTILINE)
_MOST_PROGRAMS = 16
# What kernels of these headers take against one that moves memory; starting a program takes 0.5.
_EFFORT = {"rows": 4, "limits": 8, "fold": 2, "keys": 2}


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
    """One program with the kernels of all ``sources``, which include the same."""
    parts = []
    for k, source in enumerate(sources):
        lines = source.splitlines()
        rest = "\n".join(line for line in lines if not line.startswith("#include"))
        undone = "\n".join(f"#undef {name}" for name in dict.fromkeys(_DEFINED.findall(rest)))
        parts.append(f"namespace part_{k} {{\n{rest}\n}}\n{undone}\n")
    return "\n".join([*headers_of(sources[0]), *parts])


def _compiled(
    sources: Sequence[str], names: dict[str, list[str]], arch: str
) -> list[tuple[bytes, list[str]]]:
    alike: dict[tuple[str, ...], list[str]] = {}
    for source in sources:
        alike.setdefault(headers_of(source), []).append(source)
    most, work = min(_MOST_PROGRAMS, os.cpu_count() or 1), sum(map(effort, sources))
    groups = []
    for found in alike.values():
        groups += shared(found, round(most * sum(map(effort, found)) / work))
    if not groups:
        return []

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


def effort(source: str) -> int:
    """How long a source takes to compile, in kernels that move memory."""
    names = (line.partition("ruda/")[2].partition(".")[0] for line in headers_of(source))
    return max((_EFFORT.get(name, 1) for name in names), default=1)


def shared(sources: Sequence[str], most: int) -> list[list[str]]:
    """``sources`` in at most ``most`` groups of about the same length of text, and one at least."""
    count = max(1, min(most, len(sources)))
    groups: list[list[str]] = [[] for _ in range(count)]
    sizes = [0] * count
    for source in sorted(sources, key=len, reverse=True):
        least = sizes.index(min(sizes))
        groups[least].append(source)
        sizes[least] += len(source)
    return groups
