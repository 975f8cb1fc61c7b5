"""The documents are true: their code runs, their quotations and paths are those of the sources.

A ``python`` block is run, all blocks of a file in order and in one namespace. A ``py`` block quotes
the file that its first line names: each of its lines stands there, in this order. A ``python3``
block needs a GPU and is run in that lane.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ruda.core.config import VARIABLES
from tests.sources import ROOT

PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md")))
]
FENCE = re.compile(r"^```(\w*)$")
# `ruda/core/spec.py` or `ruda/core/spec.py: spec_of`, in backticks.
MENTION = re.compile(r"`((?:ruda|tests|docs|examples|benchmarks)/[\w./-]*)(?:: (\w+))?`")


def blocks(text: str, language: str) -> list[tuple[int, list[str]]]:
    """The fenced blocks of ``language``: the number of their first line, and their lines."""
    found, inside, opened = [], False, ""
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if fence and not inside:
            inside, opened, first, lines = True, fence[1], number + 1, []
        elif fence:
            inside = False
            if opened == language:
                found.append((first, lines))
        elif inside:
            lines.append(line)
    return found


def script(text: str, language: str = "python") -> str:
    """The ``python`` blocks of a page, each line at the number it has there."""
    out: list[str] = []
    for first, lines in blocks(text, language):
        out += [""] * (first - 1 - len(out)) + lines
    return "\n".join(out)


def misquoted(lines: list[str], root: Path) -> str | None:
    """The first line of a quotation that its file does not have at or after the one before it."""
    name = lines[0].removeprefix("# ").strip()
    if not (root / name).is_file():
        return lines[0]
    source = iter((root / name).read_text("utf-8").splitlines())
    wanted = (line.strip() for line in lines[1:])
    for line in wanted:
        if line not in ("", "...") and not any(line == found.strip() for found in source):
            return line
    return None


def missing(text: str, root: Path) -> list[str]:
    """The paths, and names in files, that a page mentions and the tree has not."""
    out = []
    for path, name in MENTION.findall(text):
        if not (root / path).exists():
            out.append(path)
        elif name and not re.search(rf"\b{name}\b", (root / path).read_text("utf-8")):
            out.append(f"{path}: {name}")
    return out


def test_there_are_pages_and_code() -> None:
    assert {"README.md", "CONTRIBUTING.md", "docs/tour.md"} <= set(PAGES)
    assert blocks((ROOT / "docs/tour.md").read_text("utf-8"), "py")


@pytest.mark.parametrize("page", PAGES)
def test_code_runs(page: str, tmp_path: Path) -> None:
    """In a process of its own: pages add rows to the table."""
    check_runs(page, tmp_path, "python")


def check_runs(page: str, tmp_path: Path, language: str) -> None:
    """Run the blocks of a page in one process."""
    code = script((ROOT / page).read_text("utf-8"), language)
    if not code:
        pytest.skip("has no code")
    path = tmp_path / f"{Path(page).stem}.py"
    path.write_text(code, "utf-8")
    command = [sys.executable, "-W", "error", str(path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{page}, by line number:\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES)
def test_quotations_are_exact(page: str) -> None:
    for number, lines in blocks((ROOT / page).read_text("utf-8"), "py"):
        wrong = misquoted(lines, ROOT)
        assert wrong is None, f"{page}:{number}: {lines[0]} has no line {wrong!r}"


@pytest.mark.parametrize("page", PAGES)
def test_paths_exist(page: str) -> None:
    assert not missing((ROOT / page).read_text("utf-8"), ROOT)


def test_every_environment_variable_is_told() -> None:
    text = (ROOT / "docs/settings.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (?:`(\w+)` )?\| (.*) \|$", text, re.M)
    assert {name: (default, what) for name, default, what in rows} == VARIABLES


def test_the_checks_find_mistakes(tmp_path: Path) -> None:
    (tmp_path / "ruda").mkdir()
    (tmp_path / "ruda" / "a.py").write_text("one = 1\ntwo = 2\n")
    assert misquoted(["# ruda/a.py", "one = 1", "...", "two = 2"], tmp_path) is None
    assert misquoted(["# ruda/a.py", "two = 2", "one = 1"], tmp_path) == "one = 1"
    assert misquoted(["# ruda/b.py", "one = 1"], tmp_path) == "# ruda/b.py"
    assert missing("`ruda/a.py: one` and `ruda/a.py`", tmp_path) == []
    absent = ["ruda/a.py: three", "ruda/b.py"]
    assert missing("`ruda/a.py: three`, `ruda/b.py`", tmp_path) == absent
    page = "text\n```python\nx = 1\n```\n```sh\nls\n```\n```python\ny = x\n```\n"
    assert script(page) == "\n\nx = 1\n\n\n\n\n\ny = x"
