"""Whether there is a GPU to use, found out without loading anything of the CUDA backend."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import sys

_EXTRA = ("cupy", "cuda.bindings")
DRIVER = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


def missing() -> str | None:
    """What is not there for the CUDA backend to work, as words; None when nothing is missing."""
    for name in _EXTRA:
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            return f"the CUDA backend needs {name}, which is not installed"
    return None if driver_devices() else "no usable GPU: the NVIDIA driver finds none"


@functools.cache
def driver_devices() -> int:
    """How many GPUs the driver lists; 0 without a driver."""
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


def usable_gpus() -> int:
    """How many GPUs can be used: 0 unless the extra is installed as well."""
    return 0 if missing() else driver_devices()
