"""Timing on a GPU: work of several libraries in one process, in alternating rounds.

Whatever stream a library uses, a sample begins and ends with an idle device: it is the wall time of
`calls` calls, so that launching is hidden where the device is the slower side, and seen where not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import cycle
from time import perf_counter
from typing import Any

from benchmarks import Line
from benchmarks.timing import Timing, line, meets, summary

# A sample lasts at least this long, in seconds: what surrounds it is a few microseconds.
_SAMPLE = 2e-3


def idle() -> None:
    """Wait until the device has nothing to do."""
    from cupy.cuda import runtime

    runtime.deviceSynchronize()


def sample(call: Callable[[], object], calls: int) -> float:
    """Seconds per call."""
    idle()
    start = perf_counter()
    for _ in range(calls):
        call()
    idle()
    return (perf_counter() - start) / calls


def alternate(
    cases: Mapping[str, Callable[[], object]], *, rounds: int = 30, warmup: int = 10
) -> dict[str, Timing]:
    """Median seconds per call of each case, timed once a round; the first one changes."""
    names = list(cases)
    calls = {}
    for name in names:
        sample(cases[name], warmup)
        calls[name] = max(1, round(_SAMPLE / max(sample(cases[name], 3), 1e-7)))
    samples: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            samples[name].append(sample(cases[name], calls[name]))
    return {name: summary(values) for name, values in samples.items()}


def rotated(call: Callable[..., object], sets: list[tuple[Any, ...]]) -> Callable[[], object]:
    """`call` on each of several sets of operands in turn, so that none is in the cache still."""
    turn = cycle(sets)
    return lambda: call(*next(turn))


def result(
    row: str,
    case: str,
    times: Mapping[str, Timing],
    *,
    goal: float,
    peers: tuple[str, ...] = (),
    unit: str = "ms",
    strategy: str = "own",
    floor: float | None = None,
    **facts: Any,
) -> Line:
    """One line: `goal` is the least allowed time of the best of `peers` over ruda's.

    `floor` is the shortest possible time in seconds.
    """
    named = peers or tuple(name for name in times if name != "ruda")
    best = min((times[name].median for name in named if name in times), default=None)
    own = times["ruda"].median
    ratios = {n: round(t.median / own, 3) for n, t in times.items() if n != "ruda"}
    share = {} if floor is None else {"floor_share": round(floor / own, 3)}
    words = f">= {goal} x best({', '.join(named)})"
    met = meets(goal, own, best)
    return line(
        row,
        case,
        unit,
        times,
        goal=words,
        met=met,
        strategy=strategy,
        ratio=ratios,
        **share,
        **facts,
    )


def facts() -> dict[str, Any]:
    """What every line of this machine says: the device, and the sources that ran."""
    from cupy.cuda import runtime

    from tests.gpu.conftest import sources

    return {"device": runtime.getDeviceProperties(0)["name"].decode(), "sources": sources()}
