"""A GPU that is not there, for tests that run kernels without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ruda.core import devices
from ruda.tensor.dispatch import clear_plans

# What every run looks at; all else takes a quarter of an hour and waits for `make emulated`.
QUICK = (
    "test_cache",
    "test_compile",
    "test_exit",
    "test_face",
    "test_frontend",
    "test_gate",
    "test_graphs",
    "test_lanes",
    "test_regions",
    "test_steps",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/cuda/" in str(item.path) and item.path.stem not in QUICK:
            item.add_marker(pytest.mark.kernels)


@pytest.fixture(scope="module")
def client() -> Iterator[object]:
    """The client of an emulated GPU, which is `cuda:0` while the tests of a module run."""
    pytest.importorskip("cuda.bindings.nvrtc")
    from tests.cuda.emulator import emulated_client

    made, where = emulated_client(), devices.Device("cuda", 0)
    before = devices._clients.get(where)
    devices._clients[where] = made  # type: ignore[assignment]
    yield made
    clear_plans()
    if before is None:
        del devices._clients[where]
    else:
        devices._clients[where] = before


@pytest.fixture
def device(client: object) -> str:
    """The name of the emulated GPU."""
    return "cuda:0"


@pytest.fixture
def deferred() -> Iterator[Any]:
    """A client whose driver defers everything, as ``cuda:0`` for one test."""
    pytest.importorskip("cuda.bindings.nvrtc")
    from tests.cuda.emulator.deferred import deferred_client

    where = devices.Device("cuda", 0)
    before = devices._clients.get(where)
    made = deferred_client()
    devices._clients[where] = made
    yield made
    clear_plans()
    devices._clients.pop(where)
    if before is not None:
        devices._clients[where] = before


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers of one test."""
    return np.random.default_rng(0)
