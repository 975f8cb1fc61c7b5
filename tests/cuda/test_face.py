"""ruda.cuda with and without a GPU: what it answers, what it raises, what it does not import."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import ruda
from ruda import cuda
from ruda.backends import probe
from ruda.core import devices
from ruda.core.errors import DeviceError
from tests.sources import ROOT

NEEDS_A_GPU: list[Callable[[], Any]] = [
    cuda.current_device,
    cuda.device_properties,
    cuda.get_device_name,
    lambda: cuda.can_access_peer(0, 1),
    cuda.synchronize,
    lambda: cuda.device(0).__enter__(),
    cuda.Stream,
    lambda: cuda.ExternalStream(1),
    cuda.Event,
    cuda.current_stream,
    cuda.default_stream,
    cuda.memory_allocated,
    cuda.max_memory_allocated,
    cuda.memory_reserved,
    cuda.max_memory_reserved,
    cuda.reset_peak,
    cuda.reset_peak_memory_stats,
    cuda.memory_stats,
    cuda.memory_summary,
    cuda.memory_snapshot,
    cuda.record_memory,
    cuda.empty_cache,
    lambda: cuda.set_memory_limit(0.5),
    cuda.MemPool,
    lambda: cuda.use_allocator(None),
    cuda.share_memory_with_cupy,
    cuda.Graph,
    lambda: cuda.make_graphed_callables(abs, ()),
    lambda: cuda.precompile(),
    lambda: ruda.ones(2, device="cuda"),
    lambda: ruda.asarray([1.0]).cuda(),
    lambda: ruda.asarray([1.0]).pin_memory(),
    lambda: ruda.empty(2, pin=True),
]


@pytest.mark.parametrize("call", NEEDS_A_GPU)
def test_without_a_gpu_one_error_says_what_is_missing(
    call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if probe.usable_gpus():
        pytest.skip("this is what machines without a GPU say, and this one has a GPU")
    monkeypatch.delitem(devices._clients, devices.Device("cuda", 0), raising=False)
    with pytest.raises(DeviceError, match=r"pip install ruda\[cuda13\]|no usable GPU"):
        call()


def python(code: str, **environment: str) -> str:
    import os

    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k != "RUDA_DEVICE"} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_asking_imports_neither_cupy_nor_the_backend() -> None:
    code = """
import sys, ruda
ruda.cuda.is_available(), ruda.cuda.device_count(), ruda.default_device()
print([m for m in sys.modules if m.split(".")[0] in ("cupy", "cuda", "cupy_backends")
       or m in ("ruda.backends.cuda.client", "ruda.backends.cuda.driver")])
"""
    assert python(code) == "[]"


def test_importing_ruda_does_not_import_the_face() -> None:
    code = "import sys, ruda; print([m for m in sys.modules if 'cuda' in m])"
    assert python(code) == "[]"


def test_a_machine_without_a_driver_is_a_machine_with_a_cpu() -> None:
    if probe.usable_gpus():
        pytest.skip("this is what machines without a GPU say, and this one has a GPU")
    code = "import ruda; print(ruda.cuda.is_available(), ruda.cuda.device_count(), ruda.ones(2))"
    assert python(code).startswith("False 0")
    assert python("import ruda; print(ruda.ones(2).device)") == "cpu"


def test_the_default_device_is_a_gpu_where_one_is_found() -> None:
    code = """
from ruda.backends import probe
probe.usable_gpus = lambda: 1
import ruda
print(ruda.default_device())
"""
    assert python(code) == "cuda:0"
    assert python(code, RUDA_DEVICE="cpu") == "cpu"


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe.importlib.util, "find_spec", lambda name: None)
    assert "cupy, which is not installed" in str(probe.missing())
    monkeypatch.setattr(probe.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(probe, "driver_devices", lambda: 0)
    assert "finds none" in str(probe.missing())
    monkeypatch.setattr(probe, "driver_devices", lambda: 2)
    assert probe.missing() is None
    assert cuda.device_count() == 2
    assert cuda.is_available()


def test_facts_of_a_device(deferred: Any) -> None:
    facts = cuda.device_properties()
    assert facts.name == cuda.get_device_name(0) == "Emulated"
    assert facts.capability == (9, 0)
    assert facts.total_memory == deferred.driver.total
    assert cuda.current_device() == 0
    assert not cuda.can_access_peer(0, "cuda:0")
    before = ruda.default_device()
    with cuda.device(0):
        assert ruda.zeros(2).device == "cuda:0"
    assert ruda.default_device() == before
    with pytest.raises(DeviceError, match="not a GPU"):
        cuda.synchronize("cpu")
