"""Elements that are computed again where they are read, where that moves fewer bytes than a copy.

What a fused kernel writes for another fused kernel of the same shape alone is computed by that one
from what it reads anyway: a cast, a mask, a gate that backward asks for. Steps are taken over as
long as the memory that they read is not kept for longer than it saves.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, NamedTuple

from ruda.core.spec import Spec
from ruda.fusion.graph import Graph, Value
from ruda.fusion.region import Region, Step

# A kernel has few registers and 4 KiB of parameters, as for elementwise groups.
_MOST_STEPS, _MOST_INPUTS, _LONGEST = 40, 20, 8
# What one instruction does, on the CPU as well.
_CHEAP = (
    *("add", "subtract", "multiply", "negative", "abs", "relu", "maximum", "minimum", "where"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    *("logical_and", "logical_or", "logical_not"),
)


class _Whole(NamedTuple):
    """An elementwise instruction as a region: steps, and the spec of each input."""

    steps: tuple[Step, ...]
    specs: tuple[Spec, ...]
    kept: tuple[int, ...]


def recompute_elementwise(graph: Graph, wanted: Set[Value], client: Any) -> None:
    """Let elementwise instructions compute what other ones would write for them."""
    if not hasattr(client, "fuses"):
        return
    shown = {value.memory for value in wanted}
    work = _Chains(graph, shown, client)
    for value in [v for i in graph.instructions for v in i.outputs if v.memory is v]:
        if value not in shown:
            work.spread(value)
    graph.prune(wanted)


class _Chains:
    """The instructions of ``graph``, of which some are replaced one by one."""

    def __init__(self, graph: Graph, shown: Set[Value], client: Any) -> None:
        self.graph, self.shown, self.client = graph, shown, client
        self.place: dict[Value, int] = {}
        self.readers: dict[Value, set[int]] = {}
        # The last place that reads some memory.
        self.last: dict[Value, int] = {}
        for i, instruction in enumerate(graph.instructions):
            self.place.update((v, i) for v in instruction.outputs)
            for value in instruction.inputs:
                self._note(value, i)

    def _note(self, value: Value, place: int) -> None:
        self.readers.setdefault(value.memory, set()).add(place)
        self.last[value.memory] = max(self.last.get(value.memory, -1), place)

    def spread(self, value: Value) -> None:
        """Let the readers of ``value`` compute it, if that is less to read and write."""
        at = self.place[value]
        maker = self._whole(at)
        if maker is None or not (readers := self.readers.get(value)):
            return
        chain = self._chain(maker, self.graph.instructions[at].outputs.index(value))
        if chain is None:
            return
        leaves = self._leaves(at, maker, chain)
        able = [r for r in readers if self._gains(value, leaves, r, len(chain)) is not None]
        gains = sum(self._gains(value, leaves, r, len(chain)) or 0 for r in able)
        gains += value.moved if len(able) == len(readers) else 0
        held = sum(v.moved for v in leaves if self.last[v.memory] < max(able, default=0))
        whole = len(able) == len(readers)
        if not able or gains <= 0 or held > whole * value.moved:
            return
        for reader in able:
            self._take(value, at, maker, chain, reader)
        names = "+".join(maker.steps[k].plan.op.name for k in chain)
        self.graph.notes.append(f"{names}, for {len(able)} reader(s)  # {self._line(at)}")
        if whole:
            self._leave_out(value, at, maker)

    def _line(self, at: int) -> Any:
        return self.graph.instructions[at].line

    def _whole(self, at: int) -> _Whole | None:
        """The instruction at a place, if it is elementwise and of dense results."""
        instruction = self.graph.instructions[at]
        plan = instruction.plan
        if plan is None or plan.shares or plan.out is None:
            return None
        if plan.op.kind != "region":
            if plan.out.__class__ is tuple or not self.client.fuses(plan):
                return None
            own = Step(plan, tuple(range(len(plan.specs))))
            return _Whole((own,), plan.specs, (0,))
        shape = plan.out[0].shape
        fused = all(self.client.fuses(s.plan) and s.plan.out.shape == shape for s in plan.steps)
        return _Whole(plan.steps, plan.specs, plan.kept) if fused and not plan.paged else None

    def _chain(self, whole: _Whole, number: int) -> list[int] | None:
        """The steps that lead to a result, in order; None if one may not be taken over."""
        count, found, waiting = len(whole.specs), set[int](), [whole.kept[number]]
        while waiting:
            k = waiting.pop()
            if k in found:
                continue
            if not self._is_free(whole.steps[k].plan):
                return None
            found.add(k)
            waiting += [s - count for s in whole.steps[k].sources if s >= count]
        return sorted(found) if len(found) <= _LONGEST else None

    def _is_free(self, plan: Any) -> bool:
        """Whether a step costs next to nothing; in any kernel it rounds to the same bits."""
        op = plan.op
        if op.kind in ("cast", "copy") or op.name in _CHEAP:
            return True
        # On a GPU a formula takes less than a read; there is none on the CPU that does.
        return hasattr(self.client, "capture") and bool(
            op.expr is not None and not op.attrs and "draw" not in op.args
        )

    def _leaves(self, at: int, whole: _Whole, chain: Sequence[int]) -> list[Value]:
        inputs = self.graph.instructions[at].inputs
        used = (s for k in chain for s in whole.steps[k].sources if s < len(whole.specs))
        return [v for v in dict.fromkeys(inputs[s] for s in used) if v.spec is not None]

    def _gains(self, value: Value, leaves: Sequence[Value], reader: int, length: int) -> int | None:
        """The bytes that ``reader`` reads less; None if it cannot compute ``value``."""
        whole = self._whole(reader)
        inputs = self.graph.instructions[reader].inputs
        if whole is None or value not in inputs:
            return None
        if any(v.memory is value and v is not value for v in inputs):
            return None
        shape = whole.steps[0].plan.out.shape
        if value.spec is None or value.spec.shape != shape or not self._is_alone(inputs, leaves):
            return None
        more = [v for v in leaves if v not in inputs]
        if len(whole.steps) + length > _MOST_STEPS or len(inputs) + len(more) > _MOST_INPUTS:
            return None
        less = value.moved - sum(v.moved for v in more)
        return less if less >= 0 else None

    @staticmethod
    def _is_alone(inputs: Sequence[Value], leaves: Sequence[Value]) -> bool:
        """Whether leaves are read as they are, or not at all: no other view of their memory."""
        known = {v.memory: v for v in leaves}
        return all(known.get(v.memory, v) is v for v in inputs)

    def _take(
        self, value: Value, at: int, maker: _Whole, chain: Sequence[int], reader: int
    ) -> None:
        """Put the chain in front of the steps of ``reader``."""
        source, old = self.graph.instructions[at], self.graph.instructions[reader]
        whole = self._whole(reader)
        assert whole is not None
        given = _Inputs()
        # Python scalars of the chain, and other inputs, by step and by number.
        before = {
            (k, s): given(source.inputs[s], maker.specs[s])
            for k in chain
            for s in maker.steps[k].sources
            if s < len(maker.specs)
        }
        pairs = enumerate(zip(old.inputs, whole.specs, strict=True))
        behind = {i: given(v, spec) for i, (v, spec) in pairs if v is not value}
        count, first = len(given.values), len(maker.specs)
        places = {first + k: count + n for n, k in enumerate(chain)}
        steps = [
            Step(plan, tuple(before[k, s] if s < first else places[s] for s in sources))
            for k, (plan, sources) in ((k, maker.steps[k]) for k in chain)
        ]
        made = places[first + maker.kept[source.outputs.index(value)]]
        shift = count + len(chain) - len(whole.specs)
        behind |= {
            s: s + shift for s in range(len(whole.specs), len(whole.specs) + len(whole.steps))
        }
        steps += [
            Step(plan, tuple(behind.get(s, made) for s in sources)) for plan, sources in whole.steps
        ]
        kept = tuple(k + len(chain) for k in whole.kept)
        region = Region(steps, tuple(given.specs), kept)
        self._put(reader, region, given.values, old.outputs)
        self.readers[value].discard(reader)

    def _leave_out(self, value: Value, at: int, whole: _Whole) -> None:
        """Let nobody write ``value``."""
        old = self.graph.instructions[at]
        rest = [(k, v) for k, v in zip(whole.kept, old.outputs, strict=True) if v is not value]
        for memory in {v.memory for v in old.inputs}:
            self.readers[memory].discard(at)
        if rest:
            kept = tuple(k for k, _ in rest)
            self._put(at, Region(whole.steps, whole.specs, kept), old.inputs, [v for _, v in rest])

    def _put(
        self, at: int, region: Region, inputs: Sequence[Value], outputs: Sequence[Value]
    ) -> None:
        """Make ``region``, without steps for nothing, what is done at a place."""
        old = self.graph.instructions[at]
        region, inputs = _needed(region, inputs)
        region.run = self.client.bind_region(region)
        self.graph.instructions[at] = old.but(region, inputs=inputs, outputs=outputs)
        for value in inputs:
            self._note(value, at)


def _needed(region: Region, inputs: Sequence[Value]) -> tuple[Region, list[Value]]:
    """``region`` with the steps and inputs alone that its results come from."""
    count, used, waiting = len(region.specs), set[int](), list(region.kept)
    while waiting:
        k = waiting.pop()
        if k not in used:
            used.add(k)
            waiting += [s - count for s in region.steps[k].sources if s >= count]
    read = sorted({s for k in used for s in region.steps[k].sources if s < count})
    places = {s: n for n, s in enumerate(read)}
    steps: list[Step] = []
    known: dict[Any, int] = {}
    for k in sorted(used):
        plan, sources = region.steps[k]
        step = Step(plan, tuple(places[s] for s in sources))
        # What is there already is not computed once more.
        number = known.setdefault((id(plan), step.sources), len(steps))
        if number == len(steps):
            steps.append(step)
        places[count + k] = len(read) + number
    kept = tuple(places[count + k] - len(read) for k in region.kept)
    made = Region(steps, tuple(region.specs[s] for s in read), kept)
    return made, [inputs[s] for s in read]


class _Inputs:
    """The inputs of a region, each once; a Python scalar is one for each step that takes it."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.specs: list[Spec] = []
        self.known: dict[Value, int] = {}

    def __call__(self, value: Value, spec: Spec) -> int:
        """The number of ``value`` among them."""
        if value not in self.known or value.spec is None:
            self.known[value] = len(self.values)
            self.values.append(value)
            self.specs.append(spec)
        return self.known[value]
