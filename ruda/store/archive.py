"""Zip files as NumPy and PyTorch write them, all of whose members are checked before any is read.

Nothing is ever extracted to a path, and yet a name that would escape a folder is refused: a file
with such a name was made to harm.
"""

from __future__ import annotations

import errno
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO

import numpy as np

from ruda.core.errors import StoreError
from ruda.store.errors import shown
from ruda.store.header import AGAIN
from ruda.store.source import Path, expansion_limit, opened

_CHUNK = 1 << 20
# What the standard library raises for archives that are not what they say.
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
)
_LOCAL_HEADER = 30
_ENCRYPTED = 1
_ESCAPING = re.compile(r"[\\\x00]|^/|^[A-Za-z]:|(^|/)\.\.(/|$)")


class Archive:
    """The members of an open archive by name; made by ``open_archive``."""

    def __init__(self, path: str, size: int, archive: zipfile.ZipFile) -> None:
        self.path = path
        self.size = size
        self.members: dict[str, zipfile.ZipInfo] = {}
        for info in archive.infolist():
            self._check(info)
            self.members[info.filename] = info
        self._check_places(archive.start_dir)
        self._archive = archive

    @property
    def expanded(self) -> int:
        """How many bytes all members have together."""
        return sum(info.file_size for info in self.members.values())

    def read(self, name: str) -> np.ndarray:
        """Read a member into bytes of its own; raises ``StoreError`` where its checksum differs."""
        space = np.empty(self.members[name].file_size, np.uint8)
        done = 0
        with _translated(self.path, name), self._archive.open(self.members[name]) as member:
            while chunk := member.read(_CHUNK):
                space[done : done + len(chunk)] = np.frombuffer(chunk, np.uint8)
                done += len(chunk)
        if done != len(space):
            self._fail("a member is cut off", f"{done} bytes", f"{len(space)}", name)
        return space

    def _check(self, info: zipfile.ZipInfo) -> None:
        name = info.filename
        if is_escaping(name):
            expected = "a relative name inside the archive"
            self._fail("a member's name escapes the archive", shown(name), expected)
        if name in self.members:
            self._fail("a name occurs twice", shown(name), "every name once")
        if info.flag_bits & _ENCRYPTED:
            self._fail("a member is encrypted", shown(name), "a plain archive")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            got = f"method {info.compress_type} of {shown(name)}"
            self._fail("unsupported compression", got, "stored or deflated members")
        if info.compress_type == zipfile.ZIP_STORED and info.file_size != info.compress_size:
            got = f"{info.compress_size} bytes of {shown(name)}"
            self._fail("sizes differ", got, f"{info.file_size}")

    def _check_places(self, end: int) -> None:
        """Raise where members overlap, as they do in the bombs that grow quadratically."""
        for info in sorted(self.members.values(), key=lambda info: -info.header_offset):
            stop = info.header_offset + _LOCAL_HEADER + info.compress_size
            if info.header_offset < 0 or stop > end:
                got = f"{shown(info.filename)} ends at byte {stop}"
                self._fail("members overlap or leave the file", got, f"at most {end}")
            end = info.header_offset

    def _fail(self, what: str, got: str, expected: str, tensor: str | None = None) -> None:
        raise StoreError("load", what, got, expected, AGAIN, self.path, tensor)


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open a zip file; raises ``MissingFileError``, or ``StoreError`` for an unsound member."""
    with opened(path) as file, _zip_file(file) as archive:
        yield Archive(file.name, os.fstat(file.fileno()).st_size, archive)


def is_escaping(name: str) -> bool:
    """Tell whether a member's name would leave the folder that it is unpacked in."""
    return _ESCAPING.search(name) is not None


def check_expansion(total: int, size: int, limit: int | None, path: str) -> None:
    """Raise ``StoreError`` where a file of ``size`` bytes stands for more than it may."""
    allowed = expansion_limit(size) if limit is None else limit
    if total > allowed:
        got, hint = (
            f"{total} bytes of tensors in a file of {size}",
            f"limit={total} if you trust it",
        )
        raise StoreError("load", "expands too much", got, f"at most {allowed}", hint, path)


def _zip_file(file: FileIO) -> zipfile.ZipFile:
    with _translated(file.name):
        return zipfile.ZipFile(file)


@contextmanager
def _translated(path: str, tensor: str | None = None) -> Iterator[None]:
    """Raise ``StoreError`` for what the zip module raises on a damaged archive."""
    what, expected = "damaged archive", "a whole zip file"
    try:
        yield
    except _BROKEN as error:
        got = f"{type(error).__name__}: {shown(str(error))}"
        raise StoreError("load", what, got, expected, AGAIN, path, tensor) from error
    except OSError as error:
        # A place before the beginning of the file; any other fault is the disk's.
        if error.errno != errno.EINVAL:
            raise
        raise StoreError("load", what, str(error), expected, AGAIN, path, tensor) from error
