"""Compiled steps as graphs, on a driver that takes down what is queued and queues it again."""

from __future__ import annotations

import copy
import gc
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn, optim
from ruda.backends.cuda.blas import cublaslt
from ruda.backends.cuda.memory import allocate
from ruda.core.errors import DeviceError, IndexRangeError
from ruda.core.spec import spec_of
from ruda.fusion import zero_copy
from ruda.ops.update import sgd_step
from tests.cuda.libraries.cublaslt import CublasLt


class Queued(CublasLt):
    """Products that are computed when the driver comes to them."""

    def __init__(self, client: Any) -> None:
        super().__init__()
        self.driver = client.driver

    def matmul(self, handle: int, *given: int) -> None:
        # A copy first: the collector of garbage may give back some of them meanwhile.
        known = {n: copy.copy(thing) for n, thing in dict(self.objects).items()}

        def act() -> None:
            now, self.objects = self.objects, known
            CublasLt.matmul(self, handle, *given)
            self.objects = now

        self.driver._queue(given[-1], act)


def on(array: Any) -> ruda.Tensor:
    return ruda.asarray(array, device="cuda:0")


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("f4")


def test_arguments_and_scalars_change_between_replays(deferred: Any) -> None:
    @ruda.compile
    def step(x: Any, rate: float) -> Any:
        return (x * rate + 1).sum(axis=0), x - rate / 2

    for i in range(5):
        x, rate = values(4, 6, seed=i), 0.5 + i
        total, moved = step(on(x), rate)
        np.testing.assert_allclose(total.numpy(), (x * np.float32(rate) + 1).sum(0), rtol=1e-5)
        np.testing.assert_array_equal(moved.numpy(), x - np.float32(rate / 2))
    assert "replayed as one graph" in step.explain()


@pytest.mark.parametrize(
    "move",
    [
        lambda x, device: x.to(device),
        lambda x, device: (x * 2, ruda.zeros((3,), device=device)),
        lambda x, device: (x * 2, ruda.random.permutation(4, device=device)),
        lambda x, device: (x * 2, ruda.asarray(np.ones(2), device=device) * 2),
    ],
)
def test_a_result_on_another_device_is_refused(deferred: Any, move: Any) -> None:
    here, there = on(np.ones(3, "f")), ruda.ones(3, device="cpu")
    for x, device in ((here, "cpu"), (there, "cuda:0")):
        with pytest.raises(ruda.CaptureError, match="a compiled step runs on one device"):
            ruda.compile(move)(x, device)


def test_a_step_without_arguments_is_of_the_device_that_it_begins_on(deferred: Any) -> None:
    step = ruda.compile(lambda: ruda.arange(3, device="cuda:0") * 2)
    for _ in range(2):
        assert step().tolist() == [0, 2, 4]


def test_more_numbers_than_one_launch_has_room_for(deferred: Any) -> None:
    def step(x: Any, *rates: float) -> Any:
        for rate in rates:
            x = x * rate
        return x

    compiled, x = ruda.compile(step), on(np.ones(3, "f"))
    for i in range(3):
        rates = (1.0 + (np.arange(300) % 3 - 1) * 1e-3 * (i + 1)).tolist()
        np.testing.assert_allclose(compiled(x, *rates).numpy(), np.prod(rates), rtol=1e-4)


def test_outputs_of_earlier_replays_stay_as_they_were(deferred: Any) -> None:
    step = ruda.compile(lambda x: (x * 2, (x * 2)[1:]))
    kept = [step(on(values(6, seed=i))) for i in range(4)]
    for i, (whole, part) in enumerate(kept):
        np.testing.assert_array_equal(whole.numpy(), values(6, seed=i) * 2)
        np.testing.assert_array_equal(part.numpy(), values(6, seed=i)[1:] * 2)


def test_a_view_leaves_a_step_whose_base_is_not_used_last(deferred: Any) -> None:
    @ruda.compile
    def step(x: Any) -> Any:
        y = ruda.exp(x)
        return y[1:], ruda.pad(y, ((0, 2),)), ruda.flip(y)

    for i in range(4):
        want = np.exp(values(6, seed=i))
        part, padded, turned = step(on(values(6, seed=i)))
        np.testing.assert_allclose(part.numpy(), want[1:], rtol=1e-6)
        np.testing.assert_allclose(padded.numpy(), np.pad(want, (0, 2)), rtol=1e-6)
        np.testing.assert_allclose(turned.numpy(), want[::-1], rtol=1e-6)
    assert "replayed as one graph" in step.explain()


def test_state_is_written_once_per_replay(deferred: Any) -> None:
    total, count = on(np.zeros(3, "f")), on(np.zeros((), "f"))

    @ruda.compile
    def step(x: Any) -> None:
        with ruda.no_grad():
            total.assign(total + x)
            count.assign(count + 1)

    for i in range(1, 5):
        version = total.handle.version
        step(on(np.full(3, float(i), "f")))
        assert total.tolist() == [i * (i + 1) / 2] * 3 and count.item() == i
        assert total.handle.version == version + 1


def test_state_that_moved_is_captured_again(deferred: Any) -> None:
    inner = ruda.compile(lambda x: x + 1)
    for _ in range(3):
        state = inner(on(values(4)))
    outer = ruda.compile(lambda: state * 2)
    for _ in range(3):
        np.testing.assert_array_equal(outer().numpy(), (values(4) + 1) * 2)
        inner(on(values(4, seed=1)))


def test_an_optimizer_overwrites_its_state_where_it_lies(deferred: Any) -> None:
    def train(where: str, compiled: bool) -> Any:
        w = ruda.asarray(values(4, 5), device=where).requires_grad_()
        b = ruda.asarray(values(5, seed=1), device=where).requires_grad_()
        opt = optim.AdamW([w, b], lr=1e-2)

        def step(x: Any) -> Any:
            loss = ((x * w).sum(axis=0) * b).sum()
            loss.backward()
            opt.step()
            opt.zero_grad()
            return loss

        run = ruda.compile(step) if compiled else step
        losses = [run(ruda.asarray(values(4, 5, seed=i), device=where)).item() for i in range(6)]
        return [*losses, w.detach().numpy(), b.detach().numpy()], run

    found, step = train("cuda:0", True)
    assert "replayed as one graph" in step.explain(), step.explain()
    for got, want in zip(found, train("cpu", False)[0], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_each_replay_draws_anew_as_eager_steps_do(deferred: Any) -> None:
    def draws(compiled: bool) -> list[Any]:
        generator = ruda.random.Generator(7)
        x = on(np.ones((4, 64), "f"))

        def step(x: Any) -> Any:
            noise = ruda.random.normal((3,), generator=generator, device=x.device)
            return F.dropout(x, 0.4, generator=generator), noise

        run = ruda.compile(step) if compiled else step
        found = [[t.numpy() for t in run(x)] for _ in range(4)]
        if compiled:
            assert "replayed as one graph" in run.explain(), run.explain()
        return found

    for got, want in zip(draws(True), draws(False), strict=True):
        np.testing.assert_array_equal(got[0], want[0])
        np.testing.assert_array_equal(got[1], want[1])


def test_a_second_branch_keeps_its_order(deferred: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of weights beside the others, on a driver that does what nobody waits for last."""
    library = cublaslt.Library(deferred, Queued(deferred))
    monkeypatch.setattr(cublaslt, "library", lambda client: library)
    rng = np.random.default_rng(3)
    sizes = (12, 16, 16, 8, 4)
    shapes = [(b, a) for a, b in pairwise(sizes)]
    weights = [rng.standard_normal(s).astype("f4") * 0.3 for s in shapes]

    def build(device: str) -> Any:
        ws = [ruda.tensor(w, device=device, requires_grad=True) for w in weights]
        bs = [ruda.zeros(len(w), device=device).requires_grad_() for w in weights]
        opt = optim.AdamW([*ws, *bs], lr=1e-2)

        def step(x: Any) -> Any:
            for w, b in zip(ws, bs, strict=True):
                x = F.gelu(F.linear(x, w, b))
            loss = (x * x).mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            return loss

        return step, ws

    step, ws = build("cuda:0")
    plain, own = build("cpu")
    step = ruda.compile(step)
    for i in range(5):
        x = values(32, 12, seed=i)
        np.testing.assert_allclose(step(on(x)).item(), plain(ruda.asarray(x)).item(), rtol=1e-4)
    assert "as one graph" in step.explain()
    for a, b in zip(ws, own, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=2e-3, atol=2e-4)


def test_an_optimizer_row_takes_a_rate_that_changes_by_value(deferred: Any) -> None:
    def train(where: str, compiled: bool) -> Any:
        w = ruda.asarray(values(4, 5), device=where)

        def step(x: Any, rate: float) -> None:
            with ruda.no_grad():
                w.assign(sgd_step(w, x, rate, 0.5, False)[0])

        run = ruda.compile(step) if compiled else step
        for i in range(4):
            run(ruda.asarray(values(4, 5, seed=i), device=where), 0.1 * (i + 1))
        if compiled:
            assert "replayed as one graph" in run.explain(), run.explain()
        return w.numpy()

    np.testing.assert_allclose(train("cuda:0", True), train("cpu", False), rtol=1e-5)


def _cache_step(where: str, kind: str) -> Any:
    state = ruda.asarray(values(6, 4), device=where)
    old = ruda.asarray(np.zeros((6, 4), "f4"), device=where)

    def step(row: Any, at: Any) -> Any:
        with ruda.no_grad():
            before = state.sum() if kind != "plain" else None
            whole = state + 0.0 if kind == "kept" else None
            state[at] = row
            state[at + 1] = row * 2
            if kind == "kept":
                old.assign(whole)
            after = (state * state).sum()
        return after if before is None else after + before

    return step, state, old


@pytest.mark.parametrize("kind", ["plain", "read before", "kept"])
def test_places_of_a_state_are_written_where_it_lies(deferred: Any, kind: str) -> None:
    step, state, old = _cache_step("cuda:0", kind)
    plain, wanted, kept = _cache_step("cpu", kind)
    step = ruda.compile(step)
    for i in range(4):
        row, at = values(1, 4, seed=i), np.array([i])
        found = step(on(row), on(at)).item()
        assert found == pytest.approx(plain(ruda.asarray(row), ruda.asarray(at)).item(), rel=1e-5)
        np.testing.assert_allclose(state.numpy(), wanted.numpy(), rtol=1e-6)
        np.testing.assert_allclose(old.numpy(), kept.numpy(), rtol=1e-6)
    (program,) = step._all()
    # What reads the state as it was may have become a part of what runs later.
    assert len(program.captured.over) == 2 or kind != "plain"
    names = [k.name for found in program.captured.notes.found.values() for k in found]
    assert not [n for n in names if n.startswith("copy_f32")] or kind != "plain"


def test_measuring_leaves_a_cache_as_it_is(deferred: Any) -> None:
    step, state, _ = _cache_step("cuda:0", "plain")
    step, place = ruda.compile(step), np.array([1])
    for i in range(2):
        step(on(values(1, 4, seed=i)), on(place))
    with ruda.no_grad():
        state.assign(state * 0.0 + 3.0)
    step.measure()
    np.testing.assert_array_equal(state.numpy(), np.full((6, 4), 3.0))


def test_a_state_that_is_read_as_it_was_is_not_written_before(deferred: Any) -> None:
    state = on(values(6, 4))

    @ruda.compile
    def step(row: Any) -> Any:
        with ruda.no_grad():
            before = state[1:3]
            state[0] = row
            return before * 1.0, state.sum()

    for i in range(3):
        was = state.numpy()
        before, _ = step(on(values(4, seed=i)))
        np.testing.assert_array_equal(before.numpy(), was[1:3])
        np.testing.assert_array_equal(state.numpy()[1:], was[1:])


def test_tokens_stay_on_the_device_and_a_cache_is_never_copied(
    deferred: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = cublaslt.Library(deferred, Queued(deferred))
    monkeypatch.setattr(cublaslt, "library", lambda client: library)

    def decode(where: str, compiled: bool) -> Any:
        ruda.random.manual_seed(2)
        embed = nn.Embedding(11, 8).to(where)
        head = nn.Linear(8, 11).to(where)
        cache = nn.KVCache(2, 16, heads=2, head_dim=4, device=where)
        generator = ruda.random.Generator(5)

        def step(token: Any) -> Any:
            with ruda.no_grad():
                x = embed(token)
                q = x.reshape((2, 1, 2, 4)).permute_dims((0, 2, 1, 3))
                places = cache.positions(1)
                keys, kept = cache.append(q, q * 0.5)
                mixed = F.attention(q, keys, kept, mask=cache.visible(places))
                logits = head(mixed.permute_dims((0, 2, 1, 3)).reshape((2, 8)))
                return ruda.random.categorical(F.softmax(logits), generator=generator)

        run = ruda.compile(step) if compiled else step
        token = ruda.asarray(np.array([1, 2]), device=where)
        tokens = []
        for _ in range(5):
            token = run(token)
            tokens.append(token)
        if compiled:
            (program,) = run._all()
            assert len(program.captured.over) == 2 and program.stepwise is None
        return [t.tolist() for t in tokens], cache.position.item()

    assert decode("cuda:0", True) == decode("cuda:0", False)


def test_a_step_whose_kernels_are_not_there_yet_is_rehearsed_first(
    deferred: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a driver that compiles late: all kernels of the step are asked for before the first."""
    driver, asked = deferred.driver, []
    monkeypatch.setattr(driver, "lazy", True)
    monkeypatch.setattr(driver, "lacks", lambda source, name: True, raising=False)
    monkeypatch.setattr(driver, "load_all", asked.extend, raising=False)
    state = on(np.zeros((), "f"))

    @ruda.compile
    def step(x: Any, at: Any) -> Any:
        with ruda.no_grad():
            state.assign(state + 1)
        return F.softmax(x * 2.0)[at].sum(axis=0)

    for i in range(3):
        x = values(7, 5, seed=i)
        found = step(on(x), on(np.array([0, 2, 6])))
        e = np.exp(2 * x - (2 * x).max(1, keepdims=True))
        np.testing.assert_allclose(
            found.numpy(), (e / e.sum(1, keepdims=True))[[0, 2, 6]].sum(0), rtol=1e-5
        )
        assert state.item() == i + 1
    (program,) = step._all()
    launched = {k.name for notes in program.captured.notes.found.values() for k in notes}
    assert launched <= {name for _, name in asked}


def test_blocking_launches_name_the_operator_of_a_step(
    deferred: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deferred.blocking = True
    step = ruda.compile(lambda x: (x * x + 1.0).cumulative_sum(axis=0))
    x = on(np.ones((4, 4), "f"))
    _ = step(x)
    assert "RUDA_LAUNCH_BLOCKING waits" in step.explain()

    def fail(_: int) -> None:
        raise deferred.driver.errors[0]("illegal address")

    monkeypatch.setattr(deferred.driver, "wait", fail)
    with pytest.raises(DeviceError, match="illegal address") as caught:
        step(x)
    assert "multiply" in caught.value.__notes__[0] or "region" in caught.value.__notes__[0]
    assert "test_steps.py" in caught.value.__notes__[0]


def test_a_failure_after_a_replay_names_the_step(deferred: Any) -> None:
    step = ruda.compile(lambda x: x * x + 1.0)
    x = on(np.ones(4, "f"))
    for _ in range(3):
        _ = step(x)
    error = deferred.failure("synchronize", deferred.driver.errors[0]("illegal address"))
    assert "the compiled step that begins at" in str(error) and "test_steps.py" in str(error)


@pytest.mark.parametrize("calls", [0, 3])
@pytest.mark.parametrize("bad", [0, 1])
@pytest.mark.parametrize("graphs", [True, False])
def test_a_bad_index_is_told_of_the_line_that_was_traced(
    deferred: Any, calls: int, bad: int, graphs: bool
) -> None:
    """In the first call as in a replay, though one kernel does what several lines say."""
    deferred.blocking = not graphs
    table, other = on(values(5, 4)), on(values(6, 4, seed=1))

    @ruda.compile
    def step(i: Any, j: Any) -> Any:
        found = F.embedding(i, table)
        more = other[j]
        return found * 2.0 + more

    good = np.array([0, 4])
    for _ in range(calls):
        step(on(good), on(good))
    wrong = [good, good]
    wrong[bad] = np.array([3, 9])
    line = step.fn.__code__.co_firstlineno + 2 + bad
    which = "one of the replays [12] to 4" if calls else "replay 1"
    with pytest.raises(IndexRangeError, match=rf"test_steps.py:{line} in {which}\. Got 9 at"):
        step(*map(on, wrong)).numpy()
    wanted = table.numpy()[good] * 2 + other.numpy()[good]
    for _ in range(3):
        np.testing.assert_array_equal(step(on(good), on(good)).numpy(), wanted)


def test_arguments_at_the_same_place_are_read_there(
    deferred: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then no kernel is launched beside the graph, which sees whatever lies there."""
    real, kernels = deferred.driver.launch, []

    def launch(kernel: int, *rest: int) -> None:
        kernels.append(kernel)
        real(kernel, *rest)

    monkeypatch.setattr(deferred.driver, "launch", launch)
    monkeypatch.setattr(zero_copy, "_SPARE", 0)
    scale = on(np.full(4, 3.0, "f"))
    step = ruda.compile(lambda x: (x * x + scale).cumulative_sum(axis=0))

    def wanted(values: Any) -> Any:
        return np.cumsum(values * values + np.float32(3.0))

    values = np.arange(4, dtype="f")
    x = on(values)
    launched = []
    for i in range(9):
        x.assign(on(values + np.float32(i)))
        before = len(kernels)
        found = step(x)
        launched.append(len(kernels) - before)
        np.testing.assert_array_equal(found.numpy(), wanted(values + np.float32(i)))
    assert launched[2] == 1 and launched[-1] == 0
    other = on(values - 5)
    np.testing.assert_array_equal(step(other).numpy(), wanted(values - 5))
    np.testing.assert_array_equal(step(x).numpy(), wanted(values + np.float32(8)))
    place = x.data_ptr()
    del x
    # What is left of the trace goes with the next collection.
    gc.collect()
    # The graph does not keep that memory: somebody gets it, and is served right.
    found = [on(values * 2) for _ in range(32)]
    again = next(t for t in found if t.data_ptr() == place)
    np.testing.assert_array_equal(step(again).numpy(), wanted(values * 2))


def test_graphs_in_one_piece_of_memory_leave_nothing_behind(
    deferred: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one has blocks at addresses of the first; none of them is free on its own."""
    monkeypatch.setattr(zero_copy, "_SPARE", 0)
    pool = deferred.pool
    step = ruda.compile(lambda x: ((x * x).cumulative_sum(axis=0), x.sum()))
    x = on(values(4))
    for _ in range(9):
        step(x)
    assert step._all()[0].zero_copy.captured is not None
    del step
    gc.collect()
    assert 0 not in pool.free or not pool.free[0]
    spec = spec_of(deferred, ((3 << 20) // 4,), ruda.float32)
    large = allocate(pool, spec)
    assert large.block.size >= spec.nbytes and pool.segment_of(large.address)[1] >= spec.nbytes
