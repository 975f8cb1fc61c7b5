"""Values that are made a second time where they are read late, and are not kept until then.

An operator that runs again is the very same kernel on the same operands, random draws and their
numbers included, so nothing comes out differently. Which ones run again is decided where most
memory is in use: those that free most bytes for each second that they take.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ruda.fusion.graph import Graph, Instruction, Value
from ruda.fusion.liveness import Given, Profile

# Bytes a second, and products a second of halves and of wider numbers; a launch, in seconds.
_RATES = {"cuda": (4e12, 5e14, 4e13), "cpu": (2e10, 1e11, 1e11)}
_LAUNCH = 3e-6
# How many operators one behind the other run again for one of them.
_DEPTHS = (0, 1, 2, 3, 5, 8)
_LEAST = 1 << 12


class Again(NamedTuple):
    """An operator that runs twice, the bytes that are free in between, and its predicted time."""

    instruction: Instruction
    freed: int
    seconds: float


class _Choice(NamedTuple):
    chain: tuple[Instruction, ...]
    before: int
    freed: int
    seconds: float


class Recompute:
    """``graph``, of which less is kept with each ``step``.

    Operators in ``last`` run behind all others, straight into state. The values ``wanted`` leave
    the graph; ``given`` says which operators write into the memory of an operand.
    """

    def __init__(
        self,
        graph: Graph,
        last: Iterable[Instruction],
        wanted: Iterable[Value],
        given: Given | None,
    ) -> None:
        self.graph, self.given = graph, given
        self.last, self.wanted = set(last), tuple(wanted)
        over = {v for i in self.last for v in i.outputs}
        self.kept = [v for v in self.wanted if v not in over]
        self.kept += [v for i in self.last for v in i.inputs]
        self.found: list[Again] = []
        self.family: dict[Value, list[Value]] = {}
        self.origin: dict[Value, Value] = {}
        self.refused: set[Any] = set()
        self.profile = self._profiled()

    def _profiled(self) -> Profile:
        order = [i for i in self.graph.instructions if i.plan is not None and i not in self.last]
        return Profile(order, self.kept, self.given)

    def step(self) -> bool:
        """Have one more operator run again where most is in use; whether there was one."""
        before = self.graph.instructions
        while (choice := self._best()) is not None:
            self._apply(choice)
            after = self._profiled()
            # Less at every step, so that there is a last one.
            if after.height < self.profile.height:
                self.profile = after
                self.found += [
                    Again(i, choice.freed if i is choice.chain[-1] else 0, seconds_of(i))
                    for i in choice.chain
                ]
                return True
            self.graph.instructions = before
            self.refused.add(self._key(choice))
        return False

    def _best(self) -> _Choice | None:
        top = self.profile.top
        makers = dict.fromkeys(
            self.profile.maker[m] for m in self.profile.uses if self._gap(m, top) is not None
        )
        found = (self._choice(i, depth, top) for i in makers for depth in _DEPTHS)
        able = [c for c in found if c is not None and self._key(c) not in self.refused]
        return max(able, key=lambda c: c.freed / c.seconds, default=None)

    @staticmethod
    def _key(choice: _Choice) -> Any:
        return tuple(map(id, choice.chain)), choice.before

    def _gap(self, memory: Value, top: int) -> int | None:
        """The next place behind ``top`` that reads ``memory``, if nobody does at ``top``."""
        profile = self.profile
        if memory in profile.kept or profile.begin(memory) >= top or memory.nbytes < _LEAST:
            return None
        uses = profile.uses[memory]
        if top in uses or uses[-1] < top or not _repeats(profile.maker[memory]):
            return None
        return next(i for i in uses if i > top)

    def _choice(self, instruction: Instruction, depth: int, top: int) -> _Choice | None:
        gaps = [self._gap(v, top) for v in instruction.outputs if v in self.profile.uses]
        before = min(i for i in gaps if i is not None)
        chain: dict[Instruction, None] = {}
        longer: dict[Value, None] = {}
        if not self._visit(instruction, before, depth, chain, longer):
            return None
        freed = sum(v.nbytes for i in chain for v in i.outputs if self._ends(v, top, before))
        freed -= sum(v.nbytes for v in longer if self.profile.end(v) < top)
        if freed < _LEAST:
            return None
        return _Choice(tuple(chain), before, freed, sum(map(seconds_of, chain)))

    def _ends(self, value: Value, top: int, before: int) -> bool:
        """Whether ``value`` is not in use at ``top`` once it is made again at ``before``."""
        if value not in self.profile.uses:
            return False
        following = self._gap(value, top)
        return following is not None and following >= before

    def _visit(
        self,
        instruction: Instruction,
        before: int,
        depth: int,
        chain: dict[Instruction, None],
        longer: dict[Value, None],
    ) -> bool:
        """Collect what runs again for ``instruction``, and what is kept longer for that."""
        if not _repeats(instruction):
            return False
        for memory in {v.memory: None for v in instruction.inputs if v.memory.kind == "result"}:
            found = self._member(memory, before)
            if found is not None and self.profile.end(found) >= before:
                continue
            maker = self.profile.maker.get(memory)
            if maker in chain:
                continue
            if depth and maker is not None and _repeats(maker):
                if not self._visit(maker, before, depth - 1, chain, longer):
                    return False
            elif found is None:
                return False
            else:
                longer[found] = None
        chain[instruction] = None
        return True

    def _member(self, memory: Value, before: int) -> Value | None:
        """What equals ``memory``, is made before a place, and is in use for longest."""
        profile = self.profile
        first = self.origin.get(memory, memory)
        able = [
            m
            for m in self.family.get(first, [first])
            if m in profile.maker and profile.begin(m) < before
        ]
        return max(able, key=profile.end, default=None)

    def _apply(self, choice: _Choice) -> None:
        """Put copies of the chain before their reader, and let later readers read these."""
        made: list[Instruction] = []
        inside: dict[Value, Value] = {}
        look = _Views(self.profile.maker, made, inside)
        for instruction in choice.chain:
            for memory in {v.memory for v in instruction.inputs if v.memory.kind == "result"}:
                found = self._member(memory, choice.before)
                if memory not in inside and found is not None and found is not memory:
                    inside[memory] = found
            copy = _copy(instruction, [look(v) for v in instruction.inputs])
            made.append(copy)
            for old, new in zip(instruction.outputs, copy.outputs, strict=True):
                inside[old] = new
                first = self.origin.setdefault(new, self.origin.get(old, old))
                self.family.setdefault(first, [first]).append(new)
        outputs = (v for i in choice.chain for v in i.outputs)
        self._insert(made, choice.before, {v: inside[v] for v in outputs})

    def _insert(self, made: Sequence[Instruction], before: int, moved: dict[Value, Value]) -> None:
        at, later = self.profile.order[before], set(self.profile.order[before:])
        out: list[Instruction] = []
        look = _Views(self.profile.maker, out, moved)
        for instruction in self.graph.instructions:
            if instruction is at:
                out += made
            reads = any(v.memory in moved for v in instruction.inputs)
            if instruction in later and reads and not instruction.plan.shares:
                inputs = [look(v) for v in instruction.inputs]
                instruction = _copy(instruction, inputs, instruction.outputs)
            out.append(instruction)
        self.graph.instructions = out
        # Views of what is not kept any more, which nobody reads.
        self.graph.prune(self.wanted)


class _Views:
    """What a value is in other memory: ``moved`` says which; views are made anew, into ``out``."""

    def __init__(
        self,
        maker: dict[Value, Instruction],
        out: list[Instruction],
        moved: dict[Value, Value],
    ) -> None:
        self.maker, self.out, self.moved = maker, out, moved
        self.known: dict[tuple[Value, Value], Value] = {}

    def __call__(self, value: Value) -> Value:
        """The value to read in place of ``value``."""
        memory = self.moved.get(value.memory)
        if memory is None or value is value.memory:
            return value if memory is None else memory
        found = self.known.get((value, memory))
        if found is None:
            view = self.maker[value]
            found = self.known[value, memory] = Value("result", value.spec, memory=memory)
            self.out.append(_copy(view, [self(v) for v in view.inputs], (found,)))
        return found


def _copy(
    instruction: Instruction, inputs: Sequence[Value], outputs: Sequence[Value] | None = None
) -> Instruction:
    """``instruction`` on other inputs, with results of its own unless these are given."""
    if outputs is None:
        outputs = [Value("result", v.spec) for v in instruction.outputs]
    return instruction.but(inputs=inputs, outputs=outputs)


def _repeats(instruction: Instruction) -> bool:
    """Whether a second run gives the same, to the last bit."""
    plan = instruction.plan
    if plan is None or plan.shares or plan.out is None:
        return False
    # Libraries add up gradients in any order, and no gradient of a product is read late.
    return not (plan.op.bound == "compute" and plan.op.name.endswith("_backward"))


def seconds_of(instruction: Instruction) -> float:
    """About how long an operator takes."""
    plan = instruction.plan
    specs = [v.spec for v in (*instruction.inputs, *instruction.outputs) if v.spec is not None]
    bandwidth, halves, wider = _RATES[specs[0].client.device.kind]
    steps = [s.plan for s in plan.steps] if plan.op.kind == "region" else [plan]
    products = sum(_products(p) for p in steps if p.op.bound == "compute")
    rate = halves if all(s.dtype.itemsize == 2 for s in plan.specs[:1]) else wider
    return _LAUNCH + sum(s.nbytes for s in specs) / bandwidth + products / rate


def _products(plan: Any) -> int:
    """How many products ``plan`` adds up, twice: those of each element of its first result."""
    out = plan.out[0] if plan.out.__class__ is tuple else plan.out
    if plan.op.name.startswith("attention"):
        return 4 * int(out.size) * int(plan.specs[1].shape[-2])
    second = plan.specs[1]
    shared = plan.specs[0].shape[-1] if second.ndim < 3 else second.size // second.shape[0]
    return 2 * int(out.size) * int(shared)


def summary(found: Sequence[Again]) -> list[str]:
    """What runs again, for people: operators by line, how often, what is free meanwhile."""
    rows: dict[tuple[str, str], list[Again]] = {}
    for one in found:
        rows.setdefault((one.instruction.op, str(one.instruction.line)), []).append(one)
    return [
        f"{op} (x{len(ones)}): {sum(o.freed for o in ones):,} bytes less at the peak, "
        f"about {sum(o.seconds for o in ones) * 1e6:.0f} us  # {line}"
        for (op, line), ones in rows.items()
    ]
