"""The benchmark runner: what it times, how it merges, and when it calls a goal met."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import ROWS, Row, __main__, row, timing
from benchmarks.timing import Timing, interleave, line, meets, merge, summary


def test_rounds_are_interleaved_and_the_first_case_changes() -> None:
    seen: list[str] = []
    cases = {name: lambda name=name: seen.append(name) for name in "abc"}
    times = interleave(cases, rounds=3, warmup=0, calls=1)
    assert "".join(seen) == "abc" + "bca" + "cab"
    assert set(times) == {"a", "b", "c"}


def test_a_sample_is_the_mean_of_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 8.0])
    monkeypatch.setattr(timing, "perf_counter", lambda: next(clock))
    assert timing.seconds_per_call(lambda: None, 4) == 2.0


def test_summary_gives_median_and_spread() -> None:
    assert summary(range(101)) == Timing(median=50.0, p10=10.0, p90=90.0)


@pytest.mark.parametrize(
    ("goal", "own", "peer", "met"),
    [
        (1.0, 1.0, 0.98, True),
        (1.0, 1.0, 0.97, False),
        (2.0, 1.0, 1.99, False),
        (0.8, 1.0, 0.8, True),
        (1.0, 1.0, None, None),
    ],
)
def test_goals(goal: float, own: float, peer: float | None, met: bool | None) -> None:
    assert meets(goal, own, peer) is met


def test_a_line_is_in_the_unit_of_its_row() -> None:
    times = {"ruda": Timing(2e-6, 1e-6, 3e-6), "numpy": Timing(1e-6, 1e-6, 1e-6)}
    made = line("P9", "recorded", "ns", times, goal="3.5x", met=True, strategy="plan")
    assert made["ruda"] == pytest.approx(2000)
    assert made["peers"] == {"numpy": pytest.approx(1000)}
    assert made["strategy"] == "plan"


def test_merging_replaces_a_case_and_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    merge(path, [{"row": "P2", "case": "x", "ruda": 1}, {"row": "P1", "case": "x", "ruda": 2}])
    merge(path, [{"row": "P2", "case": "x", "ruda": 3}, {"row": "P2", "case": "y", "ruda": 4}])
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    assert [(x["row"], x["case"], x["ruda"]) for x in lines] == [
        ("P1", "x", 2),
        ("P2", "x", 3),
        ("P2", "y", 4),
    ]


def test_a_failed_merge_leaves_the_file_and_no_other(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "results.jsonl"
    merge(path, [{"row": "P1", "case": "x"}])
    before = path.read_text()

    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(timing.os, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        merge(path, [{"row": "P1", "case": "y"}])
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {name: Row(name, "", lambda: iter(())) for name in ("P10", "P9", "A1")}
    monkeypatch.setattr(__main__, "ROWS", made)


@pytest.mark.usefixtures("rows")
def test_rows_are_chosen_by_name_or_family() -> None:
    assert [x.name for x in __main__.chosen(["P"])] == ["P9", "P10"]
    assert [x.name for x in __main__.chosen(["A1", "P10"])] == ["A1", "P10"]
    with pytest.raises(SystemExit, match=r"no such row\. Got Z9"):
        __main__.chosen(["Z9"])


def test_a_name_is_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ROWS, "Q1", Row("Q1", "taken", lambda: iter(())))
    with pytest.raises(ValueError, match="Q1 is taken"):
        row("Q1", "again")(lambda: iter(()))
