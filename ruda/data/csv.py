"""Tables as comma-separated values (RFC 4180), read whole into columns."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ruda.core.dtypes import as_dtype
from ruda.core.errors import ArgumentError
from ruda.data.dataset import place
from ruda.data.errors import DataError, MissingDataError, shown
from ruda.data.lines import text_lines
from ruda.tensor.tensor import from_array

_OP = "CsvDataset"


class CsvDataset:
    """A table; sample i is a dict of row i, by the names of its columns.

    Names come from the first row, or from ``header`` where the file has none. ``columns`` takes
    some of them. ``types`` gives a column's dtype, or ``str``; without one a column is int64 if
    every cell is an integer, float64 if every cell is a number, else text. Batches have a tensor
    for each column of numbers and a list for each of text.

    Raises ``DataError`` with file and line for rows of different lengths, an open quote, what is
    not ``encoding``, and a cell that is not of its column's type.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "table.csv")
    ...     _ = path.write_text("name,size\\nox,3\\nant,1\\n")
    ...     CsvDataset(path)[1]
    {'name': 'ant', 'size': 1}
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        header: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        types: Mapping[str, Any] | None = None,
        delimiter: str = ",",
        encoding: str = "utf-8",
    ) -> None:
        self.path = os.path.abspath(os.fspath(path))
        rows = _rows(self.path, delimiter, encoding)
        names, cells, lines = _table(self.path, rows, header)
        kept = list(names if columns is None else columns)
        for name in [*kept, *(types or {})]:
            if name not in names:
                raise ArgumentError(_OP, "no such column", repr(name), names)
        self.columns: dict[str, Any] = {}
        for name in kept:
            at = names.index(name)
            column = [row[at] for row in cells]
            kind = (types or {}).get(name)
            self.columns[name] = _column(column, kind, (self.path, name, lines))
        self.length = len(cells)

    def __repr__(self) -> str:
        return f"CsvDataset({self.path!r})"

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        i = place(index, len(self), _OP)
        return {
            name: column[i] if isinstance(column, list) else column[i].item()
            for name, column in self.columns.items()
        }

    def batch(self, indices: Any) -> dict[str, Any]:
        """The rows ``indices``, by columns."""
        return {
            name: [column[int(i)] for i in indices]
            if isinstance(column, list)
            else from_array(column[indices], "cpu")
            for name, column in self.columns.items()
        }


def _rows(path: str, delimiter: str, encoding: str) -> Iterator[tuple[int, list[str]]]:
    """Rows with the number of their last line; empty lines are none."""
    try:
        with open(path, "rb") as file:
            lines = text_lines(file, _OP, path, encoding)
            reader = csv.reader(_without_mark(lines), delimiter=delimiter, strict=True)
            try:
                yield from ((reader.line_num, row) for row in reader if row)
            except csv.Error as error:
                what = f"not comma-separated values ({error})"
                raise DataError(_OP, what, path=path, line=reader.line_num) from error
    except FileNotFoundError as error:
        raise MissingDataError(_OP, path) from error
    except IsADirectoryError as error:
        raise DataError(_OP, "a folder, not a file", path=path) from error


def _without_mark(lines: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield line.removeprefix("\ufeff") if number == 0 else line


def _table(
    path: str, rows: Iterator[tuple[int, list[str]]], header: Sequence[str] | None
) -> tuple[list[str], list[list[str]], list[int]]:
    if header is None:
        _, names = next(rows, (0, []))
    else:
        names = list(header)
    if not names:
        raise DataError(_OP, "there is no row of names", path=path)
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise DataError(_OP, "two columns have one name", twice, path=path, line=1)
    cells, lines = [], []
    for line, row in rows:
        if len(row) != len(names):
            got, expected = f"{len(row)} cells", f"{len(names)}, as there are columns"
            raise DataError(_OP, "a row of another length", got, expected, path=path, line=line)
        cells.append(row)
        lines.append(line)
    return names, cells, lines


def _column(cells: list[str], kind: Any, where: tuple[str, str, list[int]]) -> Any:
    if kind is str:
        return cells
    if kind is not None:
        return _numbers(cells, as_dtype(kind, _OP).numpy, where)
    for dtype in (np.int64, np.float64):
        try:
            return np.array(cells, dtype=np.str_).astype(dtype)
        except (ValueError, OverflowError):
            continue
    return cells


def _numbers(cells: list[str], dtype: Any, where: tuple[str, str, list[int]]) -> Any:
    whole = np.dtype(dtype).kind in "iu"
    out = np.empty(len(cells), dtype)
    path, name, lines = where
    for i, cell in enumerate(cells):
        try:
            out[i] = int(cell) if whole else float(cell)
        except (ValueError, OverflowError) as error:
            what = f"a cell of column {name!r} is no {np.dtype(dtype)}"
            raise DataError(_OP, what, shown(cell), path=path, line=lines[i]) from error
    return out
