"""The tests of two GPUs on two emulated ones, which mind whose memory and streams are whose."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import backends
from ruda.backends import probe
from ruda.backends.cuda import multi_device
from ruda.backends.cuda.blas import cublaslt
from ruda.core import devices
from ruda.tensor.dispatch import clear_plans
from tests.cuda.test_steps import Queued
from tests.gpu.test_two_devices import *  # noqa: F403
from tests.gpu.test_two_devices import in_threads
from tests.gpu.test_two_devices_steps import *  # noqa: F403


class Products(Queued):
    """cuBLASLt, whose handles are of the device that was current."""

    def create(self) -> int:
        self.driver.require("a handle of cuBLASLt")
        return 77 + self.driver.index

    def matmul_algo_get_heuristic(self, *given: int) -> None:
        self.driver.require("a question to cuBLASLt")
        super().matmul_algo_get_heuristic(*given)

    def matmul(self, handle: int, *given: int) -> None:
        self.driver.require("a product")
        assert handle == 77 + self.driver.index
        super().matmul(77, *given)

    def matmul_desc_destroy(self, number: int) -> None:
        # Perhaps in the middle of a product, which looks at what there was when it was queued.
        self.objects.pop(number, None)

    matrix_layout_destroy = matmul_desc_destroy


@pytest.fixture(scope="module")
def many() -> int:
    return 64


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    pytest.importorskip("cuda.bindings.nvrtc")
    from tests.cuda.emulator.paired import paired_clients

    made = paired_clients()
    libraries = {client: cublaslt.Library(client, Products(client)) for client in made}
    monkeypatch.setattr(cublaslt, "library", libraries.__getitem__)
    monkeypatch.setattr(probe, "usable_gpus", lambda: len(made))
    before = dict(devices._clients)
    devices._clients.update({client.device: client for client in made})
    yield "cuda:0", "cuda:1"
    clear_plans()
    for client in made:
        del devices._clients[client.device]
    devices._clients.update(before)


@pytest.mark.parametrize("blocking", [False, True])
def test_a_second_gpu_comes_late(
    pair: Any, many: int, blocking: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = [devices._clients[devices.Device("cuda", i)] for i in (0, 1)]
    for client in clients:
        client.order.crowded = client.driver.crowded = False
    # Operator by operator, where launches are waited for.
    clients[0].blocking = blocking
    clients[0].driver.activate()
    state = ruda.ones(4, device=pair[0])

    @ruda.compile
    def step(x: Any) -> Any:
        state.assign(state * 0.5 + x)
        return state * 2 - x.sum()

    want = np.ones(4, "f4")
    for i in range(8):
        if i == 5:
            multi_device.tell(clients)
        if i >= 5:
            far = ruda.full(4, float(i), device=pair[1]) * 2
        x = np.arange(4, dtype="f4") + i
        want = want * np.float32(0.5) + x
        got = step(ruda.asarray(x, device=pair[0]))
        np.testing.assert_allclose(got.numpy(), want * 2 - x.sum(), rtol=1e-6)
    assert far.tolist() == [14.0] * 4
    assert ("one graph" in step.explain()) != blocking


def test_the_current_device_is_left_as_it_was(pair: Any) -> None:
    first, second = (devices._clients[devices.Device("cuda", i)] for i in (0, 1))
    x = ruda.ones(4, device=pair[1])
    graph = ruda.cuda.Graph(device=pair[1])
    with ruda.cuda.graph(graph):
        _ = x + 1
    shown, seen = ruda.from_dlpack(x), []
    first.driver.activate()
    # To the default stream of the second GPU, as every library calls it.
    capsule = x.__dlpack__(stream=1)
    second.driver.queues[11].append(lambda: seen.append("their kernel"))
    place = x.data_ptr()
    del x, graph, shown, capsule, _
    gc.collect()
    kept = [ruda.full(4, 2.0, device=pair[1])]
    while kept[-1].data_ptr() != place:
        assert not seen
        kept.append(ruda.full(4, 2.0, device=pair[1]))
    assert kept[-1].tolist() == [2.0] * 4
    assert seen
    first.driver.activate()
    ruda.cuda.Event(device=pair[1])
    ruda.cuda.synchronize(pair[1])
    assert first.driver.here == 0
    with ThreadPoolExecutor(1) as threads:
        # A thread that has not used the second GPU yet frees memory of it.
        held = [ruda.ones(4, device=pair[1])]
        threads.submit(first.driver.activate).result()
        threads.submit(held.clear).result()
        assert threads.submit(lambda: second.driver.here).result() == 0


def test_clients_that_threads_make_at_once_know_of_each_other(
    pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.cuda.emulator.paired import paired_clients

    ready = list(paired_clients())
    made: list[Any] = []
    for client in ready:
        client.order.crowded = client.driver.crowded = False
        client.staging.others = ()

    def make(device: Any) -> Any:
        made.append(device)
        return multi_device.join(lambda: ready[device.index])

    monkeypatch.setattr(backends, "make_client", make)
    monkeypatch.setattr(multi_device, "_made", [])
    monkeypatch.setattr(devices, "_clients", {})
    works = [lambda where=where: devices.client(where) for where in (*pair, *pair)]
    found = in_threads(*works)
    assert found == [*ready, *ready]
    assert sorted(map(str, made)) == [*pair]
    assert all(client.order.crowded and client.driver.crowded for client in ready)
    assert [client.staging.others for client in ready] == [[c.staging] for c in ready[::-1]]
