"""Options and fixtures of the whole suite."""

from __future__ import annotations

import os
import signal
import zlib
from collections.abc import Iterator

import numpy as np
import pytest

# Every test is about the CPU unless it names a device, on machines with a GPU as well.
os.environ.setdefault("RUDA_DEVICE", "cpu")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full", action="store_true", help="every dtype with every sample and layout, no subsample"
    )
    parser.addoption("--seed", type=int, default=0, help="seed of the random values (default: 0)")


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers that depend on the test's id and ``--seed`` alone, not on test order."""
    seed = request.config.getoption("seed")
    return np.random.default_rng([seed, zlib.crc32(request.node.nodeid.encode())])


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C raises here and in processes that the test starts.

    A shell's job in the background, and what ``nohup`` starts, inherits that it is ignored.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    # One that was set from outside of Python comes back as None and cannot be put back.
    signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
