"""The gradient of a cross-entropy in the logits of some classes, in one read and one write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ruda.backends.cuda.prim.cross_entropy import quickly
from ruda.backends.cuda.prim.row_kernel import Kernel
from ruda.backends.cuda.prim.row_operands import Work, row_of, rows_of
from ruda.backends.cuda.prim.rows import bind
from ruda.backends.cuda.row_programs import Pass, Program
from ruda.core.dtypes import compute_of
from ruda.core.spec import Spec

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


_BESIDE = ("target", "lse", "slope", "share", "flat")


def _work(client: Any, specs: Sequence[Spec], out: Spec) -> Work:
    logits, *rows = specs
    shape, wide = logits.shape, compute_of(logits.dtype)
    beside = [row_of(name, spec, shape, (1,)) for name, spec in zip(_BESIDE, rows, strict=True)]
    inputs = (rows_of("logits", logits, shape), *beside)
    return Work(client, shape, (1,), inputs, (rows_of("dx", out, shape),), wide, wide)


def _bound(client: Any, plan: Any) -> Callable[..., Any] | None:
    work = _work(client, plan.specs, plan.out)
    return bind(plan, work, None, _PROGRAM, range(len(plan.specs)))


def into(client: Any, specs: Sequence[Spec], out: Spec) -> Callable[..., None]:
    """The same into memory that is there: from the addresses of ``out`` and of the operands."""
    program = quickly(_PROGRAM) if out.dtype.is_half else _PROGRAM
    kernel = Kernel(_work(client, specs, out), None, program)

    def run(written: int, logits: int, *beside: int) -> None:
        launcher, _, _ = kernel.made(kernel.pick((written, logits)))
        launcher(written, logits, *beside)

    return run


KERNELS = {"class_gradient": _bound}
