"""The blocks of the documents that need a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sources import ROOT
from tests.test_docs import PAGES, check_runs, script

WITH_BLOCKS = [p for p in PAGES if script((ROOT / p).read_text("utf-8"), "python3")]


@pytest.mark.parametrize("page", WITH_BLOCKS)
def test_code_runs_on_a_gpu(page: str, tmp_path: Path, device: str) -> None:
    check_runs(page, tmp_path, "python3")
