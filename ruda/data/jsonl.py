"""JSON Lines: one JSON value a line."""

from __future__ import annotations

import json
import os
from typing import Any

from ruda.data.dataset import place
from ruda.data.errors import DataError, shown
from ruda.data.lines import decoded
from ruda.data.text import LineFile


class JsonlDataset:
    """The values of a JSON Lines file; sample i is that of line i.

    ``index`` keeps the offsets of the lines, as for ``TextDataset``. Raises ``DataError`` with file
    and line for what is not UTF-8 or not JSON; an empty line is not JSON, nor is NaN.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "rows.jsonl")
    ...     _ = path.write_text('{"x": 1}\\n{"x": 2}\\n')
    ...     JsonlDataset(path, index=True)[1]
    {'x': 2}
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        index: bool | str | os.PathLike[str] = False,
        longest: int = 1 << 26,
    ) -> None:
        self.file = LineFile(path, "JsonlDataset", index, longest)

    def __repr__(self) -> str:
        return f"JsonlDataset({self.file.path!r})"

    def __len__(self) -> int:
        return len(self.file)

    def __getitem__(self, index: int) -> Any:
        i = place(index, len(self), "JsonlDataset")
        text = decoded(self.file.line(i), "JsonlDataset", self.file.path, i + 1)
        try:
            return json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            what = f"not a JSON value ({error})"
            got, path = shown(text), self.file.path
            raise DataError("JsonlDataset", what, got, path=path, line=i + 1) from error


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
