"""A region of a graph: operators that a client runs as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ruda.core.spec import Spec


class Step(NamedTuple):
    """One operator of a region: its plan, and where its operands come from.

    A source is the place of an input of the region, or of an earlier step counted on from those.
    """

    plan: Any
    sources: tuple[int, ...]


class Row(NamedTuple):
    """What stands in an instruction for the row of the table."""

    name: str
    kind: str = "region"


class Region:
    """What takes the place of a plan: ``specs`` in, ``out`` for the steps listed in ``kept``.

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
        self.out = tuple(self.steps[k].plan.out for k in kept)
        self.op = Row("+".join(step.plan.op.name for step in self.steps))
        self.attrs: tuple[Any, ...] = ()
        self.shares = False
        self.run: Any = None
