"""Adding in one order: what the switch sets, says and forgets, and that runs repeat bit by bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.core.devices import client
from ruda.tensor.determinism import is_deterministic


@pytest.fixture(autouse=True)
def _back() -> Iterator[None]:
    yield
    ruda.deterministic(False)


def test_it_holds_until_it_is_switched_off_or_the_block_ends() -> None:
    assert not is_deterministic()
    ruda.deterministic()
    assert is_deterministic()
    with ruda.deterministic(False):
        assert not is_deterministic()
    assert is_deterministic()


def test_it_reports_the_price(monkeypatch: pytest.MonkeyPatch) -> None:
    assert repr(ruda.deterministic()).splitlines() == [
        "deterministic: on",
        "cpu: every operator adds in one order anyway, which costs nothing",
    ]
    monkeypatch.setattr(client("cpu"), "ordered_prices", {"index_add": "sorts the places first"})
    assert ruda.deterministic().prices == {"index_add": "sorts the places first"}
    assert "\nindex_add: sorts the places first" in repr(ruda.deterministic())


def test_plans_are_bound_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[bool] = []
    cpu = client("cpu")
    bind = cpu.bind
    monkeypatch.setattr(cpu, "bind", lambda plan: bound.append(is_deterministic()) or bind(plan))
    x = ruda.ones(7)
    for enabled in (True, False):
        bound.clear()
        with ruda.deterministic(enabled):
            assert (x * x).tolist() == [1.0] * 7
            assert (x * x).tolist() == [1.0] * 7
        assert bound == [enabled]


def test_compiled_steps_are_traced_anew() -> None:
    step = ruda.compile(lambda x: x * x + 1.5)
    for enabled in (False, True, False):
        with ruda.deterministic(enabled):
            assert step(ruda.ones(7)).tolist() == [2.5] * 7
    assert step.explain().count("ruda.deterministic") == 1


def test_runs_repeat_bit_by_bit() -> None:
    """Large enough for parts on several threads."""
    rng = np.random.default_rng(0)
    x = ruda.asarray(rng.normal(size=(1 << 12, 1 << 8)).astype("float32"))
    places = ruda.asarray(rng.integers(0, 7, 1 << 12))

    def results() -> list[Any]:
        w = ruda.ones((64, 1 << 8)).requires_grad_()
        y = F.softmax(F.layer_norm(F.linear(x, w)))
        (y * y).sum().backward()
        table = ruda.zeros((7, 1 << 8)).requires_grad_()
        (F.embedding(places, table) * x).sum().backward()
        parts = [w.grad, table.grad, ruda.segment_sum(x, places, 7), x.sum(), x.mean(axis=0)]
        return [part.numpy().tobytes() for part in parts]

    with ruda.deterministic():
        assert results() == results()
