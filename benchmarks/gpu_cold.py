"""How long a new process takes to its first training step, with nothing on disk and with all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from benchmarks import Line, row
from benchmarks.timing import line, summary

# What each library keeps compiled code in, and NVIDIA's compiler and driver what they have made.
_CACHES = ("RUDA_CACHE", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH")
# A peer's cold start takes a minute.
_COLD, _WARM = {"ruda": 3, "TC": 1}, 3


def first_step(library: str, folder: str) -> dict[str, Any]:
    """What a process says that keeps its compiled code in `folder`."""
    places = {name: os.path.join(folder, name.lower()) for name in _CACHES}
    command = [sys.executable, "-m", "benchmarks.works.cold", library, repr(time.time())]
    env = os.environ | places
    # The first process leaves bytecode behind, as an installation does for both libraries.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    out = subprocess.run(command, env=env, capture_output=True, text=True)
    if out.returncode:
        raise RuntimeError(f"{library}: {out.stderr[-2000:]}")
    return dict(json.loads(out.stdout.splitlines()[-1]))


@row("J7", "from process start to the first trained step of GPT-2 124M")
def cold() -> Iterator[Line]:
    cold: dict[str, list[float]] = {}
    warm: dict[str, list[float]] = {}
    second: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        # Once before anything is timed: files of the libraries come from disk the first time, and
        # Python compiles its modules.
        first_step("ruda", os.path.join(folder, "before"))
        for library, name in (("ruda", "ruda"), ("torch", "TC")):
            place = os.path.join(folder, name)
            empty = [place, *(f"{place}{i}" for i in range(_COLD[name] - 1))]
            cold[name] = [first_step(library, each)["seconds"] for each in empty]
            found = [first_step(library, place) for _ in range(_WARM)]
            warm[name] = [each["seconds"] for each in found]
            second[name] = round(found[-1]["second"], 3)
    for case, taken, goal in (("cold", cold, 5.0), ("warm", warm, 2.5)):
        times = {name: summary(values) for name, values in taken.items()}
        met = times["ruda"].median <= goal
        yield line("J7", case, "s", times, goal=f"<= {goal} s", met=met, second_step=second)
