"""Where the lines of a text file begin, so that any of them is read without those before it."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from ruda.data.errors import DataError, MissingDataError
from ruda.store.atomic import replacing

_FORMAT = "ruda lines 1"
_CHUNK = 1 << 22
# Saving the index after so many bytes bounds what an interrupted scan has to do again.
_SAVE_EVERY = 1 << 30
# The part before the end of what was scanned that must be unchanged for the index to be of use.
_WITNESS = 1 << 12


class LineIndex:
    """The offsets of the lines of the file at ``path``.

    ``ends`` is int64 ``[n]``: line i is the bytes from ends[i - 1] to ends[i], its newline among
    them. With ``saved``, the name of a file, the offsets are kept there: the next time only what
    was appended is scanned, and an interrupted scan goes on where it was saved last. An index that
    is damaged, or of a file that was changed in another way, is made anew: one of the same length
    with another time of change, a shorter one, or one whose beginning or end of then differs.
    """

    def __init__(
        self,
        path: str,
        saved: str | None = None,
        *,
        op: str = "LineIndex",
        save_every: int = _SAVE_EVERY,
    ) -> None:
        self.ends = np.zeros(0, np.int64)
        try:
            with open(path, "rb") as file:
                self._fill(file, saved, save_every)
        except FileNotFoundError as error:
            raise MissingDataError(op, path) from error
        except IsADirectoryError as error:
            raise DataError(op, "a folder, not a file", path=path) from error

    def _fill(self, file: BinaryIO, saved: str | None, save_every: int) -> None:
        found = None if saved is None else _restored(saved, file)
        parts = [] if found is None else [found]
        scanned = known = 0 if found is None else int(found[-1])
        file.seek(scanned)
        for chunk in iter(lambda: file.read(_CHUNK), b""):
            newlines = np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n"))
            parts.append(newlines.astype(np.int64) + (scanned + 1))
            scanned += len(chunk)
            if saved is not None and scanned - known >= save_every:
                parts, known = [np.concatenate(parts)], scanned
                _save(saved, file, parts[0])
                file.seek(scanned)
        ends = np.concatenate([self.ends, *parts])
        if saved is not None and (found is None or len(ends) > len(found)):
            _save(saved, file, ends)
        # A last line need not end in a newline; it is not saved, since it may still grow.
        complete = int(ends[-1]) if len(ends) else 0
        self.ends = ends if scanned == complete else np.append(ends, scanned)

    def __len__(self) -> int:
        return len(self.ends)

    def span(self, line: int) -> tuple[int, int]:
        """The first byte of a line and the one after its last."""
        return (int(self.ends[line - 1]) if line else 0), int(self.ends[line])


def _witness(file: BinaryIO, end: int) -> int:
    """A checksum of the file's beginning and of what precedes ``end``."""
    file.seek(0)
    crc = zlib.crc32(file.read(min(_WITNESS, end)))
    file.seek(max(end - _WITNESS, 0))
    return zlib.crc32(file.read(min(_WITNESS, end)), crc)


def _save(saved: str, file: BinaryIO, ends: Any) -> None:
    end = int(ends[-1]) if len(ends) else 0
    data = ends.astype("<i8").tobytes()
    head = {
        "format": _FORMAT,
        "lines": len(ends),
        "size": os.fstat(file.fileno()).st_size,
        "modified": os.fstat(file.fileno()).st_mtime_ns,
        "witness": _witness(file, end),
        "crc": zlib.crc32(data),
    }
    with replacing(saved) as out:
        out.write(json.dumps(head).encode() + b"\n" + data)


def _restored(saved: str, file: BinaryIO) -> Any:
    """The offsets saved before, or None where they are not of this file or not whole."""
    try:
        with open(saved, "rb") as source:
            head = json.loads(source.readline(1000))
            data = source.read()
        ends = np.frombuffer(data, "<i8").astype(np.int64)
        whole = (head["format"], head["lines"], head["crc"]) == (
            _FORMAT,
            len(ends),
            zlib.crc32(data),
        )
        now = os.fstat(file.fileno())
        same = (now.st_size, now.st_mtime_ns) == (head["size"], head["modified"])
        if not whole or not len(ends) or not (same or now.st_size > head["size"]):
            return None
        return ends if _witness(file, int(ends[-1])) == head["witness"] else None
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def decoded(data: bytes, op: str, path: str, line: int, encoding: str = "utf-8") -> str:
    """``data`` as text; raises ``DataError`` that says which byte of the line is wrong."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        what = f"not {encoding} at byte {error.start} of the line"
        got = repr(data[error.start : error.start + 8])
        raise DataError(op, what, got, path=path, line=line) from error


def text_lines(file: BinaryIO, op: str, path: str, encoding: str) -> Iterator[str]:
    """The lines of a file as text, one after the other, newlines kept."""
    for number, data in enumerate(file, 1):
        yield decoded(data, op, path, number, encoding)
