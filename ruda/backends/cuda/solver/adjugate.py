"""Adjugates: of matrices up to 3 by 3 their minors, in one kernel; of others from the SVD.

The minors of a small matrix err by less than a rounding, the product of its singular values and
vectors by 5 to 30, and nothing has to wait for the device.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.solver import rows
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, stored
from ruda.core.dtypes import DType
from ruda.core.spec import spec_of

_THREADS = 256
_LARGEST = 3


def source(dtype: DType, n: int) -> tuple[str, str]:
    """Name and CUDA C of the kernel for matrices ``n`` by ``n`` of ``dtype``."""
    name = f"adjugate{n}_{code_of(dtype)}"
    return name, instance(__file__, NAME=name, T=stored(dtype), N=n)


def bind(client: Any, plan: Any) -> Callable[..., Any]:
    """The function from one handle; a matrix with gaps or in another dtype is copied first."""
    given, out = plan.specs[0], plan.out
    n = given.shape[-1]
    if out.size == 0 or n > _LARGEST:
        return rows.KERNELS["adjugate"](client, plan)
    name, text = source(out.dtype, n)
    count = out.size // (n * n)
    grid, fixed = -(-count // _THREADS), struct.pack("<q", count)
    launch = Launcher(client, text, name, grid, _THREADS, (1, 1), [fixed])
    dense = spec_of(client, out.shape, out.dtype)
    copy = None if given is dense else client.copier(dense, given)

    def run(h: Any) -> Any:
        if copy is not None:
            h = copy(h)
        result = allocate(client.pool, out)
        launch(result.address, h.address)
        return result

    return run


KERNELS = {"adjugate": bind}
