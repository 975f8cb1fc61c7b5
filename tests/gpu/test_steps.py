"""Training steps on the GPU, eager and as one graph, against the CPU."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import cuda, nn, optim
from ruda.core.devices import client
from ruda.fusion.captured import Captured
from tests.fusion.test_reports import in_buckets, kernels
from tests.training import step_of


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("f4")


def train(where: str, compiled: bool, steps: int = 6) -> list[Any]:
    ruda.random.seed(3)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)).to(where)
    opt = optim.AdamW(model.parameters(), lr=1e-2)

    step = step_of(model, opt, 1.0)

    run = ruda.compile(step) if compiled else step
    losses = []
    for i in range(steps):
        x = ruda.asarray(values(6, 5, seed=i), device=where)
        y = ruda.asarray(np.arange(6) % 3, device=where)
        losses.append(run(x, y).item())
    if compiled:
        assert "replayed as one graph" in run.explain() or where == "cpu", run.explain()
    return [*losses, *(p.detach().numpy() for p in model.parameters())]


@pytest.mark.parametrize("compiled", [False, True])
def test_training_equals_that_of_the_cpu(compiled: bool, device: str) -> None:
    found, exact = train(device, compiled), train("cpu", False)
    for got, want in zip(found, exact, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-5)


def network(where: str, rows: int = 2048) -> Any:
    """A compiled training step in half precision, and a batch."""
    layers = [nn.Sequential(nn.Linear(128, 128), nn.LayerNorm(128), nn.GELU()) for _ in range(3)]
    model = nn.Sequential(*layers, nn.Dropout(0.1), nn.Linear(128, 10)).to(where)
    opt = optim.AdamW(model.parameters(), lr=1e-3)

    @ruda.compile
    def step(x: Any, y: Any) -> Any:
        with ruda.autocast("bfloat16"):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    x = ruda.asarray(values(rows, 128), device=where)
    return step, x, ruda.asarray(np.arange(rows) % 10, device=where)


def test_the_peak_of_a_step_is_known_beforehand(device: str) -> None:
    # What others hold counts as in use, and must not be gone below.
    gc.collect()
    step, x, y = network(device)
    predicted = step.memory(x, y)
    assert predicted.exact, predicted
    gc.collect()
    cuda.empty_cache()
    for again in range(3):
        cuda.reset_peak_memory_stats()
        step(x, y)
        assert cuda.max_memory_allocated() <= 1.05 * predicted.peak
        assert again or cuda.max_memory_allocated() >= 0.95 * predicted.peak
    assert "replayed as one graph" in step.explain()
    assert 0 < step.largest_batch(predicted.peak, x, y) <= 2100


def test_the_largest_batch_is_as_large_as_the_budget(device: str) -> None:
    gc.collect()
    step, x, y = network(device)
    budget = step.memory(x, y).peak + (64 << 20)
    largest = step.largest_batch(budget, x, y)
    assert largest > 2048
    del step, x, y
    # Pools round blocks up, so that peaks are stairs: what is too much is asked well beyond.
    for rows, fits in ((largest, True), (largest * 3 // 2, False)):
        gc.collect()
        cuda.empty_cache()
        step, x, y = network(device, rows)
        predicted = step.memory(x, y).peak
        cuda.reset_peak_memory_stats()
        step(x, y)
        found = cuda.max_memory_allocated()
        assert found == pytest.approx(predicted, rel=0.05), (rows, largest)
        assert found <= 1.05 * budget if fits else found > budget, (rows, largest, predicted)
        del step, x, y


def test_two_hundred_lengths_are_eight_graphs_that_share_kernels(device: str) -> None:
    programs = in_buckets(device)._all()
    assert len(programs) <= 8 and all(p.stepwise is None for p in programs)
    found = [kernels(program) for program in programs]
    assert len(set().union(*found)) < sum(map(len, found)) / 2


def test_tokens_are_decoded_by_one_graph(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the cache holds, nothing is captured again, copied, or read by the host."""
    captures, reads = [], []
    capture, read = Captured.capture, client(device).read
    monkeypatch.setattr(Captured, "capture", lambda self: captures.append(self) or capture(self))

    def decode(compiled: bool) -> Any:
        ruda.random.manual_seed(2)
        embed, head = nn.Embedding(50, 64).to(device), nn.Linear(64, 50).to(device)
        cache = nn.KVCache(2, 32, heads=2, head_dim=32, device=device)

        def step(tokens: Any) -> Any:
            with ruda.no_grad():
                batch, time = tokens.shape
                x = embed(tokens).reshape((batch, time, 2, 32)).permute_dims((0, 2, 1, 3))
                places = cache.positions(time)
                keys, kept = cache.append(x, x * 0.5)
                mixed = F.attention(x, keys, kept, mask=cache.visible(places))
                last = mixed[:, :, -1].reshape((batch, 64))
                return ruda.random.categorical(F.softmax(head(last)))[:, None]

        run = ruda.compile(step) if compiled else step
        tokens = []
        for prompt in (7, 3):
            cache.reset()
            token = ruda.asarray(np.arange(2 * prompt).reshape(2, prompt), device=device)
            for _ in range(12):
                token = run(token)
                tokens.append(token)
        if compiled:
            assert len(run._all()) == 3 and all(p.stepwise is None for p in run._all())
            # Both prompts and the step for one token, which reads that where it lies if it can.
            assert 3 <= len(captures) <= 4
        return tokens

    monkeypatch.setattr(client(device), "read", lambda *a: reads.append(a) or read(*a))
    tokens = decode(True)
    assert not reads
    assert [t.tolist() for t in tokens] == [t.tolist() for t in decode(False)]


def test_a_step_says_what_it_launches_and_how_long_that_takes(device: str) -> None:
    step, x, y = network(device)
    step(x, y)
    step.measure()
    text = step.explain()
    assert "layer_norm" in text and "adamw_step, in place" in text
    assert "% of the bandwidth" in text and "test_steps.py" in text


def test_a_step_equals_eager_code_on_the_same_state(device: str) -> None:
    step, x, y = network(device)
    for _ in range(2):
        assert step.check(x, y).worst < 2e-2
        step(x, y)
