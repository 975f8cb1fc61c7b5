"""Liveness: from where to where memory is in use, and how many bytes are at each place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set

from ruda.fusion.graph import Instruction, Value

Given = Callable[[Sequence[Instruction], Iterable[Value]], dict[Instruction, tuple[int, ...]]]


class Profile:
    """The memory of ``order`` in use, place by place; ``kept`` values are there at its end.

    ``given`` says which operators write into the memory of an operand; results in ``absent`` take
    none of their own.
    """

    def __init__(
        self,
        order: Sequence[Instruction],
        kept: Iterable[Value],
        given: Given | None = None,
        absent: Set[Value] = frozenset(),
    ) -> None:
        self.absent = absent
        self.order, self.kept = order, {v.memory for v in kept}
        self.maker: dict[Value, Instruction] = {}
        self.place: dict[Instruction, int] = {}
        # Of each memory the places that touch it, in order; views of it count.
        self.uses: dict[Value, list[int]] = {}
        for i, instruction in enumerate(order):
            self.place[instruction] = i
            self.maker.update((v, instruction) for v in instruction.outputs)
            for memory in {v.memory for v in instruction.inputs if v.memory.kind == "result"}:
                self.uses.setdefault(memory, []).append(i)
        for memory in self.kept:
            if memory.kind == "result":
                self.uses.setdefault(memory, []).append(len(order))
        self.live = self._live({} if given is None else given(order, self.kept))
        self.peak = max(self.live, default=0)

    @property
    def top(self) -> int:
        """The first place where most is in use."""
        return self.live.index(self.peak)

    @property
    def height(self) -> tuple[int, int]:
        """The most that is in use, and at how many places it is."""
        return self.peak, self.live.count(self.peak)

    def begin(self, memory: Value) -> int:
        """The place that makes ``memory``."""
        return self.place[self.maker[memory]]

    def end(self, memory: Value) -> int:
        """The last place that needs ``memory``."""
        uses = self.uses.get(memory)
        return uses[-1] if uses else self.begin(memory)

    def _live(self, given: dict[Instruction, tuple[int, ...]]) -> list[int]:
        change = [0] * (len(self.order) + 2)
        for i, instruction in enumerate(self.order):
            for value in instruction.outputs:
                if value.memory is value and value not in self.absent:
                    change[i] += value.nbytes
                    change[self.end(value) + 1] -= value.nbytes
        live, now = [], 0
        for i, instruction in enumerate(self.order):
            now += change[i]
            places = given.get(instruction, ())
            live.append(now - sum(instruction.inputs[k].nbytes for k in places))
        return live
