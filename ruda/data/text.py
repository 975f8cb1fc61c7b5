"""Text files by lines, any of which is read without those before it."""

from __future__ import annotations

import os
import weakref
from typing import Any

from ruda.data.dataset import place
from ruda.data.errors import DataError
from ruda.data.lines import LineIndex, decoded


class LineFile:
    """The lines of a file as bytes, read by any number of threads.

    The index of lines is made when the file is opened, see ``TextDataset``. Raises ``DataError``
    for a line longer than ``longest`` bytes and for a file that became shorter.
    """

    def __init__(self, path: Any, op: str, index: Any, longest: int) -> None:
        self.path = os.path.abspath(os.fspath(path))
        self.op = op
        self.saved = _index_path(self.path, index)
        self.longest = longest
        self.index = LineIndex(self.path, self.saved, op=op)
        self._open()

    def _open(self) -> None:
        self._handle = os.open(self.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        weakref.finalize(self, os.close, self._handle)

    def __len__(self) -> int:
        return len(self.index)

    def line(self, number: int) -> bytes:
        """Line ``number``, counted from 0, without its end."""
        start, stop = self.index.span(number)
        if stop - start > self.longest:
            got, hint = f"{stop - start:,} bytes", "a larger longest="
            what, most = "the line is too long", f"at most {self.longest:,}"
            raise DataError(self.op, what, got, most, hint, self.path, number + 1)
        data = os.pread(self._handle, stop - start, start)
        if len(data) != stop - start:
            what = "the file became shorter since it was opened"
            raise DataError(self.op, what, path=self.path, line=number + 1)
        return data.removesuffix(b"\n").removesuffix(b"\r")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_handle"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open()


class TextDataset:
    """The lines of a text file; sample i is line i without its end.

    ``index=True`` keeps the offsets of the lines in a file beside it, ending in ``.index``, or in
    the file that ``index`` names: opening it again scans only what was appended. Raises
    ``DataError`` with file and line for what is not ``encoding``, in which a newline must be one
    byte.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "poem.txt")
    ...     _ = path.write_text("one\\ntwo\\n")
    ...     TextDataset(path)[1]
    'two'
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        index: bool | str | os.PathLike[str] = False,
        encoding: str = "utf-8",
        longest: int = 1 << 26,
    ) -> None:
        self.file = LineFile(path, "TextDataset", index, longest)
        self.encoding = encoding

    def __repr__(self) -> str:
        return f"TextDataset({self.file.path!r})"

    def __len__(self) -> int:
        return len(self.file)

    def __getitem__(self, index: int) -> str:
        i = place(index, len(self), "TextDataset")
        return decoded(self.file.line(i), "TextDataset", self.file.path, i + 1, self.encoding)


def _index_path(path: str, index: Any) -> str | None:
    if index is False or index is None:
        return None
    return path + ".index" if index is True else os.path.abspath(os.fspath(index))
