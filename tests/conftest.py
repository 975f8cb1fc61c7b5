"""Options and fixtures of the whole suite."""

from __future__ import annotations

import os
import zlib

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
