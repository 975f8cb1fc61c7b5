"""Cross products of vectors of three elements."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import DType
from ruda.core.spec import Spec

_THREADS = 256


def source(dtype: DType) -> tuple[str, str]:
    """Name and CUDA C of the kernel for ``dtype``."""
    name = f"cross_{code_of(dtype)}"
    return name, instance(__file__, NAME=name, S=stored(dtype), T=computed(dtype))


def bind(client: Any, plan: Any) -> Callable[[Any, Any], Any]:
    """The function from two handles; operands that broadcast or have gaps are copied first."""
    out = plan.out
    if out.size == 0:
        return lambda hx, hy: allocate(client.pool, out)
    name, text = source(out.dtype)
    count = out.size // 3
    grid, fixed = -(-count // _THREADS), struct.pack("<q", count)
    launch = Launcher(client, text, name, grid, _THREADS, (1, 1, 1), [fixed])
    ready = [_ready(client, spec, out) for spec in plan.specs]

    def run(hx: Any, hy: Any) -> Any:
        x, y = ready[0](hx), ready[1](hy)
        result = allocate(client.pool, out)
        launch(result.address, x.address, y.address)
        return result

    return run


def _ready(client: Any, spec: Spec, out: Spec) -> Callable[[Any], Any]:
    if spec is out:
        return lambda handle: handle
    return client.copier(out, spec)


KERNELS = {"cross": bind}
