"""Backends: each turns operators with given specs into functions on its own memory."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ruda.core.errors import DeviceError

if TYPE_CHECKING:
    from ruda.core.contracts import Client
    from ruda.core.devices import Device

_MODULES = {
    "cpu": "ruda.backends.numpy.client",
    "cuda": "ruda.backends.cuda.driver",
    "null": "ruda.backends.null",
}


def make_client(device: Device) -> Client:
    """The client of ``device``, importing its backend; raises ``DeviceError`` if there is none."""
    if device.kind == "cpu" and device.index != 0:
        raise DeviceError("device", "there is one CPU device", device, '"cpu"')
    try:
        if device.kind == "cuda":
            importlib.import_module("ruda.backends.cuda.early_context").begin(device.index)
        module = importlib.import_module(_MODULES[device.kind])
    except ImportError as error:
        if (error.name or "ruda").partition(".")[0] == "ruda":
            raise
        hint = "pip install ruda[cuda13]"
        name = "cupy" if error.name == "cupy_backends" else error.name
        what = f"the CUDA backend needs {name}, which is not installed"
        raise DeviceError("device", what, device, hint=hint) from error
    return module.make(device)
