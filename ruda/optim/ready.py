"""The calls of a group's step, kept ready from one step to the next.

Only the gradients are other tensors then; what a call follows from is compared, not computed anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ruda.tensor.batches import Batch, Overwrite, batch_of, overwrite_each
from ruda.tensor.dispatch import OPS
from ruda.tensor.tensor import RudaTensor

# The gradient among the operands of a row that makes a step.
_GRADIENT = 1


class Made:
    """The batch of one group, and what it was made from."""

    __slots__ = ("batch", "masters", "params", "settings", "there")

    def __init__(self, group: Mapping[str, Any], grads: Sequence[Any], batch: Batch) -> None:
        self.params, self.settings = group["params"], _settings(group)
        self.there = [grad is not None for grad in grads]
        self.batch = batch
        self.masters: Sequence[tuple[RudaTensor, RudaTensor]] = ()

    def holds(self, group: Mapping[str, Any], grads: Sequence[Any]) -> bool:
        """Whether the calls for ``grads`` would be these, but for the gradients."""
        if self.params is not group["params"]:
            return False
        if [grad is not None for grad in grads] != self.there:
            return False
        if not self.batch.fits(self._given(grads)):
            return False
        settings = _settings(group)
        return len(settings) == len(self.settings) and all(map(_same, settings, self.settings))

    def _given(self, grads: Sequence[Any]) -> Sequence[Any]:
        return [g for g in grads if g is not None] if False in self.there else grads

    def run(self, grads: Sequence[Any], scale: Any, keep: Any) -> bool:
        """Make the steps; half parameters then follow their masters."""
        self.batch.run(self._given(grads), scale, keep)
        follow(self.masters)
        return True


def follow(pairs: Iterable[tuple[RudaTensor, RudaTensor]]) -> None:
    """Round the second of each pair into the first."""
    alike: dict[Any, list[tuple[RudaTensor, RudaTensor]]] = {}
    for pair in pairs:
        alike.setdefault(pair[0].spec.dtype, []).append(pair)
    for dtype, some in alike.items():
        targets, values = ([pair[i] for pair in some] for i in (0, 1))
        overwrite_each(OPS["astype"], targets, (values,), (dtype,))


class Ready:
    """What is ready for each group of an optimizer; a copy starts empty."""

    __slots__ = ("made",)

    def __init__(self) -> None:
        self.made: dict[int, Made] = {}

    def __reduce__(self) -> Any:
        return Ready, ()

    def find(self, number: int, group: Mapping[str, Any], grads: Sequence[Any]) -> Made | None:
        """What was made for the group, if it still holds in this mode."""
        made = self.made.get(number)
        return made if made is not None and made.holds(group, grads) else None

    def make(
        self,
        number: int,
        group: Mapping[str, Any],
        grads: Sequence[Any],
        calls: Sequence[Overwrite | None],
        masters: Sequence[tuple[RudaTensor, RudaTensor]],
    ) -> Made | None:
        """Make ``calls`` ready; None where they are not calls of one row, or no batch."""
        rows = [call for call in calls if call is not None]
        if len(rows) < len(calls) or len({call.op for call in rows}) != 1:
            return None
        batch = batch_of(rows, _GRADIENT)
        if batch is None:
            return None
        made = self.made[number] = Made(group, grads, batch)
        made.masters = masters
        return made


def _settings(group: Mapping[str, Any]) -> list[Any]:
    """The settings as they are now: a list can change in its place."""
    return [tuple(v) if v.__class__ is list else v for v in group.values()]


def _same(a: Any, b: Any) -> bool:
    return a is b or (a.__class__ is b.__class__ is not RudaTensor and bool(a == b))
