"""Kept memory: never handed out while anything refers to it, and never more than the limit."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import ruda
from ruda.backends.numpy.buffers import LEAST, Buffers, _rounded

MEGABYTE = np.dtype(np.uint8)


def test_a_dropped_result_gives_its_memory_to_the_next() -> None:
    own = Buffers()
    place = own.empty((LEAST,), MEGABYTE).ctypes.data
    assert own.empty((LEAST,), MEGABYTE).ctypes.data == place
    assert place % 64 == 0


@pytest.mark.parametrize("keep", [lambda a: a, lambda a: a[::7], lambda a: memoryview(a)])
def test_memory_in_use_is_never_given_again(keep: object) -> None:
    own = Buffers()
    first = own.empty((LEAST,), MEGABYTE)
    first[:] = 1
    held = keep(first)  # type: ignore[operator]
    del first
    second = own.empty((LEAST,), MEGABYTE)
    second[:] = 2
    assert np.asarray(held).max() == 1


def test_a_view_of_a_tensor_keeps_the_memory() -> None:
    x = ruda.ones((1 << 20,)) + 1
    part = x[5:10]
    shared = np.from_dlpack(x.detach())
    del x
    others = [ruda.ones((1 << 20,)) * i for i in range(4)]
    assert part.tolist() == [2.0] * 5
    assert (shared == 2).all()
    assert [y[0].item() for y in others] == [0.0, 1.0, 2.0, 3.0]


def test_beyond_the_limit_all_is_forgotten() -> None:
    own = Buffers(limit=4 * LEAST)
    alive = [own.empty((LEAST,), MEGABYTE) for _ in range(20)]
    for i, array in enumerate(alive):
        array[:] = i
    assert [int(a[0]) for a in alive] == list(range(20))
    assert own.tracked <= own.limit
    assert own.empty((8 * LEAST,), MEGABYTE).size == 8 * LEAST
    assert own.tracked <= own.limit


def test_small_results_are_ordinary_memory() -> None:
    own = Buffers()
    assert own.empty((3, 4), np.dtype(np.float32)).base is None
    assert own.tracked == 0


def test_sizes_are_rounded_by_an_eighth_at_most() -> None:
    for size in (1, 15, 1000, LEAST + 64, 3 * LEAST + 1, 10 * LEAST + 12345):
        assert size <= _rounded(size) <= size * 9 / 8


def test_threads_never_share_a_buffer() -> None:
    own, clashes = Buffers(), []

    def work(mark: int) -> None:
        for _ in range(300):
            array = own.empty((LEAST,), MEGABYTE)
            array[:64] = mark
            if (array[:64] != mark).any():
                clashes.append(mark)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clashes == []
