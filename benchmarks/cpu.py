"""Rows of the CPU against PyTorch with its default threads, each in a process of its own.

`ruda` has the kernels of the extra `cpu`; `numpy_only` is ruda without them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from benchmarks import Line, row
from benchmarks.contest import contest
from benchmarks.timing import line, meets


def compare(name: str, case: str, work: str, goal: float, *, rounds: int, calls: int = 1) -> Line:
    """One line: times and errors of all, and the peer's time over ruda's."""
    times, errors = contest(work, rounds=rounds, calls=calls)
    own = times["ruda"].median
    peer = times["TE"].median if "TE" in times else None
    ratios = {other: round(t.median / own, 2) for other, t in times.items() if other != "ruda"}
    return line(
        name,
        case,
        "ms",
        times,
        goal=f">= {goal} x TE",
        met=meets(goal, own, peer),
        ratio=ratios,
        error=errors["ruda"],
        peer_error=errors.get("TE"),
        processes="one each, alternating",
        load=round(os.getloadavg()[0], 1),
    )


@row("P1", "matmul in float32")
def products() -> Iterator[Line]:
    yield compare("P1", "1024 x 1024 x 1024", "matmul 1024", 1.05, rounds=60)
    yield compare("P1", "4096 x 256 x 1024", "matmul 4096", 1.05, rounds=60)


@row("P2", "six pointwise operators in turn on 4 M elements in float32")
def pointwise() -> Iterator[Line]:
    yield compare("P2", "eager", "chain", 0.8, rounds=40)
    yield compare("P2", "compiled", "chain compiled", 2.0, rounds=40)


@row("P3", "rows of 8192 x 1024 in float32 with their gradients, in compiled steps")
def rows() -> Iterator[Line]:
    for name in ("softmax", "layer_norm", "cross_entropy"):
        yield compare("P3", name, f"{name} rows", 1.0, rounds=30)


@row("P4", "convolution 3 x 3 of 64 channels with both gradients")
def convolution() -> Iterator[Line]:
    yield compare("P4", "forward and backward", "conv", 0.6, rounds=30)


@row("P5", "attention of 32 heads, 512 queries and keys, with all gradients")
def attention() -> Iterator[Line]:
    yield compare("P5", "forward and backward", "attention", 0.7, rounds=30)


@row("P6", "AdamW step on 10 M parameters, against the fused one")
def adamw() -> Iterator[Line]:
    yield compare("P6", "step", "adamw", 1.0, rounds=40)


@row("P7", "training step of a network of three layers of 256, batch of 128")
def network() -> Iterator[Line]:
    yield compare("P7", "eager", "mlp", 0.8, rounds=40, calls=20)
    yield compare("P7", "compiled", "mlp compiled", 1.5, rounds=40, calls=20)


@row("P8", "training step of the 0.8 M GPT of examples/gpt.py, 32 windows of 64 characters")
def transformer() -> Iterator[Line]:
    yield compare("P8", "eager", "gpt", 0.6, rounds=30)
    yield compare("P8", "compiled", "gpt compiled", 1.0, rounds=30)
