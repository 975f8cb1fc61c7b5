"""A traced step on fixed places, which a device repeats by itself: on CUDA as a graph.

Everything that differs between calls lies at fixed places: arguments are copied into slots, Python
scalars into a page, state stays where it is and is overwritten at the end. What leaves the step is
copied out, so that the next replay may overwrite it. The first run queues operator by operator what
the graph will hold, and shows for how long each piece of memory is in use; the graph's memory is
laid out by that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from contextlib import nullcontext
from typing import Any

from ruda.fusion.branches import branch
from ruda.fusion.donations import donations
from ruda.fusion.flops import operations
from ruda.fusion.graph import Graph, Instruction, Value
from ruda.fusion.inplace_writes import inplace_writes
from ruda.fusion.pytree import Given
from ruda.fusion.replay import Replay
from ruda.fusion.sources import Held
from ruda.fusion.updates import Updates, in_place


class Uncapturable(Exception):
    """The step has to be replayed operator by operator; the text says why."""


class Notes:
    """Which kernels each operator has queued while it was captured; None: what ends the step."""

    def __init__(self) -> None:
        self.at: Instruction | None = None
        self.clock: Any = None
        self.found: dict[Instruction | None, list[Any]] = {}

    def add(self, launcher: Any) -> None:
        """One more kernel of the operator at hand."""
        self.found.setdefault(self.at, []).append(launcher)

    def telling(self, instruction: Instruction, run: Callable[..., Any]) -> Callable[..., Any]:
        """``run``, which says whose it is before it begins."""

        def told(*handles: Any) -> Any:
            self.at, clock = instruction, self.clock
            if clock is None:
                return run(*handles)
            clock.begin(instruction)
            out = run(*handles)
            clock.end()
            return out

        return told


class Captured:
    """``graph`` on fixed places. ``writes`` are pairs of a handle of state and its next value.

    The values ``wanted`` are kept to its end; those among them that are ``shown`` leave it.

    With ``rehearsed`` there is no memory behind arguments, and operators are bound for this object
    alone: it can tell what it would need, and cannot run. A ``frugal`` one has no second branch,
    since that would keep operands for longer.

    With ``zero_copy``, the arguments of a call, these are read where they lie, and only calls whose
    arguments lie there as well can be served. ``runs`` counts the runs of the step.
    """

    def __init__(
        self,
        client: Any,
        graph: Graph,
        wanted: Sequence[Value],
        shown: Set[Value],
        writes: Sequence[tuple[Any, Value]],
        rehearsed: bool = False,
        frugal: bool = False,
        zero_copy: Given | None = None,
        runs: Any = None,
    ) -> None:
        self.client, self.rehearsed, self.frugal = client, rehearsed, frugal
        self.runs = runs
        self.zero_copy = zero_copy
        self.graph: Any = None
        # A graph that never runs at the same time, whose memory this one works in.
        self.home: Any = None
        self.notes = Notes()
        self.log: Any = None
        lines = [i.line for i in graph.instructions if i.plan is not None]
        self.title = f"the compiled step that begins at {lines[0]}" if lines else "a compiled step"
        self.calculations = [i for i in graph.instructions if i.plan is None]
        self.fixed: dict[Value, Value] = {}
        self.arguments: list[tuple[Any, Any, Any]] = []
        # What copies an argument to its slot, and the slot's address, and the argument; and those
        # that one launch brings together with the page.
        self.copies: list[tuple[Callable[..., None], int, Any]] = []
        self.together: list[Any] = []
        self.inlet: Any = None
        # By operator, once they are measured, and the bytes that a copy moves in a second.
        self.times: dict[Instruction, float] = {}
        self.bandwidth: float | None = None
        # Operations of products in a second at most, by dtype, where that is known.
        self.rates: dict[Any, float | None] = {}
        with client.collected() as launchers:
            self.inside = self._build(graph, wanted, writes)
        if not rehearsed and client.lacks_kernels([i.plan for i in self.inside], launchers):
            client.compile_all(launchers, lambda: self._rehearsed(graph, wanted, shown, writes))
        self.zero_copy = None
        made = {v for v in self.kept if v.spec is not None and v in shown}
        self.leaving = made | {v.memory for v in made}
        # Those of them with memory of their own.
        self.returned = [v for v in self.leaving if v.kind == "result" and v.memory is v]
        self.static: dict[Value, Any] = {}

    def _rehearsed(
        self,
        graph: Graph,
        wanted: Sequence[Value],
        shown: Set[Value],
        writes: Sequence[tuple[Any, Value]],
    ) -> list[Any]:
        there = Captured(self.client, graph, wanted, shown, writes, True, self.frugal)
        return there.rehearse()[1]

    def _build(
        self, graph: Graph, wanted: Sequence[Value], writes: Sequence[tuple[Any, Value]]
    ) -> list[Instruction]:
        """Bind everything to its place; returns the operators that run one after the other."""
        client = self.client
        self._place_scalars(graph)
        self._place_inputs(graph)
        found = in_place(client, graph, wanted, writes)
        # Kept, as its kernels look at tables of addresses that are its own.
        self.updates = Updates(client, found, writes, self._paged_update)
        self.over = inplace_writes(client, graph, wanted, writes)
        inner = Graph()
        inside = [i for i in graph.instructions if i.plan is not None and i not in found]
        self.rest = [(t, v) for t, v in writes if v not in self.updates.overwritten]
        self.kept = [v for v in wanted if v not in self.updates.overwritten]
        needed = [*self.kept, *(v for _, v in self.rest), *self.updates.inputs]
        # A view that leaves the step is copied out with all of the memory that it shows.
        needed += [v.memory for v in self.kept]
        aside = {} if self.frugal else branch(inside)
        self.given = donations(client, inside, needed)
        inner.instructions = [self._fixed(i, aside.get(i)) for i in inside]
        # Kept as well: its operators own memory that their captured kernels work in.
        self.replay = Replay(inner, [self.fixed.get(v, v) for v in needed])
        for _, value in self.rest:
            client.writer(value.spec, value.spec)
        small = [(slot, f) for slot, s, f in self.arguments if client.brings(s)]
        self.inlet = client.inlet([slot for slot, _ in small], self.page)
        self.together = [] if self.inlet is None else [f for _, f in small]
        rest = [a for a in self.arguments if self.inlet is None or not client.brings(a[1])]
        self.copies = [(client.writer(s, s), slot.address, f) for slot, s, f in rest]
        return inside

    def _place_scalars(self, graph: Graph) -> None:
        """A place in the page for each scalar that an operator takes."""
        given = [v for v in graph.inputs if v.kind == "scalar"]
        known = {*given, *(i.outputs[0] for i in self.calculations)}
        used = (v for i in graph.instructions if i.plan is not None for v in i.inputs)
        self.numbers = [v for v in dict.fromkeys(used) if v in known]
        self.page: Any = None
        if self.numbers:
            self.page = self.client.page(len(self.numbers))
            for value, slot in zip(self.numbers, self.page.slots, strict=True):
                self.fixed[value] = Value("constant", None, slot)
        self.scalars = given

    def _place_inputs(self, graph: Graph) -> None:
        place = self.client.unplaced if self.rehearsed else self.client.slot
        for value in graph.inputs:
            source = value.payload
            if value.kind == "scalar":
                continue
            if isinstance(source, Held):
                self.fixed[value] = Value("constant", value.spec, source.handle)
                continue
            if self.zero_copy is not None:
                at = self.client.beheld(source.fetch(self.zero_copy), value.spec)
                self.fixed[value] = Value("constant", value.spec, at)
                continue
            slot = place(value.spec)
            self.arguments.append((slot, value.spec, source))
            self.fixed[value] = Value("constant", value.spec, slot)

    def _fixed(self, instruction: Instruction, aside: int | None) -> Instruction:
        """``instruction`` on the fixed places, reading its scalars from the page."""
        places = self._places(instruction)
        run = instruction.run
        if places:
            run = self.client.paged(instruction.plan, places)
            if run is None:
                raise Uncapturable(f"{instruction.op} takes a number that changes by value")
        elif self.rehearsed:
            run = self.client.bind_anew(instruction.plan)
        settle = getattr(run, "settle", None)
        if settle is not None:
            # What a first run would decide is decided before there is a capture.
            settle()
        if instruction in self.over and not places:
            run = self.client.over(instruction.plan, run, self.over[instruction])
        else:
            run = self.client.watched(instruction.plan, run)
            if instruction in self.given and aside is None:
                run = self.client.donating(run, self.given[instruction])
        if aside is not None:
            run = self.client.beside(self.client.lagging(run), aside)
        run = self.notes.telling(instruction, self.client.ranged(instruction, run, self.runs))
        inputs = [self.fixed.get(v, v) for v in instruction.inputs]
        return instruction.but(run=run, inputs=inputs)

    def _places(self, instruction: Instruction) -> tuple[int, ...]:
        return tuple(i for i, v in enumerate(instruction.inputs) if v in self.numbers)

    def _paged_update(self, instruction: Instruction) -> Any:
        """The plan of an optimizer's step that reads its changing scalars from the page."""
        places = self._places(instruction)
        if not places:
            return instruction.plan
        plan = self.client.paged_update(instruction.plan, places)
        if plan is None:
            raise Uncapturable(f"{instruction.op} takes a number that changes by value")
        return plan

    def _look(self, slots: list[Any], value: Value) -> Any:
        value = self.fixed.get(value, value)
        register = self.replay.registers.get(value)
        return value.payload if register is None else slots[register]

    def _operators(self) -> list[Any]:
        if self.page is not None:
            self.page.declare()
        return self.replay.run(None)  # type: ignore[arg-type]

    def _ends(self, slots: list[Any]) -> None:
        """Overwrite state."""
        self.notes.at = None
        # Before the plain writes: a state that an update reads may be the target of one.
        self.updates.run(lambda value: self._look(slots, value))
        for target, value in self.rest:
            found = self._look(slots, value)
            if found is not target:
                self.client.write(target.spec, target, value.spec, found)

    def _queue(self) -> list[Any]:
        slots = self._operators()
        self._ends(slots)
        return slots

    def rehearse(self) -> tuple[Any, list[Any]]:
        """A log of the memory that the first run takes, and its launchers; nothing runs."""
        rooms: dict[Value, Any] = {}

        def queue() -> None:
            slots = self._operators()
            rooms.update(self._rooms())
            self._ends(slots)
            for value, room in rooms.items():
                self.client.carry(self._look(slots, value), room)

        found: tuple[Any, list[Any]] = self.client.rehearse(queue)
        return found

    def _rooms(self) -> dict[Value, Any]:
        """Memory for what leaves the step, to be taken before state is overwritten.

        Should there be none left, nothing has happened yet.
        """
        return {value: self.client.room(value.spec) for value in self.returned}

    def capture(self) -> None:
        """Make the graph, in memory that is laid out as the first run went."""
        plan = None if self.log is None else self.client.layout(self.log)
        with self.client.spied(self.notes.add):
            self.graph, slots = self.client.capture(self._queue, plan, self.home)
        self.log = self.home = None
        self.static = {v: self._look(slots, v) for v in self.leaving}

    def measure(self, rounds: int = 3) -> None:
        """Time each operator on what the places hold from the last call; state stays as it is."""
        client = self.client
        # State that operators write into on their way, and what it holds.
        targets = {id(target): target for target in self.over.values()}.values()
        kept = [(t, client.base(t), client.copied(t, client.base(t))) for t in targets]
        try:
            for _ in range(rounds):
                self._time()
        finally:
            for target, spec, copy in kept:
                client.write(spec, target, spec, copy)

    def _time(self) -> None:
        clock = self.notes.clock = self.client.clock(len(self.inside))
        try:
            self._operators()
        finally:
            self.notes.clock = None
        times, bandwidth = clock.finish()
        kinds = {i.plan.specs[0].dtype for i in times if operations(i.plan)}
        self.rates = {dtype: clock.operations(dtype) for dtype in kinds}
        self.times = {i: min(t, self.times.get(i, t)) for i, t in times.items()}
        self.bandwidth = max(bandwidth, self.bandwidth or 0.0)

    def run(self, given: Given) -> Callable[[Value], Any]:
        """One run; returns what finds the values that leave it."""
        client = self.client
        numbers = self._numbers(given)
        page = [numbers[v] for v in self.numbers]
        if client.guarded:
            for slot, spec, source in self.arguments:
                client.write(spec, slot, spec, source.fetch(given))
        else:
            # One stream, and memory that is nobody else's: there is nothing more to look at.
            for write, address, source in self.copies:
                write(address, source.fetch(given))
        if self.inlet is not None and not client.guarded:
            brought = [source.fetch(given).address for source in self.together]
            self.inlet.bring(brought, self.page.bits(page) if page else ())
        elif self.page is not None:
            self.page.store(page)
        made: dict[Value, Any] = {}
        runs = self.runs
        runs.begun += 1
        if runs.told:
            runs.begin()
        try:
            if self.graph is None:
                self._run_once(given, made)
            else:
                made = self._rooms()
                self.graph.replay()
                self._carry(made)
                # An error of the device that shows later names what was queued last.
                client.driver.recent.append(self.title)
        finally:
            if runs.told:
                runs.end(client.now.stream)

        def look(value: Value) -> Any:
            if value.spec is None:
                return numbers.get(value, value.payload)
            return self._outside(value, given, made)

        return look

    def _run_once(self, given: Given, made: dict[Value, Any]) -> None:
        """Operator by operator; fills ``made``, and logs the memory that was used."""
        client = self.client
        client.check_open("a compiled step runs for the first time")
        with client.logged() as self.log:
            # Not in the memory of that graph.
            rooms = {} if self.home is None else self._rooms()
            with nullcontext() if self.home is None else client.inside(self.home):
                slots = self._operators()
                made.update(rooms or self._rooms())
                self._ends(slots)
            self.static = {v: self._look(slots, v) for v in self.leaving}
            self._carry(made)
            for value in self.leaving:
                self._outside(value, given, made)
            self.static.clear()
            slots.clear()

    def _carry(self, rooms: dict[Value, Any]) -> None:
        """Copy what leaves the step to where no replay overwrites it."""
        for value, room in rooms.items():
            self.client.carry(self.static[value], room)

    def _numbers(self, given: Given) -> dict[Value, Any]:
        numbers = {value: value.payload.fetch(given) for value in self.scalars}
        for calculation in self.calculations:
            operands = (numbers.get(v, v.payload) for v in calculation.inputs)
            numbers[calculation.outputs[0]] = calculation.run(*operands)
        return numbers

    def _outside(self, value: Value, given: Given, made: dict[Value, Any]) -> Any:
        """A handle of ``value`` that no replay overwrites."""
        found = made.get(value)
        if found is not None:
            return found
        if value.kind == "constant":
            return value.payload
        if value.kind != "result":
            found = value.payload.fetch(given)
        else:
            root = self._outside(value.memory, given, made)
            shown, base = self.static[value], self.static[value.memory]
            found = self.client.shown(root, value.spec, shown, base)
        made[value] = found
        return found
