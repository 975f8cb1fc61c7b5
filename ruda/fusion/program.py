"""One signature of a compiled function: its trace, what that relies on, and how it is run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Set
from itertools import repeat
from operator import add, attrgetter
from typing import Any

from ruda.core.errors import CaptureError, OutOfMemoryError
from ruda.fusion.captured import Captured, Uncapturable
from ruda.fusion.commit import commit, uninterrupted
from ruda.fusion.copy_cost import copies_outweigh_launches
from ruda.fusion.graph import Graph, Value
from ruda.fusion.guard_builder import GuardBuilder
from ruda.fusion.lint import Finding
from ruda.fusion.memory import check_room
from ruda.fusion.passes import improve
from ruda.fusion.passes.recompute import Again, summary
from ruda.fusion.preconditions import Preconditions
from ruda.fusion.pytree import Given
from ruda.fusion.replay import Replay
from ruda.fusion.results import Results
from ruda.fusion.retries import Retries
from ruda.fusion.schedule import lower_peak
from ruda.fusion.segments import join
from ruda.fusion.sources import Gradient, Held, LeafOf
from ruda.fusion.state_names import readable, state_names
from ruda.fusion.tracer import Tracer
from ruda.fusion.updates import Updates, in_place
from ruda.fusion.zero_copy import ZeroCopy
from ruda.tensor.tensor import RudaTensor

_version = attrgetter("version")
_ONCE, _STEPWISE = "it has not run", "this device runs one operator after the other"
_CARRIED = "copies of its arguments and results would take longer than its launches"
# A graph is waited for as a whole, and could not tell which of its operators has failed.
_BLOCKING = "RUDA_LAUNCH_BLOCKING waits for each operator"


class Program:
    """A traced function, valid while its preconditions hold."""

    def __init__(
        self,
        tracer: Tracer,
        results: Results,
        builder: GuardBuilder,
        given: Given,
        bounded: bool,
    ) -> None:
        self.results, self.guards = results, builder.guards
        self.client, self.graph = tracer.client, tracer.graph
        self.early_grads = tracer.early_values()
        self.everything = list(self.graph.instructions)
        self.wanted, self.shown = results.values(), set(results.shown())
        self.graph.prune(self.wanted)
        improve(self.graph, self.wanted, self.client)
        lower_peak(self.graph, self.wanted)
        self._take_writes(results)
        # What a device whose faults come late counts runs with.
        self.runs = self.client.counted() if hasattr(self.client, "counted") else None
        self.bind()
        self.grads = [LeafOf(leaf, tracer.argument_leaves.get(leaf)) for leaf, _ in results.grads]
        self.draws = list(tracer.draws.values())
        # The key of the arguments has their ids, which must stay their own.
        self.objects = given.objects
        self.findings: list[Finding] = []
        # The whole step as the device repeats it, from the second run on where it can.
        self.captured: Captured | None = None
        self.stepwise: str | None = _ONCE if hasattr(self.client, "capture") else _STEPWISE
        if getattr(self.client, "blocking", False):
            self.stepwise = _BLOCKING
        self.retries = Retries()
        self.preconditions = Preconditions(tracer, builder.guards, given, builder.tensors)
        self.zero_copy = ZeroCopy(bool(self.preconditions.pins))
        self._name_state(builder)
        results.forget()
        # Whether the step has a budget of memory, what runs again for its sake, and whether it does
        # without a second branch.
        self.bounded = bounded
        self.again: list[Again] = []
        self.frugal = False

    def _take_writes(self, results: Results) -> None:
        # Where each change goes, its value, and how many assignments it sums up.
        self.writes = [(c.history[0].payload, v, c.version) for c, v in results.writes]
        held = [(s.handle, v, n) for s, v, n in self.writes if isinstance(s, Held)]
        self.inside = {v for _, v, _ in held}
        self.outside = [write for write in self.writes if not isinstance(write[0], Held)]
        self.shown |= {v for _, v, _ in self.outside}
        # State that a graph overwrites itself, and by how much its versions go up.
        # Those of base handles: of a view it would be Python code that counts.
        self.counted = [h if h.root is None else h.root for h, _, _ in held], [n for *_, n in held]

    def bind(self) -> None:
        """Make what runs the graph as it is now."""
        self.replay, self.updates = self._replay()
        # Whether its operators are kept in order with other streams; None: nor are lines told yet.
        self._ordered: bool | None = None

    def _with_lines(self, ordered: bool) -> Replay:
        """The steps one by one, each known by its line to profilers and to faults.

        With ``ordered`` each waits for the streams that made its operands.
        """
        inner, client = Graph(), self.client
        inner.inputs = self.graph.inputs
        for i in self.graph.instructions:
            if i.plan is not None:
                run = client.ranged(i, i.run, self.runs)
                i = i.but(run=client.watched(i.plan, run) if ordered else run)
            inner.instructions.append(i)
        return Replay(inner, self.wanted)

    def _name_state(self, builder: GuardBuilder) -> None:
        called = state_names(builder.tensors, builder.objects)
        names: dict[int, str] = {}
        self.leaf_names: dict[int, str] = {}
        for _, tensor in builder.tensors:
            name = called[id(tensor)]
            names.setdefault(id(tensor.handle), name)
            names.setdefault(id(tensor.handle.root or tensor.handle), name)
            if tensor.node is not None:
                names.setdefault(id(tensor.node), f"gradient of {name}")
                self.leaf_names.setdefault(id(tensor.node), name)
        for value in self.graph.inputs:
            source = value.payload
            if isinstance(source, Held):
                source.name = names.get(id(source.handle), source.name)
            elif isinstance(source, Gradient):
                source.name = names.get(id(source.leaf.leaf), source.name)

    def _replay(self) -> tuple[Replay, Updates | None]:
        """The steps one by one, and what runs last of all, straight into state.

        A device that captures the step goes this way with a step alone that cannot be captured.
        """
        if hasattr(self.client, "capture"):
            return Replay(self.graph, self.wanted), None
        held = [(s.handle, v) for s, v, _ in self.writes if isinstance(s, Held)]
        found = in_place(self.client, self.graph, self.wanted, held)
        updates = Updates(self.client, found, held)
        inner = Graph()
        inner.inputs = self.graph.inputs
        kept = [v for v in self.wanted if v not in updates.overwritten]
        kept += updates.inputs
        rest = [i for i in self.graph.instructions if i not in found]
        inner.instructions = join(self.client, rest, kept)
        return Replay(inner, kept), updates

    def lines(self) -> list[str]:
        """Operators, state and guards, for people."""
        state = sorted({str(v.payload) for v in self.graph.inputs if v.kind == "state"})
        written = [f"{source} (x{n})" for source, _, n in self.writes]
        alone = f"operator by operator: {self.stepwise}{self.replay.joined()}{self.retries.words()}"
        whole = "as one graph" if self.captured else alone
        guards = dict.fromkeys(map(readable, self.guards.paths()))
        return [
            f"{len(self.graph.instructions)} operators, replayed {whole}",
            *(f"  {line}" for line in self.graph.lines()),
            f"state read: {', '.join(state) or 'none'}",
            f"written: {', '.join(written) or 'none'}",
            *(f"recomputed: {line}" for line in (*self.graph.notes, *summary(self.again))),
            f"gradients set: {len(self.grads)}; random draws: {sum(n for _, n in self.draws)}",
            f"guards: {', '.join(guards) or 'arguments only'}",
        ]

    @property
    def has_run(self) -> bool:
        """Whether there was a call."""
        return self.stepwise != _ONCE

    def leaf_tensors(self, given: Given) -> list[RudaTensor]:
        """The leaves whose gradients the step looks at, as tensors."""
        found = [t for t in given.leaves if t.__class__ is RudaTensor]
        found += [guard.holder for guard in self.guards.plain if guard.name == "node"]
        return [t for t in found if t.node is not None and t.is_leaf]

    def run(self, given: Given) -> tuple[Any, Captured | None]:
        """One replay: all operators, then the outputs, then one commit of all changes.

        What comes back is the result, and the step on fixed places that has run, if one has.
        """
        if self.bounded and hasattr(self.client, "exact"):
            with self.client.exact():
                return self._run(given)
        return self._run(given)

    def _run(self, given: Given) -> tuple[Any, Captured | None]:
        whole = self._whole()
        if whole is not None:
            whole = self.zero_copy.choose(self, whole, given)
            out = self.replayed(whole, given)
            self._capture(whole)
            return out, whole
        ordered = getattr(self.client, "guarded", None)
        if ordered is not None and (self._ordered is None or ordered > self._ordered):
            self.replay, self._ordered = self._with_lines(ordered), ordered
        look = looker(self._stepped(given), self.replay.registers)
        inside = self.updates.overwritten if self.updates is not None else set()
        out, calls = self.finish(given, look, inside)
        if self.updates is None or not self.updates.instructions:
            commit(calls)
        else:
            with uninterrupted():
                self.updates.run(look)
                commit(calls)
        return out, None

    def uncommitted(
        self, given: Given, restore: Callable[[], None]
    ) -> tuple[Any, list[tuple[Any, Any]]]:
        """As ``run`` without the commit: the outputs, and each target with its new value's handle.

        Kernels may have overwritten state, which the caller has copies of; ``restore`` puts it back
        between two runs, where a graph is made of a step that has not run.
        """
        if self.bounded and hasattr(self.client, "exact"):
            with self.client.exact():
                return self._uncommitted(given, restore)
        return self._uncommitted(given, restore)

    def _uncommitted(
        self, given: Given, restore: Callable[[], None]
    ) -> tuple[Any, list[tuple[Any, Any]]]:
        whole = self._whole()
        if whole is not None and whole.graph is None:
            whole.run(given)
            restore()
            self._capture(whole)
            whole = self.captured
        if whole is not None:
            look, inside = whole.run(given), self.inside
            out, _ = self.finish(given, look, inside)
        else:
            look = looker(self._stepped(given), self.replay.registers)
            inside = self.updates.overwritten if self.updates is not None else set()
            out, _ = self.finish(given, look, inside)
            if self.updates is not None:
                self.updates.run(look)
        places = [(source.fetch(given), value) for source, value, _ in self.writes]
        return out, [(target, target if v in inside else look(v)) for target, v in places]

    def _stepped(self, given: Given) -> list[Any]:
        """The registers of a run of the steps one by one."""
        runs = self.runs
        if runs is None:
            return self.replay.run(given)
        runs.begun += 1
        if runs.told:
            runs.begin()
        try:
            return self.replay.run(given)
        finally:
            if runs.told:
                runs.end(self.client.now.stream)

    def replayed(self, whole: Captured, given: Given) -> Any:
        """One run of ``whole``, this step on fixed places: the outputs, once all is committed."""
        if whole.graph is None:
            return self._first(whole, given)
        out, calls = self.finish(given, whole.run(given), self.inside)
        commit(calls)
        return out

    def _first(self, whole: Captured, given: Given) -> Any:
        """As ``replayed``, operator by operator.

        Some of them overwrite state where it lies, long before the rest is committed: an interrupt
        from the keyboard is heard behind that, and want of memory that can be foreseen before it.
        """
        if whole.over and whole is self.captured:
            check_room(self)
        with uninterrupted():
            out, calls = self.finish(given, whole.run(given), self.inside)
            commit(calls)
        return out

    def _whole(self) -> Captured | None:
        """The step on fixed places, as state lies where it lies for good; None if it cannot be."""
        again = self.stepwise not in (None, _ONCE)
        if again and not self.retries.due(self):
            return None
        if self.captured is None:
            try:
                self.captured = self.on_places()
            except Uncapturable as error:
                self.stepwise = str(error)
            except OutOfMemoryError as error:
                if not again:
                    raise
                self._fail(error)
        return self.captured

    def on_places(self, rehearsed: bool = False, zero_copy: Given | None = None) -> Captured:
        """The step on fixed places; as ``Captured`` says of ``rehearsed`` and ``zero_copy``."""
        if not (self.bounded or self.writes) and copies_outweigh_launches(self.graph, self.wanted):
            raise Uncapturable(_CARRIED)
        writes = [(s.handle, v) for s, v, _ in self.writes if isinstance(s, Held)]
        given = self.graph, self.wanted, self.shown, writes
        return Captured(self.client, *given, rehearsed, self.frugal, zero_copy, self.runs)

    def _capture(self, whole: Captured) -> None:
        """Make the graph of a step that has run once."""
        if whole.graph is not None:
            return
        self.stepwise = None
        try:
            whole.capture()
        except (CaptureError, OutOfMemoryError) as error:
            if whole is not self.captured:
                self.zero_copy.drop()
                return
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """The step is no graph, or not yet."""
        self.captured, self.stepwise = None, str(error).rstrip(".")
        self.retries.failed(error, tuple(self.client.driver.errors))

    def finish(
        self, given: Given, look: Callable[[Value], Any], inside: Set[Value] = frozenset()
    ) -> Any:
        """The outputs of a replay and the calls that commit it.

        Of the values in ``inside`` the versions of their targets are left to count.
        """
        out, grads = self.results.filled(given, look)
        calls: list[tuple[Any, ...]] = []
        changes = []
        counted = inside is self.inside
        if counted:
            # One call that runs no Python code, so an interrupt comes before all of it or behind.
            targets, counts = self.counted
            versions = map(add, map(_version, targets), counts)
            calls.append((deque, map(setattr, targets, repeat("version"), versions), 0))
        for source, value, times in self.writes if not counted else self.outside:
            target = source.fetch(given)
            if value in inside:
                calls.append((setattr, target, "version", target.version + times))
            else:
                changes.append((target, look(value), times))
        calls += self.client.writes(changes)
        for leaf, grad in zip(self.grads, grads, strict=True):
            calls.append((setattr, leaf.fetch(given), "grad", grad))
        for generator, used in self.draws:
            calls.append(generator.advancing(used))
        return out, calls


def looker(slots: list[Any], registers: dict[Value, int]) -> Callable[[Value], Any]:
    """What finds values in the registers of a replay."""

    def look(value: Value) -> Any:
        register = registers.get(value)
        # A constant that nothing computes with has no register.
        return slots[register] if register is not None else value.payload

    return look
