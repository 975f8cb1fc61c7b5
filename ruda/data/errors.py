"""Errors of datasets and loaders."""

from __future__ import annotations

import errno
from typing import Any

from ruda.core.errors import RudaError


class DataError(RudaError, ValueError):
    """A file that is not what its format promises.

    Fields besides the common ones: ``path`` and, for text, ``line``, which counts from 1; ``what``
    names both.
    """

    def __init__(
        self,
        op: str,
        what: str,
        got: Any = None,
        expected: Any = None,
        hint: str | None = None,
        path: str | None = None,
        line: int | None = None,
    ) -> None:
        place = "" if path is None else f" in {path!r}"
        place += "" if line is None else f", line {line}"
        super().__init__(op, what + place, got, expected, hint)
        # What pickling calls the class with again.
        self.args = (op, what, got, expected, hint, path, line)
        self.path = path
        self.line = line


class MissingDataError(DataError, FileNotFoundError):
    """A file or folder of data that is not there; also a ``FileNotFoundError``."""

    def __init__(self, op: str, path: str, hint: str | None = None) -> None:
        super().__init__(op, "no such file or folder", hint=hint, path=path)
        self.args = (op, path, hint)
        self.errno = errno.ENOENT
        self.filename = path


class SampleError(RudaError, RuntimeError):
    """A dataset or ``collate`` that raised; the message names the index, the cause is chained.

    ``index`` is that of the sample, or None where a whole batch was at fault.
    """

    def __init__(self, op: str, what: str, index: int | None = None) -> None:
        super().__init__(op, what)
        self.args = (op, what, index)
        self.index = index


class WorkerError(RudaError, RuntimeError):
    """A worker process that died, could not begin, or could not hand its batch over."""


class SharedMemoryError(WorkerError, MemoryError):
    """Shared memory has no room for a batch."""


class MissingExtraError(RudaError, ImportError):
    """A package that only this job needs is not installed."""

    def __init__(self, op: str, package: str, extra: str = "examples") -> None:
        hint = f"installing {package}, or ruda[{extra}]"
        super().__init__(op, f"the package {package} is not installed", hint=hint)
        self.args = (op, package, extra)


def shown(value: object, longest: int = 80) -> str:
    """The ``repr`` of a value taken from a file, cut to a length fit for a message."""
    if isinstance(value, str | bytes) and len(value) > longest:
        return f"{value[:longest]!r}… ({len(value)} long)"
    return repr(value)
