"""Elements computed again where they are read: the same bits, fewer bytes, no more kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda.fusion.passes import elementwise_recompute
from ruda.tensor.dispatch import OPS
from tests.fusion.dry import dry, graph_of, names
from tests.fusion.twins import bits

N = 1 << 18


def given(dtype: str = "float32", device: str = "cpu") -> Any:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((512, 512)).astype("f4")
    return ruda.asarray(x, dtype=dtype, device=device)


def masked(x: Any) -> Any:
    """A mask and a cast that the second chain, behind a sum that is needed first, reads again."""
    above = ruda.where(x > 0, x, 0.0)
    wide = above - 1.0
    level = ruda.cumsum(wide * wide, axis=0)
    return (wide + level) * 2.0


def gated(x: Any) -> Any:
    """A gate that backward asks for."""
    x = x.detach().requires_grad_()
    gate = ruda.sigmoid(x)
    y = ruda.cumsum(x * gate, axis=0)
    (y * y).sum().backward()
    return x.grad


def moved(step: Any) -> int:
    """Bytes of all operands and results, each counted once an operator."""
    (program,) = step._all()
    return sum(
        v.spec.nbytes
        for i in program.graph.instructions
        if not i.plan.shares
        for v in {*i.inputs, *i.outputs}
        if v.spec is not None
    )


def both(monkeypatch: Any, plain: Any, *args: Any) -> tuple[Any, Any]:
    """The step as it is, and without the pass."""
    step = ruda.compile(plain)
    wanted = bits(step(*args))
    with monkeypatch.context() as patch:
        patch.setattr("ruda.fusion.passes.recompute_elementwise", lambda *_: None)
        other = ruda.compile(plain)
        assert bits(other(*args)) == wanted
    return step, other


def test_a_cheap_chain_is_not_kept(monkeypatch: Any) -> None:
    step, other = both(monkeypatch, masked, given())
    assert bits(step(given())) == bits(masked(given()))
    assert moved(step) < moved(other)
    assert "recomputed: " in step.explain()
    assert len(step._all()[0].graph.instructions) <= len(other._all()[0].graph.instructions)


def test_an_exponential_is_read_on_the_cpu(monkeypatch: Any) -> None:
    step, other = both(monkeypatch, gated, given())
    assert moved(step) == moved(other)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_gate_is_made_again_on_a_gpu(monkeypatch: Any, dtype: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    with dry():
        x = given(dtype, "cuda")
        step, other = ruda.compile(gated), ruda.compile(gated)
        found = names(graph_of(step, x))
        monkeypatch.setattr("ruda.fusion.passes.recompute_elementwise", lambda *_: None)
        assert len(found) <= len(names(graph_of(other, x)))
        assert moved(step) <= moved(other) - 2 * x.nbytes
        assert "recomputed: sigmoid" in step.explain()


def test_a_result_that_leaves_the_step_is_still_written(monkeypatch: Any) -> None:
    def step(x: Any) -> Any:
        above = ruda.maximum(x, 0.0)
        return above, ruda.cumsum(above, axis=0) + above

    found, _ = both(monkeypatch, step, given())
    assert bits(found(given())) == bits(step(given()))


def test_the_names_are_those_of_rows() -> None:
    assert all(name in OPS for name in elementwise_recompute._CHEAP)
