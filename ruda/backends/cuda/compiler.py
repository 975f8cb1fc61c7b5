"""From CUDA C to machine code with NVRTC; works on machines without a GPU.

Headers are those under ``include/``, handed to the compiler by name, so that the cache key can hold
their text and no toolkit needs to be installed.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

from cuda.bindings import nvrtc

from ruda.core.errors import RudaError

INCLUDE = Path(__file__).parent / "include"
OPTIONS = ("--std=c++17", "-default-device", "--fmad=true")
_QUOTED = re.compile(r'#include "([^"]+)"')


class CompileError(RudaError, RuntimeError):
    """A kernel that does not compile; the text holds the compiler's log and the source line."""


@functools.cache
def version() -> tuple[int, int]:
    """The version of NVRTC."""
    return tuple(_checked(nvrtc.nvrtcVersion()))


@functools.cache
def header(name: str) -> str:
    """The text of a header under ``include/``."""
    return (INCLUDE / name).read_text("utf-8")


def headers_of(source: str) -> dict[str, str]:
    """Every header that ``source`` includes, headers of headers too, by name."""
    found: dict[str, str] = {}
    pending = _QUOTED.findall(source)
    while pending:
        name = pending.pop()
        if name not in found:
            found[name] = header(name)
            pending.extend(_QUOTED.findall(found[name]))
    return found


def compile_cubin(source: str, name: str, arch: str) -> tuple[bytes, str]:
    """The cubin of ``source`` for ``arch`` (such as ``sm_90a``) and what ptxas reports of it."""
    headers = headers_of(source)
    program = _checked(
        nvrtc.nvrtcCreateProgram(
            source.encode(),
            f"{name}.cu".encode(),
            len(headers),
            [text.encode() for text in headers.values()],
            [key.encode() for key in headers],
        )
    )[0]
    try:
        options = [o.encode() for o in (f"-arch={arch}", "--ptxas-options=-v", *OPTIONS)]
        status = nvrtc.nvrtcCompileProgram(program, len(options), options)[0]
        log = _text(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(
                "compile", f"{name} does not compile for {arch}", _numbered(log, source)
            )
        size = _checked(nvrtc.nvrtcGetCUBINSize(program))[0]
        code = b" " * size
        _checked(nvrtc.nvrtcGetCUBIN(program, code))
        return code, log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _text(program: Any, size_of: Any, read: Any) -> str:
    size = _checked(size_of(program))[0]
    buffer = b" " * size
    _checked(read(program, buffer))
    return buffer.rstrip(b"\0 ").decode("utf-8", "replace")


def _numbered(log: str, source: str) -> str:
    """The compiler's log with the source lines it speaks of."""
    lines = source.splitlines()
    named = sorted({int(n) for n in re.findall(r"\.cu\((\d+)\)", log)})
    quoted = [f"{n}: {lines[n - 1]}" for n in named if 0 < n <= len(lines)]
    return "\n".join([log, *quoted])


def _checked(answer: tuple[Any, ...]) -> tuple[Any, ...]:
    status, *values = answer
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        text = nvrtc.nvrtcGetErrorString(status)[1].decode()
        raise CompileError("compile", "NVRTC failed", text)
    return tuple(values)
