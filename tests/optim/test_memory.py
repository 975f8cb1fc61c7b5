"""A training loop holds no more memory after a hundred steps, without the garbage collector."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import optim
from tests.nn.models import CONTEXT, GPT, VOCABULARY

STEPS = 100


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_memory_is_flat_over_a_hundred_steps(compiled: bool) -> None:
    model = GPT("float32")
    opt = optim.AdamW(model.parameters(), lr=1e-3)
    rng = np.random.default_rng(0)

    def step(x: Any, y: Any) -> Any:
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        optim.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        return loss

    run = ruda.compile(step) if compiled else step
    tokens = ruda.asarray(rng.integers(0, VOCABULARY, (2, CONTEXT + 1)))

    def train(steps: int) -> tuple[int, int]:
        """The bytes of all arrays, and the number of objects, after ``steps`` more."""
        for _ in range(steps):
            run(tokens[:, :-1], tokens[:, 1:]).item()
        objects = len(gc.get_objects())
        arrays = tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)
        traces = tracemalloc.take_snapshot().filter_traces([arrays]).traces
        return sum(trace.size for trace in traces), objects

    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        (held, objects), (held_later, objects_later) = train(5), train(STEPS)
    finally:
        tracemalloc.stop()
        gc.enable()
    assert held_later == held
    # One object left over in each step would be a hundred.
    assert objects_later - objects < STEPS // 2


@pytest.mark.parametrize("make", [optim.AdamW, optim.SGD, optim.RMSprop])
def test_a_prepared_step_keeps_no_gradient(make: Any) -> None:
    params = [ruda.ones(n).requires_grad_() for n in (5, 7)]
    opt = make(params, lr=0.1)
    for _ in range(2):
        for p in params:
            p.grad = ruda.ones(p.shape)
        gone = [weakref.ref(p.grad.handle) for p in params]
        opt.step()
        opt.zero_grad()
        assert not any(reference() for reference in gone)
