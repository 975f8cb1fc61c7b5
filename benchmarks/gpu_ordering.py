"""Scans and ordering on a GPU, against PyTorch and CuPy: rows H1, H2, H3.

cumsum of 50 M float32 in one row; sort and argsort of 2^27 keys; the first 64 of 64 rows of 131072.
ruda's argsort and topk are stable, and its cumsum rounds the same way in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import Line, row
from benchmarks.gpu import alternate, result

# bytes/s that a copy reaches
BANDWIDTH = 4.25e12
LONG, KEYS = 50_000_000, 1 << 27

Cases = dict[str, Callable[[], Any]]


def _on_all(x: Any) -> tuple[Any, Any, Any]:
    """The same values on the GPU for ruda, PyTorch and CuPy; uint32 as int32 for PyTorch."""
    import cupy
    import torch

    import ruda

    # PyTorch does not sort uint32; with the highest bit flipped an int32 has the same order.
    signed = (x ^ np.uint32(1 << 31)).view(np.int32) if x.dtype == np.uint32 else x
    return ruda.asarray(x, device="cuda"), torch.from_numpy(signed).cuda(), cupy.asarray(x)


@row("H1", "cumsum of 50 M float32")
def running_sum() -> Iterator[Line]:
    import cupy
    import torch

    import ruda

    x = np.random.default_rng(0).standard_normal(LONG, dtype=np.float32)
    ours, theirs, cupys = _on_all(x)
    exact = np.cumsum(x, dtype=np.float64)

    def off(found: Any) -> float:
        return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))

    cases: Cases = {
        "ruda": lambda: ruda.cumsum(ours),
        "TE": lambda: torch.cumsum(theirs, 0),
        "CP": lambda: cupy.cumsum(cupys),
    }
    errors = [off(cases["ruda"]().numpy()), off(cases["TE"]().cpu().numpy())]
    assert errors[0] <= max(2 * errors[1], 1e-5)
    same = cases["ruda"]().numpy().tobytes() == cases["ruda"]().numpy().tobytes()
    floor = 2 * x.nbytes / BANDWIDTH
    yield result(
        "H1",
        "float32 50e6",
        alternate(cases),
        goal=1.3,
        floor=floor,
        error=errors[0],
        peer_error=errors[1],
        repeats=same,
    )


def _is_order(places: Any, x: Any) -> bool:
    """Whether x[places] is sorted, equal keys in their order: then each place is there once."""
    keys = x[places]
    rising = keys[1:] > keys[:-1]
    later = (keys[1:] == keys[:-1]) & (places[1:] > places[:-1])
    return bool(np.all(rising | later))


def _sorting(x: Any) -> Iterator[tuple[str, Cases, float]]:
    """Keys and argsort pairs: name, calls, shortest time; results are checked first."""
    import cupy
    import torch

    import ruda

    ours, theirs, cupys = _on_all(x)
    size, passes = x.itemsize, x.itemsize
    keys: Cases = {
        "ruda": lambda: ruda.sort(ours),
        "TE": lambda: torch.sort(theirs)[0],
        "CP": lambda: cupy.sort(cupys),
    }
    found = keys["ruda"]().numpy()
    np.testing.assert_array_equal(found, keys["CP"]().get())
    yield f"sort {x.dtype}", keys, x.size * size * (1 + 2 * passes) / BANDWIDTH
    pairs: Cases = {
        "ruda": lambda: ruda.argsort(ours),
        "TE": lambda: torch.argsort(theirs, stable=True),
        "CP": lambda: cupy.argsort(cupys),
    }
    assert _is_order(pairs["ruda"]().numpy(), x)
    # Keys and 4-byte places go both ways in each pass but the ends: none in first, int64 out last.
    moved = size * (2 * passes) + 4 * (2 * passes - 2) + 8
    yield f"argsort {x.dtype}", pairs, x.size * moved / BANDWIDTH


@row("H2", "sort and argsort of 2^27 keys of 32 bits")
def sorting() -> Iterator[Line]:
    rng = np.random.default_rng(0)
    for x in (
        rng.integers(0, 1 << 32, KEYS, dtype=np.uint32),
        rng.standard_normal(KEYS, dtype=np.float32),
    ):
        for name, cases, floor in _sorting(x):
            times = alternate(cases, rounds=15, warmup=3)
            yield result("H2", name, times, goal=1.0, floor=floor, error=0.0, exact=True)


@row("H3", "the 64 largest of each of 64 rows of 131072 float32")
def largest() -> Iterator[Line]:
    import cupy
    import torch

    import ruda

    x = np.random.default_rng(0).standard_normal((64, 131072), dtype=np.float32)
    ours, theirs, cupys = _on_all(x)

    def with_cupy() -> Any:
        # CuPy has no topk: the nearest is a partition of all, which leaves the 64 unsorted.
        return cupy.partition(cupys, x.shape[1] - 64, axis=-1)[:, -64:]

    cases: Cases = {
        "ruda": lambda: ruda.topk(ours, 64),
        "TE": lambda: torch.topk(theirs, 64),
        "CP": with_cupy,
    }
    values, places = (t.numpy() for t in cases["ruda"]())
    np.testing.assert_array_equal(places, np.argsort(-x, axis=-1, kind="stable")[:, :64])
    np.testing.assert_array_equal(values, np.take_along_axis(x, places, axis=-1))
    floor = x.nbytes / BANDWIDTH
    times = alternate(cases)
    yield result("H3", "64 of 64 x 131072", times, goal=2.0, peers=("TE",), floor=floor, error=0.0)
