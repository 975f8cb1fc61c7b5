"""The protocols between the layers: what a client, a handle and a tracer promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ruda.core.devices import Device
    from ruda.core.dtypes import Defaults
    from ruda.core.spec import Spec


class Handle(Protocol):
    """Memory of one tensor as its client sees it.

    ``root`` is None for a base handle and the base handle for a view. ``version`` counts in-place
    changes of the base; ``views`` lists the recorded views of a base, weakly, or is None.
    """

    version: int
    root: Any


class Client(Protocol):
    """One device: it owns memory, and turns an operator with given specs into a plan's ``run``.

    ``precisions`` names, per setting of ``ruda.precision``, the faster values it has kernels for;
    ``ordered_prices``, per operator whose fastest kernel adds in any order, what the one costs that
    ``ruda.deterministic`` selects.
    """

    device: Device
    defaults: Defaults
    precisions: Mapping[str, tuple[Any, ...]]

    @property
    def ordered_prices(self) -> Mapping[str, str]: ...

    def obstacle(self, op: Any) -> str | None:
        """Why no plan of ``op`` runs here, or None."""
        ...

    def lack(
        self, op: str, strategy: str, specs: tuple[Spec, ...], attrs: tuple[Any, ...]
    ) -> str | None:
        """Why ``strategy`` of an operator with strategies cannot run ``specs`` here, or None."""
        ...

    def bind(self, plan: Any) -> Callable[..., Any]:
        """A function from input handles to the output handle (or handles)."""
        ...

    def read(self, spec: Spec, handle: Any) -> Any:
        """The values as an ndarray that must not be written to."""
        ...

    def adopt(self, array: Any) -> tuple[Any, Any]:
        """Strides in elements and a base handle over an ndarray, shared where the client can."""
        ...

    def view(self, handle: Any, spec: Spec, offset: int) -> Any:
        """``handle`` shown as ``spec`` from ``offset`` elements on; raises if that leaves it."""
        ...

    def alias(self, handle: Any) -> Any:
        """A view handle of all of ``handle``."""
        ...

    def write(self, spec: Spec, handle: Any, value_spec: Spec, value: Any) -> None:
        """Overwrite what ``spec`` shows of ``handle`` with ``value``; a weak one is the scalar."""
        ...

    def update(self, plan: Any, handles: Sequence[Any]) -> None:
        """Run ``plan`` with its first operand in place of the output; writes what changes alone."""
        ...

    def update_all(self, plan: Any, handles: Sequence[Any], targets: Sequence[Any]) -> None:
        """Run ``plan`` so that its outputs overwrite ``targets``, which may be operands."""
        ...

    def bind_many(self, plans: Sequence[Any]) -> Callable[..., None] | None:
        """``run(handles, targets)`` of all ``plans`` of a row, or None: ``update_all`` in turn.

        Each plan's outputs overwrite its own targets, which may be operands of that plan alone. A
        client need not have this. ``run.settled(handles, targets, place)``, if it is there, binds
        all but the operands at ``place``: a function of these, a scale of theirs and a condition.
        """
        ...

    def base(self, handle: Any) -> Spec:
        """The spec of all the memory of a base handle."""
        ...

    def extent(self, handle: Any) -> tuple[int, int]:
        """The addresses between which the elements of ``handle`` lie, the end excluded."""
        ...

    def writes(self, changes: Sequence[tuple[Any, Any, int]]) -> list[tuple[Any, ...]]:
        """The calls ``f(*rest)`` that store each (target, value, count) and count the version up.

        They are C functions, so that one C loop over them cannot be interrupted between two.
        Raises ``ArgumentError`` when a target cannot be written to.
        """
        ...

    def address(self, handle: Any) -> int:
        """Where the first element lies in the device's memory, in bytes."""
        ...

    def synchronize(self) -> None:
        """Wait for all queued work."""
        ...


class Tracer(Protocol):
    """Takes the launches of a context in place of the device."""

    def meet(self, values: Sequence[Any]) -> None:
        """See the operands of the next operator as the tensors that they are."""
        ...

    def emit(self, plan: Any, handles: Sequence[Any]) -> tuple[Sequence[Any], Any]:
        """Record one operator: the symbolic handles of its operands, and of its output(s)."""
        ...

    def recorded(self, node: Any) -> None:
        """Know ``node`` as one that was recorded inside the trace."""
        ...

    def visiting(self, order: Sequence[Any]) -> None:
        """Refuse a backward walk over nodes that were recorded outside the trace."""
        ...

    def alias(self, spec: Spec, handle: Any) -> Any:
        """A symbolic view of all of ``handle``."""
        ...

    def base(self, handle: Any) -> Spec:
        """The spec of all the memory of a base handle, symbolic or not."""
        ...

    def assign(self, spec: Spec, handle: Any, value_spec: Spec, value: Any) -> None:
        """Record ``value`` as the next content of what ``spec`` shows of ``handle``."""
        ...

    def compared(self, root: Any) -> None:
        """Know that what was recorded depends on where views of the base ``root`` begin."""
        ...

    def refuse(self, op: str, what: str) -> None:
        """Raise ``CaptureError`` with the user's line: ``what`` cannot be replayed."""
        ...

    def read(self, spec: Spec, handle: Any, op: str) -> Any:
        """Refuse to read a value while tracing: raises ``CaptureError`` with the user's line."""
        ...

    def constant(self, spec: Spec, handle: Any) -> Any:
        """A tensor with the values of ``handle`` that every replay starts from afresh."""
        ...

    def get_grad(self, leaf: Any) -> Any:
        """The gradient of ``leaf`` as this trace sees it."""
        ...

    def set_grad(self, leaf: Any, grad: Any) -> None:
        """Set the gradient of ``leaf`` in this trace only."""
        ...

    def set_node(self, tensor: Any, node: Any) -> None:
        """Change a tensor's node, to be undone when the trace ends."""
        ...

    def leaf_changed(self, tensor: Any, what: str) -> None:
        """Refuse to change what a tensor from outside the trace asks of the tape."""
        ...

    def draw(self, generator: Any) -> Any:
        """The draw number of the next random operator, as a value that each replay renews."""
        ...

    def seed(self, generator: Any) -> Any:
        """The seed of ``generator``, as a value that each replay renews."""
        ...

    def state_changed(self, owner: object, name: str, value: object) -> None:
        """Refuse or note an attribute set on a module, optimizer or schedule."""
        ...


class Recorder(Protocol):
    """Watches a function that ``checkpoint`` runs, and the second run of it in backward."""

    def recorded(self, node: Any) -> None:
        """A node was built."""
        ...

    def draw(self, generator: Any) -> int:
        """The draw number of the next random operator: the same in both runs."""
        ...

    def skips(self, target: Any) -> bool:
        """Whether an assignment to ``target`` was already made by the first run."""
        ...
