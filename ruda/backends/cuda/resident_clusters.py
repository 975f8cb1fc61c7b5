"""How many clusters of blocks a device runs at a time.

Blocks of a cluster are neighbours on the chip, and parts of chips differ in how many of their
multiprocessors work: 132 of them may run 15 clusters of 8 blocks or 7 of 16. Nothing but the driver
knows.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from ruda.backends.probe import DRIVER
from ruda.core.errors import DeviceError

# A block of so many threads, and of all shared memory, has a multiprocessor alone.
_THREADS = 1024
_PROBE = """// Does nothing: how many of its clusters run at a time is asked of the driver.
// Architectures: sm_90a, sm_100a, sm_120.
extern "C" __global__ void __cluster_dims__(1, 1, {blocks}) __launch_bounds__({threads})
{name}() {{}}
"""


class _Config(ctypes.Structure):
    """The driver's CUlaunchConfig, without attributes."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


def probe(blocks: int) -> tuple[str, str]:
    """Source and name of a kernel with clusters of ``blocks``."""
    name = f"cluster_of_{blocks}"
    return _PROBE.format(blocks=blocks, threads=_THREADS, name=name), name


@functools.cache
def _driver() -> Any:
    return ctypes.CDLL(DRIVER)


def count(kernel: int, blocks: int, shared: int) -> int:
    """Clusters of the kernel of ``probe`` that run at a time; raises ``DeviceError``."""
    found = ctypes.c_int()
    config = _Config((1, 1, blocks), (_THREADS, 1, 1), shared)
    arguments = ctypes.byref(found), ctypes.c_void_p(kernel), ctypes.byref(config)
    status = _driver().cuOccupancyMaxActiveClusters(*arguments)
    if status:
        what = f"the driver does not say how many clusters of {blocks} blocks run at a time"
        raise DeviceError("clusters", what, f"status {status}")
    return found.value
