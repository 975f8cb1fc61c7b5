"""Two GPUs of one process: what is of which, copies between them, memory, faults and threads."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import cuda, nn, store
from ruda.core.errors import DeviceError, IndexRangeError, OutOfMemoryError

Pair = tuple[str, str]


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("f4")


def busy(x: ruda.Tensor, steps: int = 20) -> ruda.Tensor:
    """``x`` plus ``steps``, which takes a while."""
    for _ in range(steps):
        x = x + 1.0
    return x


def in_threads(*works: Callable[[], Any]) -> list[Any]:
    """What functions return that run in a thread each, at the same time."""
    start = threading.Barrier(len(works))

    def run(work: Callable[[], Any]) -> Any:
        start.wait(60)
        return work()

    with ThreadPoolExecutor(len(works)) as threads:
        return list(threads.map(run, works))


# What is where.


def test_the_default_device_of_a_block(pair: Pair) -> None:
    before = ruda.default_device()
    with cuda.device(1):
        assert ruda.ones(3).device == ruda.arange(4).device == pair[1]
        assert ruda.asarray([1.0]).device == ruda.random.normal((2,)).device == pair[1]
        assert cuda.current_device() == 1
        assert cuda.current_stream().device == pair[1]
        with cuda.device("cuda:0"):
            assert ruda.zeros(3).device == pair[0]
        assert ruda.zeros(3).device == pair[1]
    assert ruda.default_device() == before


def test_blocks_of_threads_do_not_mix(pair: Pair) -> None:
    before = ruda.default_device()
    turn = threading.Barrier(2)

    def make(index: int) -> list[str]:
        with cuda.device(index):
            return [str(ruda.ones(2).device) for _ in range(20) if turn.wait(60) >= 0]

    found = in_threads(lambda: make(0), lambda: make(1))
    assert [set(some) for some in found] == [{where} for where in pair]
    assert ruda.default_device() == before


def test_each_operator_stays_where_its_operand_is(pair: Pair) -> None:
    for where in (*pair, *pair):
        x = ruda.asarray(values(6, 4), device=where)
        y = (x * 2 + 1).sum(axis=1)
        z = ruda.where(x > 0, x, ruda.zeros_like(x))
        assert y.device == z.device == x.T.device == ruda.full_like(x, 3).device == where
        np.testing.assert_allclose(y.numpy(), (values(6, 4) * 2 + 1).sum(1), rtol=1e-5)
        np.testing.assert_array_equal(z.numpy(), np.maximum(values(6, 4), 0))


def test_operands_of_two_devices_are_refused(pair: Pair) -> None:
    x, y = (ruda.ones((2, 2), device=where) for where in pair)
    leaf = ruda.ones((2, 2), device=pair[0]).requires_grad_()
    calls: list[Callable[[], Any]] = [
        lambda: x + y,
        lambda: x @ y,
        lambda: ruda.where(x > 0, x, y),
        lambda: ruda.concat([x, y]),
        lambda: F.linear(x, y),
        lambda: ruda.take(x, y.astype("int64"), axis=0),
        lambda: x.assign(y),
        lambda: ruda.add(x, x, out=y),
        lambda: setattr(leaf, "grad", y),
        lambda: nn.Linear(2, 2).to(pair[0])(y),
    ]
    for call in calls:
        with pytest.raises(DeviceError, match="cuda:") as caught:
            call()
        assert pair[0] in str(caught.value)
        assert pair[1] in str(caught.value)
    assert x.tolist() == y.tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize(
    "draw",
    [
        lambda **o: ruda.random.uniform((1000,), **o),
        lambda **o: ruda.random.normal((999,), **o),
        lambda **o: ruda.random.integers(0, 1000, (257,), **o),
        lambda **o: ruda.random.permutation(300, **o),
    ],
)
def test_the_same_seed_draws_the_same_numbers(pair: Pair, draw: Any) -> None:
    found = []
    for where in pair:
        ruda.random.seed(5)
        found.append([draw(device=where).numpy() for _ in range(2)])
        assert not np.array_equal(*found[-1])
    np.testing.assert_array_equal(found[0], found[1])


def test_one_generator_counts_for_both(pair: Pair) -> None:
    g = ruda.random.Generator(3)
    first = [ruda.random.uniform((5,), generator=g, device=where).tolist() for where in pair]
    g = ruda.random.Generator(3)
    again = [ruda.random.uniform((5,), generator=g, device=where).tolist() for where in pair[::-1]]
    assert first == again
    assert first[0] != first[1]


# Copies.


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool", "int64", "complex64"])
def test_copies_of_any_geometry(pair: Pair, dtype: str) -> None:
    x = ruda.asarray(np.arange(60).reshape(3, 4, 5) % 7, device=pair[0]).astype(dtype)
    shown = [x, x.mT, x[::-1], x[:, 1:3, ::2], x[1, 2, 3], x[:0]]
    shown.append(ruda.broadcast_to(x[0, 0], (4, 5)))
    for view in shown:
        there = view.to(pair[1])
        assert (there.device, there.shape, there.dtype) == (pair[1], view.shape, view.dtype)
        back = there.to(pair[0])
        np.testing.assert_array_equal(there.numpy(), view.numpy())
        np.testing.assert_array_equal(back.numpy(), view.numpy())
    assert x.to(pair[0]) is x
    assert x.cuda(1).device == pair[1]


def test_what_changes_right_after_a_copy_is_not_in_it(pair: Pair, many: int) -> None:
    x = ruda.zeros(many, device=pair[0])
    for i in range(4):
        x.assign(float(i))
        y = busy(x)
        there = y.to(pair[1])
        y.assign(-1.0)
        strided = x[::-2].to(pair[1])
        x.assign(-2.0)
        back = busy(there).to(pair[0])
        there.assign(-3.0)
        assert back[:: many // 8].tolist() == [i + 40.0] * 8
        assert strided[:: many // 16].tolist() == [float(i)] * 8


def test_memory_is_not_handed_out_before_it_was_copied(pair: Pair, many: int) -> None:
    kept = []
    for i in range(6):
        source = busy(ruda.full(many, float(i), device=pair[i % 2]), 3)
        kept.append(source[::-1].to(pair[1 - i % 2]))
        kept.append(source.to(pair[1 - i % 2]))
        del source
        # The same block, most likely.
        _ = ruda.full(many, -1.0, device=pair[i % 2])
        _ = ruda.full(many // 2, -1.0, device=pair[1 - i % 2])
    for i, y in enumerate(kept):
        assert y[:: many // 4].tolist() == [i // 2 + 3.0] * 4


def test_copies_into_memory_that_is_there(pair: Pair, many: int) -> None:
    x, y = ruda.zeros(many, device=pair[0]), ruda.zeros(many, device=pair[1])
    for i in range(4):
        x.copy_(busy(y, 5))
        y.copy_(x)
        x.assign(-1.0)
        assert y[:: many // 4].tolist() == [5.0 * (i + 1)] * 4
    y[2:6].copy_(ruda.ones(4, device=pair[0]) * 7)
    assert y[:8].tolist() == [20.0] * 2 + [7.0] * 4 + [20.0] * 2


def test_copies_between_side_streams(pair: Pair, many: int) -> None:
    first, second = (cuda.Stream(device=where) for where in pair)
    for i in range(3):
        with cuda.stream(first):
            x = busy(ruda.full(many, float(i), device=pair[0]))
        with cuda.stream(second):
            y = busy(x.to(pair[1]))
        z = y.to(pair[0]) * 2
        with cuda.stream(first):
            x.assign(-1.0)
        del x, y
        with cuda.stream(second):
            _ = ruda.full(many, -1.0, device=pair[1])
        assert z[:: many // 4].tolist() == [2.0 * (i + 40)] * 4


def test_events_order_streams_of_two_devices(pair: Pair) -> None:
    first, second = (cuda.Stream(device=where) for where in pair)
    event = first.record_event()
    second.wait_event(event)
    second.wait_stream(first)
    second.synchronize()
    assert event.query()
    with pytest.raises(DeviceError, match=r"cuda:0 in a stream of cuda:1"):
        cuda.Event(device=pair[0]).record(second)
    times = [cuda.Event(device=where) for where in (pair[0], pair[0], pair[1])]
    for one, stream in zip(times, (first, first, second), strict=True):
        one.record(stream)
    assert times[0].elapsed_time(times[1]) >= 0
    with pytest.raises(DeviceError, match="no common clock"):
        times[0].elapsed_time(times[2])
    for where in pair:
        cuda.synchronize(where)
        assert cuda.default_stream(where).query()


def test_values_of_both_are_read_together(pair: Pair, many: int) -> None:
    x, y = (busy(ruda.zeros(many, device=where)) for where in pair)
    a, b, c = ruda.read_many(x[:4], y[::-1][:3], x.sum())
    assert (a.tolist(), b.tolist()) == ([20.0] * 4, [20.0] * 3)
    assert c.item() == pytest.approx(20.0 * many, rel=1e-5)


def test_pinned_memory_goes_to_either(pair: Pair) -> None:
    host = ruda.asarray(values(50), device="cpu").pin_memory()
    for where in pair:
        x = host.to(where, non_blocking=True)
        cuda.synchronize(where)
        np.testing.assert_array_equal(x.numpy(), values(50))


def test_a_loader_feeds_the_second(pair: Pair) -> None:
    data = [(values(4, seed=i), i) for i in range(12)]
    loader = ruda.data.DataLoader(data, batch_size=4, num_workers=2)
    for i, (x, y) in enumerate(loader):
        there = x.pin_memory().to(pair[1], non_blocking=True)
        assert there.device == pair[1]
        want = np.stack([values(4, seed=k) for k in range(4 * i, 4 * i + 4)])
        np.testing.assert_array_equal((there * 2).numpy(), want * 2)
        assert y.to(pair[1]).tolist() == list(range(4 * i, 4 * i + 4))


# Memory, faults, threads.


def test_memory_is_counted_where_it_is(pair: Pair) -> None:
    gc.collect()
    before = [cuda.memory_allocated(where) for where in pair]
    cuda.reset_peak_memory_stats(pair[1])
    x = ruda.zeros((1 << 20,), device=pair[1])
    assert cuda.memory_allocated(pair[0]) == before[0]
    assert cuda.memory_allocated(pair[1]) - before[1] == 4 << 20
    del x
    assert cuda.max_memory_allocated(pair[1]) - before[1] == 4 << 20
    assert cuda.memory_allocated(pair[1]) == before[1]
    kept = cuda.memory_reserved(pair[0])
    assert cuda.empty_cache(pair[1]) >= 4 << 20
    assert cuda.memory_reserved(pair[0]) == kept
    cuda.set_memory_limit(cuda.memory_reserved(pair[1]) + (8 << 20), device=pair[1])
    try:
        with pytest.raises(OutOfMemoryError, match="cuda:1"):
            ruda.zeros((4 << 20,), device=pair[1])
        ruda.zeros((4 << 20,), device=pair[0])
    finally:
        cuda.set_memory_limit(None, device=pair[1])


def test_a_fault_is_told_where_it_happened(pair: Pair) -> None:
    x = ruda.ones(4, device=pair[1])
    bad = ruda.asarray([0, 9], device=pair[1])
    _ = ruda.take(x, bad, axis=0)
    cuda.synchronize(pair[0])
    assert ruda.ones(2, device=pair[0]).tolist() == [1.0, 1.0]
    with pytest.raises(IndexRangeError, match="test_two_devices"):
        cuda.synchronize(pair[1])
    cuda.synchronize(pair[1])


def test_a_fault_goes_along_with_a_copy(pair: Pair) -> None:
    x = ruda.ones(4, device=pair[1])
    y = ruda.take(x, ruda.asarray([0, 9], device=pair[1]), axis=0).to(pair[0])
    with pytest.raises(IndexRangeError, match="test_two_devices"):
        y.numpy()
    cuda.synchronize(pair[0])
    cuda.synchronize(pair[1])


def test_a_fault_of_a_compiled_step(pair: Pair) -> None:
    x = ruda.ones((4, 2), device=pair[1])
    step = ruda.compile(lambda i: ruda.take(x, i, axis=0) * 2)
    for i in range(3):
        assert step(ruda.asarray([i, 0], device=pair[1])).tolist() == [[2.0, 2.0]] * 2
    step(ruda.asarray([7, 0], device=pair[1]))
    cuda.synchronize(pair[0])
    with pytest.raises(IndexRangeError, match=r"test_two_devices.*replay 4"):
        cuda.synchronize(pair[1])
    assert step(ruda.asarray([1, 0], device=pair[1])).tolist() == [[2.0, 2.0]] * 2


@pytest.fixture
def eager_garbage() -> Iterator[None]:
    """Garbage is collected at every turn."""
    before = gc.get_threshold()
    gc.set_threshold(1)
    yield
    gc.set_threshold(*before)


def test_garbage_of_one_amid_work_of_the_other(pair: Pair, eager_garbage: None) -> None:
    x = ruda.asarray(values(64), device=pair[0])
    for i in range(20):
        ring: list[Any] = [ruda.ones(8, device=pair[1]) * i, cuda.Event(device=pair[1])]
        ring.append(ring)
        del ring
        y = (x * 2 + 1).sum() + (x[::-1] - 1).max()
        want = (values(64) * 2 + 1).sum() + (values(64) - 1).max()
        np.testing.assert_allclose(y.item(), want, rtol=1e-4)


def test_a_graph_of_one_dies_amid_work_of_the_other(pair: Pair) -> None:
    x = ruda.ones(8, device=pair[0])
    for i in range(3):
        graph = cuda.Graph(device=pair[1])
        given = ruda.full(8, float(i), device=pair[1])
        with cuda.graph(graph):
            y = given * 2
        graph.replay()
        assert y.tolist() == [2.0 * i] * 8
        x = x + 1
        del graph, y, given
        x = x * 2
    assert x.tolist() == [22.0] * 8


def test_blocks_are_given_back_by_any_thread(pair: Pair) -> None:
    held = [[ruda.full(32, float(i), device=pair[i % 2])] for i in range(8)]

    def drop() -> None:
        while held:
            with_it = held.pop()
            del with_it

    def work() -> Any:
        return [(ruda.ones(32, device=pair[i % 2]) * i).sum().item() for i in range(12)]

    found = in_threads(drop, work, drop, work)
    assert found[1] == found[3] == [32.0 * i for i in range(12)]


def test_threads_on_a_device_each_and_on_both(pair: Pair) -> None:
    def alone(where: str, seed: int) -> Any:
        x = ruda.asarray(values(100, seed=seed), device=where)
        for i in range(15):
            x = ruda.tanh(x + i).sum() + x
        return x.numpy()

    def both() -> Any:
        x = ruda.asarray(values(100, seed=4), device=pair[0])
        for i in range(15):
            x = (x.to(pair[1]) + i).to(pair[0]) - i / 2
        return x.numpy()

    works = [lambda w=w, s=s: alone(w, s) for s, w in enumerate((*pair, *pair))]
    want = [work() for work in works]
    found = in_threads(*works, both)
    for got, exact in zip(found, want, strict=False):
        np.testing.assert_array_equal(got, exact)
    exact_both = values(100, seed=4)
    for i in range(15):
        exact_both = (exact_both + np.float32(i)) - np.float32(i / 2)
    np.testing.assert_array_equal(found[-1], exact_both)


# Other forms.


def test_tensors_and_modules_as_bytes(pair: Pair, tmp_path: Path) -> None:
    x = ruda.asarray(values(3, 4), device=pair[1]).requires_grad_()
    for again in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert (again.device, again.requires_grad) == (pair[1], True)
        np.testing.assert_array_equal(again.detach().numpy(), values(3, 4))
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(pair[1])
    assert all(t.device == pair[1] for t in model.state_dict().values())
    assert all(t.device == pair[1] for t in copy.deepcopy(model).state_dict().values())
    for ending in (".safetensors", ".npz", ".pt"):
        store.save(tmp_path / f"model{ending}", model.state_dict())
        found = store.load(tmp_path / f"model{ending}", device=pair[1])
        assert all(t.device == pair[1] for t in found.values())
    # From one device to the other.
    other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(pair[0])
    other.load_state_dict(model.state_dict())
    data = values(5, 3)
    outs = [m(ruda.asarray(data, device=w)).detach().numpy() for m, w in zip((other, model), pair)]
    np.testing.assert_array_equal(*outs)


class Foreign:
    """Memory of a GPU that another library shows."""

    def __init__(self, tensor: ruda.Tensor) -> None:
        self.tensor = tensor
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__


def test_memory_of_other_libraries_is_known_by_device(pair: Pair) -> None:
    for where in pair:
        x = ruda.asarray(values(6), device=where)
        assert x.__dlpack_device__() == (2, int(where[-1]))
        for shown in (ruda.from_dlpack(x), ruda.asarray(Foreign(x))):
            assert shown.device == where
            assert (shown * 2).device == where
            np.testing.assert_array_equal((shown * 2).numpy(), values(6) * 2)
        y = ruda.from_dlpack(x)
        y.assign(3.0)
        assert x.tolist() == [3.0] * 6


def test_pools_and_facts_of_each(pair: Pair) -> None:
    pool = cuda.MemPool(device=pair[1])
    with cuda.use_mem_pool(pool):
        x = ruda.ones(1000, device=pair[1])
        y = ruda.ones(1000, device=pair[0])
    assert (x.to(pair[0]) + y).sum().item() == 2000
    del x
    assert cuda.device_properties(pair[1]).multiprocessors > 0
    assert cuda.can_access_peer(*pair) in (True, False)
    assert pair[1] in cuda.memory_summary(pair[1])
