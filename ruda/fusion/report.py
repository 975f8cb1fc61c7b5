"""What a compiled step launches: kernels by operator and line, bytes, and times where measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ruda.fusion.flops import operations
from ruda.fusion.graph import Instruction
from ruda.fusion.lines import Line


class Use(NamedTuple):
    """One operator of a captured step and the kernels that it launches.

    ``nbytes`` is what its operands and results hold, each counted once, ``operations`` how many
    multiplications and additions its products take. ``seconds`` is None until ``measure`` has run;
    ``floor`` is the time in which the device moves so many bytes or, where that takes longer and
    its rate is known, does so many operations.
    """

    op: str
    line: Line | None
    kernels: tuple[str, ...]
    nbytes: int
    operations: int
    seconds: float | None
    floor: float | None
    computes: bool = False

    def __str__(self) -> str:
        names = ", ".join(self.kernels) or "a library"
        text = f"{self.op}: {names}, {amount(self.nbytes)}"
        if self.seconds:
            text += f", {self.seconds * 1e6:.1f} us{self._shares(self.seconds)}"
        return text if self.line is None else f"{text}  # {self.line}"

    def _shares(self, seconds: float) -> str:
        """How much of what the device can do that is."""
        found = []
        if self.operations:
            found.append(f"{self.operations / seconds / 1e12:.3g} TFLOP/s")
        if self.floor is not None:
            what = "operations of the device" if self.computes else "bandwidth"
            found.append(f"{100 * self.floor / seconds:.0f} % of the {what}")
        return f" ({', '.join(found)})" if found else ""


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
        nbytes = sum(v.moved for v in held)
        kernels = tuple(launcher.name for launcher in ending)
        floor = None if whole.bandwidth is None else nbytes / whole.bandwidth
        yield Use(f"{names}, in place", None, kernels, nbytes, 0, None, floor)


def _use(instruction: Instruction, whole: Any) -> Use:
    values = dict.fromkeys((*instruction.inputs, *instruction.outputs))
    nbytes = sum(v.moved for v in values)
    floor = None if whole.bandwidth is None else nbytes / whole.bandwidth
    work, seconds = operations(instruction.plan), whole.times.get(instruction)
    rate = whole.rates.get(instruction.plan.specs[0].dtype) if work else None
    least = 0.0 if rate is None else work / rate
    computes = floor is not None and least > floor
    kernels = tuple(launcher.name for launcher in whole.notes.found.get(instruction, ()))
    longest = least if computes else floor
    return Use(instruction.op, instruction.line, kernels, nbytes, work, seconds, longest, computes)


def sources(program: Any) -> dict[str, str]:
    """The CUDA C of the kernels of a captured program, by name."""
    whole = program.captured
    if whole is None:
        return {}
    launchers = (one for found in whole.notes.found.values() for one in found)
    return {one.name: one.source for one in launchers}


def amount(nbytes: int) -> str:
    """``nbytes`` for people."""
    return f"{nbytes:,} bytes" if nbytes < 1 << 20 else f"{nbytes / 2**20:,.1f} MiB"
