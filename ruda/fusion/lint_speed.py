"""What keeps a compiled step from being fast, each with its line and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ruda.core.dtypes import float64
from ruda.fusion.graph import Instruction
from ruda.fusion.lint import Finding

_LARGE = 1 << 20


def slow_parts(program: Any) -> Iterator[Finding]:
    """The findings of one signature."""
    yield from _captured(program)
    yield from _doubles(program)
    yield from _unused(program)
    yield from _copies(program.everything)


def refused(error: Any, where: str) -> Finding:
    """What kept a step from being traced at all: a value read on the host, for the most part."""
    hint = error.hint or "doing it outside of the compiled step"
    return Finding(f"{error.op}: {error.what}", where, hint)


def retraced(reasons: Sequence[str], where: str) -> Iterator[Finding]:
    """What made a step be traced again more than once."""
    for reason in dict.fromkeys(reasons):
        if reasons.count(reason) > 1:
            what = f"traced again {reasons.count(reason)} times, because {reason} changes"
            hint = "a float argument or a tensor for what changes; ruda.bucket for lengths"
            yield Finding(what, where, hint)


def _captured(program: Any) -> Iterator[Finding]:
    whole = program.captured
    if hasattr(program.client, "capture") and program.has_run and whole is None:
        hint = "another operator there, or doing that part outside of the compiled step"
        what = f"the step runs operator by operator: {program.stepwise}"
        yield Finding(what, _first_line(program), hint)


def _first_line(program: Any) -> str:
    found = program.graph.instructions
    return str(found[0].line) if found else "the step"


def _doubles(program: Any) -> Iterator[Finding]:
    """float64 that no one seems to have asked for: the first operators that make it."""
    inputs = [v for v in program.graph.inputs if v.spec is not None and v.spec.size > 1]
    wide = [v for v in inputs if v.spec.dtype is float64]
    single = [v for v in inputs if v.spec.dtype.is_floating and v.spec.dtype is not float64]
    if not single:
        return
    for value in wide:
        hint = 'astype("float32") where it is made'
        yield Finding(f"{value.payload} is float64 beside float32", _first_line(program), hint)
    seen = {v.memory for v in wide}
    for instruction in program.everything:
        made = [v for v in instruction.outputs if v.spec is not None and v.spec.size > 1]
        if not any(v.spec.dtype is float64 for v in made if v.spec is not None):
            continue
        if not any(v in seen or v.memory in seen for v in instruction.inputs):
            what = f"{instruction.op} makes float64 of {made[0].spec}"
            yield Finding(what, str(instruction.line), 'astype("float32"), or a float32 operand')
        seen.update(made)


def _unused(program: Any) -> Iterator[Finding]:
    """Lines of which not one result is needed."""
    needed = set(program.wanted)
    used_lines, all_lines = set(), {}
    for instruction in reversed(program.everything):
        all_lines[instruction.line] = instruction.op
        if not needed.isdisjoint(instruction.outputs):
            needed.update(instruction.inputs)
            used_lines.add(instruction.line)
    for line, op in reversed(all_lines.items()):
        if line not in used_lines:
            yield Finding(f"what {op} makes is not used", str(line), "leaving it out")


def _copies(instructions: Sequence[Instruction]) -> Iterator[Finding]:
    """Large tensors that are copied for the sake of their layout alone."""
    for instruction in instructions:
        plan = instruction.plan
        if plan is None or plan.shares or plan.op.kind not in ("copy", "view"):
            continue
        spec = plan.specs[0]
        if not spec.contiguous and spec.nbytes >= _LARGE:
            what = f"{instruction.op} copies {spec.nbytes / 2**20:.1f} MiB for their layout"
            hint = "an order of axes that the next operator takes as it is"
            yield Finding(what, str(instruction.line), hint)
