"""What a compiled step launches: kernels by operator and line, bytes, and times where measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ruda.core.spec import Spec
from ruda.fusion.graph import Instruction
from ruda.fusion.lines import Line


class Use(NamedTuple):
    """One operator of a captured step and the kernels that it launches.

    ``nbytes`` is what its operands and results hold, each counted once. ``seconds`` is None until
    ``measure`` has run; ``floor`` is the time in which the device moves so many bytes.
    """

    op: str
    line: Line | None
    kernels: tuple[str, ...]
    nbytes: int
    seconds: float | None
    floor: float | None

    def __str__(self) -> str:
        names = ", ".join(self.kernels) or "a library"
        text = f"{self.op}: {names}, {_amount(self.nbytes)}"
        if self.seconds is not None:
            text += f", {self.seconds * 1e6:.1f} us"
            if self.floor is not None and self.seconds:
                text += f" ({100 * self.floor / self.seconds:.0f} % of the bandwidth)"
        return text if self.line is None else f"{text}  # {self.line}"


def uses(program: Any) -> Iterator[Use]:
    """The operators of a captured program that launch something, in their order."""
    whole = program.captured
    if whole is None or whole.graph is None:
        return
    for instruction in whole.inside:
        if not instruction.plan.shares:
            yield _use(instruction, whole)
    ending = whole.notes.found.get(None, ())
    if ending:
        names = " ".join(dict.fromkeys(i.op for i in whole.updates.instructions)) or "state"
        held = [v for i in whole.updates.instructions for v in (*i.inputs, *i.outputs)]
        nbytes = _moved([v.spec for v in held if v.spec is not None])
        kernels = tuple(launcher.name for launcher in ending)
        floor = None if whole.bandwidth is None else nbytes / whole.bandwidth
        yield Use(f"{names}, in place", None, kernels, nbytes, None, floor)


def _use(instruction: Instruction, whole: Any) -> Use:
    values = dict.fromkeys((*instruction.inputs, *instruction.outputs))
    nbytes = _moved([v.spec for v in values if v.spec is not None])
    floor = None if whole.bandwidth is None else nbytes / whole.bandwidth
    kernels = tuple(launcher.name for launcher in whole.notes.found.get(instruction, ()))
    seconds = whole.times.get(instruction)
    return Use(instruction.op, instruction.line, kernels, nbytes, seconds, floor)


def _moved(specs: list[Spec]) -> int:
    """Bytes of ``specs``; what is repeated along an axis is read once."""
    total = 0
    for spec in specs:
        size = spec.dtype.itemsize
        for length, stride in zip(spec.shape, spec.strides, strict=True):
            size *= length if stride else 1
        total += size
    return total


def sources(program: Any) -> dict[str, str]:
    """The CUDA C of the kernels of a captured program, by name."""
    whole = program.captured
    if whole is None:
        return {}
    launchers = (one for found in whole.notes.found.values() for one in found)
    return {one.name: one.source for one in launchers}


def _amount(nbytes: int) -> str:
    return f"{nbytes:,} bytes" if nbytes < 1 << 20 else f"{nbytes / 2**20:,.1f} MiB"
