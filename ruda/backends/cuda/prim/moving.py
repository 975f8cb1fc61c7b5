"""The running statistics of batch norm: one launch for both and the count, in place as well."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.planes import dense_copy
from ruda.backends.cuda.source import instance
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import DType

_NAMES = ("MEAN", "VAR", "COUNT", "BATCH_MEAN", "BATCH_VAR")


def text(types: Sequence[DType]) -> tuple[str, str]:
    """Name and source of the kernel for operands of ``types``."""
    name = "moving_statistics_" + "_".join(code_of(t) for t in types)
    kinds = {key: stored(t) for key, t in zip(_NAMES, types, strict=True)}
    wide = {"OF_MEAN": computed(types[0]), "OF_VAR": computed(types[1])}
    return name, instance(__file__, NAME=name, **kinds, **wide)


def bind_into(client: Any, plan: Any) -> Callable[[Sequence[Any], Sequence[Any]], None]:
    """The move from operands to targets, which may be the operands themselves."""
    length, momentum = plan.attrs
    n = plan.specs[0].size
    settle = [dense_copy(client, spec) for spec in plan.specs]
    name, source = text([spec.dtype for spec in plan.specs])
    numbers = (length / (length - 1), -1.0 if momentum is None else momentum)
    fixed = [struct.pack("<q", n), *(struct.pack("<d", v) for v in numbers)]
    launch = Launcher(client, source, name, 1, 512, (1,) * 8, fixed)

    def run(handles: Sequence[Any], targets: Sequence[Any]) -> None:
        given = [dense(h) for dense, h in zip(settle, handles, strict=True)]
        launch(*[h.address for h in (*targets, *given)])

    return run


def bind(client: Any, plan: Any) -> Callable[..., Any]:
    """The move into fresh memory."""
    into = bind_into(client, plan)

    def run(*handles: Any) -> Any:
        outs = tuple([allocate(client.pool, spec) for spec in plan.out])
        into(handles, outs)
        return outs

    return run


KERNELS = {"moving_statistics": bind}
