"""How much memory a compiled step takes: predicted, laid out, and given back."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import nn, optim
from ruda.fusion.memory import _most
from ruda.fusion.pytree import Given
from ruda.fusion.schedule import live_bytes
from tests.fusion.dry import dry
from tests.training import step_of


def network(where: str, width: int = 64, depth: int = 3) -> Any:
    """A training step of some layers with norms and dropout, and its model."""
    layers = [
        nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(), nn.Dropout(0.1))
        for _ in range(depth)
    ]
    model = nn.Sequential(*layers, nn.Linear(width, 10)).to(where)
    opt = optim.AdamW(model.parameters(), lr=1e-3)

    step = step_of(model, opt, 1.0)

    return ruda.compile(step)


def batch(where: str, rows: int, width: int = 64) -> Any:
    x = np.zeros((rows, width), "f4")
    return ruda.asarray(x, device=where), ruda.asarray(np.arange(rows) % 10, device=where)


@pytest.mark.parametrize("rows", [64, 1024])
def test_the_peak_is_known_before_the_step_runs(rows: int) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    with dry() as client:
        step, args = network("cuda"), batch("cuda", rows)
        predicted = step.memory(*args)
        gc.collect()
        client.pool.peak = client.pool.used
        step(*args)
        assert predicted.exact
        assert client.pool.peak == pytest.approx(predicted.peak, rel=0.05)
        # In the fifth the same arguments are read where they lie, by a second graph.
        for _ in range(6):
            client.pool.peak = client.pool.used
            step(*args)
            assert client.pool.peak == pytest.approx(step.memory(*args).peak, rel=0.05)
            assert client.pool.peak <= predicted.peak * 1.05
        (program,) = step._all()
        assert program.zero_copy.captured is not None
        assert rows == 64 or predicted.intermediates < predicted.unplanned


def test_the_graph_lies_where_it_was_planned_to_and_gives_all_back() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    with dry() as client:
        step, args = network("cuda"), batch("cuda", 256)
        step(*args)
        (program,) = (p for known in step.programs.values() for p in known)
        arena = program.captured.graph.arena
        # The second branch works in memory of its own.
        assert arena.extra == 0 and arena.plan.total < 0.6 * sum(arena.plan.sizes)
        used, size = client.pool.used, arena.piece.block.size
        del step, program, arena
        gc.collect()
        assert client.pool.used <= used - size


def test_blocks_in_use_at_the_same_time_lie_apart() -> None:
    layouts = pytest.importorskip("ruda.backends.cuda.memory_layout")
    rng = np.random.default_rng(0)
    log, live = layouts.Log(), []
    for address in range(1, 300):
        log.took(address, int(rng.integers(0, 1 << 20)))
        live.append(address)
        while live and rng.random() < 0.5:
            log.gave(live.pop(int(rng.integers(len(live)))))
    for address in live[1:]:
        log.gave(address)
    plan = layouts.layout(log)
    spans = [(log.starts[i], e) for i, e in enumerate(log.ends) if e is not None]
    assert len(spans) == len(plan.sizes) == 299 - (len(live) > 0)
    order = range(len(spans))
    meeting = [
        (i, j)
        for i in order
        for j in order
        if i < j and spans[i][0] < spans[j][1] and spans[j][0] < spans[i][1]
    ]
    for i, j in meeting:
        first, second = sorted((i, j), key=lambda k: plan.offsets[k])
        assert plan.offsets[first] + plan.sizes[first] <= plan.offsets[second]
    assert plan.total < sum(plan.sizes)


def test_the_largest_batch_for_a_budget() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    with dry() as client:
        step, args = network("cuda", depth=1), batch("cuda", 32)
        budget = step.memory(*args).peak + (8 << 20)
        gc.collect()
        used = client.pool.used
        rows = step.largest_batch(budget, *args)
        gc.collect()
        assert client.pool.used == used and rows > 32
        del args
        for count, fits in ((rows, True), (rows + 64, False)):
            again, args = network("cuda", depth=1), batch("cuda", count)
            gc.collect()
            before = client.pool.used
            peak = again.memory(*args).peak
            extra = before - used - sum(t.nbytes for t in args)
            assert (peak - max(extra, 0) <= budget) == fits
            del again, args
        assert step.largest_batch(1000, *batch("cuda", 32)) == 0


@pytest.mark.parametrize("start", [1, 700, 1_000_000])
@pytest.mark.parametrize("stair", [1, 1 << 12, 1 << 21])
def test_the_largest_count_is_found_on_stairs_too(stair: int, start: int) -> None:
    asked: list[int] = []

    def peak(count: int) -> int:
        asked.append(count)
        return 5000 + -(-512 * count // stair) * stair

    for budget in (4999, 5512, 3_000_000, 123_456_789):
        asked.clear()
        found = _most(peak, budget, start)
        assert (peak(found) if found else 0) <= budget < peak(found + 1)
        assert len(asked) <= 60


def test_on_the_cpu_the_peak_follows_from_shapes() -> None:
    step, args = network("cpu", width=256), batch("cpu", 512, 256)
    found = step.memory(*args)
    step(*args)
    tracemalloc.start()
    step(*args)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not found.exact and "peak" in str(found)
    assert found.intermediates == pytest.approx(peak, rel=0.5)
    assert 100 < step.largest_batch(found.peak, *args) <= 600


def test_what_is_made_early_and_read_late_is_made_late() -> None:
    @ruda.compile
    def step(x: Any, few: Any) -> Any:
        masks = [ruda.exp(ruda.broadcast_to(few, (1000, 100)) * i) for i in range(8)]
        for mask in masks:
            x = ruda.sum(x * mask, axis=0) + x
        return x

    args = ruda.ones((1000, 100)), ruda.ones((100,))
    wanted = step.fn(*args)
    np.testing.assert_array_equal(step(*args).numpy(), wanted.numpy())
    (program,) = step._all()
    eager = [i for i in program.everything if i in set(program.graph.instructions)]
    late = program.graph.instructions
    assert [i.op for i in late] != [i.op for i in eager] and len(late) == len(eager)
    assert live_bytes(program.graph, program.wanted) < 6 * 400_000
    program.graph.instructions = eager
    assert live_bytes(program.graph, program.wanted) > 8 * 400_000


def test_large_values_are_let_go_before_the_next_operator() -> None:
    @ruda.compile
    def step(x: Any) -> Any:
        y = ruda.concat([x, x * 2.0])
        return ruda.exp(y[:1]) + y.sum()

    x = ruda.ones((1 << 18,))
    step(x)
    (program,) = step._all()
    slots = program.replay.run(Given((x,), {}))
    large = [s for s in slots if getattr(getattr(s, "array", None), "nbytes", 0) >= 1 << 20]
    assert len(large) == 1, "the argument alone"
