"""Choosing among algorithms by time, once, and remembering the choice on disk.

With ``RUDA_AUTOTUNE=on`` candidates that are met for the first time are timed in turn on the
call's own operands, and all their times are kept by the call's exact shape, in a file of
``<cache>/<arch>/tuned`` for each library and size of device. ``cached`` uses what is there and
times nothing; ``off`` takes the library's own first choice.
"""

from __future__ import annotations

import functools
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ruda.backends.cuda import cache
from ruda.core import config
from ruda.core.errors import ArgumentError

_MODES = ("off", "cached", "on")
_ROUNDS, _CALLS = 7, 5
# What another algorithm must gain over the library's first choice: less may be noise.
_MARGIN = 0.97


def mode() -> str:
    """The value of ``RUDA_AUTOTUNE``."""
    found = config.value("RUDA_AUTOTUNE")
    if found not in _MODES:
        raise ArgumentError("RUDA_AUTOTUNE", "unknown value", found, " or ".join(_MODES))
    return found


def best(client: Any, library: str, key: str, trials: Sequence[Callable[[], None]]) -> int:
    """Which of ``trials`` to run for the call ``key``: 0 is the library's own choice."""
    how = mode()
    if how == "off" or len(trials) == 1:
        return 0
    path = _path(client, library)
    times = _known(path).get(key)
    if times is None and how == "on" and not _is_captured(client):
        times = _measured(client, trials)
        _keep(path, key, times)
    return 0 if times is None else _chosen(times, len(trials))


def known(client: Any, library: str, key: str, count: int) -> int:
    """Which of ``count`` candidates ``best`` took for the call ``key``, as far as that is kept."""
    if mode() == "off":
        return 0
    times = _known(_path(client, library)).get(key)
    return 0 if times is None else _chosen(times, count)


def is_known(client: Any, library: str, key: str) -> bool:
    """Whether candidates for the call ``key`` were timed."""
    return key in _known(_path(client, library))


def _path(client: Any, library: str) -> Path:
    name = f"{library}-{client.driver.multiprocessors}.json"
    return cache.folder(client.driver.arch) / "tuned" / name


def _chosen(times: list[float], count: int) -> int:
    """The fastest, unless the first is about as fast; other candidates than now say nothing."""
    if len(times) != count:
        return 0
    fastest = min((t, i) for i, t in enumerate(times))
    return fastest[1] if fastest[0] < _MARGIN * times[0] else 0


def _is_captured(client: Any) -> bool:
    """Whether the stream is being recorded into a graph, where nothing can be timed."""
    from cupy_backends.cuda.api import runtime

    return bool(runtime.streamIsCapturing(client.now.stream))


def _measured(client: Any, trials: Sequence[Callable[[], None]]) -> list[float]:
    """Microseconds a call of each trial, the median of interleaved rounds."""
    from cupy_backends.cuda.api import runtime

    stream, start, end = client.now.stream, runtime.eventCreate(), runtime.eventCreate()
    samples: list[list[float]] = [[] for _ in trials]
    for turn in range(_ROUNDS + 1):
        for trial, taken in zip(trials, samples, strict=True):
            runtime.eventRecord(start, stream)
            for _ in range(_CALLS):
                trial()
            runtime.eventRecord(end, stream)
            runtime.eventSynchronize(end)
            if turn:
                taken.append(runtime.eventElapsedTime(start, end) * 1e3 / _CALLS)
    runtime.eventDestroy(start)
    runtime.eventDestroy(end)
    return [round(statistics.median(taken), 3) for taken in samples]


@functools.lru_cache(maxsize=8)
def _known(path: Path) -> dict[str, Any]:
    """The times of a file; none where it is absent or is not such a file."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _keep(path: Path, key: str, times: list[float]) -> None:
    """Add to what is on disk now: another process may have written since it was read."""
    _known.cache_clear()
    _known(path)[key] = times
    cache.write(path, json.dumps(_known(path), indent=0).encode())
