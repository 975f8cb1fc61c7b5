"""What a call costs on the host: a recorded add beside `np.add` and PyTorch, and importing ruda."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

import ruda
from benchmarks import Line, row
from benchmarks.timing import Timing, interleave, line
from ruda.tensor.node import Node
from ruda.tensor.tensor import wrap

CALLS = 2000


def pytorch() -> ModuleType | None:
    """PyTorch on one thread, or None where it is not installed."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    return torch


def adders() -> dict[str, Callable[[], object]]:
    """The recorded add of 4 elements, and the same work by its peers."""
    x = ruda.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    y = ruda.tensor([5.0, 6.0, 7.0, 8.0])
    a, b = x.detach().numpy(), y.numpy()
    add, reference = ruda.add, np.add
    np.testing.assert_array_equal(add(x, y).detach().numpy(), reference(a, b))
    cases: dict[str, Callable[[], object]] = {
        "ruda": lambda: add(x, y),
        "numpy": lambda: reference(a, b),
    }
    torch = pytorch()
    if torch is not None:
        p, q = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True), torch.tensor(b.copy())
        cases["TE"] = lambda: torch.add(p, q)
    return cases


def ratio(times: dict[str, Timing], peer: str) -> float | None:
    """Ruda's time over the peer's."""
    return times["ruda"].median / times[peer].median if peer in times else None


def held(times: dict[str, Timing], limit: float) -> bool | None:
    """Within `limit` of NumPy and 0.8 of PyTorch; None, which is not met, without PyTorch."""
    torch = ratio(times, "TE")
    own = ratio(times, "numpy")
    return None if torch is None or own is None else own <= limit and torch <= 0.8


@row("P9", "recorded add of 4 elements, result dropped, against np.add and PyTorch")
def recorded_add() -> Iterator[Line]:
    cases = adders()
    times = interleave(cases, calls=CALLS)
    goal = "<= 3.5 x np.add and <= 0.8 x TE"
    yield line("P9", "dropped", "ns", times, goal=goal, met=held(times, 3.5), **ratios(times))
    alive = [cases["ruda"]() for _ in range(10_000)]
    times = interleave(cases, calls=CALLS)
    own = ratio(times, "numpy")
    met = own is not None and own <= 5.0
    goal = "<= 5 x np.add with 10,000 live nodes"
    yield line("P9", "live", "ns", times, goal=goal, met=met, alive=len(alive), **ratios(times))
    yield breakdown()


def ratios(times: dict[str, Timing]) -> dict[str, Any]:
    found = {name: ratio(times, name) for name in ("numpy", "TE")}
    return {"over": {name: round(value, 2) for name, value in found.items() if value}}


def breakdown() -> Line:
    """The steps of a recorded add, each timed alone; their sum is not exactly the whole."""
    x = ruda.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    y = ruda.tensor([5.0, 6.0, 7.0, 8.0])
    op = ruda.ops.table.TABLE["add"]
    plan = op.lookup((x.spec, y.spec), ())
    key, find, run = (x.spec, y.spec), op.hot.get, plan.run
    hx, hy = x.handle, y.handle
    steps: dict[str, Callable[[], object]] = {
        "ruda": lambda: ruda.add(x, y),
        "nothing": lambda: None,
        "untracked": lambda: ruda.add(y, y),
        "plan lookup": lambda: find(key),
        "launch": lambda: run(hx, hy),
        "tensor": lambda: wrap(plan.out, hx),
        "node": Node,
    }
    times = interleave(steps, calls=CALLS)
    return line("P9", "breakdown", "ns", times, goal="none: says where the time goes", met=None)


IMPORT = "from time import perf_counter as c; s=c(); import {}; print(c()-s)"


def importing(modules: str) -> float:
    """Seconds that a fresh interpreter takes to import `modules`."""
    command = [sys.executable, "-c", IMPORT.format(modules)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@row("P10", "import ruda beyond import numpy")
def import_time() -> Iterator[Line]:
    samples: dict[str, list[float]] = {"numpy": [], "numpy, ruda": []}
    for name in samples:
        importing(name)
    for _ in range(15):
        for name, taken in samples.items():
            taken.append(importing(name))
    extra = np.subtract(samples["numpy, ruda"], samples["numpy"])
    p10, median, p90 = (float(v) for v in np.percentile(extra, [10, 50, 90]))
    times = {"ruda": Timing(median, p10, p90)}
    yield line("P10", "import", "ms", times, goal="<= 80 ms", met=median <= 0.080)
