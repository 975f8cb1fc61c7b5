"""Where new tensors are made: the call, the switch, the environment, the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

import ruda
from ruda.backends.probe import usable_gpus
from ruda.core.errors import DeviceError
from tests.sources import ROOT


@pytest.fixture(autouse=True)
def _back() -> Iterator[None]:
    yield
    ruda.set_default_device(None)


def test_the_switch_moves_factories_and_not_tensors() -> None:
    x = ruda.ones(2, device="cpu")
    ruda.set_default_device("null")
    assert ruda.default_device() == ruda.zeros(2).device == ruda.arange(3).device == "null"
    assert ruda.zeros(2, device="cpu").device == "cpu"
    assert (x + 1).device == ruda.zeros_like(x).device == "cpu"
    ruda.set_default_device(None)
    assert ruda.zeros(2).device == "cpu"


def test_a_device_that_is_not_there_changes_nothing() -> None:
    for name in ("cuda:99", "tpu", 3):
        with pytest.raises(DeviceError, match=r"Expected|Try|cuda"):
            ruda.set_default_device(name)
        assert ruda.default_device() == "cpu"


@pytest.mark.parametrize(("value", "expected"), [("null", "null"), ("", None), ("cpu", "cpu")])
def test_the_environment_names_the_default(value: str, expected: str | None) -> None:
    """Without a name it is the first GPU where one can be used, and the CPU elsewhere."""
    if expected is None:
        expected = "cuda:0" if usable_gpus() else "cpu"
    script = "import ruda; print(ruda.zeros(1).device)"
    command = [sys.executable, "-c", script]
    environment = os.environ | {"RUDA_DEVICE": value}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected


def test_a_wrong_name_in_the_environment_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUDA_DEVICE", "gpu")
    with pytest.raises(DeviceError, match=r"unknown device. Got 'gpu'"):
        ruda.zeros(1)


def test_devices_compare_with_their_names() -> None:
    assert ruda.Device("cuda", 1) == "cuda:1" != ruda.Device("cuda")
    assert ruda.Device.parse("cuda") == "cuda:0"
    assert len({ruda.Device("cpu"), ruda.Device.parse("cpu")}) == 1
    assert ruda.Device("cpu") != "elsewhere"
