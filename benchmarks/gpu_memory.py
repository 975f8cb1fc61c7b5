"""What is bound by memory on a GPU: reductions over any axes (H5), pointwise work and copies (H8).

Operands are far larger than the cache. The floor of a line is the time that a copy by the driver
takes for the same bytes, measured in the same run. H5 is held against torch.compile in each case,
and against CuPy in the geometric mean; H8 asks for 0.85 of the copy.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks import Line, row
from benchmarks.gpu import alternate, facts, result
from benchmarks.timing import Timing, line, meets

SHAPE = (4096, 128, 512)
Calls = dict[str, Callable[[], Any]]


class Operand(NamedTuple):
    """One array in each of the libraries."""

    host: Any
    ruda: Any
    torch: Any
    cupy: Any


def operand(host: Any, dtype: str = "float32") -> Operand:
    import cupy
    import torch

    import ruda

    theirs = torch.from_numpy(host).cuda()
    return Operand(
        host,
        ruda.asarray(host, device="cuda").astype(dtype),
        theirs.to(getattr(torch, dtype)),
        cupy.asarray(host).astype(dtype if dtype != "bfloat16" else "float16"),
    )


@functools.cache
def _noise() -> Any:
    """Drawn once: a gigabyte of it takes seconds."""
    return np.random.default_rng(0).standard_normal((1 << 23) * 33, dtype=np.float32)


def normal(*shape: int) -> Any:
    count = math.prod(shape)
    if count > _noise().size:
        return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    return _noise()[:count].reshape(shape)


def copy_rate(nbytes: int = 1 << 30) -> float:
    """Bytes a second, read and written, of a copy by the driver."""
    import cupy

    source, target = cupy.ones(nbytes, "u1"), cupy.zeros(nbytes, "u1")

    def copy() -> None:
        cupy.cuda.runtime.memcpyAsync(target.data.ptr, source.data.ptr, nbytes, 3, 0)

    return 2 * nbytes / alternate({"copy": copy})["copy"].median


def distance(found: Any, exact: Any) -> float:
    """The norm of the error over that of the exact values."""
    values = found.get() if hasattr(found, "get") else found
    if hasattr(values, "cpu"):
        values = values.cpu()
        values = values.float() if str(values.dtype) == "torch.bfloat16" else values
    wide = np.asarray(values.numpy() if hasattr(values, "numpy") else values).astype(np.float64)
    return float(np.linalg.norm(wide - exact) / max(float(np.linalg.norm(exact)), 1e-300))


def by_all(name: str, x: Operand, axes: Any) -> Calls:
    """One reduction by every library."""
    import cupy
    import torch

    import ruda

    ours, theirs, cupys = getattr(ruda, name), getattr(torch, name), getattr(cupy, name)
    # PyTorch's variance has another default for what it divides by.
    more: dict[str, Any] = {"correction": 0} if name == "var" else {}
    compiled = torch.compile(lambda t: theirs(t, dim=axes, **more))
    if name == "max":
        theirs = torch.amax
        compiled = torch.compile(lambda t: torch.amax(t, dim=axes))
    return {
        "ruda": lambda: ours(x.ruda, axis=axes),
        "TE": lambda: theirs(x.torch, dim=axes, **more),
        "TC": lambda: compiled(x.torch),
        "CP": lambda: cupys(x.cupy, axis=axes),
    }


REDUCTIONS: tuple[tuple[str, str, tuple[int, ...], Any], ...] = (
    ("sum first axis", "sum", SHAPE, 0),
    ("sum middle axis", "sum", SHAPE, 1),
    ("sum last axis", "sum", SHAPE, 2),
    ("sum all", "sum", SHAPE, (0, 1, 2)),
    ("sum first and last axes", "sum", SHAPE, (0, 2)),
    ("sum last axis of 16", "sum", (1 << 24, 16), 1),
    ("sum last axis of 33", "sum", (1 << 23, 33), 1),
    ("sum middle axis of 3", "sum", (1 << 18, 3, 320), 1),
    ("sum first axis, 7 columns", "sum", (1 << 25, 7), 0),
    ("max first axis", "max", SHAPE, 0),
    ("argmax last axis", "argmax", SHAPE, 2),
    ("var first axis", "var", SHAPE, 0),
    ("var last axis", "var", SHAPE, 2),
)


def exact(name: str, host: Any, axes: Any) -> Any:
    if name == "sum":
        return np.add.reduce(host, axis=axes, dtype=np.float64)
    if name == "var":
        return host.var(axis=axes, dtype=np.float64)
    return getattr(np, name)(host, axis=axes).astype(np.float64)


@row("H5", "reductions over any axes of 1 GB of float32")
def reductions() -> Iterator[Line]:
    rate, told = copy_rate(), facts()
    taken: list[dict[str, Timing]] = []
    for case, name, shape, axes in REDUCTIONS:
        x = operand(normal(*shape))
        want = exact(name, x.host, axes)
        calls = by_all(name, x, axes)
        errors = {k: distance(call(), want) for k, call in calls.items()}
        times = alternate(calls)
        taken.append(times)
        yield result(
            "H5",
            case,
            times,
            goal=1.0,
            peers=("TC",),
            strategy="rows or columns",
            floor=x.host.nbytes / rate,
            error=errors.pop("ruda"),
            peer_error=errors,
            **told,
        )
    yield mean_over_cupy(taken, told)


def mean_over_cupy(taken: list[dict[str, Timing]], told: dict[str, Any]) -> Line:
    """The geometric means of all cases, which the goal against CuPy speaks of."""
    means = {
        name: Timing(
            *(float(np.exp(np.mean([np.log(t[name][i]) for t in taken]))) for i in range(3))
        )
        for name in ("ruda", "TE", "TC", "CP")
    }
    met = meets(3.0, means["ruda"].median, means["CP"].median)
    goal = ">= 3.0 x CP"
    return line("H5", "geometric mean", "ms", means, goal=goal, met=met, strategy="all", **told)


class Move(NamedTuple):
    """One case of H8: its calls, what they should give, and the bytes they must move."""

    calls: Calls
    exact: Any
    nbytes: int


def _moves() -> Iterator[tuple[str, Callable[[], Move]]]:
    yield "add", lambda: _pointwise(lambda x, y: x + y, 3)
    yield "row added", lambda: _broadcast((None, slice(None)))
    yield "column added", lambda: _broadcast((slice(None), None))
    yield "copy", lambda: _copied((1 << 28,), "float32", lambda t: t)
    yield "copy of every second", lambda: _copied((1 << 28,), "float32", lambda t: t[::2])
    yield "copy of a matrix, turned", lambda: _copied((16384, 16384), "float32", _turned)
    yield "copy of a bfloat16 matrix, turned", lambda: _copied((16384, 16384), "bfloat16", _turned)
    yield "heads before tokens", lambda: _copied((32, 2048, 32, 128), "float32", _heads)
    yield "channels last", lambda: _copied((256, 64, 112, 112), "float32", _last)
    yield "turned matrix added", lambda: _pointwise(lambda x, y: x + y.T, 3)
    yield "cast to bfloat16", _cast


def _turned(t: Any) -> Any:
    return t.T


def _permuted(t: Any, order: tuple[int, ...]) -> Any:
    return t.permute(order) if hasattr(t, "permute") else t.transpose(order)


def _heads(t: Any) -> Any:
    return _permuted(t, (0, 2, 1, 3))


def _last(t: Any) -> Any:
    return _permuted(t, (0, 2, 3, 1))


def _pointwise(work: Callable[[Any, Any], Any], passes: int) -> Move:
    import torch

    x, y = operand(normal(16384, 16384)), operand(normal(16384, 16384)[::-1].copy())
    compiled = torch.compile(work)
    calls: Calls = {
        "ruda": lambda: work(x.ruda, y.ruda),
        "TE": lambda: work(x.torch, y.torch),
        "TC": lambda: compiled(x.torch, y.torch),
        "CP": lambda: work(x.cupy, y.cupy),
    }
    return Move(calls, work(x.host, y.host), passes * x.host.nbytes)


def _broadcast(key: tuple[Any, ...]) -> Move:
    import torch

    x, y = operand(normal(16384, 16384)), operand(normal(16384))
    compiled = torch.compile(torch.add)
    ours, theirs, cupys = y.ruda[key], y.torch[key], y.cupy[key]
    calls: Calls = {
        "ruda": lambda: x.ruda + ours,
        "TE": lambda: x.torch + theirs,
        "TC": lambda: compiled(x.torch, theirs),
        "CP": lambda: x.cupy + cupys,
    }
    return Move(calls, x.host + y.host[key], 2 * x.host.nbytes)


def _copied(shape: tuple[int, ...], dtype: str, show: Callable[[Any], Any]) -> Move:
    """A dense copy of a view; every second element reads all of the memory and writes half."""
    import torch

    x = operand(normal(*shape), dtype)
    compiled = torch.compile(lambda t: t.clone(memory_format=torch.contiguous_format))
    ours, theirs, cupys = show(x.ruda), show(x.torch), show(x.cupy)
    calls: Calls = {
        "ruda": lambda: ours.copy(),
        "TE": lambda: theirs.clone(memory_format=torch.contiguous_format),
        "TC": lambda: compiled(theirs),
        "CP": lambda: cupys.copy(order="C"),
    }
    if dtype == "bfloat16":
        del calls["CP"]
    rounded = x.torch.float().cpu().numpy() if dtype == "bfloat16" else x.host
    size = 2 if dtype == "bfloat16" else 4
    return Move(calls, show(rounded), size * (x.host.size + show(x.host).size))


def _cast() -> Move:
    import torch

    import ruda

    x = operand(normal(1 << 28))
    compiled = torch.compile(lambda t: t.to(torch.bfloat16))
    calls: Calls = {
        "ruda": lambda: x.ruda.astype(ruda.bfloat16),
        "TE": lambda: x.torch.to(torch.bfloat16),
        "TC": lambda: compiled(x.torch),
    }
    return Move(calls, x.torch.to(torch.bfloat16).float().cpu().numpy(), 6 * x.host.size)


@row("H8", "pointwise work and copies of 1 GB, over the bandwidth of a copy")
def moves() -> Iterator[Line]:
    rate, told = copy_rate(), facts()
    for case, make in _moves():
        move = make()
        errors = {k: distance(call(), move.exact) for k, call in move.calls.items()}
        times = alternate(move.calls)
        floor, own = move.nbytes / rate, times["ruda"].median
        yield line(
            "H8",
            case,
            "ms",
            times,
            goal=">= 0.85 of copy",
            met=floor / own >= 0.85,
            strategy="map",
            floor_share=round(floor / own, 3),
            ratio={n: round(t.median / own, 3) for n, t in times.items() if n != "ruda"},
            copy_tb_s=round(rate / 1e12, 3),
            error=errors.pop("ruda"),
            peer_error=errors,
            **told,
        )
