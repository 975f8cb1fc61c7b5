"""Whose code is running: the user's lines, as opposed to those of ruda and installed packages."""

from __future__ import annotations

import functools
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ruda.core.errors import CaptureError

_RUDA = str(Path(__file__).parents[1]) + "/"
_INSTALLED = tuple(
    {
        f"{path}/"
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
        if (path := sysconfig.get_paths().get(name))
    }
)


class Line(NamedTuple):
    """A line of a user's function."""

    file: str
    number: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.number} in {self.function}"

    @property
    def place(self) -> str:
        """``file:line``."""
        return f"{self.file}:{self.number}"

    def of(self, op: str) -> str:
        """Where ``op`` stands, as ``file:line``."""
        return self.place


class Lines(Line):
    """The line of the last of several operators that run as one, which knows those of all."""

    known: dict[str, dict[str, None]]

    @classmethod
    def joined(cls, members: Iterable[tuple[str, Line]]) -> Lines:
        """From the names of the operators and their lines, in their order."""
        pairs = list(members)
        made = cls(*pairs[-1][1])
        made.known = {}
        for op, line in pairs:
            parts = line.known if isinstance(line, Lines) else {op: {line.place: None}}
            for name, places in parts.items():
                made.known.setdefault(name, {}).update(places)
        return made

    def of(self, op: str) -> str:
        """Where ``op`` stands; all places if it is there several times."""
        return " or ".join(self.known.get(op, (self.place,)))


@functools.cache
def is_user_file(name: str) -> bool:
    """Whether a code object's file is neither ruda's, nor installed, nor frozen."""
    return not name.startswith((_RUDA, *_INSTALLED, "<frozen", "<string"))


def is_user_frame(frame: Any) -> bool:
    """Whether user code runs in ``frame``; ``python -c`` code counts, generated methods do not."""
    name = frame.f_code.co_filename
    if name == "<string>":
        return bool(frame.f_globals.get("__name__") == "__main__")
    return is_user_file(name)


def user_line() -> Line:
    """The innermost line of user code that is running; the outermost line if there is none."""
    frame: Any = sys._getframe(1)
    last = frame
    while frame is not None:
        if is_user_frame(frame):
            last = frame
            break
        last, frame = frame, frame.f_back
    return Line(last.f_code.co_filename, last.f_lineno, last.f_code.co_name)


def refusal(op: str, what: str, got: Any = None, hint: str | None = None) -> CaptureError:
    """The error for something that a compiled step cannot hold, with the user's line."""
    return CaptureError(op, f"{what}, at {user_line()}", got, hint=hint)
