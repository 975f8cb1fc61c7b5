"""What the examples in docstrings may take for granted: the name `ruda`."""

from __future__ import annotations

from typing import Any

import pytest

import ruda


@pytest.fixture(autouse=True)
def _names_of_examples(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace["ruda"] = ruda
