"""Products of matrices and Fourier transforms on a GPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks import Line, row
from benchmarks.gpu import alternate, facts, result, rotated
from benchmarks.timing import meets

# Bytes a second and flops a second that floors are computed from.
COPY, TENSOR = 4.25e12, 790e12
# What a skinny product must reach of the bandwidth.
SHARE = 0.8


def peer() -> Any:
    """PyTorch with a GPU, or None."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


@contextmanager
def tuned() -> Iterator[None]:
    """Algorithms are timed on first use, as the peers' best settings do."""
    before = os.environ.get("RUDA_AUTOTUNE")
    os.environ["RUDA_AUTOTUNE"] = "on"
    try:
        yield
    finally:
        del os.environ["RUDA_AUTOTUNE"]
        if before is not None:
            os.environ["RUDA_AUTOTUNE"] = before


def normal(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    """Random values on the GPU, as a tensor of ruda's."""
    import ruda

    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return ruda.asarray(values, device="cuda").astype(dtype)


def error(got: Any, want: Any) -> float:
    """Norm of the difference over the norm."""
    got = np.asarray(got, want.dtype)
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


@row("G1", "matrix product 8192^3 in bfloat16, against PyTorch")
def large_product() -> Iterator[Line]:
    import ruda

    n = 8192
    x, y = normal((n, n), "bfloat16", 0), normal((n, n), "bfloat16", 1)
    picked = np.arange(0, n, 512)
    want = x[::512].numpy().astype("f4") @ y.numpy().astype("f4")
    with tuned():
        errors = {"error": error((x @ y).numpy()[picked], want)}
        cases: dict[str, Callable[[], object]] = {"ruda": lambda: ruda.matmul(x, y)}
        torch = peer()
        if torch is not None:
            a, b = (torch.from_dlpack(t) for t in (x, y))
            errors["peer_error"] = error(torch.matmul(a, b)[picked].float().cpu().numpy(), want)
            cases["TE"] = lambda: torch.matmul(a, b)
        times = alternate(cases, rounds=30, warmup=100)
    floor = 2 * n**3 / TENSOR
    yield result(
        "G1", "8192^3", times, goal=0.98, peers=("TE",), strategy="cublaslt", floor=floor,
        tflops=round(2 * n**3 / times["ruda"].median / 1e12, 1), **errors, **facts(),
    )  # fmt: skip


@row("G3", "skinny products with 4096 x 14336 in bfloat16, against PyTorch")
def skinny_products() -> Iterator[Line]:
    for wide, depth in ((14336, 4096), (4096, 14336)):
        for rows in (1, 16):
            yield skinny(rows, wide, depth)


def skinny(rows: int, wide: int, depth: int) -> Line:
    """One line: `rows` of x times the transposed weight, another weight on every call."""
    import torch

    import ruda.nn.functional as F

    x = normal((rows, depth), "bfloat16", 0)
    weights = [normal((wide, depth), "bfloat16", 1 + i) for i in range(4)]
    want = x.numpy().astype("f4") @ weights[0].numpy().astype("f4").T
    theirs = [torch.from_dlpack(t) for t in (x, *weights)]
    multiply = torch.nn.functional.linear
    times = alternate(
        {
            "ruda": _captured(F.linear, [(x, w) for w in weights]),
            "TE": _captured_by(torch, multiply, [(theirs[0], w) for w in theirs[1:]]),
        }
    )
    per_call = {name: t._replace(**{f: v / len(weights) for f, v in t._asdict().items()})
                for name, t in times.items()}  # fmt: skip
    floor = 2 * wide * depth / COPY
    made = result(
        "G3", f"M{rows} N{wide} K{depth}", per_call, goal=1.0, peers=("TE",), unit="us",
        strategy="skinny" if rows == 1 else "cublaslt", floor=floor, bandwidth_goal=SHARE,
        error=error(F.linear(x, weights[0]).numpy(), want),
        peer_error=error(multiply(*theirs[:2]).float().cpu().numpy(), want), **facts(),
    )  # fmt: skip
    own, best = per_call["ruda"].median, per_call["TE"].median
    fast = meets(1.0, own, best)
    return {**made, "met": fast and floor / own >= SHARE}


def _captured(call: Callable[..., object], sets: list[tuple[Any, ...]]) -> Callable[[], object]:
    """All calls of ruda's as one graph, so that launching hides nothing."""
    import ruda

    graph = ruda.cuda.Graph()
    for operands in sets:
        call(*operands)
    with ruda.cuda.graph(graph):
        kept = [call(*operands) for operands in sets]

    def replay() -> object:
        graph.replay()
        return kept

    return replay


def _captured_by(
    torch: Any, call: Callable[..., object], sets: list[tuple[Any, ...]]
) -> Callable[[], object]:
    """As ``_captured``, in PyTorch."""
    for operands in sets:
        call(*operands)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [call(*operands) for operands in sets]

    def replay() -> object:
        graph.replay()
        return kept

    return replay


@row("H7", "Fourier transform of 4096 x 4096 complex64, against CuPy and PyTorch")
def transforms() -> Iterator[Line]:
    import cupy

    from ruda import fft

    n = 4096
    sets = [
        (normal((n, n), "complex64", i) + 1j * normal((n, n), "float32", 9 + i),) for i in (0, 1)
    ]
    want = np.fft.fft2(sets[0][0].numpy())
    errors = {"error": error(fft.fftn(*sets[0]).numpy(), want)}
    theirs = [(cupy.from_dlpack(x),) for (x,) in sets]
    cases: dict[str, Callable[[], object]] = {
        "ruda": rotated(fft.fftn, sets),
        "CP": rotated(cupy.fft.fftn, theirs),
    }
    torch = peer()
    if torch is not None:
        cases["TE"] = rotated(torch.fft.fftn, [(torch.from_dlpack(x),) for (x,) in sets])
    errors["peer_error"] = error(cupy.fft.fftn(*theirs[0]).get(), want)
    times = alternate(cases)
    # Each of the two axes is a pass that reads and writes everything.
    floor = 4 * n * n * 8 / COPY
    yield result(
        "H7", "2-D 4096^2", times, goal=1.0, unit="us", strategy="cufft", floor=floor,
        **errors, **facts(),
    )  # fmt: skip
