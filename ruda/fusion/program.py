"""One signature of a compiled function: its trace, what that relies on, and how it is run."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, repeat
from operator import attrgetter, is_
from typing import Any

from ruda.core.devices import client as client_of
from ruda.core.errors import CaptureError
from ruda.core.mode import MODE, using
from ruda.fusion.graph import Value
from ruda.fusion.guards import Contents, Guard, Guards
from ruda.fusion.lint import Finding, changing, findings, frozen
from ruda.fusion.replay import Replay
from ruda.fusion.results import Results
from ruda.fusion.state import Argument, Gradient, Held, LeafOf, commit
from ruda.fusion.trace import Tracer
from ruda.fusion.tree import Given, rebuilt
from ruda.fusion.watch import Watch
from ruda.tensor.tensor import RudaTensor

_grad = attrgetter("grad")


class Program:
    """A traced function, valid while its guards hold."""

    def __init__(self, tracer: Tracer, results: Results, guards: Guards, given: Given) -> None:
        self.results, self.guards = results, guards
        self.client, self.graph = tracer.client, tracer.graph
        self.early_grads = tracer.early_values()
        self.everything = list(self.graph.instructions)
        self.wanted = results.values()
        self.graph.prune(self.wanted)
        self.replay = Replay(self.graph, self.wanted)
        # Where each change goes, its value, and how many assignments it sums up.
        self.writes = [(c.history[0].payload, v, c.version) for c, v in results.writes]
        self.grads = [LeafOf(leaf, tracer.argument_leaves.get(leaf)) for leaf, _ in results.grads]
        self.draws = list(tracer.draws.values())
        self.objects = given.objects
        self.findings: list[Finding] = []
        self._guard_leaves(tracer)
        self._guard_tensors(tracer, given)
        self._guard_memory(tracer, given)
        self._name_state()
        guards.settle(lambda handle: id(handle.root or handle) in tracer.cells.bases)
        results.forget()

    def _guard_leaves(self, tracer: Tracer) -> None:
        self.bare: list[Any] = []
        self.graded: list[tuple[Any, Any]] = []
        for leaf, grad in tracer.first_grads.items():
            guard = Guard("a hook of a leaf", getattr, leaf, "hooks", leaf.hooks)
            self.guards.plain.append(guard)
            if leaf.hooks:
                self.guards.contents.append(Contents("the hooks of a leaf", leaf.hooks))
            if grad is None:
                self.bare.append(leaf)
            else:
                source = tracer.cells.sources.get(id(grad.handle))
                if isinstance(source, Argument):
                    what = "a gradient is also an argument of the compiled step"
                    raise CaptureError("compile", what, hint="reading x.grad inside of the step")
                if not isinstance(source, Gradient):
                    self.guards.plain.append(Guard("a gradient", getattr, leaf, "grad", grad))
                self.graded.append((leaf, grad.spec))
        self.bare = [leaf for leaf in self.bare if leaf not in tracer.argument_leaves]
        self.graded = [(k, s) for k, s in self.graded if k not in tracer.argument_leaves]

    def _guard_tensors(self, tracer: Tracer, given: Given) -> None:
        """Tensors from outside keep handle and node; arguments that are state too are pinned."""
        known = {id(t): path for path, t in self.guards.tensors}
        self.pins: list[tuple[int, Any]] = []
        grads = {id(g) for g in tracer.first_grads.values() if g is not None}
        met = [(t, h, n) for ref, h, n in tracer.met.values() if (t := ref()) is not None]
        others = [t for t, _, _ in met if id(t) not in tracer.arguments and id(t) not in grads]
        roots = {id(t.handle.root or t.handle) for t in others}
        roots |= {id(t.handle.root or t.handle) for _, t in self.guards.tensors}
        for tensor, handle, node in met:
            if id(tensor) not in tracer.arguments and id(tensor) not in grads:
                path = known.get(id(tensor), "a tensor")
                self.guards.plain.append(Guard(path, getattr, tensor, "handle", handle))
                self.guards.plain.append(Guard(f"{path}.node", getattr, tensor, "node", node))
        for i, value in enumerate(given.leaves):
            if value.__class__ is RudaTensor:
                root = value.handle.root or value.handle
                if id(root) in roots:
                    self.pins.append((i, root))
        for identity, (generator, _) in tracer.draws.items():
            if identity not in tracer.seeds:
                guard = Guard("the seed", getattr, generator, "seed", generator.seed)
                self.guards.plain.append(guard)

    def _guard_memory(self, tracer: Tracer, given: Given) -> None:
        """What keeps a write from reaching memory that the trace took for separate."""
        cells, client = tracer.cells, self.client
        written = cells.changed()
        held = [c for c in cells.bases.values() if isinstance(c.history[0].payload, Held)]
        self.held = {id(cell.real) for cell in held}
        self.written = [client.extent(c.real) for c in written if c in held]
        self.reach = [client.extent(c.real) for c in held]
        self.writes_arguments = any(isinstance(source, Argument) for source, _, _ in self.writes)
        extent = client.extent
        for cell in written:
            for other in cells.bases.values():
                if other is not cell and _overlap(extent(cell.real), extent(other.real)):
                    what = "two tensors share memory that only NumPy knows of, and one is assigned"
                    hint = "views of one tensor, or copies"
                    raise CaptureError("compile", what, cell.spec, hint=hint)
        self.offsets = [
            (i, value.handle.offset, client.base(value.handle.root))
            for i, value in enumerate(given.leaves)
            if value.__class__ is RudaTensor
            and value.handle.root is not None
            and cells.bases.get(id(value.handle.root)) in written
        ]

    def _name_state(self) -> None:
        names: dict[int, str] = {}
        for path, tensor in self.guards.tensors:
            names.setdefault(id(tensor.handle), path)
            if tensor.node is not None:
                names.setdefault(id(tensor.node), f"gradient of {path}")
        for value in self.graph.inputs:
            source = value.payload
            if isinstance(source, Held):
                source.name = names.get(id(source.handle), source.name)
            elif isinstance(source, Gradient) and source.leaf.leaf is not None:
                source.name = names.get(id(source.leaf.leaf), source.name)

    def holds(self, given: Given) -> bool:
        """Whether this program is right for a call with the same key of arguments."""
        if not self.guards.hold():
            return False
        if not all(map(is_, map(_grad, self.bare), repeat(None))):
            return False
        for leaf, spec in self.graded:
            if leaf.grad is None or leaf.grad.spec is not spec:
                return False
        if not all((h := given.leaves[i].handle) is r or h.root is r for i, r in self.pins):
            return False
        return not self.writes or self._separate(given)

    def _separate(self, given: Given) -> bool:
        """Whether arguments and gradients share no memory with state, or with each other."""
        pinned = {id(root) for _, root in self.pins}
        free = [root for root in given.roots if id(root) not in pinned]
        grads = [leaf.grad.handle for leaf, _ in self.graded]
        grads = [handle for handle in grads if id(handle) not in self.held]
        found = {id(root) for root in free} | {id(handle) for handle in grads}
        if not found.isdisjoint(self.held) or len(found) != len({*map(id, free)}) + len(grads):
            return False
        client = self.client
        for i, offset, spec in self.offsets:
            handle = given.leaves[i].handle
            if handle.offset != offset or client.base(handle.root) is not spec:
                return False
        against = self.reach if self.writes_arguments else self.written
        extents = [client.extent(root) for root in free] if against else []
        return not any(_overlap(a, b) for a in extents for b in against)

    def failure(self, given: Given) -> str:
        """What does not hold, in words."""
        found = self.guards.failure()
        if found is not None:
            return found
        return "which gradients are None, or which tensors share memory"

    def lines(self) -> list[str]:
        """Sizes, operators, state and guards, for people."""
        guards = self.guards
        state = sorted({str(v.payload) for v in self.graph.inputs if v.kind == "state"})
        written = [f"{source} (x{n})" for source, _, n in self.writes]
        return [
            f"{len(self.graph.instructions)} operators",
            *(f"  {line}" for line in self.graph.lines()),
            f"state read: {', '.join(state) or 'none'}",
            f"written: {', '.join(written) or 'none'}",
            f"gradients set: {len(self.grads)}; random draws: {sum(n for _, n in self.draws)}",
            f"guards: {', '.join(guards.paths()) or 'arguments only'}",
        ]

    def leaf_tensors(self, given: Given) -> list[RudaTensor]:
        """The leaves whose gradients the step looks at, as tensors."""
        found = [t for t in given.leaves if t.__class__ is RudaTensor and t.is_leaf and t.node]
        held = [g.holder for g in self.guards.plain if g.name == "node"]
        return found + [t for t in held if t.node is not None and t.is_leaf]

    def run(self, given: Given) -> Any:
        """One replay: all operators, then the outputs, then one commit of all changes."""
        slots = self.replay.run(given)
        out, calls = self.finish(given, slots, self.replay.registers)
        commit(calls)
        return out

    def finish(self, given: Given, slots: list[Any], registers: dict[Value, int]) -> Any:
        """The outputs of a replay and the calls that commit it."""

        def look(value: Value) -> Any:
            register = registers.get(value)
            # A constant that nothing computes with has no register.
            return slots[register] if register is not None else value.payload

        out, grads = self.results.filled(given, look)
        changes = [(source.fetch(given), look(value), n) for source, value, n in self.writes]
        calls = self.client.writes(changes)
        for leaf, grad in zip(self.grads, grads, strict=True):
            calls.append((setattr, leaf.fetch(given), "grad", grad))
        for generator, used in self.draws:
            calls.append(generator.advancing(used))
        return out, calls


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def trace(fn: Callable[..., Any], given: Given, args: Any, kwargs: dict[str, Any]) -> Program:
    """Trace ``fn`` on the arguments of a call; all objects are afterwards as they were before."""
    tensors = [t for t in given.leaves if t.__class__ is RudaTensor]
    tracer = Tracer(tensors[0].spec.client if tensors else client_of(), given)
    guards = Guards()
    found: list[Finding] = []

    def enter(frame: Any, functions: Any) -> None:
        guards.enter(frame, functions)
        found.extend(f for f in findings(frame.f_code, frame.f_globals) if f not in found)

    try:
        guards.root(getattr(fn, "__qualname__", "the function"), fn)
        for path, value in given.objects:
            guards.root(path, value)
        inside = _with_scalars(tracer, args, kwargs)
        with using(MODE.get().but(tracer=tracer)), Watch(enter):
            results = Results(tracer, fn(*inside[0], **inside[1]))
            results.seal(given)
        tracer.put_back()
        _check_unchanged(tracer, guards, given, inside)
        program = Program(tracer, results, guards, given)
    except BaseException:
        tracer.put_back()
        guards.restore()
        raise
    program.findings = found + [
        frozen(name, path)
        for path, value in guards.changing
        if (name := changing(value)) is not None
    ]
    return program


def _with_scalars(tracer: Tracer, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The arguments with a traced float for each float, in new containers."""
    places = count()

    def change(leaf: Any) -> Any:
        if leaf.__class__ is RudaTensor or leaf.__class__ is float:
            return tracer.floats.get(next(places), leaf)
        return leaf

    inside = [rebuilt(value, change) for value in args]
    return inside, {name: rebuilt(kwargs[name], change) for name in sorted(kwargs)}


def _check_unchanged(tracer: Tracer, guards: Guards, given: Given, inside: Any) -> None:
    """Raise if the function has changed a Python object that it got or reached."""
    floats = {id(value): given.leaves[i] for i, value in tracer.floats.items()}
    args, kwargs = rebuilt(inside, lambda leaf: floats.get(id(leaf), leaf))
    again = Given(tuple(args), kwargs)
    leaves = zip(again.leaves, given.leaves, strict=False)
    path = guards.failure()
    if again.key != given.key or any(a is not b for a, b in leaves):
        path = "an argument"
    if path is not None:
        what = f"{path} is changed while tracing, which a replay would not do"
        hint = "a tensor that assign() updates, or returning the new value"
        raise CaptureError("compile", what, hint=hint)
