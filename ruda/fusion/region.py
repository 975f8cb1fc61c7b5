"""A region of a graph: operators that a client runs as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ruda.core.spec import Spec


class Step(NamedTuple):
    """One operator of a region: its plan, and where its operands come from.

    A source is the place of an input of the region or, counted on from those, of the result of an
    earlier step; a step with several results has a place for each.
    """

    plan: Any
    sources: tuple[int, ...]

    @property
    def outs(self) -> tuple[Spec, ...]:
        """The specs of its results."""
        out = self.plan.out
        return out if out.__class__ is tuple else (out,)


class Row(NamedTuple):
    """What stands in an instruction for the row of the table."""

    name: str
    kind: str = "region"
    bound: str = "memory"


class Region:
    """What takes the place of a plan: ``specs`` in, ``out`` for the results listed in ``kept``.

    Scalars at the places in ``paged`` are read from memory, as double or int64.
    """

    __slots__ = ("attrs", "kept", "op", "out", "paged", "run", "shares", "specs", "steps")

    def __init__(
        self,
        steps: Sequence[Step],
        specs: tuple[Spec, ...],
        kept: tuple[int, ...],
        paged: tuple[int, ...] = (),
    ) -> None:
        self.paged = paged
        self.steps = tuple(steps)
        self.specs = specs
        self.kept = kept
        outs = [spec for step in self.steps for spec in step.outs]
        self.out = tuple(outs[k] for k in kept)
        self.op = Row("+".join(step.plan.op.name for step in self.steps))
        self.attrs: tuple[Any, ...] = ()
        self.shares = False
        self.run: Any = None
