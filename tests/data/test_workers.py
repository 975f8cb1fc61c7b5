"""Workers change nothing but the time: order, augmentation, errors, resuming, and their end."""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import pickle
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ruda
from ruda.core.errors import ArgumentError, CaptureError
from ruda.data import (
    ArrayDataset,
    DataLoader,
    SampleError,
    SharedMemoryError,
    WeightedSampler,
    WorkerError,
    generator,
    shared,
)
from ruda.data import map as mapped
from tests.data.datasets import Augmented, Facts, Failing, Kept, Refusing, Typed, masked

MODES: list[dict[str, Any]] = [
    {"num_workers": 0},
    {"num_workers": 1},
    {"num_workers": 4, "prefetch": 3},
    {"num_workers": 1, "processes": True},
    {"num_workers": 4, "processes": True},
]


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    assert left_behind() == []


def left_behind() -> list[str]:
    """Threads, processes and shared files of workers."""
    threads = [t.name for t in threading.enumerate() if t.name.startswith("ruda-data")]
    files = [n for n in os.listdir(shared.MOUNT) if n.startswith(f"ruda-{os.getpid()}-")]
    return threads + [p.name for p in multiprocessing.active_children()] + files


def plain(batch: Any) -> Any:
    """A batch as lists."""
    if isinstance(batch, dict):
        return {key: plain(value) for key, value in batch.items()}
    return batch.tolist() if hasattr(batch, "tolist") else batch


def stream(loader: DataLoader) -> Iterator[Any]:
    while True:
        for batch in loader:
            yield plain(batch)


SETTINGS: dict[str, Any] = {"batch_size": 3, "shuffle": True, "collate": masked}


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    """Two epochs of Augmented(10), made in the loop."""
    batches = stream(DataLoader(Augmented(10), seed=7, **SETTINGS))
    return [next(batches) for _ in range(8)]


def test_samples_draw_from_seed_epoch_and_index(expected: list[Any]) -> None:
    index = expected[5]["index"][1]
    draws = ruda.random.Generator(7, 1, index)
    noise = ruda.random.normal((2,), generator=draws).tolist()
    assert expected[5]["noise"][1] == noise
    assert expected[5]["again"][1] == ruda.random.integers(1000, shape=(), generator=draws).item()
    everything = [tuple(noise) for batch in expected for noise in batch["noise"]]
    assert len(set(everything)) == len(everything) == 20
    assert len({tuple(batch["mask"]) for batch in expected}) == 8


@pytest.mark.parametrize("mode", MODES[1:])
def test_order_and_augmentation_do_not_depend_on_workers(
    mode: dict[str, Any], expected: list[Any]
) -> None:
    loader = DataLoader(Augmented(10), seed=7, **SETTINGS, **mode)
    assert [plain(b) for _ in range(2) for b in loader] == expected


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 7), st.integers(0, 4), st.integers(1, 3))
def test_resuming_at_any_batch_with_threads(taken: int, workers: int, prefetch: int) -> None:
    straight = stream(DataLoader(Augmented(10), seed=7, **SETTINGS))
    loader = DataLoader(Augmented(10), seed=7, **SETTINGS, num_workers=workers, prefetch=prefetch)
    batches = stream(loader)
    assert [next(batches) for _ in range(taken)] == [next(straight) for _ in range(taken)]
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    batches.close()
    other = DataLoader(Augmented(10), **SETTINGS, num_workers=4 - workers)
    other.load_state_dict(state)
    rest = stream(other)
    assert [next(rest) for _ in range(3)] == [next(straight) for _ in range(3)]
    rest.close()


@pytest.mark.parametrize("taken", [1, 3])
def test_resuming_with_processes(taken: int, expected: list[Any]) -> None:
    loader = DataLoader(Augmented(10), seed=7, **SETTINGS, num_workers=2, processes=True)
    batches = iter(loader)
    assert [plain(next(batches)) for _ in range(taken)] == expected[:taken]
    batches.close()
    other = DataLoader(Augmented(10), **SETTINGS, num_workers=2, processes=True)
    other.load_state_dict(loader.state_dict())
    assert [plain(batch) for batch in other] == expected[taken:4]


def test_a_repeated_sample_is_augmented_anew() -> None:
    sampler = WeightedSampler([1.0, 0.0], samples=6)
    for workers in (0, 2):
        loader = DataLoader(Augmented(2), 4, sampler=sampler, num_workers=workers)
        noises = [tuple(n) for batch in loader for n in plain(batch)["noise"]]
        assert len(set(noises)) == 6


def test_modes_of_the_loop_do_not_reach_samples() -> None:
    data = mapped(ArrayDataset(np.ones((4, 2, 2), np.float32)), lambda row: row[0] @ row[0])
    for workers in (0, 2):
        with ruda.autocast("bfloat16"), ruda.no_grad():
            batch = next(iter(DataLoader(data, 4, num_workers=workers)))
        assert batch.dtype is ruda.float32


def test_a_compiled_step_may_not_load() -> None:
    loader = DataLoader(ArrayDataset(np.ones((4, 2), np.float32)), 2)

    @ruda.compile
    def step(x: Any) -> Any:
        (batch,) = next(iter(loader))
        return x + batch

    with pytest.raises(CaptureError, match="DataLoader"):
        step(ruda.ones((2, 2)))


def test_prefetching_is_bounded() -> None:
    made: list[int] = []

    def counted(n: int) -> int:
        made.append(n)
        return n

    loader = DataLoader(mapped(range(100), counted), 2, num_workers=2, prefetch=3)
    batches = iter(loader)
    for delivered in range(1, 4):
        next(batches)
        # Delivered batches, and 2 * 3 that wait.
        most, deadline = 2 * (delivered + 6), time.monotonic() + 20
        while len(made) < most and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(0.05)
        assert len(made) == most
    assert loader.state_dict()["position"] == 6
    batches.close()


def test_threads_do_work_beside_each_other() -> None:
    both = threading.Barrier(2, timeout=20)

    def wait(n: int) -> int:
        both.wait()
        return n

    assert len(list(DataLoader(mapped(range(4), wait), num_workers=2))) == 4


def test_every_kind_of_tensor_crosses() -> None:
    here, there = (
        next(iter(DataLoader(Typed(), 4, **mode)))
        for mode in ({}, {"num_workers": 1, "processes": True})
    )
    assert here.keys() == there.keys()
    for name in ("half", "eight", "large", "empty", "turned"):
        assert here[name].dtype is there[name].dtype
        assert here[name].shape == there[name].shape
        assert here[name].astype("float32").tolist() == there[name].astype("float32").tolist()
    assert (there["name"], there["none"]) == (["0", "1", "2", "3"], [None] * 4)
    there["large"] += 1
    assert there["large"][1, 0, 0].item() == 2


def test_batches_outlive_their_workers() -> None:
    loader = DataLoader(Typed(), 1, num_workers=1, processes=True)
    batches = list(loader)
    assert [b["large"].numpy().sum() for b in batches] == [i * 4096 for i in range(4)]


def test_processes_are_others_and_stay_on_the_cpu() -> None:
    loader = DataLoader(Facts(), 2, num_workers=2, processes=True, collate=Kept())
    facts = [fact for batch in loader for fact in batch]
    assert os.getpid() not in {pid for pid, _, _ in facts}
    assert {fact[1:] for fact in facts} == {("cpu", "")}


@pytest.mark.parametrize("mode", [MODES[0], MODES[2], {"num_workers": 2, "processes": True}])
def test_an_error_names_the_sample_and_shows_the_worker(mode: dict[str, Any]) -> None:
    loader = DataLoader(Failing("raise"), 2, **mode)
    batches = iter(loader)
    assert [next(batches).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(SampleError, match=r"dataset\[5\] raised ValueError: no such") as found:
        next(batches)
    assert found.value.index == 5
    assert isinstance(found.value.__cause__, ValueError)
    frames = traceback_text(found.value)
    assert "in fail" in frames and "no such picture" in frames
    assert loader.state_dict()["position"] == 4
    assert next(batches, None) is None


def traceback_text(error: BaseException) -> str:
    import traceback

    return "".join(traceback.format_exception(error))


def test_an_exception_that_cannot_travel_is_told() -> None:
    loader = DataLoader(Failing("odd"), 6, num_workers=1, processes=True)
    with pytest.raises(SampleError, match=r"dataset\[5\] raised TwoArguments: one two") as found:
        list(loader)
    assert "In worker process" in found.value.__notes__[0]


@pytest.mark.parametrize(
    ("data", "settings", "error", "match"),
    [
        (Failing("exit"), {}, WorkerError, r"died with exit code 3 at the batch of samples \[4, 5"),
        (Failing("unpicklable"), {"collate": Kept()}, WorkerError, "a batch cannot be pickled"),
        (Refusing(), {}, WorkerError, "cannot be unpickled: ValueError: not in this process"),
        (mapped(range(3), lambda n: n), {}, ArgumentError, "cannot be pickled for worker"),
    ],
)
def test_errors_of_processes(
    data: Any, settings: dict[str, Any], error: type[Exception], match: str
) -> None:
    loader = DataLoader(data, 4, num_workers=1, processes=True, **settings)
    with pytest.raises(error, match=match):
        list(loader)


def test_joining_errors_name_the_samples() -> None:
    loader = DataLoader(mapped(range(1, 20), np.ones), 10, num_workers=1)
    match = r"collate of samples \[0, 1, 2, 3, 4, 5, 6, 7, … 10 in all\] raised ShapeError"
    with pytest.raises(SampleError, match=match):
        next(iter(loader))


def test_full_shared_memory_is_told(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    path = str(tmp_path / "memory")
    with pytest.raises(SharedMemoryError, match=r"has no room for a batch. Got 8,000 bytes"):
        shared.write(np.ones(1000), path)
    assert not os.path.exists(path)
    error = SharedMemoryError("DataLoader", "what", "got", hint="less")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_memory_mount_that_is_too_small(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    command = ["mount", "-t", "tmpfs", "-o", "size=200k", "ruda", str(tmp_path)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("may not mount")
    try:
        monkeypatch.setattr(shared, "MOUNT", str(tmp_path))
        settings: dict[str, Any] = {"num_workers": 1, "processes": True}
        data = ArrayDataset(np.ones((8, 4096)))
        match = r"no room for a batch. Got 262,144 bytes, .* --shm-size"
        with pytest.raises(SharedMemoryError, match=match):
            list(DataLoader(data, 8, **settings))
        assert sum(batch.sum().item() for (batch,) in DataLoader(data, 1, **settings)) == 8 * 4096
    finally:
        gc.collect()
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.parametrize("mode", [MODES[2], {"num_workers": 2, "processes": True}])
def test_leaving_early_ends_workers(mode: dict[str, Any]) -> None:
    loader = DataLoader(Augmented(50), 2, **mode)
    for _ in loader:
        assert left_behind()
        break
    assert left_behind() == []
    batches = iter(loader)
    next(batches)
    ring: list[Any] = [batches]
    ring.append(ring)
    del batches, ring
    gc.collect()
    assert left_behind() == []


def test_an_iterator_that_was_not_begun_has_no_workers() -> None:
    batches = iter(DataLoader(Augmented(5), num_workers=2))
    assert left_behind() == []
    del batches


def test_outside_of_a_loader_the_default_generator_draws() -> None:
    assert generator() is ruda.random.default_generator
