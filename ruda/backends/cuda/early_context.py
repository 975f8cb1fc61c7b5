"""The context of a GPU, made in a thread while Python imports this backend.

Starting the driver and making a context is C code that needs no interpreter. CuPy keeps the
interpreter waiting for it, foreign functions of the standard library do not.
"""

from __future__ import annotations

import ctypes
import importlib.util
import threading

from ruda.backends.probe import DRIVER


def begin(index: int) -> None:
    """Start making the context of the GPU ``index``, unless CuPy is not installed.

    Who needs the context waits for it in the driver, which then says as well what has failed.
    """
    if importlib.util.find_spec("cupy") is not None:
        threading.Thread(target=_retain, args=(index,), name="context of the GPU").start()


def _retain(index: int) -> None:
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        # CuPy says so in a moment.
        return
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if not driver.cuInit(0) and not driver.cuDeviceGet(ctypes.byref(device), index):
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
