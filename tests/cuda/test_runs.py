"""In which replay an index was out of range: one where each result is read, else a few."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda import cuda
from ruda.backends.cuda.runs import Runs, Waits
from ruda.core.errors import IndexRangeError
from ruda.fusion import zero_copy

GOOD, BAD = np.array([0, 4]), np.array([3, 9])


def on(array: Any) -> ruda.Tensor:
    return ruda.asarray(array, device="cuda:0")


def taking() -> Any:
    """A compiled step that takes rows of a table."""
    table = on(np.arange(20.0).reshape(5, 4).astype("f4"))
    return ruda.compile(lambda i: table[i] * 2.0)


def test_a_step_that_is_read_each_time_knows_the_replay(deferred: Any) -> None:
    step = taking()
    for _ in range(5):
        step(on(GOOD)).numpy()
    with pytest.raises(IndexRangeError, match=r"in replay 6\. Got 9 at \(1,\)"):
        step(on(BAD)).numpy()
    step(on(GOOD)).numpy()
    with pytest.raises(IndexRangeError, match=r"in replay 8\. Got 9"):
        step(on(BAD)).numpy()


def test_replays_under_way_are_a_range(deferred: Any) -> None:
    step = taking()
    for _ in range(4):
        step(on(GOOD))
    step(on(GOOD)).numpy()
    kept = [step(on(BAD if i == 2 else GOOD)) for i in range(6)]
    with pytest.raises(IndexRangeError, match=r"in one of the replays 6 to 11\. Got 9"):
        kept[0].numpy()
    deferred.synchronize()
    step(on(BAD))
    with pytest.raises(IndexRangeError, match=r"in replay 12\. Got 9"):
        deferred.synchronize_all()


def test_a_graph_near_its_arguments_counts_on(
    deferred: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zero_copy, "_SPARE", 0)
    step, places = taking(), on(GOOD)
    for _ in range(8):
        step(places).numpy()
    (program,) = step._all()
    assert program.zero_copy.captured is not None
    places.assign(on(BAD))
    with pytest.raises(IndexRangeError, match=r"in replay 9\. Got 9"):
        step(places).numpy()


def test_two_steps_that_call_one_line_count_each_for_itself(deferred: Any) -> None:
    table = on(np.ones((5, 4), "f4"))

    def rows(i: Any) -> Any:
        return table[i]

    first, second = ruda.compile(lambda i: rows(i) + 1.0), ruda.compile(lambda i: rows(i) + 2.0)
    for _ in range(3):
        first(on(GOOD)).numpy()
    for _ in range(4):
        second(on(GOOD)).numpy()
    for step, number in ((first, 4), (second, 5), (first, 5)):
        with pytest.raises(IndexRangeError, match=rf"in replay {number}\. Got 9"):
            step(on(BAD)).numpy()


def test_operators_one_by_one_are_counted_as_well(deferred: Any) -> None:
    deferred.blocking = True
    step = taking()
    for _ in range(2):
        step(on(GOOD)).numpy()
    with pytest.raises(IndexRangeError, match=r"in replay 3\. Got 9"):
        step(on(BAD)).numpy()


def test_a_wait_for_one_stream_says_nothing_of_another(deferred: Any) -> None:
    step, side = taking(), cuda.Stream("cuda:0")
    good, bad, other = on(GOOD), on(BAD), on(np.ones(3, "f4"))
    step(good).numpy()
    with cuda.stream(side):
        step(good)
        step(bad)
    other.numpy()
    step(good)
    with pytest.raises(IndexRangeError, match=r"in one of the replays 2 to 4\. Got 9"):
        deferred.synchronize_all()


def test_an_empty_tensor_is_no_wait(deferred: Any) -> None:
    step, nothing = taking(), on(np.ones((0, 3), "f4"))
    step(on(GOOD)).numpy()
    step(on(BAD))
    nothing.numpy()
    step(on(GOOD))
    with pytest.raises(IndexRangeError, match=r"in one of the replays 2 to 3\. Got 9"):
        deferred.synchronize()


def test_what_began_before_a_wait_and_was_queued_behind_it_is_not_over() -> None:
    waits = Waits()
    runs = Runs(waits)
    runs.tell()
    runs.begun += 1
    runs.begin()
    mark = waits.mark(0)
    runs.end(0)
    waits.passed(mark)
    runs.begun += 1
    runs.begin()
    runs.end(0)
    assert str(runs) == "in one of the replays 1 to 2"
    waits.passed(waits.mark(0))
    runs.begun += 1
    runs.begin()
    assert str(runs) == "in replay 3"
