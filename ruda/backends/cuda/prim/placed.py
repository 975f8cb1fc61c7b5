"""Attention whose results lie where a compiled step wants them, in the memory of a larger one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ruda.backends.cuda.dnn import attention as vendor
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim import attention_short
from ruda.core.moves import origins
from ruda.core.shapes import Shape, contiguous_strides
from ruda.core.spec import Spec, spec_of

_WRITERS: dict[str, Callable[..., Any]] = {
    "attention": attention_short.forward,
    "attention_backward": attention_short.backward,
}
_BY_VENDOR: dict[str, Callable[..., Any]] = {
    "attention": vendor.forward_into,
    "attention_backward": vendor.backward_into,
}


class _Place(NamedTuple):
    """The number of a result that leaves the region, and how another lies in its memory."""

    root: int
    strides: Shape
    offset: int


class _Plan(NamedTuple):
    """A plan whose results have strides."""

    op: Any
    specs: tuple[Spec, ...]
    attrs: tuple[Any, ...]
    out: tuple[Spec, ...]


def takes(client: Any, plan: Any) -> bool:
    """Whether the kernel of ``plan`` writes through strides."""
    if plan.op.name not in _WRITERS:
        return False
    return vendor.is_wanted(client, plan) or attention_short.fits(client, plan)


def is_placed(whole: Any) -> bool:
    """Whether a region is attention with what moves its results."""
    return whole.steps[0].plan.op.name in _WRITERS


def bind(client: Any, whole: Any) -> Callable[..., tuple[Any, ...]] | None:
    """The function that runs such a region; None where a page has what is no number of dropout."""
    first, count = whole.steps[0].plan, len(whole.specs)
    sources = whole.steps[0].sources
    if not {sources.index(i) for i in whole.paged} <= {len(sources) - 2, len(sources) - 1}:
        return None
    places = _places(whole, count)
    outs = [_Place(count + k, s.strides, 0) for k, s in enumerate(first.out)]
    outs = [places.get(out.root, out) for out in outs]
    specs = dict(enumerate((s for step in whole.steps for s in step.outs), count))
    targets = tuple(
        spec_of(client, s.shape, s.dtype, place.strides)
        for s, place in zip(first.out, outs, strict=True)
    )
    write = _writer(client, first, targets)
    roots = list(dict.fromkeys(place.root for place in outs))
    shifts = [(place.root, place.offset * specs[place.root].dtype.itemsize) for place in outs]
    left = [count + k for k in whole.kept]

    def run(*handles: Any) -> tuple[Any, ...]:
        made = {root: allocate(client.pool, specs[root]) for root in roots}
        addresses = [made[root].address + shift for root, shift in shifts]
        write(addresses, tuple([handles[i] for i in sources]))
        return tuple([made[number] for number in left])

    return run


def _places(whole: Any, count: int) -> dict[int, _Place]:
    """Where each result lies, by its number, from what leaves the region backwards."""
    outs = [spec for step in whole.steps for spec in step.outs]
    kept = [(count + k, outs[k]) for k in whole.kept]
    places = {n: _Place(n, contiguous_strides(spec.shape), 0) for n, spec in kept}
    number = count + len(outs)
    for step in reversed(whole.steps[1:]):
        number -= 1
        place = places[number]
        found = origins(step.plan, place.strides)
        assert found is not None, step.plan.op.name
        for source, (strides, offset) in zip(step.sources, found, strict=True):
            places[source] = _Place(place.root, strides, place.offset + offset)
    return places


def _writer(client: Any, plan: Any, targets: tuple[Spec, ...]) -> Callable[..., None]:
    """What writes the results of ``plan`` as ``targets`` to addresses."""
    placed = _Plan(plan.op, plan.specs, plan.attrs, targets)
    name = plan.op.name
    found = _BY_VENDOR[name](client, placed) or _WRITERS[name](client, placed)
    return found or _copying(client, plan, targets)


def _copying(client: Any, plan: Any, targets: tuple[Spec, ...]) -> Callable[..., None]:
    """The same where the library turns out to refuse: results of their own, copied."""
    run = client.bind_anew(plan)
    writers = [client.writer(target, spec) for target, spec in zip(targets, plan.out, strict=True)]

    def write(addresses: list[int], handles: tuple[Any, ...]) -> None:
        for copy, address, handle in zip(writers, addresses, run(*handles), strict=True):
            copy(address, handle)

    return write
