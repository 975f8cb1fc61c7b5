"""Row A0: rows of every length at a share of a copy, so that none of them is a cliff.

Each operator runs forward on 2^27 numbers in bfloat16, cut into rows of each length; beside it a
copy of as many numbers runs in the same rounds. A share is the time of a copy over the operator's,
or half of that where the operator only reads. Weights and biases are not counted as bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from benchmarks import Line, row, wanted
from benchmarks.gpu import alternate, facts
from benchmarks.timing import line

# Powers of two, and lengths in between that fill no thread's packs evenly. Odd ones are not among
# them: docs/kernels.md says what they reach.
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768, 40000, 50304, 65536, 100000, 131072)
_NUMBERS = 1 << 27
# The float64 reference looks at so many of the first rows.
_CHECKED = 16


class Operator(NamedTuple):
    """One function in both libraries, of a tensor and operands ``extra(n)``, and its goal."""

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    extra: Callable[[Any, int, int], tuple[Any, ...]]
    goal: float
    # Reads and writes, in copies.
    moved: float = 1.0


def _parameters(count: int) -> Callable[[Any, int, int], tuple[Any, ...]]:
    def made(torch: Any, rows: int, n: int) -> tuple[Any, ...]:
        return tuple(torch.randn(n, device="cuda").bfloat16() for _ in range(count))

    return made


def _classes(torch: Any, rows: int, n: int) -> tuple[Any, ...]:
    return (torch.randint(n, (rows,), device="cuda"),)


def _operators() -> Iterator[Operator]:
    import torch
    import torch.nn.functional as T

    import ruda.nn.functional as F

    def rms(x: Any, w: Any) -> Any:
        return T.rms_norm(x, w.shape, w, 1e-6)

    def layer(x: Any, w: Any, b: Any) -> Any:
        return T.layer_norm(x, w.shape, w, b, 1e-5)

    def ours_rms(x: Any, w: Any) -> Any:
        return F.rms_norm(x, w, eps=1e-6)

    def entropy(library: Any) -> Callable[..., Any]:
        return lambda x, target: library.cross_entropy(x, target, reduction="none")

    none = _parameters(0)
    yield Operator("rms_norm", ours_rms, rms, _parameters(1), 0.8)
    yield Operator("layer_norm", F.layer_norm, layer, _parameters(2), 0.8)
    yield Operator("softmax", F.softmax, lambda x: torch.softmax(x, -1), none, 0.8)
    yield Operator("log_softmax", F.log_softmax, lambda x: torch.log_softmax(x, -1), none, 0.8)
    yield Operator("cross_entropy", entropy(F), entropy(T), _classes, 0.6, moved=0.5)


@row("A0", "rows of 512 to 131072 in bfloat16, forward: the least share of a copy")
def lengths() -> Iterator[Line]:
    for operator in _operators():
        if wanted(operator.name):
            yield _line(operator)


def _line(operator: Operator) -> Line:
    found = [(n, *_measured(operator, n)) for n in LENGTHS]
    shares = {n: round(share, 3) for n, share, _, _ in found}
    slowest, least, times, _ = min(found, key=lambda entry: entry[1])
    return line(
        "A0",
        operator.name,
        "ms",
        times,
        goal=f">= {operator.goal} of a copy at every length",
        met=least >= operator.goal,
        strategy="row-engine",
        slowest=slowest,
        shares=shares,
        error=max(error for *_, error in found),
        **facts(),
    )


def _measured(operator: Operator, n: int) -> tuple[float, Any, float]:
    """The share of a copy, the times, and the error against float64 on the first rows."""
    import torch

    import ruda

    rows = _NUMBERS // n
    x = torch.randn(rows * n, device="cuda").bfloat16().view(rows, n)
    extra = operator.extra(torch, rows, n)
    given, target = [ruda.from_dlpack(t) for t in (x, *extra)], torch.empty_like(x)
    with torch.no_grad(), ruda.no_grad():
        first = torch.from_dlpack(operator.ours(*given))[:_CHECKED].double()
        cut = [t[:_CHECKED] if len(t) == rows else t for t in (x, *extra)]
        want = operator.theirs(*(t.double() if t.is_floating_point() else t for t in cut))
        error = float((first - want).norm() / want.norm())
        times = alternate(
            {"ruda": lambda: operator.ours(*given), "copy": lambda: target.copy_(x)},
            rounds=8,
            warmup=4,
        )
    return operator.moved * times["copy"].median / times["ruda"].median, times, error
