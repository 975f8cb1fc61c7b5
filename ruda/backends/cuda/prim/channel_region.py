"""Batch norm with elementwise steps around it: what goes on from its result, what makes dy.

Each step rounds to the dtype that its own result would have had in memory, so the whole gives what
its operators give one by one. Backward makes dy in the first pass; what others read of it is
written there, and the second pass reads dy again or makes it once more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ruda.backends.cuda.codegen_steps import argument, functions
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.channels import Around, Backward, Forward
from ruda.backends.cuda.prim.region import fuses, step_of
from ruda.backends.cuda.types import computed, stored
from ruda.core.dtypes import compute_of
from ruda.core.shapes import Shape

_FORWARD = "standard_norm"


class Facts(NamedTuple):
    """The shape of what is normalised, and the operands and results that steps may make or take.

    ``sees_relu``: backward there is a kernel that knows from x what relu lets through.
    """

    shape: Shape
    reads: tuple[int, ...]
    casts: tuple[int, ...]
    writes: tuple[int, ...]
    sees_relu: bool = True


def is_core(plan: Any) -> bool:
    """Whether ``plan`` is run by kernels over channels."""
    return hasattr(plan.run, "channels")


def facts(plan: Any) -> Facts:
    """What can be joined to ``plan``."""
    if plan.op.name == _FORWARD:
        return Facts(plan.specs[0].shape, (), (), (0,))
    return Facts(plan.specs[1].shape, (0,), (), ())


def takes(plan: Any, step: Any) -> bool:
    """Whether ``step`` is of elements in their own order, which the arithmetic holds exactly."""
    if not fuses(step):
        return False
    shape, wide = plan.specs[0].shape, compute_of(plan.specs[0].dtype)
    if any(s.weak or s.shape != shape or not s.contiguous for s in step.specs):
        return False
    kinds = [s.dtype for s in step.specs] + [*step_of(step, ()).computed, step.out.dtype]
    return all(d.kind == "bool" or (d.is_floating and d.itemsize <= wide.itemsize) for d in kinds)


class _Around:
    """The steps of a region, as text and by the places of what they read and write."""

    def __init__(self, region: Any) -> None:
        self.region = region
        self.core = next(k for k, s in enumerate(region.steps) if is_core(s.plan))
        step = region.steps[self.core]
        self.plan, self.sources, self.count = step.plan, step.sources, len(region.specs)
        self.starts, at = [], self.count
        for each in region.steps:
            self.starts.append(at)
            at += len(each.outs)
        self.first = self.starts[self.core]
        self.own = range(self.first, self.first + len(step.outs))
        self.step_at = {at: k for k, at in enumerate(self.starts) if k != self.core}
        self.wide = computed(compute_of(self.plan.specs[0].dtype))
        chosen = list(self.step_at.values())
        made = [step_of(region.steps[k].plan, region.steps[k].sources) for k in chosen]
        self.text, same = functions(made)
        self.made = {k: (s, same[j]) for j, (k, s) in enumerate(zip(chosen, made, strict=True))}
        read = {v for s in made for v in s.sources if v < self.count}
        self.read = sorted(read)
        self.kept = [self.count + k for k in region.kept]

    def written(self) -> list[int]:
        """The results of steps that leave the region."""
        return [v for v in self.kept if v in self.step_at]

    def reaches(self, value: int, goal: int) -> bool:
        """Whether ``value`` is ``goal`` or made from it."""
        k = self.step_at.get(value)
        if value == goal or k is None:
            return value == goal
        return any(self.reaches(v, goal) for v in self.region.steps[k].sources)

    def value(self, source: int, own: str) -> str:
        """An element of an operand, of a step's result, or of the result of the row itself."""
        if source < self.count:
            return f"p{source}[k]"
        return f"{own}[k]" if source == self.first else f"s{self.step_at[source]}[k]"

    def loads(self, pack: str) -> list[str]:
        """Operands of the steps as values."""
        wide = self.wide
        return [f"{wide} p{v}[VEC]; widened(p{v}, {pack.format(f'p{v}_raw')});" for v in self.read]

    def steps(self, own: str = "v") -> list[str]:
        """All steps in their order."""
        lines = []
        for k, (step, same) in self.made.items():
            pairs = zip(step.sources, step.computed, strict=True)
            call = ", ".join(argument(self.value(s, own), d) for s, d in pairs)
            lines.append(f"{self.wide} s{k}[VEC]; EACH s{k}[k] = to<T>(step{same}({call}));")
        return lines

    def operands(self, written: Sequence[int]) -> str:
        """The parameters of operands and results of the steps."""
        out = [
            f", {stored(self._spec(v).dtype)}* __restrict__ r{self.step_at[v]}_data"
            for v in written
        ]
        out += [
            f", const {stored(self.region.specs[v].dtype)}* __restrict__ p{v}_data"
            for v in self.read
        ]
        return "".join(out)

    def _spec(self, value: int) -> Any:
        return self.region.steps[self.step_at[value]].plan.out

    def ahead(self) -> str:
        """Reads of all packs of a chunk."""
        kinds = ((v, stored(self.region.specs[v].dtype)) for v in self.read)
        return " ".join(
            f"Pack<{kind}, VEC> p{v}_raw[STEPS]; read_chunk(p{v}_raw, p{v}_data, w, i, g);"
            for v, kind in kinds
        )

    def around(self, written: Sequence[int], **settings: str) -> Around:
        """What ``channels`` builds into a pass."""
        all_settings = {"OPERANDS": self.operands(written), "AHEAD": self.ahead(), **settings}
        digest = hashlib.sha256(repr((self.text, all_settings)).encode()).hexdigest()[:10]
        count = len(written) + len(self.read)
        return Around(digest, count, self.text + "\n", tuple(all_settings.items()))

    def dy(self) -> int:
        """Where the gradient of the row's result comes from."""
        return int(self.sources[0])


def _behind(parts: _Around, keeps: bool) -> Around:
    """The steps from ``y`` on, each rounded as it would have been in memory."""
    written = parts.written()
    kind = stored(parts.plan.specs[0].dtype)
    lines = parts.loads("{0}[j]")
    if kind != parts.wide:
        lines.append(f"EACH v[k] = to<T>(to<{kind}>(v[k]));")
    lines += parts.steps()
    lines += ["put(out + w.at, v);"] * keeps
    lines += [f"put(r{parts.step_at[v]}_data + w.at, s{parts.step_at[v]});" for v in written]
    return parts.around(written, STORE="{ " + " ".join(lines) + " }")


def _before(parts: _Around, written: Sequence[int]) -> Around:
    """The steps that make dy, for packs that are there; ``written`` are stored besides."""
    lines = [*parts.loads("{0}[j]"), *parts.steps()]
    number = parts.step_at[parts.dy()]
    lines += [f"put(r{parts.step_at[v]}_data + o.at, s{parts.step_at[v]});" for v in written]
    lines.append(f"EACH beside[j].at[k] = to<STORED>(s{number}[k]);")
    loop = (
        '{ Walk o = w; _Pragma("unroll") for (int j = 0; j < STEPS; ++j) { '
        "if (i + j * g.down >= g.total) break; " + " ".join(lines) + " o.step(g); } }"
    )
    return parts.around(written, BESIDE=loop)


def bind(client: Any, region: Any) -> Callable[..., tuple[Any, ...]]:
    """The function from the handles of a region's inputs to those of its results."""
    parts = _Around(region)
    if parts.plan.op.name == _FORWARD:
        # What is normalised, or a parameter, may come from a step: then one after the other.
        plain = all(v < parts.count for v in parts.sources)
        return _forward(client, parts) if plain else _one_by_one(parts)
    ends = all(parts.reaches(parts.dy(), v) for v in parts.step_at)
    plain = all(v < parts.count for v in parts.sources[1:]) and parts.dy() in parts.step_at
    return _backward(client, parts) if ends and plain else _one_by_one(parts)


def _forward(client: Any, parts: _Around) -> Callable[..., tuple[Any, ...]]:
    plan, at = parts.plan, parts.plan.run.channels
    keeps, written = parts.first in parts.kept, parts.written()
    kernel = Forward(client, plan, at, _behind(parts, keeps))
    specs = dict(zip(parts.kept, parts.region.out, strict=True))

    def run(*handles: Any) -> tuple[Any, ...]:
        made = {v: allocate(client.pool, spec) for v, spec in specs.items()}
        for v, spec in zip(parts.own[1:], plan.out[1:], strict=True):
            made.setdefault(v, allocate(client.pool, spec))
        around = [made[v].address for v in written] + [handles[v].address for v in parts.read]
        mean, var = (made[v].address for v in parts.own[1:])
        given = [handles[v] for v in parts.sources]
        kernel.run(made[parts.first].address if keeps else 0, mean, var, given, *around)
        return tuple([made[v] for v in parts.kept])

    return run


def _backward(client: Any, parts: _Around) -> Callable[..., tuple[Any, ...]]:
    plan, at = parts.plan, parts.plan.run.channels
    written, dy = parts.written(), parts.dy()
    again = dy not in written
    around = _before(parts, written), _before(parts, ()) if again else None
    kernel = Backward(client, plan, at, around)
    specs = dict(zip(parts.kept, parts.region.out, strict=True))

    def run(*handles: Any) -> tuple[Any, ...]:
        made = {v: allocate(client.pool, spec) for v, spec in specs.items()}
        for v, spec in zip(parts.own, plan.out, strict=True):
            made.setdefault(v, allocate(client.pool, spec))
        read = [handles[v].address for v in parts.read]
        one = [made[v].address for v in written] + read
        outs = [made[v].address for v in parts.own]
        given = [handles[v] for v in parts.sources[1:]]
        kernel.run(outs, 0 if again else made[dy].address, given, one, read if again else ())
        return tuple([made[v] for v in parts.kept])

    return run


def _one_by_one(parts: _Around) -> Callable[..., tuple[Any, ...]]:
    def run(*handles: Any) -> tuple[Any, ...]:
        values = list(handles)
        for step in parts.region.steps:
            made = step.plan.run(*[values[v] for v in step.sources])
            values += made if step.plan.out.__class__ is tuple else [made]
        return tuple([values[v] for v in parts.kept])

    return run
