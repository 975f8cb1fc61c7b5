"""A graph as parts that may become one: who waits for whom, and whether two parts can be joined.

Each instruction is a bit of a number. A part has the bits of its members, and in ``before`` at
least one bit of each part that has to run before it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ruda.fusion.graph import Graph, Instruction, Value


class Part:
    """Instructions that run as one, in the order of the graph."""

    __slots__ = ("before", "bit", "made", "members")

    def __init__(self, number: int, instruction: Instruction) -> None:
        self.bit = 1 << number
        self.before = 0
        # With their places in the order of the graph.
        self.members: list[tuple[float, Instruction]] = [(number, instruction)]
        # What takes the place of the members, if they are more than one.
        self.made: Instruction | None = None

    def instructions(self) -> list[Instruction]:
        """The members in their order."""
        return [instruction for _, instruction in sorted(self.members, key=lambda m: m[0])]


class Partition:
    """The parts of ``graph``, one for each instruction at first."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.parts: list[Part] = []
        self.home: dict[Value, Part] = {}
        self.users: dict[Value, list[Instruction]] = {}
        self._part_of: dict[int, Part] = {}
        for number, instruction in enumerate(graph.instructions):
            part = Part(number, instruction)
            for source in self._makers(instruction):
                part.before |= source.before | source.bit
            self.parts.append(part)
            self._enter(part, instruction)

    def _enter(self, part: Part, instruction: Instruction) -> None:
        self._part_of[id(instruction)] = part
        for value in instruction.outputs:
            self.home[value] = part
        for value in dict.fromkeys(instruction.inputs):
            self.users.setdefault(value, []).append(instruction)

    def part(self, instruction: Instruction) -> Part:
        """The part that ``instruction`` is a member of."""
        return self._part_of[id(instruction)]

    def _makers(self, instruction: Instruction) -> Iterator[Part]:
        """The parts that operands come from; a view shows memory that somebody wrote as well."""
        home = self.home
        for value in instruction.inputs:
            part = home.get(value)
            if part is not None:
                yield part
            if value.memory is not value:
                part = home.get(value.memory)
                if part is not None:
                    yield part

    def _sources(self, part: Part) -> Iterator[Part]:
        """The parts that ``part`` reads from, some several times."""
        for _, instruction in part.members:
            for source in self._makers(instruction):
                if source is not part:
                    yield source

    def joinable(self, one: Part, other: Part) -> bool:
        """Whether no third part has to run after one of the two and before the other.

        What a checkpoint runs again does not join what stands before it.
        """
        first, second = sorted((one, other), key=lambda part: part.members[0][0])
        turns = {None, *(i.turn for _, i in first.members)}
        if any(i.turn not in turns for _, i in second.members):
            return False
        return not any(
            s.before & a.bit
            for a, b in ((one, other), (other, one))
            for s in self._sources(b)
            if s is not a
        )

    def join(self, one: Part, other: Part) -> None:
        """Let the members of ``other`` be of ``one``."""
        one.members += other.members
        self.parts.remove(other)
        self._part_of.update((id(i), one) for _, i in other.members)
        self.home.update((value, one) for _, i in other.members for value in i.outputs)
        before = (one.before | other.before) & ~(one.bit | other.bit)
        # Those whose followers do not wait for all of that yet.
        added = sum(part.bit for part in (one, other) if before & ~part.before)
        if added:
            for part in self.parts:
                if part.before & added and part is not one:
                    part.before |= before
        one.bit, one.before = one.bit | other.bit, before

    def adopt(self, part: Part, number: float, instruction: Instruction) -> None:
        """Make a new instruction, whose operands ``part`` waits for already, a member of it."""
        part.members.append((number, instruction))
        self._enter(part, instruction)

    def redirect(self, user: Instruction, place: int, value: Value) -> Instruction:
        """Replace ``user`` by an instruction that reads ``value`` at ``place`` of its operands.

        It is a new instruction: others may know the graph as it was.
        """
        inputs = (*user.inputs[:place], value, *user.inputs[place + 1 :])
        made = user.but(inputs=inputs)
        part = self._part_of[id(made)] = self._part_of[id(user)]
        part.members = [(n, made if i is user else i) for n, i in part.members]
        for old in set(user.inputs):
            self.users[old].remove(user)
        for new in set(inputs):
            self.users.setdefault(new, []).append(made)
        return made

    def outside_users(self, part: Part, value: Value) -> bool:
        """Whether anybody but ``part`` reads ``value``."""
        return any(self.part(user) is not part for user in self.users.get(value, ()))

    def settle(self) -> None:
        """Give the graph its instructions again: parts in order, joined ones as what they became.

        Each stands behind those it waits for, else as its first member stood.
        """
        out: list[Instruction] = []
        done, waiting = 0, sorted(self.parts, key=lambda p: min(n for n, _ in p.members))
        while waiting:
            rest = []
            for part in waiting:
                if part.before & ~done:
                    rest.append(part)
                    continue
                done |= part.bit
                out += part.instructions() if part.made is None else [part.made]
            waiting = rest
        self.graph.instructions = out
