"""A language model's last map under cross-entropy: its time, and the memory it takes meanwhile.

Operands and the gradients that stay are there for every library, and are not counted as its memory.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import Line, row
from benchmarks.gpu import alternate, facts, idle, result

_ROWS, _HIGH, _CLASSES = 8192, 4096, 128256
# 2 operations for each of three products, over the rate of the best large product in bfloat16.
_FLOOR = 3 * 2 * _ROWS * _HIGH * _CLASSES / 790e12
_GRADIENTS = 2 * _HIGH * (_ROWS + _CLASSES)


def _peak(call: Callable[[], object], memory: Any, used: Callable[[], int]) -> int:
    """The most bytes that a call takes beside what there was and the gradients that it leaves."""
    gc.collect()
    memory.reset_peak_memory_stats()
    before = used()
    call()
    idle()
    return int(memory.max_memory_allocated()) - before - _GRADIENTS


def _errors(grads: tuple[Any, Any], x: Any, weight: Any, target: Any, lse: Any) -> list[float]:
    """Of gradients in some hidden states and in the weights of some classes, against float64."""
    import torch

    rows = torch.arange(0, _ROWS, 257, device="cuda")
    classes = torch.arange(0, _CLASSES, 251, device="cuda")
    some, wide = weight.double(), x.double()
    p = torch.exp(wide[rows] @ some.T - lse[rows, None])
    p[torch.arange(len(rows)), target[rows]] -= 1
    want_x = p @ some / _ROWS
    p = torch.exp(wide @ some[classes].T - lse[:, None]) - (target[:, None] == classes).double()
    want_w = p.T @ wide / _ROWS
    pairs = ((grads[0][rows], want_x), (grads[1][classes], want_w))
    return [float((got.double() - want).norm() / want.norm()) for got, want in pairs]


def _mine(x: Any, weight: Any, target: Any) -> tuple[Any, Any]:
    """One call for each rule of sums; gradients are those of the last call."""
    import ruda
    import ruda.nn.functional as F

    leaves = [ruda.from_dlpack(t).requires_grad_() for t in (x, weight)]
    index = ruda.from_dlpack(target)

    def step() -> Any:
        for leaf in leaves:
            leaf.grad = None
        F.linear_cross_entropy(*leaves, index).backward()
        return leaves

    def rounding() -> Any:
        with ruda.precision(half_reduction=True):
            return step()

    return step, rounding


def _theirs(x: Any, weight: Any, target: Any) -> Any:
    import torch
    import torch._functorch.config

    # Its default, which rows that walk a graph twice turn off: the gradient in the logits may take
    # their memory.
    torch._functorch.config.donated_buffer = True
    leaves = [t.detach().requires_grad_() for t in (x, weight)]

    @torch.compile
    def loss(x: Any, weight: Any, target: Any) -> Any:
        return torch.nn.functional.cross_entropy((x @ weight.T).float(), target)

    def step() -> Any:
        for leaf in leaves:
            leaf.grad = None
        loss(*leaves, target).backward()
        return leaves

    return step


@row("A7", "linear map and cross-entropy, 8192 x 4096 to 128256 in bfloat16, with gradients")
def linear_cross_entropy() -> Iterator[Line]:
    import torch

    from ruda import cuda

    made = torch.Generator("cuda").manual_seed(0)
    drawn = {"generator": made, "device": "cuda", "dtype": torch.bfloat16}
    x = torch.randn(_ROWS, _HIGH, **drawn)
    weight = torch.randn(_CLASSES, _HIGH, **drawn) * 0.02
    target = torch.randint(_CLASSES, (_ROWS,), generator=made, device="cuda")
    exact, rounding = _mine(x, weight, target)
    theirs = _theirs(x, weight, target)
    with torch.no_grad():
        parts = [torch.logsumexp((r @ weight.T).double(), 1) for r in x.split(512)]
    lse = torch.cat(parts)
    del parts
    calls = {"exact": exact, "rounding": rounding, "TC": theirs}
    peaks, errors = {}, {}
    for name, call in calls.items():
        memory = torch.cuda if name == "TC" else cuda
        leaves = call()
        grads = tuple(_shown(leaf.grad) for leaf in leaves)
        errors[name] = _errors(grads, x, weight, target, lse)
        for leaf in leaves:
            leaf.grad = None
        del leaves, grads
        peaks[name] = _peak(call, memory, memory.memory_allocated)
    times = alternate(calls, rounds=8, warmup=2)
    for name, case in (("exact", "sums in float32"), ("rounding", "half_reduction allowed")):
        pair = {"ruda": times[name], "TC": times["TC"]}
        mib = {"ruda": peaks[name] >> 20, "TC": peaks["TC"] >> 20}
        more = {"peak_mib": mib, "error": errors[name], "peer_error": errors["TC"]}
        line = result("A7", case, pair, goal=0.9, floor=_FLOOR, **more, **facts())
        small = 4 * peaks[name] <= peaks["TC"]
        words = f"{line['goal']}, a quarter of its memory"
        yield {**line, "goal": words, "met": bool(line["met"]) and small}


def _shown(tensor: Any) -> Any:
    import torch

    return tensor if isinstance(tensor, torch.Tensor) else torch.from_dlpack(tensor)
