"""Errors that only reading and writing stored tensors needs."""

from __future__ import annotations

import errno

from ruda.core.errors import StoreError

_SHOWN = 80


class MissingFileError(StoreError, FileNotFoundError):
    """The file to load does not exist; also a ``FileNotFoundError``."""

    def __init__(self, path: str) -> None:
        hint = "checking the path, which is relative to the working folder unless it starts at /"
        super().__init__("load", f"no such file as {path!r}", hint=hint)
        self.args = (path,)
        self.path = path
        self.errno = errno.ENOENT
        self.filename = path


class CheckpointWarning(UserWarning):
    """A checkpoint that is there and cannot be used; the message says why."""


def shown(value: object) -> str:
    """Return the ``repr`` of a value taken from a file, cut to a length fit for a message."""
    if isinstance(value, str | bytes | bytearray) and len(value) > _SHOWN:
        return f"{value[:_SHOWN]!r}… ({len(value)} long)"
    return repr(value)
