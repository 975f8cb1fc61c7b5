"""The names that docs/from_pytorch.md puts side by side exist on both sides."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest

import ruda
from tests.sources import ROOT

ROW = re.compile(r"^\| `(torch\.[\w.]+)` \| `([\w.]+)` \|(.*)\|$", re.M)
TEXT = (ROOT / "docs" / "from_pytorch.md").read_text("utf-8")
ROWS = ROW.findall(TEXT)
ROOTS = {
    "ruda": "ruda",
    "nn": "ruda.nn",
    "F": "ruda.nn.functional",
    "optim": "ruda.optim",
    "data": "ruda.data",
}
# In the third column only whole names are checked, not arguments or values.
NAME = re.compile(r"`((?:ruda|nn|F|optim|data)\.[\w.]+)`")


def found(name: str) -> Any:
    """What a dotted ruda name of the page stands for; ``x.`` is a method of tensors."""
    root, _, rest = name.partition(".")
    value: Any = ruda.Tensor if root == "x" else importlib.import_module(ROOTS[root])
    for part in rest.split("."):
        value = getattr(value, part)
    return value


def test_all_rows_are_read() -> None:
    assert len(ROWS) == TEXT.count("\n| `torch") > 50


@pytest.mark.parametrize("name", sorted({own for _, own, _ in ROWS} | {*NAME.findall(TEXT)}))
def test_ruda_has_it(name: str) -> None:
    assert found(name) is not None


@pytest.mark.parametrize("name", [torch for torch, _, _ in ROWS])
def test_pytorch_has_it(name: str) -> None:
    value: Any = pytest.importorskip("torch")
    parts = name.split(".")[1:]
    for place, part in enumerate(parts):
        if not hasattr(value, part):
            importlib.import_module(".".join(["torch", *parts[: place + 1]]))
        value = getattr(value, part)


def test_a_name_that_is_not_there_is_found() -> None:
    with pytest.raises(AttributeError):
        found("ruda.cat_")
