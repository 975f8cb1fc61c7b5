"""One process of row J7: from nothing to the loss of the first training step of GPT-2 124M.

`python -m benchmarks.works.cold LIBRARY START` prints the seconds from START, a time of the clock,
until the loss is on the host, and those of the second step alone; each library with its own first
values of the weights.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 50304, 1024, 768, 12, 12, 16


def tokens() -> tuple[Any, Any]:
    """Token numbers and those that follow them, [batch, context]."""
    codes = np.random.default_rng(0).integers(0, VOCABULARY, (BATCH, CONTEXT + 1), dtype=np.int32)
    return codes[:, :-1].copy(), codes[:, 1:].reshape(-1).copy()


def by_ruda() -> Callable[[], float]:
    """The step of row J3, compiled."""
    import ruda
    import ruda.nn.functional as F
    from benchmarks.works.gpt import GPT
    from ruda import optim

    ruda.set_default_device("cuda")
    model = GPT(VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS)
    opt = optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1)
    x, y = (ruda.asarray(v) for v in tokens())

    @ruda.compile
    def step(x: Any, y: Any) -> Any:
        with ruda.autocast("bfloat16"):
            logits = model(x)
            loss = F.cross_entropy(logits.reshape((-1, logits.shape[-1])), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    return lambda: float(step(x, y).item())


def by_torch() -> Callable[[], float]:
    """The same step, its forward by torch.compile."""
    import torch

    from benchmarks.works.peer import GPT

    model = GPT(VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS).to("cuda")
    model.head.weight = model.token.weight
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    x, y = (torch.from_numpy(v).cuda() for v in tokens())
    y = y.long()
    forward = torch.compile(model)

    def step() -> float:
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(forward(x).flatten(0, 1), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return float(loss.item())

    return step


def main() -> None:
    library, start = sys.argv[1], float(sys.argv[2])
    step = by_ruda() if library == "ruda" else by_torch()
    loss = step()
    first = time.time()
    step()
    seconds, second = first - start, time.time() - first
    print(json.dumps({"seconds": seconds, "second": second, "loss": loss}), flush=True)


if __name__ == "__main__":
    main()
