"""The calls of a group's step, kept ready from one step to the next.

Only the gradients are other tensors then; what a call follows from is compared, not computed anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ruda.tensor.batches import Batch, Overwrite, batch_of
from ruda.tensor.tensor import RudaTensor

# The gradient among the operands of a row that makes a step.
_GRADIENT = 1


class Made:
    """The batch of one group, and what it was made from."""

    __slots__ = ("batch", "masters", "params", "places", "settings")

    def __init__(self, group: Mapping[str, Any], grads: Sequence[Any], batch: Batch) -> None:
        self.params, self.settings = group["params"], _settings(group)
        self.places = [i for i, grad in enumerate(grads) if grad is not None]
        self.batch = batch
        self.masters: Sequence[tuple[RudaTensor, RudaTensor]] = ()

    def holds(self, group: Mapping[str, Any], grads: Sequence[Any]) -> bool:
        """Whether the calls for ``grads`` would be these, but for the gradients."""
        if self.params is not group["params"]:
            return False
        if [i for i, grad in enumerate(grads) if grad is not None] != self.places:
            return False
        if not self.batch.fits([grads[i] for i in self.places]):
            return False
        settings = _settings(group)
        return len(settings) == len(self.settings) and all(map(_same, settings, self.settings))

    def run(self, grads: Sequence[Any], scale: Any, keep: Any) -> bool:
        """Make the steps; half parameters then follow their masters."""
        self.batch.run([grads[i] for i in self.places], scale, keep)
        for p, master in self.masters:
            p.assign(master)  # type: ignore[attr-defined]
        return True


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
