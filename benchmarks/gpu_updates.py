"""An AdamW step with the norm of all gradients bounded: 400 tensors, 1.236 G parameters, row I1."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

from benchmarks import Line, row
from benchmarks.gpu import alternate, facts, idle, result
from benchmarks.timing import summary

# bytes/s that a copy reaches
BANDWIDTH = 4.25e12
TENSORS, SIZE = 400, 3_090_000
# Norm: the gradient once. Step: parameter and moments in and out, the gradient in.
MOVED = TENSORS * SIZE * 4 * (1 + 7)


def ours(clip: bool) -> tuple[Callable[[], Any], list[Any]]:
    """A step of ruda with gradients that stay, and the parameters."""
    import ruda
    from ruda import optim

    params = [ruda.full((SIZE,), 0.5, device="cuda").requires_grad_() for _ in range(TENSORS)]
    for i, p in enumerate(params):
        p.grad = ruda.full((SIZE,), 1e-3 * (1 + i % 7), device="cuda")
    opt = optim.AdamW(params, lr=1e-3)

    def step() -> None:
        if clip:
            optim.clip_grad_norm_(params, 1.0)
        opt.step()

    return step, params


def theirs(clip: bool) -> tuple[Callable[[], Any], list[Any]]:
    """The same by PyTorch's fused step."""
    import torch

    params = [torch.full((SIZE,), 0.5, device="cuda", requires_grad=True) for _ in range(TENSORS)]
    for i, p in enumerate(params):
        p.grad = torch.full((SIZE,), 1e-3 * (1 + i % 7), device="cuda")
    opt = torch.optim.AdamW(params, lr=1e-3, fused=True)

    def step() -> None:
        if clip:
            torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()

    return step, params


def host_time(step: Callable[[], Any], rounds: int = 30) -> Any:
    """Seconds until a call returns, on a device that has nothing to do."""
    samples = []
    for _ in range(rounds):
        idle()
        start = perf_counter()
        step()
        samples.append(perf_counter() - start)
    idle()
    return summary(samples)


@row("I1", "AdamW step, 400 tensors of 3.09 M float32, with and without a bound of the norm")
def adamw() -> Iterator[Line]:
    import torch

    for clip in (True, False):
        case = "with the norm bounded" if clip else "step alone"
        (own, mine), (peer, others) = ours(clip), theirs(clip)
        for step in (own, peer):
            for _ in range(3):
                step()
        found = torch.from_dlpack(mine[5].detach()).double()
        want = others[5].detach().double()
        error = float((found - want).norm() / want.norm())
        shared = {"strategy": "one launch a group", "error": error, "peers": ("TE",), **facts()}
        times = alternate({"ruda": own, "TE": peer}, rounds=20, warmup=3)
        moved = MOVED if clip else MOVED * 7 / 8
        yield result("I1", case, times, goal=1.05, floor=moved / BANDWIDTH, **shared)
        host = {"ruda": host_time(own), "TE": host_time(peer)}
        yield result("I1", f"{case}, host", host, goal=5.0, **shared)
        del own, peer, mine, others, found, want, step
        gc.collect()
        torch.cuda.empty_cache()
