"""Many kernels in one program, compiled for one architecture, and what ptxas reports of each.

Headers are parsed once for a program instead of once for a kernel, which is most of the time of a
small one. Each kernel has a namespace of its own, and its settings are undefined behind it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ruda.backends.cuda import cache, compiler

# Every kernel is compiled for the first, which is the one that ruda is measured on.
ARCHITECTURES = ("sm_90a", "sm_80", "sm_100a", "sm_120")
# Bytes that any function may spill: a few values that live across a call or a loop, stored once.
FEW = 32
# What may spill more, by the whole of its name: the compiler's own slow path for huge angles,
# variances of float64 that sm_100a has a few registers too few for, and what is known of a row of
# losses beside weights of classes, or in float64.
LISTED = {
    "__internal_trig_reduction_slowpathd": 96,
    r"cross_entropy_(joint|parted)_(w_s|(\w+_)?f64)_\w+_cluster\d": 192,
    r"(var|std)_\w+_f64_\w+_rows_k1_\w+_r8_r1_s1_iu32": 96,
}
# Kernels in a program: more save little, and a program is what a process takes at a time.
SIZE = 24
# Messages of the compiler that are shown of a kernel.
_SHOWN = 4
# Dtypes whose kernels differ from those of another in what is loaded and stored alone.
_ALIKE = re.compile(r"(?:^|_)(?:i8|i16|u16|u32|u64|f16|c64)[ds]?(?=_|$)")
_DECLARED = re.compile(r"^// Architectures: ([\w, ]+)\.$", re.MULTILINE)
_SETTING = re.compile(r"^#define\s+(\w+)", re.MULTILINE)
_FUNCTION = re.compile(r"(?:Function properties for|Compiling entry function) '?(\w+)'?")
_SPILLS = re.compile(r"(\d+) bytes spill stores")

Kernel = tuple[str, str]


class Program(NamedTuple):
    """Kernels (name, source) to compile together for ``arch``."""

    arch: str
    kernels: tuple[Kernel, ...]


class Report(NamedTuple):
    """What is wrong with a program, a line each, and the seconds of a processor that it took."""

    faults: tuple[str, ...]
    seconds: float


def declared(source: str) -> tuple[str, ...]:
    """The architectures of a kernel: those that its text names, or all."""
    found = _DECLARED.search(source)
    if found:
        return tuple(found.group(1).replace(",", " ").split())
    return ARCHITECTURES


def chosen(name: str, source: str, arch: str) -> bool:
    """Whether to compile a kernel for ``arch``: all that declare it, but of those alike one."""
    first = ARCHITECTURES[0]
    return arch in declared(source) and (arch == first or not _ALIKE.search(name))


def spills(log: str) -> dict[str, int]:
    """Bytes that each function stores to local memory for want of registers."""
    found: dict[str, int] = {}
    name = ""
    for line in log.splitlines():
        named, size = _FUNCTION.search(line), _SPILLS.search(line)
        name = named.group(1) if named else name
        if size:
            found[name] = max(found.get(name, 0), int(size.group(1)))
    return found


def allowed(name: str) -> int:
    """How many bytes a function may spill."""
    return next((size for form, size in LISTED.items() if re.fullmatch(form, name)), FEW)


def merged(kernels: Sequence[Kernel]) -> str:
    """One source with all ``kernels``, whose names differ."""
    headers: dict[str, None] = {}
    parts = []
    for i, (_, source) in enumerate(kernels):
        lines = source.splitlines()
        headers |= dict.fromkeys(line for line in lines if line.startswith("#include"))
        body = "\n".join(line for line in lines if not line.startswith("#include"))
        undone = "\n".join(f"#undef {name}" for name in dict.fromkeys(_SETTING.findall(body)))
        parts.append(f"namespace k{i} {{\n{body}\n}}\n{undone}")
    return "\n".join([*headers, *parts, ""])


def programs(kernels: Mapping[str, str], arch: str, size: int = SIZE) -> Iterator[Program]:
    """``kernels``, names by source, in programs of the same headers and of names that differ."""
    rooms: dict[Any, list[Kernel]] = {}
    turns: dict[tuple[Any, str], int] = {}
    for source, name in sorted(kernels.items(), key=lambda pair: pair[::-1]):
        headers = tuple(sorted(re.findall(r"^#include .*", source, re.MULTILINE)))
        turn = turns[headers, name] = turns.get((headers, name), -1) + 1
        rooms.setdefault((headers, turn), []).append((name, source))
    for room in rooms.values():
        for start in range(0, len(room), size):
            yield Program(arch, tuple(room[start : start + size]))


def check(program: Program) -> Report:
    """Compile ``program``; runs in a process of its own."""
    start = time.process_time()
    try:
        log = compiler.compile_cubin(merged(program.kernels), "kernels", program.arch)[1]
        faults = list(_judged(program, spills(log)))
    except compiler.CompileError:
        faults = list(_apart(program))
    return Report(tuple(faults), time.process_time() - start)


def _judged(program: Program, found: Mapping[str, int]) -> Iterator[str]:
    for name, _ in program.kernels:
        if name not in found:
            yield f"{program.arch} {name}: not in what was compiled"
    for name, size in found.items():
        if size > allowed(name):
            yield f"{program.arch} {name}: {size} bytes spilled, {allowed(name)} allowed"


def _apart(program: Program) -> Iterator[str]:
    """Which kernel does not compile: each alone."""
    before = 0
    for name, source in program.kernels:
        try:
            compiler.compile_cubin(source, name, program.arch)
        except compiler.CompileError as error:
            before += 1
            lines = [line.strip() for line in str(error).splitlines() if "error" in line]
            yield "\n    ".join([f"{program.arch} {name} does not compile:", *lines[:_SHOWN]])
    if not before:
        names = ", ".join(name for name, _ in program.kernels)
        yield f"{program.arch}: these compile alone and not together: {names}"


class Known:
    """The kernels that passed before, by all that their code and its judgement depend on."""

    def __init__(self, folder: Path | None = None) -> None:
        self._place = (folder or cache.folder("gate")) / "passed.json"
        try:
            self._keys = set(json.loads(self._place.read_text()))
        except (OSError, ValueError):
            self._keys = set()
        self._used: set[str] = set()

    def key(self, source: str, arch: str) -> str:
        """The key of one kernel on one architecture."""
        return cache.key_of(f"{source}// {FEW} {sorted(LISTED.items())}", arch)

    def has(self, source: str, arch: str) -> bool:
        """Whether it passed."""
        key = self.key(source, arch)
        if key in self._keys:
            self._used.add(key)
        return key in self._keys

    def add(self, program: Program) -> None:
        """All of it passed."""
        keys = {self.key(source, program.arch) for _, source in program.kernels}
        self._keys |= keys
        self._used |= keys

    def save(self, whole: bool) -> None:
        """Keep what passed; of a ``whole`` run what it met, so that nothing old is kept."""
        kept = sorted(self._used if whole else self._keys)
        cache.write(self._place, json.dumps(kept).encode())
