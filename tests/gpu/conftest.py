"""The GPU lane: everything here is marked `gpu`, and skipped where there is no usable GPU."""

from __future__ import annotations

import functools
import gc
import hashlib
import importlib.util
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.core.devices import Device, client, known_clients
from ruda.core.errors import DeviceError
from ruda.ops import create, transfer

# Without CuPy there is nothing to run: three thousand skips would say no more.
if importlib.util.find_spec("cupy") is None:
    collect_ignore_glob = ["test_*.py"]

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "tests" / "gpu_record.json"
# What a process may keep of the GPU between two tests.
MOST_KEPT = 256 << 20


# The lane on another GPU: RUDA_TEST_GPU=cuda:1; a quarter of it: RUDA_TEST_PART=1/4.
CHOSEN = os.environ.get("RUDA_TEST_GPU", "cuda")
if CHOSEN != "cuda":
    for module in (ruda.cuda.devices, transfer, create):
        vars(module)["default_gpu"] = functools.partial(Device.parse, CHOSEN)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/gpu/" in str(item.path):
            item.add_marker(pytest.mark.gpu)
    part, _, parts = os.environ.get("RUDA_TEST_PART", "").partition("/")
    if parts:
        items[:] = items[int(part) - 1 :: int(parts)]


@pytest.fixture(scope="session")
def device() -> str:
    """The name of a usable GPU."""
    try:
        return str(client(CHOSEN).device)
    except DeviceError as error:
        pytest.skip(f"no usable GPU: {error}")


@pytest.fixture(scope="session")
def pair(device: str) -> tuple[str, str]:
    """The names of two GPUs."""
    if ruda.cuda.device_count() < 2:
        pytest.skip("takes two GPUs of one machine")
    return "cuda:0", "cuda:1"


@pytest.fixture(scope="session")
def many() -> int:
    """Elements of a tensor whose operators keep a GPU busy."""
    return 1 << 24


@pytest.fixture(autouse=True)
def _stays(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where another GPU than the first is chosen, nothing comes to the first by itself."""
    first = Device("cuda", 0)
    before = first in known()
    yield
    alone = CHOSEN not in ("cuda", first) and "pair" not in request.fixturenames
    assert before or not alone or first not in known(), f"{first} is in use as well"


def known() -> list[Device]:
    """The devices that are in use."""
    return [found.device for found in known_clients()]


@pytest.fixture(autouse=True)
def _room_for_others(device: str) -> Iterator[None]:
    """Large caches go back after each test: no process can free what another one has cached."""
    yield
    pool = client(device).pool
    if pool.reserved > MOST_KEPT:
        gc.collect()
        pool.release()


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers of one test."""
    return np.random.default_rng(0)


def sources() -> str:
    """The hash of all sources of ruda and its tests: 16 hex digits."""
    listed = subprocess.run(
        ["git", "ls-files", "ruda", "tests"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    if not listed:
        listed = [
            str(path.relative_to(ROOT))
            for folder in ("ruda", "tests")
            for path in (ROOT / folder).rglob("*")
        ]
    digest = hashlib.sha256()
    for name in sorted(n for n in listed if n.endswith((".py", ".cu", ".cuh"))):
        digest.update(name.encode())
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()[:16]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """With RUDA_GPU_RECORD set, write down what passed on which device and sources."""
    if not os.environ.get("RUDA_GPU_RECORD"):
        return
    counts = {k: len(terminalreporter.stats.get(k, ())) for k in ("passed", "failed", "skipped")}
    counts["failed"] += len(terminalreporter.stats.get("error", ()))
    from cupy.cuda import runtime

    name = runtime.getDeviceProperties(0)["name"].decode()
    record = {"sources": sources(), "device": name, **counts}
    RECORD.write_text(json.dumps(record) + "\n")
    assert ruda is not None
