"""What an operator costs on the host with a GPU behind it: row J1.

Eight pointwise operators in turn on 1024 elements, results dropped; the queue is emptied every
hundred operators, so that it is never full and what is measured is the host. Case J1a calls them
eagerly. Case J1b has all that stand between two waits in a captured step, each chain on the result
of the one before, and says beside it what a step of a single chain takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import Line, row
from benchmarks.gpu import facts, idle
from benchmarks.timing import Timing, line, meets, summary

OPERATORS, CHAINS = 8, 12  # 96 operators between two waits
ROUNDS, WARMUP = 60, 20


def chain(x: Any, y: Any, library: Any) -> Any:
    """Eight operators that every library has."""
    a = x + y
    a = a * x
    a = a - y
    a = library.tanh(a)
    a = a * 0.5
    a = library.abs(a)
    a = a + 1.0
    return library.sqrt(a)


def chains() -> dict[str, Callable[[], object]]:
    import cupy
    import torch

    import ruda

    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(1024, dtype=np.float32) for _ in range(2))
    want = chain(x.astype(np.float64), y.astype(np.float64), np)
    ours = [ruda.asarray(v, device="cuda") for v in (x, y)]
    theirs = [torch.from_numpy(v).cuda() for v in (x, y)]
    cupys = [cupy.asarray(v) for v in (x, y)]
    np.testing.assert_allclose(chain(*ours, ruda).numpy(), want, rtol=1e-5)
    return {
        "ruda": lambda: chain(*ours, ruda),
        "TE": lambda: chain(*theirs, torch),
        "CP": lambda: chain(*cupys, cupy),
    }


def in_turn(x: Any, y: Any, library: Any) -> Any:
    """Each chain on the result of the one before."""
    for _ in range(CHAINS):
        x = chain(x, y, library)
    return x


def steps() -> dict[str, tuple[Callable[[], object], int]]:
    """Calls, and how many of them are to be made between two waits."""
    import torch

    import ruda

    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(1024, dtype=np.float32) for _ in range(2))
    ours = [ruda.asarray(v, device="cuda") for v in (x, y)]
    theirs = [torch.from_numpy(v).cuda() for v in (x, y)]
    whole = ruda.compile(lambda x, y: in_turn(x, y, ruda))
    single = ruda.compile(lambda x, y: chain(x, y, ruda))
    want = in_turn(x.astype(np.float64), y.astype(np.float64), np)
    for _ in range(WARMUP):
        np.testing.assert_allclose(whole(*ours).numpy(), want, rtol=1e-4)
        single(*ours)
    assert "replayed as one graph" in whole.explain()
    return {
        "ruda": (lambda: whole(*ours), 1),
        "TE": (lambda: in_turn(*theirs, torch), 1),
        "step of one chain": (lambda: single(*ours), CHAINS),
    }


def seconds_per_operator(call: Callable[[], object], calls: int = CHAINS) -> float:
    """Host time of one operator; waiting for the device is not counted."""
    idle()
    start = perf_counter()
    for _ in range(calls):
        call()
    taken = perf_counter() - start
    idle()
    return taken / (CHAINS * OPERATORS)


def host_times(calls: Mapping[str, tuple[Callable[[], object], int]]) -> dict[str, Timing]:
    names = list(calls)
    for call in calls.values():
        for _ in range(WARMUP):
            seconds_per_operator(*call)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(ROUNDS):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            samples[name].append(seconds_per_operator(*calls[name]))
    return {name: summary(values) for name, values in samples.items()}


def ratios(times: Mapping[str, Timing]) -> dict[str, float]:
    own = times["ruda"].median
    return {n: round(t.median / own, 3) for n, t in times.items() if n != "ruda"}


@row("J1", "chains of 8 pointwise operators on 1024 elements, host time of an operator")
def eager_chain() -> Iterator[Line]:
    times = host_times({name: (call, CHAINS) for name, call in chains().items()})
    own = times["ruda"].median
    kept = meets(1.0, own, times["TE"].median) and own <= 0.7 * times["CP"].median
    yield line(
        "J1",
        "J1a eager",
        "us",
        times,
        goal=">= 1.0 x TE and <= 0.7 of the time of CP",
        met=kept,
        strategy="eager",
        ratio=ratios(times),
        **facts(),
    )
    times = host_times(steps())
    single = times.pop("step of one chain").median
    yield line(
        "J1",
        "J1b inside a captured step",
        "us",
        times,
        goal=">= 10.0 x TE",
        met=meets(10.0, times["ruda"].median, times["TE"].median),
        strategy="one graph",
        ratio=ratios(times),
        step_of_one_chain=round(single * 1e6, 3),
        **facts(),
    )
