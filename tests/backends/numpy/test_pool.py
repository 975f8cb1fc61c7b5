"""The pool of threads: every task runs once, errors come out, results do not depend on threads."""

from __future__ import annotations

import multiprocessing
import threading
import time

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.backends.numpy import pool
from ruda.backends.numpy.pool import BLAS, POOL, Pool, tiles


@pytest.mark.parametrize("size", [0, 1, 99, 100, 149, 151, 1000])
def test_tiles_cover_a_range_without_overlap(size: int) -> None:
    parts = tiles(size, 100)
    assert [i for p in parts for i in range(p.start, p.stop)] == list(range(size))
    assert all(p.stop - p.start <= 150 for p in parts)


def test_each_task_runs_once_and_on_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pool, "threads", 4)
    counts, names = [0] * 200, set()

    def task(i: int) -> None:
        counts[i] += 1
        names.add(threading.current_thread().name)
        time.sleep(0.0005)

    Pool().run(task, 200)
    assert counts == [1] * 200
    assert len(names) > 1


def test_an_error_of_a_task_comes_out_and_the_pool_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pool, "threads", 3)
    own = Pool()

    def task(i: int) -> None:
        if i == 5:
            raise ValueError("task five")

    with pytest.raises(ValueError, match="task five"):
        own.run(task, 50)
    done: list[int] = []
    own.run(done.append, 10)
    assert sorted(done) == list(range(10))


def test_callers_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pool, "threads", 2)
    own, gate, finished = Pool(), threading.Event(), []

    def first() -> None:
        own.run(lambda i: gate.wait(10), 2)
        finished.append("first")

    blocked = threading.Thread(target=first)
    blocked.start()
    own.run(lambda i: finished.append("second") if i == 0 else None, 4)
    assert finished == ["second"]
    gate.set()
    blocked.join(10)
    assert finished == ["second", "first"]


def step(threads: int) -> list[np.ndarray]:
    """Results of products, softmax, norms, attention and convolution, and their gradients."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pool, "threads", threads)
        ruda.random.seed(0)
        x = ruda.random.normal((4, 4, 256, 64)).requires_grad_()
        w = ruda.random.normal((64,)).requires_grad_()
        k = ruda.random.normal((4, 4, 3, 3)).requires_grad_()
        y = F.attention(F.layer_norm(x, w), x, x, is_causal=True)
        z = F.softmax(F.gelu(F.conv2d(y, k, padding=1)) @ x.mT, axis=-1)
        (z * z).sum().backward()
        return [z.detach().numpy(), *(t.grad.numpy() for t in (x, w, k))]


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    expected = step(1)
    for threads in (2, 3):
        for a, b in zip(step(threads), expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_blas_has_its_threads_back_afterwards() -> None:
    pytest.importorskip("threadpoolctl")
    with BLAS:
        get, _ = pool._blas_threads() or pytest.skip("NumPy's BLAS is not OpenBLAS")
        assert get() == 1
        with BLAS:
            assert get() == 1
        assert get() == 1
    before = get()
    with BLAS:
        assert get() == 1
    assert get() == before


def _child() -> None:
    x = ruda.ones((1 << 20,))
    assert (x + x).sum().item() == 2 << 20


@pytest.mark.skipif(
    not hasattr(pool.os, "fork"),
    reason="no copies of processes on Windows",
)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_a_pool_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pool, "threads", 2)
    POOL.run(lambda i: None, 8)
    child = multiprocessing.get_context("fork").Process(target=_child)
    child.start()
    child.join(30)
    assert child.exitcode == 0
