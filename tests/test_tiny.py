"""The miniature of docs/tiny.py runs, and the checks it makes of itself can fail."""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

TINY = Path(__file__).parents[1] / "docs" / "tiny.py"


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("tiny", TINY)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "tiny", module)
    spec.loader.exec_module(module)
    return module


def test_script_checks_every_row_and_trains(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(TINY), run_name="__main__")
    rows, loss = capsys.readouterr().out.splitlines()
    assert "gradients to order 3 and traces agree" in rows
    assert float(loss.split()[-1]) < 0.01


def test_replayed_steps_equal_eager_steps(tiny: ModuleType, monkeypatch) -> None:
    replayed = tiny.train(20)
    monkeypatch.setattr(tiny, "compile", lambda function: function)
    assert tiny.train(20) == replayed


def test_a_wrong_gradient_is_found(tiny: ModuleType) -> None:
    op = tiny.Op("exp", np.exp, (lambda g, out: g,), args="x", shape=lambda x: x)
    with pytest.raises(AssertionError, match="against"):
        tiny.check_row(op, np.random.default_rng(0))


def test_a_gradient_cut_off_from_the_tape_is_found_at_order_two(tiny: ModuleType) -> None:
    def cut(g, x):
        return g * tiny.tensor(np.cos(x.handle))

    op = tiny.Op("sin", np.sin, (cut,), args="x", shape=lambda x: x)
    rng = np.random.default_rng(0)
    points = [rng.standard_normal(5)]
    tiny.check_gradient(tiny.entry(op), points, 1, rng)
    with pytest.raises(AssertionError, match="against"):
        tiny.check_gradient(tiny.entry(op), points, 2, rng)


def test_a_signature_is_planned_once(tiny: ModuleType) -> None:
    x, row = tiny.tensor([1.0, 2.0]), tiny.TABLE["exp"]
    tiny.exp(x)
    tiny.exp(tiny.tensor([3.0, 4.0]))
    assert len(row.plans) == 1
    tiny.exp(tiny.tensor([1.0]))
    assert len(row.plans) == 2


def test_the_tape_keeps_what_the_vjp_names(tiny: ModuleType) -> None:
    x, y = tiny.variable(tiny.tensor([1.0])), tiny.tensor([2.0])
    assert (x + y).node.saved == {}
    assert set((x / y).node.saved) == {"y"}
    assert (x + y).node.out is None
    assert (x / y).node.out is not None


def test_an_error_names_the_operator_and_the_shapes(tiny: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"^add: .*\(2,\) and \(3,\)"):
        tiny.tensor([1.0, 2.0]) + tiny.tensor([1.0, 2.0, 3.0])
