"""The gradient of a cross-entropy in the logits of some classes, in one read and one write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.codegen_rows import Pass, Program
from ruda.backends.cuda.prim.rows import Work, bind, row_of, rows_of
from ruda.core.dtypes import compute_of

_PROGRAM = Program(
    "class_gradient",
    (
        Pass(
            ("logits",),
            """EACH {
    const T v = exp_of(logits[k] - lse) * slope - flat;
    dx[k] = v - (i + k == target ? share : T(0));
}""",
            writes=("dx",),
        ),
    ),
)


def _bound(client: Any, plan: Any) -> Callable[..., Any] | None:
    logits, *rows = plan.specs
    shape, wide = logits.shape, compute_of(logits.dtype)
    names = plan.op.args[1:]
    beside = [row_of(name, spec, shape, (1,)) for name, spec in zip(names, rows, strict=True)]
    inputs = (rows_of("logits", logits, shape), *beside)
    work = Work(client, shape, (1,), inputs, (rows_of("dx", plan.out, shape),), wide, wide)
    return bind(plan, work, None, _PROGRAM, range(len(plan.specs)))


KERNELS = {"class_gradient": _bound}
