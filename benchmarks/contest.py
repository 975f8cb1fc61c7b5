"""Contests between processes: one per contestant, so that their thread pools never mix.

A controller lets one run at a time, in rounds whose order turns. A pool of threads goes on spinning
for a while after its last task, so each sample starts after a pause: with one of 0.05 s the threads
of BLAS in one process made the others twice as slow.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from benchmarks.timing import Timing, seconds_per_call, summary

# The peer is PyTorch with the threads it takes by default.
CONTESTANTS = {
    "ruda": {"library": "ruda", "RUDA_CPU_KERNELS": "auto"},
    "numpy_only": {"library": "ruda", "RUDA_CPU_KERNELS": "off"},
    "TE": {"library": "torch"},
}
PAUSE = 0.2
# Printed beside, many times slower than the others: it runs in one round of five.
BESIDE, EVERY = "numpy_only", 5


class Result(NamedTuple):
    """Time and error of each contestant that could run."""

    times: dict[str, Timing]
    errors: dict[str, float]


class Contestant:
    """A process that has one work ready and runs it on demand."""

    def __init__(self, work: str, name: str) -> None:
        library, *settings = CONTESTANTS[name].items()
        command = [sys.executable, "-m", "benchmarks.contest", work, library[1]]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **dict(settings)},
        )
        self.error = self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        if not text:
            raise RuntimeError(
                f"contest: {self.process.args} ended. Got code {self.process.wait()}"
            )
        return json.loads(text)

    def seconds(self, calls: int) -> float:
        """Seconds per call, over `calls` calls in a row."""
        assert self.process.stdin is not None
        time.sleep(PAUSE)
        self.process.stdin.write(f"{calls}\n")
        self.process.stdin.flush()
        return float(self._answer())

    def __enter__(self) -> Contestant:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def contest(work: str, *, rounds: int, warmup: int = 10, calls: int = 1) -> Result:
    """Time `work` by every contestant whose library is installed, in alternating rounds."""
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(Contestant(work, name))
            for name in CONTESTANTS
            if name != "TE" or _has_torch()
        }
        samples: dict[str, list[float]] = {name: [] for name in running}
        for name, each in running.items():
            each.seconds(2 if name == BESIDE else warmup)
        for turn in range(rounds):
            for name in _turned(list(running), turn):
                if name != BESIDE or turn % EVERY == 0:
                    samples[name].append(running[name].seconds(calls))
        errors = {name: each.error for name, each in running.items()}
    return Result({name: summary(taken) for name, taken in samples.items()}, errors)


def _turned(names: Sequence[str], turn: int) -> Sequence[str]:
    """The order of a round: each is first in turn, and every other one goes backwards."""
    first = turn % len(names)
    order = [*names[first:], *names[:first]]
    return order[::-1] if turn % 2 else order


def _has_torch() -> bool:
    command = [sys.executable, "-c", "import torch"]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


def serve(work: str, library: str) -> None:
    """Make `work` ready, say its error, then answer each number of calls with seconds per call."""
    from benchmarks.works.networks import WORKS  # torch and ruda stay out of the controller

    ready = WORKS[work](library)
    print(json.dumps(ready.error), flush=True)
    for line in sys.stdin:
        print(json.dumps(seconds_per_call(ready.call, int(line))), flush=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])
