"""Run rows by name or by family letter; see `python -m benchmarks --help`."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import platform
from pathlib import Path
from typing import Any

import benchmarks
from benchmarks import ROWS, Row, gpu
from benchmarks.timing import merge

RESULTS = Path(__file__).parent / "results"

# Where a row says nothing of its device, it ran on this.
HOST = f"{platform.machine()}, {os.cpu_count()} cores"


def load_rows() -> None:
    """Import every module of this folder: rows register themselves."""
    for module in pkgutil.iter_modules(benchmarks.__path__):
        if module.name != "__main__":
            importlib.import_module(f"benchmarks.{module.name}")


def order(row: Row) -> tuple[str, int]:
    return row.name[0], int(row.name[1:])


def chosen(names: list[str]) -> list[Row]:
    """The rows of these names; a single letter stands for its family."""
    unknown = [name for name in names if not any(matches(name, row) for row in ROWS.values())]
    if unknown:
        raise SystemExit(
            f"benchmarks: no such row. Got {', '.join(unknown)}. Try one of {[*ROWS]}."
        )
    rows = [row for row in ROWS.values() if any(matches(name, row) for name in names)]
    return sorted(rows, key=order)


def on_cpu(row: Row) -> bool:
    """Whether a row runs on the CPU: those of family P do, all others on a GPU."""
    return row.name.startswith("P")


def about(row: Row) -> dict[str, Any]:
    """What a row ran on."""
    return {"device": HOST} if on_cpu(row) else gpu.facts()


def file_of(row: Row, facts: dict[str, Any]) -> Path:
    """Where the lines of a row are kept: a file for each kind of device."""
    device = "cpu" if on_cpu(row) else facts["device"].split()[-1].lower()
    return RESULTS / f"{device}.jsonl"


def matches(name: str, row: Row) -> bool:
    return name in (row.name, row.name[0])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("rows", nargs="*", help="rows (P9) or families (P); none lists them all")
    parser.add_argument("--save", action="store_true", help="merge the lines into results/")
    parser.add_argument("--case", default="", help="only such cases of rows that can choose")
    options = parser.parse_args()
    benchmarks.only = options.case
    load_rows()
    if not options.rows:
        for row in sorted(ROWS.values(), key=order):
            print(f"{row.name:4} {row.title}")
    for row in chosen(options.rows):
        facts = about(row)
        for entry in row.run():
            found = {**facts, **entry}
            print(json.dumps(found), flush=True)
            if options.save:
                merge(file_of(row, facts), [found])


if __name__ == "__main__":
    main()
