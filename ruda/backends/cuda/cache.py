"""Compiled kernels on disk, by content: ``<user cache>/ruda/<arch>/<name>-<16 hex>.cubin``.

The key is the whole truth: source, headers, options, architecture, compiler version. A file is
written beside its place and renamed, so concurrent processes see a whole file or none; one that is
damaged or foreign is compiled again. The ``.json`` beside it says where it came from.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ruda.backends.cuda import compiler
from ruda.core import config

_ELF = b"\x7fELF"


def folder(arch: str) -> Path:
    """Where the kernels of ``arch`` are kept: ``RUDA_CACHE``, else the user's cache folder."""
    base = config.value("RUDA_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return (Path(base) if base else Path(home) / "ruda") / arch


def key_of(source: str, arch: str) -> str:
    """The first 16 hex digits of the hash of everything that the machine code depends on."""
    parts = [source, arch, str(compiler.version()), *compiler.OPTIONS]
    for name, text in sorted(compiler.headers_of(source).items()):
        parts += [name, text]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def cubin(source: str, name: str, arch: str) -> bytes:
    """The machine code of ``source``, from the cache or compiled now and kept."""
    found = find(source, name, arch)
    if found is not None:
        return found
    path, key = _place(source, name, arch)
    start = time.perf_counter()
    code, log = compiler.compile_cubin(source, name, arch)
    facts = {
        "name": name,
        "arch": arch,
        "key": key,
        "nvrtc": compiler.version(),
        "seconds": round(time.perf_counter() - start, 3),
        "ptxas": log,
    }
    write(path, hashlib.sha256(code).digest() + code)
    write(path.with_suffix(".json"), json.dumps(facts, indent=1).encode())
    return code


def find(source: str, name: str, arch: str) -> bytes | None:
    """The machine code with the kernels of ``source`` if it is on disk, alone or with others."""
    path, _ = _place(source, name, arch)
    found = _read(path)
    if found is not None:
        return found
    try:
        title = path.with_suffix(".in").read_text("utf-8")
    except (OSError, ValueError):
        return None
    return _read(path.with_name(f"{title}.cubin")) if title.isidentifier() else None


def keep_together(code: bytes, title: str, members: Sequence[tuple[str, str]], arch: str) -> None:
    """Keep the code of one program, and for each source (with a kernel's name) where it is."""
    write(folder(arch) / f"{title}.cubin", hashlib.sha256(code).digest() + code)
    for source, name in members:
        write(_place(source, name, arch)[0].with_suffix(".in"), title.encode())


def _place(source: str, name: str, arch: str) -> tuple[Path, str]:
    key = key_of(source, arch)
    return folder(arch) / f"{name[:80]}-{key}.cubin", key


def _read(path: Path) -> bytes | None:
    """The code in ``path`` if the file is whole: its first 32 bytes are the hash of the rest."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, code = data[:32], data[32:]
    whole = code.startswith(_ELF) and hashlib.sha256(code).digest() == digest
    return code if whole else None


def write(path: Path, data: bytes) -> None:
    """Put ``data`` in ``path`` so that a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".ruda-", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
