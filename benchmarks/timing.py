"""Timing in interleaved rounds, and the lines of results that come of it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from benchmarks import Line

SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


class Timing(NamedTuple):
    """Seconds per call: the median of the rounds, and the spread around it."""

    median: float
    p10: float
    p90: float


def interleave(
    cases: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 30,
    warmup: int = 10,
    calls: int = 1,
) -> dict[str, Timing]:
    """Time each case once a round, so that a drift of the machine meets all of them alike.

    The case that starts moves on by one each round: none always runs behind the same neighbour.
    A sample is the mean of `calls` calls in a row, for work too short to time once.
    """
    names = list(cases)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        seconds_per_call(cases[name], warmup)
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            samples[name].append(seconds_per_call(cases[name], calls))
    return {name: summary(values) for name, values in samples.items()}


def seconds_per_call(function: Callable[[], object], calls: int) -> float:
    repeat = range(calls)
    start = perf_counter()
    for _ in repeat:
        function()
    return (perf_counter() - start) / max(calls, 1)


def summary(samples: Iterable[float]) -> Timing:
    p10, median, p90 = np.percentile(list(samples), [10, 50, 90])
    return Timing(float(median), float(p10), float(p90))


def meets(goal: float, own: float, peer: float | None) -> bool | None:
    """Whether `peer / own` reaches `goal`, for times; None, which is not met, without the peer.

    A goal of exactly 1 counts from 0.98: below two per cent a run does not repeat itself.
    """
    if peer is None:
        return None
    return peer / own >= (0.98 if goal == 1.0 else goal)


def line(
    row: str,
    case: str,
    unit: str,
    times: Mapping[str, Timing],
    *,
    goal: str,
    met: bool | None,
    **facts: Any,
) -> Line:
    """One result: `times["ruda"]` and its peers in `unit`, the goal in words, and further facts.

    `met` comes from `meets` or from a comparison of the times, never from a literal.
    """
    scale = SECOND[unit]
    own = times["ruda"]
    peers = {name: time.median * scale for name, time in times.items() if name != "ruda"}
    return {
        "row": row,
        "case": case,
        "unit": unit,
        "ruda": own.median * scale,
        "p10": own.p10 * scale,
        "p90": own.p90 * scale,
        "peers": peers,
        "goal": goal,
        "met": met,
        **facts,
    }


def merge(path: Path, lines: Iterable[Line]) -> None:
    """Write lines into a file of one JSON object a line; a new (row, case) replaces the old one.

    A reader sees the old file or the new one: the text goes to a neighbour that is then renamed.
    """
    old = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    merged = {(entry["row"], entry["case"]): entry for entry in map(json.loads, old)}
    merged |= {(entry["row"], entry["case"]): entry for entry in lines}
    text = "".join(json.dumps(merged[key]) + "\n" for key in sorted(merged))
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
