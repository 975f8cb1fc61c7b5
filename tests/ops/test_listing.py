"""``python -m ruda.ops``: rows in full, and the page of all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ruda.ops.__main__ import main
from ruda.ops.listing import accepted, definitions, gradient, page, rows
from ruda.ops.table import COMPOSITES, TABLE
from tests.sources import ROOT


def test_a_row_is_printed_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["multiply"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("multiply: primitive binary. Product of")
    assert "ruda/ops/arith.py:" in text
    assert "def broadcast(op: Any" in text
    assert "tape keeps: x, y" in text
    assert "gradient: x, y" in text
    assert 'pytest tests/table -k "[multiply-"' in text


def test_a_composite_is_printed_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["moveaxis"]) == 0
    assert "\n@composite\n@given_tensors\ndef moveaxis(" in capsys.readouterr().out


def test_an_unknown_name_gets_near_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["multipli"]) == 1
    assert "near it: multiply" in capsys.readouterr().out


def test_definitions_are_where_the_row_stands() -> None:
    found = definitions()["multiply"]
    assert found.family == "arith"
    assert found.source.startswith("multiply = binary(")
    assert found.source.endswith(")")


def test_the_page_has_a_line_for_each_operator() -> None:
    text = page()
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(lines) == len(rows()) + len(COMPOSITES)
    assert "| `multiply(x, y)` |" in text


def test_columns_say_what_the_row_says() -> None:
    assert gradient(TABLE["assign_view"]) == "base, value"
    assert gradient(TABLE["full"]) == "—"
    assert accepted(TABLE["multiply"]) == "arithmetic"
    assert accepted(TABLE["copy"]) == "all"


def test_a_stale_page_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ops.md"
    assert main(["--check", str(path)]) == 1
    assert main(["--write", str(path)]) == 0
    assert main(["--check", str(path)]) == 0
    path.write_text(path.read_text("utf-8") + "more\n", "utf-8")
    capsys.readouterr()
    assert main(["--check", str(path)]) == 1
    assert "is stale: python -m ruda.ops --write" in capsys.readouterr().out


def test_the_page_of_the_repository_is_fresh() -> None:
    assert (ROOT / "docs" / "ops.md").read_text("utf-8") == page()


@pytest.mark.parametrize("module", ["ruda.ops", "ruda.stubs"])
def test_commands_run_without_a_warning(module: str) -> None:
    arguments = ["add"] if module == "ruda.ops" else ["--check"]
    command = [sys.executable, "-W", "error", "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stderr == ""
