"""How much memory a compiled step needs, before it has run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ruda.core.errors import ArgumentError, OutOfMemoryError, RudaError
from ruda.core.spec import Spec, spec_of
from ruda.fusion.captured import Uncapturable
from ruda.fusion.pytree import Given, rebuilt
from ruda.fusion.report import amount
from ruda.fusion.schedule import live_bytes
from ruda.fusion.sources import Held
from ruda.ops.create import empty
from ruda.tensor.tensor import RudaTensor, wrap

# A first run takes less than so many times its live bytes, and so much more.
_ROUGHLY, _ROOM = 2, 256 << 20


class Memory(NamedTuple):
    """Bytes that one signature of a compiled step needs.

    ``state`` is what it reads or writes besides its arguments: parameters, moments, statistics.
    ``arguments`` are the copies of its arguments that a graph reads, ``outputs`` what a call
    returns. ``intermediates`` is all between, laid out for the whole step; ``unplanned`` is what
    these would take if nothing were used twice. ``peak`` is the most in use at a time on the
    device while the step runs, what others hold now included. ``exact`` says that the device was
    asked for each block; otherwise scratch memory inside of operators is not counted.
    """

    peak: int
    state: int
    arguments: int
    intermediates: int
    unplanned: int
    outputs: int
    exact: bool

    def __str__(self) -> str:
        lines = [f"peak {amount(self.peak)}{'' if self.exact else ', without scratch memory'}"]
        parts = {
            "state": self.state,
            "copies of arguments": self.arguments,
            "intermediates": self.intermediates,
            "intermediates, each in its own place": self.unplanned,
            "outputs": self.outputs,
        }
        return "\n".join([*lines, *(f"  {name}: {amount(n)}" for name, n in parts.items())])


def memory_of(program: Any, arguments: int = 0) -> Memory:
    """What ``program`` needs; ``arguments`` are bytes of arguments that are not there yet."""
    state = {id(s.handle.root or s.handle): _bytes(program, s) for s in _held(program)}
    made = [v for i in program.graph.instructions for v in i.outputs if v.memory is v and v.spec]
    unplanned = sum(v.spec.nbytes for v in made if v.spec is not None)
    whole = program.captured
    if whole is not None and whole.graph is not None:
        outs = [v.spec for v in whole.returned]
        found = program.client.footprint_now(whole.graph, [s for _, s, _ in whole.arguments], outs)
    else:
        found = _rehearsed(program)
    if found is not None:
        peak = found.now + found.slots + max(found.first, found.piece + found.outputs)
        inner = (found.slots, found.piece, unplanned, found.outputs)
        return Memory(peak + arguments, sum(state.values()), *inner, True)
    now = getattr(getattr(program.client, "pool", None), "used", None)
    live = live_bytes(program.graph, program.wanted, program.updates)
    outputs = sum(v.spec.nbytes for v in set(program.wanted) if v.spec and v.memory is v)
    given = sum(s.spec.nbytes for s in program.graph.inputs if s.kind == "argument" and s.spec)
    held = sum(state.values()) + given if now is None else now
    return Memory(held + live + arguments, sum(state.values()), 0, live, unplanned, outputs, False)


def _held(program: Any) -> list[Held]:
    sources = [v.payload for v in program.graph.inputs] + [s for s, _, _ in program.writes]
    return [s for s in sources if isinstance(s, Held)]


def _bytes(program: Any, source: Held) -> int:
    return program.client.base(source.handle.root or source.handle).nbytes  # type: ignore[no-any-return]


def _rehearsed(program: Any) -> Any:
    """What the device says of a run that does not happen; None where it cannot be asked."""
    if not hasattr(program.client, "rehearse"):
        return None
    program.client.settled()
    try:
        whole = program.on_places(rehearsed=True)
        log, _ = whole.rehearse()
    except (Uncapturable, RudaError, *program.client.driver.errors):
        # A library that cannot be rehearsed: shapes have to do.
        return None
    if not log.sizes:
        # A pool that asks the driver for each block tells nobody of them.
        return None
    slots, outs = [s for _, s, _ in whole.arguments], [v.spec for v in whole.returned]
    return program.client.footprint(log, slots, outs)


def check_room(program: Any) -> None:
    """Raise ``OutOfMemoryError`` if a first run, operator by operator, cannot have what it needs.

    It is asked where operators write into state on the way, which nothing would take back.
    """
    client = program.client
    free = client.available()
    # With so much room there is no need to look closely. A foreign allocator has memory elsewhere.
    enough = _ROUGHLY * live_bytes(program.graph, program.wanted) + _ROOM <= free
    if enough or client.pool.source is not client.driver:
        return
    found = _rehearsed(program)
    if found is not None and found.first > free:
        what = "the first call would run out of memory behind its first writes into state"
        got = f"{found.first:,} bytes needed beside what is in use, {free:,} free"
        raise OutOfMemoryError("compile", what, got, hint="a smaller batch, or memory=")


def largest(
    budget: int, args: Any, kwargs: Any, axis: int, trace: Callable[[Given, Any, Any], Any]
) -> int:
    """The most rows along ``axis`` with which a step stays within ``budget`` bytes; 0 for none."""
    first = next((t for t in Given(args, kwargs).leaves if t.__class__ is RudaTensor), None)
    if first is None or not first.ndim:
        raise ArgumentError("largest_batch", "no argument is a tensor with axes")
    rows = first.shape[axis]

    def peak(count: int) -> int:
        def resized(leaf: Any) -> Any:
            if leaf.__class__ is not RudaTensor or leaf.ndim == 0 or leaf.shape[axis] != rows:
                return leaf
            shape = list(leaf.shape)
            shape[axis] = count
            return _unplaced(leaf, tuple(shape))

        own = [rebuilt(value, resized) for value in args]
        named = {name: rebuilt(value, resized) for name, value in kwargs.items()}
        given = Given(tuple(own), named)
        more = sum(t.spec.nbytes for t in given.leaves if t.__class__ is RudaTensor)
        less = sum(t.spec.nbytes for t in Given(args, kwargs).leaves if t.__class__ is RudaTensor)
        return memory_of(trace(given, own, named), more - less).peak

    return _most(peak, budget, rows)


def _unplaced(like: RudaTensor, shape: tuple[int, ...]) -> RudaTensor:
    """A tensor of ``shape`` with no memory of the device behind it."""
    client = like.spec.client
    spec: Spec = spec_of(client, shape, like.dtype)
    if hasattr(client, "unplaced"):
        return wrap(spec, client.unplaced(spec))
    # The system gives pages to what is written alone.
    return empty(shape, dtype=like.dtype, device=client.device)


def _most(peak: Callable[[int], int], budget: int, start: int) -> int:
    """A count whose peak is within ``budget`` while that of one more is not; 0 for none.

    Peaks go up in stairs, as pools give memory in pieces: every second guess is the middle, so that
    a line that leads to the edge of a stair is not followed by single steps.
    """
    lowest = peak(1)
    if lowest > budget:
        return 0
    fits, fails, count, halve = (1, lowest), None, max(start, 2), False
    while fails is None or fails[0] - fits[0] > 1:
        found = count, peak(count)
        fits, fails = (found, fails) if found[1] <= budget else (fits, found)
        if fails is None:
            slope = max((fits[1] - lowest) / (fits[0] - 1), 1e-9)
            guess = int(fits[0] + min((budget - fits[1]) / slope, 7 * fits[0]))
            count = max(guess, fits[0] + fits[0] // 16 + 1)
            continue
        gap = fails[0] - fits[0]
        share = 0.5 if halve else (budget - fits[1]) / (fails[1] - fits[1])
        count = fits[0] + min(max(int(share * gap), 1), gap - 1)
        halve = not halve
    return fits[0]
