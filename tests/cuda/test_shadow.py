"""The shadow check looks at what calls run: fused kernels, the graph, optimizers in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import optim
from ruda.fusion.captured import Captured
from ruda.fusion.updates import Updates

Step = Callable[[Any], Any]


def on(array: Any) -> ruda.Tensor:
    return ruda.asarray(array, device="cuda:0")


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("f4")


def training(compiled: bool = True) -> tuple[Step, Callable[[], Any]]:
    """A step with a norm, dropout, a cache and an optimizer, and what tells its state."""
    weight = on(values(8, seed=1)).requires_grad_()
    opt, cache = optim.AdamW([weight], lr=1e-2), on(np.zeros((4, 8), "f"))

    def step(x: Any) -> Any:
        y = F.dropout(F.layer_norm(x, weight) * 2 + x, 0.25)
        loss = (y * y).mean()
        loss.backward()
        with ruda.no_grad():
            cache[1:3] = x[:2]
        opt.step()
        opt.zero_grad()
        return loss, ruda.exp(x * 0.5) - 1

    def facts() -> Any:
        held = [weight, cache, *opt.state[weight].values()]
        return [t.detach().numpy(copy=True).tobytes() for t in held], weight.grad

    ruda.random.manual_seed(5)
    return ruda.compile(step) if compiled else step, facts


def test_a_step_that_runs_as_one_graph(deferred: Any) -> None:
    found, facts = training()
    results = []
    for i in range(4):
        before = facts()
        report = found.check(on(values(16, 8, seed=i)))
        names = {entry.name for entry in report.entries}
        assert {"output 0", "output 1", "state 0", "gradient 0"} <= names, names
        assert report.worst < 1e-5, report
        assert facts() == before
        results.append([t.numpy() for t in found(on(values(16, 8, seed=i)))])
    assert "replayed as one graph" in found.explain()
    plain, other = training(compiled=False)
    for i, wanted in enumerate(results):
        for a, b in zip(wanted, plain(on(values(16, 8, seed=i))), strict=True):
            np.testing.assert_allclose(a, b.numpy(), rtol=1e-5, atol=1e-6)
    for a, b in zip(facts()[0], other()[0], strict=True):
        left, right = np.frombuffer(a, "f"), np.frombuffer(b, "f")
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6)


def worst(step: Step, name: str) -> float:
    report = step.check(on(values(16, 8, seed=9)))  # type: ignore[attr-defined]
    return max((e.ratio for e in report.entries if e.name.startswith(name)), default=0.0)


def test_a_wrong_kernel_is_seen(deferred: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bind = type(deferred).bind_region

    def wrong(self: Any, region: Any) -> Any:
        run = bind(self, region)

        def once_more(*handles: Any) -> Any:
            made = run(*handles)
            for handle in made:
                self.fill_zero(handle.address, handle.spec.nbytes)
            return made

        return once_more

    monkeypatch.setattr(type(deferred), "bind_region", wrong)
    step, _ = training()
    step(on(values(16, 8)))
    assert worst(step, "output") > 0.1 and worst(step, "gradient") > 0.1


def test_a_wrong_graph_is_seen(deferred: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    step, _ = training()
    for i in range(2):
        step(on(values(16, 8, seed=i)))
    ((program,),) = step.programs.values()  # type: ignore[attr-defined]
    monkeypatch.setattr(program.captured.graph, "replay", lambda: None)
    assert worst(step, "output") > 0.1


def test_a_wrong_update_is_seen(deferred: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Updates, "run", lambda self, look: None)
    step, _ = training()
    assert worst(step, "output") < 1e-5 < worst(step, "state")


def test_memory_that_runs_out_changes_nothing(
    deferred: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, facts = training()
    step(on(values(16, 8)))
    before = facts()

    run = Captured.run

    def broken(self: Any, given: Any) -> Any:
        run(self, given)
        raise ruda.OutOfMemoryError("compile", "no memory")

    monkeypatch.setattr(Captured, "run", broken)
    with pytest.raises(ruda.OutOfMemoryError):
        step.check(on(values(16, 8, seed=3)))  # type: ignore[attr-defined]
    assert facts() == before
