"""Adding rows up by index on a GPU, against PyTorch eager: row H4.

131072 tokens of a Zipf law over a vocabulary of 128256, rows of 1024 in bfloat16. ruda's sums are
in the order of the tokens and in float32, and repeat bit by bit; PyTorch's index_add does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks import Line, row
from benchmarks.gpu import alternate, facts, result

TOKENS, ROWS, WIDTH = 131072, 128256, 1024
# bytes/s that a copy reaches
BANDWIDTH = 4.25e12


def zipf(rng: np.random.Generator, rows: int, count: int) -> Any:
    """Row numbers of which a few are very frequent, the frequent ones anywhere."""
    weights = 1.0 / np.arange(1, rows + 1)
    return rng.permutation(rows)[rng.choice(rows, count, p=weights / weights.sum())]


def given(torch: Any) -> SimpleNamespace:
    """Indices, gradients and a table for both libraries, and the exact sums in float64."""
    import ruda

    rng = np.random.default_rng(0)
    spots = zipf(rng, ROWS, TOKENS)
    g = rng.standard_normal((TOKENS, WIDTH), dtype=np.float32)
    base = rng.standard_normal((ROWS, WIDTH), dtype=np.float32)
    theirs = SimpleNamespace(
        spots=torch.from_numpy(spots).cuda(),
        g=torch.from_numpy(g).cuda().bfloat16(),
        base=torch.from_numpy(base).cuda().bfloat16(),
    )
    ours = SimpleNamespace(
        spots=ruda.asarray(spots, device="cuda"),
        g=ruda.asarray(g, dtype="bfloat16", device="cuda"),
        base=ruda.asarray(base, dtype="bfloat16", device="cuda"),
    )
    sums = torch.zeros(ROWS, WIDTH, dtype=torch.float64, device="cuda")
    sums.index_add_(0, theirs.spots, theirs.g.double())
    return SimpleNamespace(ours=ours, theirs=theirs, sums=sums, unique=len(np.unique(spots)))


def cases(torch: Any, x: SimpleNamespace) -> dict[str, dict[str, Callable[[], Any]]]:
    """What is timed: for each case a call of ruda and one of PyTorch."""
    import ruda.nn.functional
    from ruda.tensor.dispatch import OPS

    a, b = x.ours, x.theirs
    backward = OPS["embedding_backward"].call
    dense = torch.ops.aten.embedding_dense_backward
    return {
        "embedding backward": {
            "ruda": lambda: backward(a.g, a.spots, ROWS, -1),
            "TE": lambda: dense(b.g, b.spots, ROWS, -1, False),
        },
        "index_add": {
            "ruda": lambda: ruda.index_add(a.base, a.spots, a.g),
            "TE": lambda: torch.index_add(b.base, 0, b.spots, b.g),
        },
        "index_put accumulate": {
            "ruda": lambda: ruda.index_put(a.base, a.spots, a.g, accumulate=True),
            "TE": lambda: torch.index_put(b.base, (b.spots,), b.g, accumulate=True),
        },
    }


def error(torch: Any, found: Any, exact: Any) -> float:
    """The distance between a result and the exact sums over their length."""
    if not isinstance(found, torch.Tensor):
        bits = found.numpy().view(np.int16)
        found = torch.from_numpy(bits).cuda().view(torch.bfloat16)
    return float((found.double() - exact).norm() / exact.norm())


GOALS = {"embedding backward": 2.0, "index_add": 2.0, "index_put accumulate": 10.0}


@row("H4", "rows added up by index: embedding backward, index_add, index_put(accumulate)")
def added_up() -> Iterator[Line]:
    import torch

    x = given(torch)
    read = TOKENS * WIDTH * 2
    for case, calls in cases(torch, x).items():
        exact = x.sums if case == "embedding backward" else x.sums + x.theirs.base.double()
        errors = {name: error(torch, call(), exact) for name, call in calls.items()}
        times = alternate(calls)
        table = ROWS * WIDTH * 2 * (1 if case == "embedding backward" else 2)
        yield result(
            "H4",
            case,
            times,
            goal=GOALS[case],
            peers=("TE",),
            strategy="stable sort, segments",
            floor=(read + table) / BANDWIDTH,
            error=errors["ruda"],
            peer_error=errors["TE"],
            unique_rows=x.unique,
            **facts(),
        )
