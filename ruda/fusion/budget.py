"""A step within a budget of memory: as much of it is recomputed as that takes, and no more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ruda.core.errors import OutOfMemoryError
from ruda.fusion.donations import donations
from ruda.fusion.graph import Instruction, Value
from ruda.fusion.memory import memory_of
from ruda.fusion.passes.recompute import Recompute
from ruda.fusion.sources import Held
from ruda.fusion.updates import in_place


def keep_within(program: Any, budget: int) -> None:
    """Change ``program`` until its peak, as ``memory_of`` predicts it, is within ``budget``."""
    if memory_of(program).peak <= budget:
        return
    program.frugal = True
    peak = least = memory_of(program).peak
    if peak <= budget:
        return
    search = _search(program)
    while peak > budget:
        target, count = search.profile.peak - (peak - budget), len(search.found)
        while search.profile.peak > target and search.step():
            pass
        if len(search.found) == count:
            raise _too_small(budget, least)
        program.again = search.found
        program.bind()
        peak = memory_of(program).peak
        least = min(least, peak)


def _search(program: Any) -> Recompute:
    held = [(s.handle, v) for s, v, _ in program.writes if isinstance(s, Held)]
    last = in_place(program.client, program.graph, program.wanted, held)
    known: dict[int, tuple[int, ...]] = {}
    client = program.client

    class Known:
        """Asks the client once for each plan."""

        def replaces(self, plan: Any) -> tuple[int, ...]:
            if id(plan) not in known:
                known[id(plan)] = client.replaces(plan)
            return known[id(plan)]

    def given(
        order: Sequence[Instruction], kept: Iterable[Value]
    ) -> dict[Instruction, tuple[int, ...]]:
        return donations(Known() if hasattr(client, "replaces") else client, order, kept)

    return Recompute(program.graph, last, program.wanted, given)


def _too_small(budget: int, least: int) -> OutOfMemoryError:
    what = "the step does not fit into its memory, whatever is recomputed"
    hint = "a smaller batch, or memory= of at least that"
    got = f"a peak of {least:,} bytes at least"
    return OutOfMemoryError("compile", what, got, f"at most {budget:,} bytes", hint)
