"""The preconditions of a program besides guards on Python values: gradients, handles, aliasing.

A trace takes different handles for different memory, so a call whose arguments or gradients alias
state needs a program of its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from typing import Any

from ruda.core.devices import choice
from ruda.core.devices import client as client_of
from ruda.core.errors import CaptureError
from ruda.fusion.compiled_guards import compiled_check
from ruda.fusion.guards import Contents, Guard, Guards
from ruda.fusion.pytree import Given
from ruda.fusion.sources import Argument, Gradient, Held, LeafOf
from ruda.fusion.tracer import Tracer
from ruda.tensor.determinism import is_deterministic
from ruda.tensor.tensor import RudaTensor

Named = list[tuple[str, RudaTensor]]


def defaults() -> tuple[Any, ...]:
    """What values without a device or dtype get, and whether kernels add in one order."""
    client = client_of()
    return client, client.defaults.floating, client.defaults.integer, is_deterministic()


class Preconditions:
    """Made at the end of a trace; adds its guards on handles, nodes and hooks to ``guards``."""

    def __init__(self, tracer: Tracer, guards: Guards, given: Given, tensors: Named) -> None:
        self.client = tracer.client
        self.guards = guards
        self.defaults, self._choice = defaults(), choice()
        gradients = self._take_leaves(tracer)
        self._take_tensors(tracer, given, tensors, gradients)
        self._take_memory(tracer, given)
        # The guards in one function, from the second call on.
        self._check: Callable[[], bool] | None = None
        guards.settle(lambda handle: id(handle.root or handle) in tracer.cells.bases)

    def _take_leaves(self, tracer: Tracer) -> list[tuple[Gradient, Any]]:
        """Which leaves have a gradient when the call begins, and of which spec."""
        self.bare: list[Any] = []
        self.graded: list[tuple[Any, Any]] = []
        # The gradients that the trace looked at, with their handles.
        found: list[tuple[Gradient, Any]] = []
        for leaf, grad in tracer.first_grads.items():
            if leaf in tracer.inner:
                continue
            self.guards.plain.append(Guard("a hook of a leaf", getattr, leaf, "hooks", leaf.hooks))
            if leaf.hooks:
                self.guards.contents.append(Contents("the hooks of a leaf", leaf.hooks))
            if grad is not None:
                found.append((self._take_gradient(tracer, leaf, grad), grad.handle))
            elif leaf not in tracer.argument_leaves:
                self.bare.append(leaf)
        return found

    def _take_gradient(self, tracer: Tracer, leaf: Any, grad: RudaTensor) -> Gradient:
        source = tracer.cells.sources.get(id(grad.handle))
        if isinstance(source, Argument):
            what = "a gradient is also an argument of the compiled step"
            raise CaptureError("compile", what, hint="reading x.grad inside of the step")
        if not isinstance(source, Gradient):
            self.guards.plain.append(Guard("a gradient", getattr, leaf, "grad", grad))
        place = tracer.argument_leaves.get(leaf)
        if place is None:
            self.graded.append((leaf, grad.spec))
        return Gradient(LeafOf(leaf, place))

    def _take_tensors(
        self, tracer: Tracer, given: Given, tensors: Named, gradients: list[tuple[Gradient, Any]]
    ) -> None:
        """Tensors from outside keep handle and node; arguments that are state too are pinned."""
        names = {id(tensor): path for path, tensor in tensors}
        grads = {id(g) for g in tracer.first_grads.values() if g is not None}
        own = grads | tracer.arguments.keys()
        met = [(t, h, n) for ref, h, n in tracer.met.values() if (t := ref()) is not None]
        met = [(t, h, n) for t, h, n in met if id(t) not in own]
        for tensor, handle, node in met:
            path = names.get(id(tensor), "a tensor")
            self.guards.plain.append(Guard(path, getattr, tensor, "handle", handle))
            self.guards.plain.append(Guard(f"{path}.node", getattr, tensor, "node", node))
        others = [t for t, _, _ in met] + [t for _, t in tensors]
        roots = {id(t.handle.root or t.handle) for t in others}
        given_too = [
            (i, value.handle)
            for i, value in enumerate(given.leaves)
            if value.__class__ is RudaTensor and id(value.handle.root or value.handle) in roots
        ]
        self.pins = [(i, h if h.root is None else h.root) for i, h in given_too]
        known = {id(t.handle) for t in others}
        known |= {k for k, source in tracer.cells.sources.items() if isinstance(source, Held)}
        self._take_twins(given_too, gradients, known)
        for identity, (generator, _) in tracer.draws.items():
            if identity not in tracer.seeds:
                seed = Guard("the seed of a generator", getattr, generator, "seed", generator.seed)
                self.guards.plain.append(seed)

    def _take_twins(
        self,
        arguments: list[tuple[int, Any]],
        gradients: list[tuple[Gradient, Any]],
        known: set[int],
    ) -> None:
        """Note the handles that have two roles, such as an argument that is also state.

        They have to be the same at each call. ``known`` are the handles of state.
        """
        self.twins: list[tuple[Argument | Gradient, Any]] = [
            (Argument(i, ""), h) for i, h in arguments if id(h) in known
        ]
        count = Counter(id(handle) for _, handle in gradients)
        # Leaves whose gradient is nothing else, and stays so.
        self.alone: list[LeafOf] = []
        for gradient, h in gradients:
            if h.root is not None or id(h) in known or count[id(h)] > 1:
                self.twins.append((gradient, h))
            else:
                self.alone.append(gradient.leaf)

    def _take_memory(self, tracer: Tracer, given: Given) -> None:
        """Where state lies, and what of it is written."""
        cells, client = tracer.cells, self.client
        changed = cells.changed()
        held = [c for c in cells.bases.values() if isinstance(c.history[0].payload, Held)]
        self.held = {id(cell.real) for cell in held}
        self.held |= {id(h) for source, h in self.twins if isinstance(source, Gradient)}
        self.writes = bool(changed)
        written = [client.extent(c.real) for c in held if c.version]
        # An argument that is only read may show state that is only read.
        on_arguments = any(isinstance(c.history[0].payload, Argument) for c in changed)
        self.against = _merged([client.extent(c.real) for c in held] if on_arguments else written)
        places = [(*client.extent(c.real), c.version > 0) for c in cells.bases.values()]
        if changed and _collide(sorted(places)):
            what = "two tensors share memory that only NumPy knows of, and one is assigned"
            raise CaptureError("compile", what, hint="views of one tensor, or copies")
        self.offsets = [
            (i, value.handle.offset, client.base(value.handle.root))
            for i, value in enumerate(given.leaves)
            if value.__class__ is RudaTensor
            and value.handle.root is not None
            and (
                cells.bases.get(id(value.handle.root)) in changed
                or id(value.handle.root) in tracer.placed
            )
        ]

    @property
    def simple(self) -> bool:
        """Whether arguments at the addresses of a call that was right are right again."""
        return not (self.graded or self.pins or self.offsets or self.twins)

    def holds(self, given: Given) -> bool:
        """Whether a program is right for a call with the same key of arguments."""
        if not self.unchanged():
            return False
        for leaf, spec in self.graded:
            if leaf.grad is None or leaf.grad.spec is not spec:
                return False
        if not all((h := given.leaves[i].handle) is r or h.root is r for i, r in self.pins):
            return False
        if self.twins and not all(source.fetch(given) is h for source, h in self.twins):
            return False
        if self.offsets and not self._placed(given):
            return False
        return not self.writes or self._apart(given)

    def unchanged(self) -> bool:
        """Whether all that does not depend on the arguments of a call still holds."""
        if not self._guarded():
            return False
        client, floating, integer, ordered = self.defaults
        if choice() != self._choice:
            return defaults() == self.defaults
        own = client.defaults
        kept = own.floating is floating and own.integer is integer
        return kept and is_deterministic() is ordered

    def _guarded(self) -> bool:
        """Whether the guards hold, and leaves without a gradient still have none."""
        if self._check is None:
            self._check = compiled_check(self.guards, self.bare)
        try:
            if self._check():
                return True
        except (AttributeError, LookupError, ValueError):
            # What is looked for is not there any more.
            return False
        return self.guards.hold() and not any(leaf.grad is not None for leaf in self.bare)

    def _apart(self, given: Given) -> bool:
        """Whether arguments and gradients share no memory with state, or with each other."""
        pinned = {id(root) for _, root in self.pins}
        free = [root for root in given.roots if id(root) not in pinned] if pinned else given.roots
        if self.alone:
            leaves = given.leaves
            nodes = [a.leaf if a.index is None else leaves[a.index].node for a in self.alone]
            grads = [id(h.root or h) for h in [node.grad.handle for node in nodes]]
            # State that is an argument as well is not among what is held.
            apart = {*grads}.isdisjoint(map(id, given.roots)) and self.held.isdisjoint(grads)
            if not apart or len({*grads}) != len(grads):
                return False
        if not self.held.isdisjoint(map(id, free)):
            return False
        extent = self.client.extent
        return not (self.against[0] and any(self._meets(*extent(root)) for root in free))

    def _placed(self, given: Given) -> bool:
        """Whether views begin where they began in the trace, as far as that matters."""
        for i, offset, spec in self.offsets:
            handle = given.leaves[i].handle
            if handle.root is None or handle.offset != offset:
                return False
            if self.client.base(handle.root) is not spec:
                return False
        return True

    def _meets(self, start: int, stop: int) -> bool:
        """Whether memory from ``start`` to ``stop`` is that of state that must be apart."""
        starts, ends = self.against
        before = bisect_left(starts, stop)
        return before > 0 and ends[before - 1] > start

    def failure(self) -> str:
        """What does not hold, in words."""
        found = self.guards.failure()
        if found is not None:
            return found
        if defaults() != self.defaults:
            return "the default device or dtypes, or ruda.deterministic"
        return "which gradients are None, or which tensors share memory"


def _merged(places: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """The starts of stretches of memory in order, and for each the furthest end up to there."""
    places = sorted(places)
    return [start for start, _ in places], list(accumulate((stop for _, stop in places), max))


def _collide(places: list[tuple[int, int, bool]]) -> bool:
    """Whether a written stretch of memory meets another; ``places`` are sorted by start."""
    end = written_end = 0
    for start, stop, written in places:
        if start < (end if written else written_end):
            return True
        end = max(end, stop)
        written_end = max(written_end, stop) if written else written_end
    return False
