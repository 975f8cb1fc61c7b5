"""A step that could not be captured runs operator by operator, and is captured when it can be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.errors import CaptureError, OutOfMemoryError


class Failing:
    """``capture`` of a client, which fails as often as there are errors left."""

    def __init__(self, client: Any, errors: list[Exception]) -> None:
        self.capture, self.errors, self.calls = type(client).capture, errors, 0

    def __call__(self, client: Any, *given: Any) -> Any:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.capture(client, *given)


def by_driver(client: Any) -> CaptureError:
    """What the driver says when another library gets in the way."""
    error = CaptureError("graph", "the driver could not make a graph of what was queued")
    error.__cause__ = client.driver.errors[0]("invalidated")
    return error


def none_left(_: Any) -> OutOfMemoryError:
    return OutOfMemoryError("alloc", "the device is out of memory")


@pytest.fixture
def counter(device: str) -> ruda.Tensor:
    """What a step of ``made`` counts up."""
    return ruda.zeros((4,), device=device)


def made(counter: ruda.Tensor) -> Any:
    """A step with state."""

    @ruda.compile
    def step(x: Any) -> Any:
        with ruda.no_grad():
            counter.assign(counter + 1.0)
        return x * 2.0 + counter

    return step


def called(step: Any, counter: ruda.Tensor, count: int) -> None:
    """Call ``step``, and look at what it makes."""
    for _ in range(count):
        x = ruda.ones((4,), device=counter.device)
        before = counter.numpy()
        np.testing.assert_array_equal(step(x).numpy(), before + 3.0)
        np.testing.assert_array_equal(counter.numpy(), before + 1.0)


def program_of(step: Any) -> Any:
    return next(p for known in step.programs.values() for p in known)


@pytest.mark.parametrize("error", [by_driver, none_left])
def test_it_is_captured_by_a_later_call(
    client: Any, counter: Any, error: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(client, [error(client), error(client)])
    monkeypatch.setattr(type(client), "capture", lambda *given: failing(*given))
    step = made(counter)
    called(step, counter, 1)
    assert "operator by operator: " in step.explain()
    assert "to be tried again in 8 call(s)" in step.explain()
    called(step, counter, 7)
    assert failing.calls == 1
    called(step, counter, 1)
    assert failing.calls == 2
    assert "tried again 1 time(s), to be tried again in 64 call(s)" in step.explain()
    called(step, counter, 64)
    assert failing.calls == 3 and program_of(step).captured.graph is not None
    assert "replayed as one graph" in step.explain()
    called(step, counter, 2)


def test_a_driver_that_does_not_begin_is_asked_again(
    client: Any, counter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: int) -> None:
        raise client.driver.errors[0]("busy")

    step = made(counter)
    with monkeypatch.context() as busy:
        busy.setattr(client.driver, "begin_capture", refused)
        called(step, counter, 2)
    assert "the driver could not begin a capture (busy), to be tried again" in step.explain()
    called(step, counter, 8)
    assert program_of(step).captured.graph is not None


def test_three_times_are_enough(client: Any, counter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ruda.fusion.retries._DISTANCES", (1, 2, 3))
    failing = Failing(client, [by_driver(client) for _ in range(9)])
    monkeypatch.setattr(type(client), "capture", lambda *given: failing(*given))
    step = made(counter)
    called(step, counter, 20)
    assert failing.calls == 4
    text = step.explain()
    assert "tried again 3 time(s)" in text and "to be tried" not in text


def test_what_no_graph_can_hold_is_not_tried_again(
    client: Any, counter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(client, [CaptureError("graph", "it depends on work outside of it")])
    monkeypatch.setattr(type(client), "capture", lambda *given: failing(*given))
    step = made(counter)
    called(step, counter, 20)
    assert failing.calls == 1
    assert "it depends on work outside of it" in step.explain()
    assert "tried again" not in step.explain()


def test_no_call_fails_for_want_of_memory_that_only_a_graph_needs(
    client: Any, counter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ruda.fusion.retries._DISTANCES", (1, 1, 1))
    failing = Failing(client, [none_left(client)])
    monkeypatch.setattr(type(client), "capture", lambda *given: failing(*given))
    step = made(counter)
    called(step, counter, 1)
    with monkeypatch.context() as little:
        little.setattr(type(client), "available", lambda _: 0)
        called(step, counter, 2)
    assert failing.calls == 1
    called(step, counter, 1)
    assert failing.calls == 2 and program_of(step).captured.graph is not None
