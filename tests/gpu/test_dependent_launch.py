"""Kernels of a graph that are begun before those ahead of them are over wait for what they read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import cuda
from ruda.core.devices import client

chaining = pytest.importorskip("ruda.backends.cuda.dependent_launch")

ROUNDS, REPLAYS = 16, 1000
SIZE, BLOCKS, LONG = 4096, 16, 40_000

# Adds up late, after `spin` ticks. TELL lets the next one begin as soon as this one does, from
# sm_90 on.
SOURCE = """#include "ruda/earlier.cuh"
extern "C" __global__ void NAME(float* out, const volatile float* a, const volatile float* b,
                                long long spin) {
    WAIT
    TELL
    const int i = blockIdx.x * 256 + threadIdx.x;
    const long long begin = clock64();
    while (clock64() - begin < spin) {}
    out[i] = a[i] + b[i] + 1.0f;
}
"""
TELL = 'asm volatile("griddepcontrol.launch_dependents;" ::: "memory");'
TEXTS = {
    "early": {"WAIT": chaining.WAIT, "TELL": TELL},
    "own": {"WAIT": chaining.WAIT, "TELL": ""},
    "foreign": {"WAIT": "", "TELL": ""},
}


def may_begin_early(device: str) -> bool:
    """Whether kernels of the device can wait by themselves: from sm_90 on."""
    return bool(getattr(client(device).driver, "_may_chain", False))


@pytest.fixture
def edges(device: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many edges of each graph let a kernel begin early, which is turned on."""
    driver: Any = client(device).driver
    monkeypatch.setattr(type(driver), "chains", True, raising=False)
    counts: list[int] = []
    chain = chaining.chain
    monkeypatch.setattr(chaining, "chain", lambda *given: counts.append(chain(*given)))
    return counts


def turned(x: Any) -> Any:
    """Rows in reverse, one more each; two sums of the same elements, which differ by nothing."""
    up = ruda.flip(x, axis=0) + 1.0
    across, back = up.sum(axis=1, keepdims=True), ruda.flip(up, axis=1).sum(axis=1, keepdims=True)
    return up + (across - back)


@pytest.mark.parametrize("shape", [(64, 32), (2048, 128)])
def test_a_chain_of_operators_reads_what_the_one_ahead_wrote(
    device: str, edges: list[int], shape: tuple[int, int]
) -> None:
    start = np.random.default_rng(0).integers(0, 100, shape).astype("float32")
    x = ruda.asarray(start, device=device)
    turned(x)
    graph = cuda.Graph()
    with cuda.graph(graph):
        y = x
        for _ in range(ROUNDS):
            y = turned(y)
        x.copy_(y)
    replays = REPLAYS if may_begin_early(device) else 2
    for _ in range(replays):
        graph.replay()
    if may_begin_early(device):
        assert edges[0] > ROUNDS
    else:
        assert not any(edges)
    np.testing.assert_array_equal(x.numpy(), start + float(ROUNDS * replays))


class Bench:
    """Two streams, a few arrays by name, and kernels that add two of them."""

    def __init__(self, device: str) -> None:
        self.driver: Any = client(device).driver
        self.early = may_begin_early(device)
        self.arrays = {name: self.driver.allocate(4 * SIZE) for name in "xyzw0"}
        self.streams = [self.driver.new_stream() for _ in range(2)]
        self.main, self.side = (stream.ptr for stream in self.streams)
        self.events: list[int] = []
        self.kernels = {}
        for name, words in TEXTS.items():
            text = SOURCE.replace("NAME", name)
            for word, put in words.items():
                text = text.replace(word, put if self.early else "")
            self.kernels[name] = self.driver.kernel(text, name)

    def add(self, kernel: str, names: str, spin: int = 0, side: bool = False) -> None:
        """Queue a kernel: ``names`` are its result and its two operands."""
        from ruda.backends.cuda.launch import Arguments

        block = Arguments((1, 1, 1, 1))
        # Nobody could be too early for a slow one where none begins early.
        block.slots[:] = [*(self.arrays[name] for name in names), spin if self.early else 0]
        stream = self.side if side else self.main
        sizes = (BLOCKS, 1, 1, SIZE // BLOCKS, 1, 1, 0)
        self.driver.launch(self.kernels[kernel], *sizes, stream, block.address, 0)

    def across(self, one: int, other: int) -> None:
        """Let ``other`` wait for ``one``."""
        self.events.append(self.driver.new_event())
        self.driver.record(self.events[-1], one)
        self.driver.stream_wait(other, self.events[-1])

    def results(self, build: Callable[[Bench], None]) -> Any:
        """What is in x after each replay of four times what ``build`` queues."""
        for address in self.arrays.values():
            self.driver.fill(address, 0, 4 * SIZE, self.main)
        self.driver.wait(self.main)
        self.driver.begin_capture(self.main)
        for _ in range(4):
            build(self)
        graph = self.driver.end_capture(self.main)
        found = np.empty((40, SIZE), "f4")
        for row in found:
            self.driver.launch_graph(graph, self.main)
            self.driver.to_host(row.ctypes.data, self.arrays["x"], 4 * SIZE, self.main)
            self.driver.wait(self.main)
            self.driver.fill(self.arrays["x"], 0, 4 * SIZE, self.main)
        self.driver.release_graph(graph)
        return found

    def close(self) -> None:
        """Give everything back."""
        self.driver.wait_all()
        for event in self.events:
            self.driver.release_event(event)
        for address in self.arrays.values():
            self.driver.release(address)


def joined(main: str, side: str, spins: tuple[int, int]) -> Callable[[Bench], None]:
    """x = (w + 1) + (w + 1) + 1, each on a branch of its own, where w = x + 1."""

    def build(bench: Bench) -> None:
        bench.add("own", "wx0")
        bench.across(bench.main, bench.side)
        bench.add(main, "yw0", spins[0])
        bench.add(side, "zw0", spins[1], side=True)
        bench.across(bench.side, bench.main)
        bench.add("own", "xyz")

    return build


def behind(bench: Bench) -> None:
    """A quick one between a slow one and one that waits for nothing; then w is overwritten."""
    bench.add("early", "yx0", LONG)
    bench.add("own", "z00")
    bench.add("foreign", "wyz")
    bench.add("early", "yw0", LONG)
    bench.add("own", "w00")
    bench.add("own", "xyw")


# With what each makes of x in a call.
JOINED, BEHIND = (lambda x: 2 * x + 5), (lambda x: x + 6)
BUILDS = {
    "slow on the side": (joined("own", "early", (0, LONG)), JOINED),
    "slow on the main branch": (joined("early", "own", (LONG, 0)), JOINED),
    "both say it early": (joined("early", "early", (LONG, LONG // 2)), JOINED),
    "behind one that does not wait": (joined("early", "foreign", (0, LONG)), JOINED),
    "beside one that does not wait": (joined("early", "foreign", (LONG, 0)), JOINED),
    "overwritten": (behind, BEHIND),
}


@pytest.mark.parametrize("case", list(BUILDS))
def test_kernels_that_are_begun_early_wait_for_all_ahead(
    device: str, edges: list[int], case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, of = BUILDS[case]
    bench = Bench(device)
    try:
        found = bench.results(build)
        monkeypatch.setattr(type(bench.driver), "chains", False)
        apart = bench.results(build)
    finally:
        bench.close()
    if may_begin_early(device):
        assert len(edges) == 1 and edges[0] > 0
    else:
        assert not any(edges)
    np.testing.assert_array_equal(apart, of(of(of(of(0)))))
    np.testing.assert_array_equal(found, apart)
