"""Row kernels as functions of a plan: from handles of operands to outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.row_kernel import Kernel
from ruda.backends.cuda.prim.row_operands import Work, supported
from ruda.backends.cuda.prim.row_sums import Summing
from ruda.backends.cuda.row_programs import Program
from ruda.core.spec import Spec


class Parts(NamedTuple):
    """A row kernel before it is bound: its programs for rows that are kept and that are read again.

    ``places`` are those of its inputs among the operands of the plan. With ``sums`` the program
    adds up over rows as well, and is the same for both.
    """

    work: Work
    held: Program | None
    stream: Program
    places: tuple[int, ...]
    sums: bool = False


def bind(
    plan: Any, work: Work, held: Program | None, stream: Program, places: Sequence[int]
) -> Callable[..., Any] | None:
    """The function from handles to outputs; operands ``places`` of the plan are the inputs."""
    if not supported(work):
        return None
    parts = Parts(work, held, stream, tuple(places))
    return _declared(plan, parts, launches(parts, plan.out))


def bind_sums(
    plan: Any, work: Work, program: Program, places: Sequence[int]
) -> Callable[..., Any] | None:
    """As ``bind``, of a program that also adds up over rows; its sums are the last outputs."""
    if not supported(work):
        return None
    parts = Parts(work, program, program, tuple(places), sums=True)
    return _declared(plan, parts, launches(parts, plan.out))


def _declared(plan: Any, parts: Parts, run: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` from all operands of the plan; it says what it is made of."""
    places, several = parts.places, isinstance(plan.out, tuple)

    def bound(*handles: Any) -> Any:
        outs = run([handles[i].address for i in places])
        return outs if several else outs[0]

    bound.parts = parts  # type: ignore[attr-defined]
    return bound


def launches(parts: Parts, out: Any) -> Callable[[Sequence[int]], tuple[Any, ...]]:
    """The function from addresses of the inputs, in their order, to the outputs."""
    work, client = parts.work, parts.work.client
    specs = out if isinstance(out, tuple) else (out,)
    count = len(work.outs)
    if not work.rows:
        return lambda _: tuple(_zeros(client, spec) for spec in specs)
    if parts.sums:
        summing = Summing(work, parts.stream, parts.stream)
    else:
        kernel = Kernel(work, parts.held, parts.stream, skews=True)
    packed = [i for i, side in enumerate(work.inputs) if side.role in ("rows", "column")]
    form, faults = work.form, client.faults

    def run(given: Sequence[int]) -> tuple[Any, ...]:
        outs = tuple([allocate(client.pool, spec) for spec in specs])
        written = [handle.address for handle in outs]
        if parts.sums:
            summing(written[:count], outs[count:], given)
            return outs
        read = [given[i] for i in packed]
        launcher, _, _ = kernel.made(kernel.pick((*read, *written[:count])))
        if form is None:
            launcher(*written, *given)
        else:
            launcher(*written, *given, *faults.parameters(form))
        return outs

    return run


def _zeros(client: Any, spec: Spec) -> Any:
    """Sums over no rows."""
    out = allocate(client.pool, spec)
    client.fill_zero(out.address, spec.nbytes)
    return out
