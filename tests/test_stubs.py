"""The stub writer: signatures, properties, dunders, names that load lazily."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ruda
from ruda import stubs


def rendered(name: str, value: Any) -> tuple[str, dict[str, set[str]]]:
    imports: dict[str, set[str]] = {}
    return "\n".join(stubs._method(name, value, imports)).strip(), imports


def method(
    x: ruda.Tensor, /, n: int, *rest: Path, key: str | None = None, scale: float = 2.0
) -> Callable[[], None]:
    raise NotImplementedError


def test_signature_is_kept_without_the_tensor() -> None:
    text, imports = rendered("method", method)
    expected = "(self, n: int, *rest: Path, key: str | None = None, scale: float = 2.0)"
    assert text == f"def method{expected} -> Callable[[], None]: ..."
    assert imports == {"pathlib": {"Path"}, "collections.abc": {"Callable"}}


def test_unknown_annotation_is_any() -> None:
    def odd(x: Any, y: Undefined = ()) -> Any:  # type: ignore[name-defined]  # noqa: F821
        raise NotImplementedError

    assert rendered("odd", odd)[0] == "def odd(self, y: Any = ...) -> RudaTensor: ..."


def test_row_closures_take_operands_and_attributes() -> None:
    assert rendered("add", ruda.add)[0] == (
        "def add(self, y: Any, /, out: RudaTensor | None = None) -> RudaTensor: ..."
    )
    assert rendered("__add__", ruda.Tensor.__add__)[0] == (
        "def __add__(self, y: Any, /) -> RudaTensor: ..."
    )
    assert rendered("__neg__", ruda.Tensor.__neg__)[0] == "def __neg__(self) -> RudaTensor: ..."


def test_property_is_one() -> None:
    text, _ = rendered("T", property(lambda x: x))
    assert text == "@property\n    def T(self) -> RudaTensor: ..."


def test_written_methods_are_not_repeated() -> None:
    names = stubs.attached()
    assert {"__add__", "sum", "reshape"} <= set(names)
    assert not {"backward", "shape", "__repr__", "spec"} & set(names)


@pytest.mark.parametrize("make", stubs.STUBS.values(), ids=lambda f: f.__name__)
def test_stub_is_python(make: Callable[[], str]) -> None:
    assert ast.parse(make()).body


def test_face_lists_what_is_imported_and_lazy() -> None:
    text = stubs.face_stub()
    assert "from ruda.core.dtypes import bool_ as bool" in text
    assert '    "bool",' in text
    assert "from ruda import nn" in text
    assert "Tensor = RudaTensor" in text
    assert "_methods" not in text


def test_stale_stub_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "x.pyi"
    monkeypatch.setattr(stubs, "FOLDER", tmp_path / "ruda")
    monkeypatch.setattr(stubs, "STUBS", {path: lambda: "x: int\n"})
    assert stubs.main(["--check"]) == 1
    assert stubs.main(["--write"]) == 0
    assert stubs.main(["--check"]) == 0
