"""``python -m ruda.ops NAME`` prints a row; ``--write`` and ``--check`` keep docs/ops.md."""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path

from ruda.ops import listing
from ruda.ops.table import COMPOSITES, TABLE


def main(arguments: list[str]) -> int:
    """Print, write or check; 1 for an unknown name or a stale page."""
    parser = argparse.ArgumentParser(prog="python -m ruda.ops", description=__doc__)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("name", nargs="?", help="a row or composite to print")
    choice.add_argument("--write", type=Path, metavar="PATH", help="write the page of all rows")
    choice.add_argument("--check", type=Path, metavar="PATH", help="fail if that page is stale")
    chosen = parser.parse_args(arguments)
    listing.load()
    if chosen.name is not None:
        return _print(chosen.name)
    text = listing.page()
    if chosen.write is not None:
        chosen.write.write_text(text, "utf-8")
    elif not chosen.check.exists() or chosen.check.read_text("utf-8") != text:
        print(f"{chosen.check} is stale: python -m ruda.ops --write {chosen.check}")
        return 1
    return 0


def _print(name: str) -> int:
    if name in TABLE or name in COMPOSITES:
        print(listing.describe(name))
        return 0
    near = difflib.get_close_matches(name, [*TABLE, *COMPOSITES])
    print(f"no row is called {name!r}" + (f"; near it: {', '.join(near)}" if near else ""))
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
