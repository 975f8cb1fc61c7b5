"""GPT-2 124M as one compiled step beside torch.compile: time, peak memory, losses, shares.

The peer's forward and its loss are compiled together, as its users do who care for memory.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks import Line
from benchmarks.gpu import alternate, result
from benchmarks.works.single import normal

# Its vocabulary padded to a multiple of 64, as usual.
SIZE = {"vocabulary": 50304, "context": 1024, "width": 768, "heads": 12, "layers": 12}
# Dense products of bfloat16 on an H200, in 1e12 a second: what cuBLAS reaches at its best.
_BEST = 790.0
_NOISE = 0.05
# Of the peer's peak: libraries take a little that no rehearsal sees.
_SPARE = 0.97


class Trained(NamedTuple):
    """A step of one library, and how to ask that for its peak of memory in bytes."""

    step: Callable[[], Any]
    restart: Callable[[], None]
    peak: Callable[[], int]


@functools.cache
def _weights(place: int, shape: tuple[int, ...], norm: bool) -> Any:
    scale = 0.02 if len(shape) > 1 else 0.1
    return (normal(place, shape) * scale + float(norm)).astype("f4")


def _weighted(model: Any, convert: Callable[[Any], Any]) -> Any:
    """``model`` with weights that depend on their place in it alone; the head is the embedding."""
    found = {}
    for i, (name, p) in enumerate(model.named_parameters()):
        norm = len(p.shape) == 1 and "norm" in name and name.endswith("weight")
        found[name] = convert(_weights(i, tuple(p.shape), norm))
    model.load_state_dict(found, strict=False)
    return model


@functools.cache
def _tokens(batch: int) -> tuple[Any, Any]:
    high, length = SIZE["vocabulary"], SIZE["context"]
    codes = np.random.default_rng(0).integers(0, high, (batch, length + 1), dtype=np.int32)
    return codes[:, :-1].copy(), codes[:, 1:].copy()


def ruda_trained(batch: int) -> Trained:
    """The step by ruda, not compiled yet."""
    import ruda
    import ruda.nn.functional as F
    from benchmarks.works.gpt import GPT
    from ruda import cuda, optim

    model = _weighted(GPT(**SIZE), ruda.asarray).to("cuda")
    opt = optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1)
    x, y = (ruda.asarray(v, device="cuda") for v in _tokens(batch))
    flat = y.reshape((-1,))

    def step() -> Any:
        with ruda.autocast("bfloat16"):
            logits = model(x)
            loss = F.cross_entropy(logits.reshape((-1, logits.shape[-1])), flat)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    return Trained(step, cuda.reset_peak_memory_stats, cuda.max_memory_allocated)


def torch_trained(batch: int) -> Trained:
    """The step by PyTorch, forward and loss compiled as one."""
    import torch

    from benchmarks.works.peer import GPT

    model = GPT(**SIZE)
    model.head.weight = model.token.weight
    model = _weighted(model, torch.from_numpy).to("cuda")
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    x, y = (torch.from_numpy(v).cuda() for v in _tokens(batch))
    flat = y.long().flatten()

    @torch.compile(dynamic=False)
    def loss_of(x: Any, flat: Any) -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(x)
            return torch.nn.functional.cross_entropy(logits.flatten(0, 1), flat)

    def step() -> Any:
        loss = loss_of(x, flat)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    memory = torch.cuda
    return Trained(step, memory.reset_peak_memory_stats, memory.max_memory_allocated)


def compiled(batch: int, steps: int, rounds: int, goal: float) -> Line:
    """One line of row J3; the losses of ``steps`` steps must agree within a few per cent.

    The step of ruda has the peer's peak as its budget.
    """
    import ruda

    peer, trained = torch_trained(batch), ruda_trained(batch)
    losses, peaks = {}, {}
    losses["TC"], peaks["TC"] = run(peer, peer.step, steps)
    own = ruda.compile(trained.step, memory=int(_SPARE * peaks["TC"]))
    losses["ruda"], peaks["ruda"] = run(trained, own, steps)
    apart = max(abs(a - b) / abs(b) for a, b in zip(losses["ruda"], losses["TC"], strict=True))
    assert apart < _NOISE, {name: found[:: steps // 10] for name, found in losses.items()}
    calls = {"ruda": own, "TC": peer.step}
    again = own._all()[0].again
    times = alternate(calls, rounds=rounds, warmup=2)
    facts = {
        "tokens_per_second": round(batch * SIZE["context"] / times["ruda"].median),
        "losses": {"steps": steps, "apart": apart, "last": {n: v[-1] for n, v in losses.items()}},
        "peak_mib": {name: round(n / 2**20) for name, n in peaks.items()},
        "predicted_mib": round(own.memory().peak / 2**20),
        "recomputed": {"operators": len(again), "us": round(sum(o.seconds for o in again) * 1e6)},
        **shares(own, batch, times["ruda"].median),
        "strategy": own.explain().splitlines()[2].split("replayed ")[-1],
    }
    met = peaks["ruda"] <= peaks["TC"]
    line = result("J3", f"compiled, B{batch} S{SIZE['context']}", times, goal=goal, **facts)
    return {**line, "goal": f"{line['goal']}, no more memory", "met": bool(line["met"]) and met}


def run(trained: Trained, step: Callable[[], Any], steps: int) -> tuple[list[float], int]:
    """The losses of so many steps, and the peak in all but the first two."""
    losses = [float(step().item()) for _ in range(2)]
    # What compiling takes is not asked for again.
    gc.collect()
    trained.restart()
    losses += [float(step().item()) for _ in range(steps - 2)]
    return losses, trained.peak()


def shares(step: Any, batch: int, seconds: float) -> dict[str, Any]:
    """What part of a step its products, its attention and the rest take, as it measures itself.

    ``of_best`` is the rate of the products over that of the best large product, and that of all
    products of a step over the time of the whole step.
    """
    step.measure()
    whole = step._all()[0].captured
    found = {"matmul": 0.0, "attention": 0.0, "rest": 0.0}
    for instruction, time in whole.times.items():
        found[_kind(instruction.op)] += time
    # The optimizer has no time of its own there.
    found["rest"] += max(0.0, seconds - sum(found.values()))
    total = sum(found.values())
    width, layers, rows = SIZE["width"], SIZE["layers"], batch * SIZE["context"]
    products = 6.0 * rows * (12 * layers * width**2 + SIZE["vocabulary"] * width)
    seen = 6.0 * rows * layers * SIZE["context"] * width
    return {
        "shares": {name: round(time / total, 3) for name, time in found.items()},
        "of_best": {
            "products": round(products / max(found["matmul"], 1e-9) / 1e12 / _BEST, 3),
            "step": round((products + seen) / seconds / 1e12 / _BEST, 3),
        },
    }


def _kind(op: str) -> str:
    if "attention" in op:
        return "attention"
    return "matmul" if "matmul" in op or "linear" in op else "rest"


def lines() -> Any:
    """Both batches over 200 steps."""
    import torch

    for batch, steps, rounds in ((16, 200, 11), (64, 200, 7)):
        yield compiled(batch, steps, rounds, 1.05)
        gc.collect()
        torch.compiler.reset()
        torch.cuda.empty_cache()
