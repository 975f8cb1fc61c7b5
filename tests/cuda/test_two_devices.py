"""The tests of two GPUs on two emulated ones, which mind whose memory and streams are whose."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ruda.backends import probe
from ruda.backends.cuda.blas import cublaslt
from ruda.core import devices
from ruda.tensor.dispatch import clear_plans
from tests.cuda.test_steps import Queued
from tests.gpu.test_two_devices import *  # noqa: F403


class Products(Queued):
    """cuBLASLt, whose handles are of the device that was current."""

    def create(self) -> int:
        self.driver.require("a handle of cuBLASLt")
        return 77 + self.driver.index

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
