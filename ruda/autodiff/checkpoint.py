"""Trading time for memory: run a function, forget what it saved, run it again in backward.

Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016. The nodes of the first run
stay on the tape, so closures over parameters and gradients of any order work as without it; only
their saved values are dropped, and come back from the twin nodes of a second run.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from ruda.core.errors import GradientError, VersionError
from ruda.core.mode import MODE, recording
from ruda.tensor.host import fresh_draw
from ruda.tensor.node import Node
from ruda.tensor.tensor import RudaTensor


def checkpoint(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """``fn(*args, **kwargs)``, whose intermediate values are computed again during backward.

    Random operators draw the same numbers in both runs, and assignments to outside tensors (running
    statistics) happen once. Backward raises ``GradientError`` if the second run takes other steps
    than the first, ``VersionError`` if what ``fn`` reads was changed in place in between.

    >>> x = ruda.tensor([1.0, 2.0], requires_grad=True)
    >>> ruda.checkpoint(lambda t: (t * t * t).sum(), x).backward()
    >>> x.grad.tolist()
    [3.0, 12.0]
    """
    mode = MODE.get()
    if not mode.grad:
        return fn(*args, **kwargs)
    first = _First(mode.recorder)
    fields = {"cast": mode.cast, "precision": mode.precision}
    with recording(True, **fields, recorder=first):
        out = fn(*args, **kwargs)
    run = _Run(fn, args, kwargs, fields, first)
    for node in first.nodes:
        node.free(run)
    return out


class _First:
    """Notes the nodes, draws and assignments of the first run."""

    def __init__(self, parent: Any) -> None:
        self.parent = parent
        # Inside of a second run, that is what it is a part of.
        self.turn = getattr(parent, "turn", None)
        self.nodes: list[Node] = []
        self.draws: list[int] = []
        self.targets: list[Any] = []

    def recorded(self, node: Node) -> None:
        self.nodes.append(node)

    def draw(self, generator: Any) -> int:
        parent = self.parent
        number: int = fresh_draw(generator) if parent is None else parent.draw(generator)
        self.draws.append(number)
        return number

    def skips(self, target: RudaTensor) -> bool:
        self.targets.append(weakref.ref(target.handle.root or target.handle))
        return self.parent is not None and bool(self.parent.skips(target))


class _Second:
    """Gives the second run the draws of the first, and withholds its assignments to the outside."""

    def __init__(self, draws: list[int], targets: list[Any]) -> None:
        # A compiled step tells it from the first run by that.
        self.turn = object()
        self.nodes: list[Node] = []
        self.draws = iter(draws)
        self.targets = iter(targets)

    def recorded(self, node: Node) -> None:
        self.nodes.append(node)

    def draw(self, generator: Any) -> int:
        number = next(self.draws, None)
        if number is None:
            raise _unlike("it draws more random numbers")
        return number

    def skips(self, target: RudaTensor) -> bool:
        # A tensor made inside the function has another handle in each run; an outside one has not.
        reference = next(self.targets, None)
        if reference is None:
            raise _unlike("it assigns more often")
        return reference() is (target.handle.root or target.handle)


class _Run:
    """What is needed to run the function again; the saved values of its nodes come from here."""

    def __init__(self, fn: Any, args: Any, kwargs: Any, mode: Any, first: _First) -> None:
        self.fn, self.args, self.kwargs, self.mode = fn, args, kwargs, mode
        self.draws, self.targets = first.draws, first.targets
        # By id and not by node: the nodes hold this object, and a cycle would outlive them.
        self.places = {id(node): i for i, node in enumerate(first.nodes)}
        self.twins: list[Node | None] | None = None

    def twin(self, node: Node) -> Node:
        """The node of the second run that stands where ``node`` stood in the first."""
        if self.twins is None:
            self.twins = self._run_again()
        twin = self.twins[self.places[id(node)]]
        if twin is None or twin.plan is not node.plan:
            raise _unlike(f"no {node.plan.op.name} where there was one")
        for name in ("vx", "vy", "vz", "vout"):
            if getattr(twin, name, None) != getattr(node, name, None):
                what = "a value that the checkpointed function reads was changed in place"
                hint = "changing it after backward"
                raise VersionError("checkpoint", what, node.plan.op.name, hint=hint)
        return twin

    def release(self, node: Node) -> None:
        """Drop the twin of ``node``, whose saved values have been used."""
        if self.twins is not None:
            self.twins[self.places[id(node)]] = None

    def _run_again(self) -> list[Node | None]:
        second = _Second(self.draws, self.targets)
        with recording(True, **self.mode, recorder=second):
            self.fn(*self.args, **self.kwargs)
        if len(second.nodes) != len(self.places):
            raise _unlike(f"{len(second.nodes)} operators after {len(self.places)}")
        return list(second.nodes)


def _unlike(what: str) -> GradientError:
    message = f"the second run of the function differs from the first: {what}"
    return GradientError("checkpoint", message, hint="a function of its arguments alone")
