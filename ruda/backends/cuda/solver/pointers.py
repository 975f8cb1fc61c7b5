"""Lists of the addresses of the matrices of a batch, made on the device."""

from __future__ import annotations

from typing import Any

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.source import instance
from ruda.core.dtypes import uint64
from ruda.core.spec import spec_of


def pointers(client: Any, start: int, step: int, count: int) -> Any:
    """A handle over ``count`` addresses that are ``step`` bytes apart."""
    out = allocate(client.pool, spec_of(client, (count,), uint64))
    launch = Launcher(client, instance(__file__), "pointers", -(-count // 256), 256, (1, 1, 1, 1))
    launch(out.address, start, step, count)
    return out
