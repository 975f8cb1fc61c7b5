"""Graphs on a driver that takes down what is queued and queues it again."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import cuda, nn, optim
from ruda.backends.cuda.blas import cublaslt
from ruda.core.errors import ArgumentError, CaptureError, GradientError, ShapeError
from tests.cuda.libraries.cublaslt import CublasLt


def values(n: int = 8) -> Any:
    return np.arange(n, dtype="float32")


def on(array: Any) -> ruda.Tensor:
    return ruda.asarray(array, device="cuda:0")


def test_a_replay_does_it_again_to_the_same_memory(deferred: Any) -> None:
    x, g = on(values()), cuda.Graph()
    _ = ((x + 1) * 2).numpy()
    with cuda.graph(g):
        y = (x + 1) * 2
    x.copy_(ruda.asarray(values() * 10))
    g.replay()
    np.testing.assert_array_equal(y.numpy(), (values() * 10 + 1) * 2)
    x.copy_(ruda.asarray(values() * 3))
    g.replay()
    np.testing.assert_array_equal(y.numpy(), (values() * 3 + 1) * 2)
    assert not deferred.guarded, "guards are for the capture alone while there is one stream"


def test_a_graph_keeps_what_it_reads(deferred: Any) -> None:
    x, w, g = on(values()), on(values() + 5), cuda.Graph()
    with cuda.graph(g):
        y = x * w
    del w
    others = [on(np.full(8, -1.0, "f")) for _ in range(4)]
    g.replay()
    np.testing.assert_array_equal(y.numpy(), values() * (values() + 5))
    assert others


def test_memory_of_a_graph_is_its_own_until_it_is_gone(deferred: Any) -> None:
    x, g = on(values()), cuda.Graph()
    deferred.synchronize()
    before = deferred.pool.used
    with cuda.graph(g):
        y = ((x + 1) + 1) + 1
    place = y.data_ptr()
    del y
    eager = [x + i for i in range(6)]
    assert place not in {t.data_ptr() for t in eager}
    g.replay()
    for i, t in enumerate(eager):
        np.testing.assert_array_equal(t.numpy(), values() + i)
    del eager, t
    del g
    gc.collect()
    assert deferred.pool.used == before
    assert not deferred.guards.arenas


def test_steps_inside_a_graph_reuse_its_memory(deferred: Any) -> None:
    x, g = on(values()), cuda.Graph()
    with cuda.graph(g):
        y = x
        for _ in range(50):
            y = y + 1
    assert len(g._captured.places) < 6
    g.replay()
    np.testing.assert_array_equal(y.numpy(), values() + 50)


def test_what_a_graph_cannot_hold_is_told_with_its_line(deferred: Any) -> None:
    x = on(values())
    for bad in (
        lambda: (x + 1).numpy(),
        lambda: x.sum().item(),
        lambda: on(values()),
        lambda: cuda.synchronize(),
        lambda: cuda.current_stream().synchronize(),
        lambda: cuda.Event().query(),
        lambda: cuda.empty_cache(),
    ):
        g = cuda.Graph()
        with pytest.raises(CaptureError, match=r"test_graphs\.py:\d+"), cuda.graph(g):
            bad()
        np.testing.assert_array_equal((x + 1).numpy(), values() + 1)
        with pytest.raises(ArgumentError, match="nothing was captured"):
            g.replay()


def test_constants_are_part_of_a_graph(deferred: Any) -> None:
    x, g = on(values()), cuda.Graph()
    with cuda.graph(g):
        y = x + ruda.arange(8, dtype="float32", device="cuda:0")
    for _ in range(3):
        g.replay()
        np.testing.assert_array_equal(y.numpy(), values() * 2)


def test_a_training_step_of_plain_operators(deferred: Any) -> None:
    def made() -> tuple[ruda.Tensor, ruda.Tensor]:
        return on(values()), on(np.ones(8, "f")).requires_grad_()

    def step(x: ruda.Tensor, w: ruda.Tensor) -> None:
        (x * w * w).sum().backward()
        with ruda.no_grad():
            w.assign(w - w.grad * 0.01)
            w.grad = None

    x, w = made()
    for _ in range(3):
        step(x, w)
    expected = w.numpy()
    x, w = made()
    g = cuda.Graph()
    with cuda.graph(g):
        step(x, w)
    for _ in range(3):
        g.replay()
    np.testing.assert_allclose(w.numpy(), expected, rtol=1e-6)


def test_streams_inside_and_outside_of_a_capture(deferred: Any) -> None:
    side, g = cuda.Stream(), cuda.Graph()
    x = on(values())
    with cuda.graph(g):
        a = x + 1
        with cuda.stream(side):
            b = x * 2
        y = a + b
    with cuda.stream(side):
        x.copy_(ruda.asarray(values() + 1))
    g.replay()
    with cuda.stream(side):
        z = y + 0
    np.testing.assert_array_equal(z.numpy(), values() + 2 + 2 * (values() + 1))


def test_graphs_that_share_a_pool_keep_their_order(deferred: Any) -> None:
    x, first, second = on(values()), cuda.Graph(), cuda.Graph()
    with cuda.graph(first):
        y = x + 1
    with cuda.graph(second, pool=first.pool()):
        z = y * 2
    for _ in range(2):
        first.replay()
        second.replay()
    np.testing.assert_array_equal(z.numpy(), (values() + 1) * 2)
    with pytest.raises(CaptureError, match="order of their captures"):
        second.replay()


class Scaled(nn.Module):
    """A layer without products, which need cuBLAS."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(on(values(4) + 1))
        self.bias = nn.Parameter(on(values(2)))

    def forward(self, x: ruda.Tensor) -> ruda.Tensor:
        return (x * self.weight).sum(axis=1) * self.bias + x[:, 0]


def test_graphed_callables_train_as_the_function_does(deferred: Any) -> None:
    x = on(values().reshape(2, 4)).requires_grad_()
    layer = Scaled()

    def gradients(f: Any) -> list[Any]:
        x.grad = None
        for p in layer.parameters():
            p.grad = None
        (f(x) * 2).sum().backward()
        return [x.grad.numpy(), *(p.grad.numpy() for p in layer.parameters())]

    expected = gradients(layer)
    f = cuda.make_graphed_callables(layer, (x,))
    for _ in range(2):
        for got, want in zip(gradients(f), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5)


def test_graphed_callables_refuse_what_they_cannot_do(deferred: Any) -> None:
    x = on(values()).requires_grad_()
    f = cuda.make_graphed_callables(lambda t: t * t, (x,))
    first, second = f(x), f(x)
    with pytest.raises(GradientError, match="another forward"):
        first.sum().backward()
    second.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * values())
    with pytest.raises(ShapeError, match="not like its sample"):
        f(on(values(5)))
    with pytest.raises(ArgumentError, match="one sequence of samples"):
        cuda.make_graphed_callables([f], [])


def test_streams_entered_in_a_block_are_part_of_the_graph(deferred: Any) -> None:
    a, b, g = cuda.Stream(), cuda.Stream(), cuda.Graph()
    x = on(values())
    with cuda.graph(g):
        with cuda.stream(a):
            left = x * 2
        with cuda.stream(b):
            right = x * 3
        y = left + right
    late = cuda.Stream()
    x.copy_(ruda.asarray(values() + 1))
    with cuda.stream(late):
        g.replay()
        z = left + y
    np.testing.assert_array_equal(z.numpy(), 7 * (values() + 1))


def test_a_stream_made_after_a_capture_waits_for_no_event_of_it(deferred: Any) -> None:
    a, g, x = cuda.Stream(), cuda.Graph(), on(values())
    with cuda.graph(g):
        with cuda.stream(a):
            left = x * 2
        y = left + 1
    g.replay()
    with cuda.stream(cuda.Stream()):
        z = left + y
    np.testing.assert_array_equal(z.numpy(), 4 * values() + 1)


def test_an_emptied_cache_leaves_the_memory_of_graphs(deferred: Any) -> None:
    x, g = on(np.zeros(1 << 19, "f")), cuda.Graph()
    with cuda.graph(g):
        y = ((x + 1) * 2) + 1
    reserved = deferred.pool.reserved
    cuda.empty_cache()
    assert deferred.pool.reserved >= reserved - x.nbytes
    assert all(deferred.pool.segment_of(place)[1] for place in g._captured.places)
    g.replay()
    assert y[5].item() == 3
    del g
    gc.collect()
    assert cuda.empty_cache() > 0


def test_a_graph_keeps_what_it_reads_of_another_graph(deferred: Any) -> None:
    x, first, second = on(values()), cuda.Graph(), cuda.Graph()
    with cuda.graph(first):
        y = x + 1
    first.replay()
    with cuda.graph(second):
        z = y * 2
    del y, first
    gc.collect()
    others = [x - i for i in range(1, 6)]
    second.replay()
    np.testing.assert_array_equal(z.numpy(), (values() + 1) * 2)
    assert others


def test_a_graph_that_goes_in_a_capture_is_given_back_later(deferred: Any) -> None:
    x, first, second = on(values()), cuda.Graph(), cuda.Graph()
    deferred.synchronize()
    used = deferred.pool.used
    with cuda.graph(first):
        y = x + 1
    del y
    with cuda.graph(second):
        del first
        y = x + 2
    del y, second
    gc.collect()
    assert deferred.pool.used == used
    assert not deferred.guards.arenas


def test_the_first_index_operator_may_be_captured(deferred: Any) -> None:
    x, at, g = on(values()), on(np.array([3, 1])), cuda.Graph()
    with cuda.graph(g):
        y = ruda.take(x, at)
    g.replay()
    assert y.tolist() == [3, 1]


@pytest.mark.parametrize("called", [0, 1, 3])
def test_a_compiled_step_is_no_part_of_another_graph(deferred: Any, called: int) -> None:
    x, weight, g = on(values()), on(values() + 1).requires_grad_(), cuda.Graph()
    opt = optim.SGD([weight], lr=0.1)

    @ruda.compile
    def step(x: Any) -> Any:
        loss = (x * weight).cumulative_sum(axis=0).sum()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    for _ in range(called):
        step(x)
    what = "another graph is replayed" if called else "a compiled step is traced"
    with pytest.raises(CaptureError, match=f"{what} while a graph is captured"), cuda.graph(g):
        step(x)
    for _ in range(3 - called):
        step(x)
    slope = np.arange(8.0, 0.0, -1.0)
    np.testing.assert_allclose(weight.detach().numpy(), values() + 1 - 0.3 * slope * values(), 1e-5)
    assert "replayed as one graph" in step.explain()


def test_a_step_whose_memory_was_asked_for_does_not_begin_in_a_capture(deferred: Any) -> None:
    x, step = on(values()), ruda.compile(lambda x: x * 2.0)
    step.memory(x)
    what = "runs for the first time while a graph"
    with pytest.raises(CaptureError, match=what), cuda.graph(cuda.Graph()):
        step(x)
    assert step(x).tolist() == (values() * 2).tolist()
    assert "replayed as one graph" in step.explain()


@pytest.mark.parametrize("backend", ["direct", "async"])
def test_a_graph_keeps_its_memory_where_no_pool_does(
    deferred: Any, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUDA_ALLOC_CONF", f"backend:{backend}")
    from ruda.backends.cuda.alloc_conf import pool_of

    deferred.pool = pool_of(deferred.driver, deferred.pool.out_of_memory, deferred.now)
    x, g = on(values()), cuda.Graph()
    with cuda.graph(g):
        y = ((x + 1) * 2) + 1
    held = set(deferred.driver._memory)
    assert g._captured.places <= held
    g.replay()
    np.testing.assert_array_equal(y.numpy(), values() * 2 + 3)
    del g, y
    gc.collect()
    deferred.synchronize()
    assert len(deferred.driver._memory) < len(held)


def test_products_of_a_graph_have_scratch_memory_of_its_pool(
    deferred: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two graphs of one stream may run beside each other in two."""
    fake = CublasLt()
    made = cublaslt.Library(deferred, fake)
    monkeypatch.setattr(cublaslt, "library", lambda client: made)
    x = on(np.ones((64, 64), "e"))
    kept = [x @ x]
    graphs = [cuda.Graph(), cuda.Graph()]
    for g in graphs:
        with cuda.graph(g):
            kept.append((x @ x) @ x)
    eager, *captured = [call.rest[0] for call in fake.calls]
    assert eager in made.workspaces.values()
    assert captured[0] == captured[1] != captured[2] == captured[3]
    for g, room in zip(graphs, captured[::2], strict=True):
        assert any(a <= room < a + n for a, (n, _) in g._captured.arena.segments.items())


def test_a_joint_norm_reads_its_own_tensors_in_a_graph_and_outside(deferred: Any) -> None:
    def parts() -> list[Any]:
        return [on(values(3) + 1).requires_grad_(), on(values(4)).requires_grad_()]

    def norm(leaves: list[Any]) -> ruda.Tensor:
        return optim.clip_grad_norm_(leaves, 1e9)

    def graded(scale: float) -> list[Any]:
        leaves = parts()
        for leaf in leaves:
            leaf.grad = on(np.full(leaf.shape, scale, "f"))
        return leaves

    # With a second stream plans stay what they are, and so do their tables.
    side = cuda.Stream()
    first, second, g = graded(2.0), graded(3.0), cuda.Graph()
    wanted = [scale * np.sqrt(7) for scale in (2.0, 3.0)]
    assert abs(norm(first).item() - wanted[0]) < 1e-5
    with cuda.graph(g):
        found = norm(first)
    for _ in range(2):
        assert abs(norm(second).item() - wanted[1]) < 1e-5
        g.replay()
        assert abs(found.item() - wanted[0]) < 1e-5
    assert side.query()


def test_bounded_gradients_and_a_step_in_a_graph_and_outside(deferred: Any) -> None:
    def group() -> tuple[list[Any], Any]:
        leaves = [on(np.ones(n, "f")).requires_grad_() for n in (3, 4)]
        return leaves, optim.SGD(leaves, lr=1.0)

    def step(leaves: list[Any], opt: Any) -> None:
        optim.clip_grad_value_(leaves, 0.5)
        opt.step()

    side, g = cuda.Stream(), cuda.Graph()
    (first, one), (second, two) = group(), group()
    for leaf in first:
        leaf.grad = on(np.full(leaf.shape, 2.0, "f"))
    step(first, one)
    with cuda.graph(g):
        step(first, one)
    for turn in range(1, 4):
        for leaf in second:
            leaf.grad = on(np.full(leaf.shape, -3.0, "f"))
        step(second, two)
        g.replay()
        for leaf in first:
            np.testing.assert_array_equal(leaf.detach().numpy(), np.float32(0.5 - 0.5 * turn))
        for leaf in second:
            np.testing.assert_array_equal(leaf.detach().numpy(), np.float32(1 + 0.5 * turn))
    assert side.query()
