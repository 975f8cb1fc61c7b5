"""The shadow check: a compiled step beside the eager function on the same state."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ruda.core.mode import MODE, NODES, Using
from ruda.core.spec import Spec
from ruda.fusion.commit import commit
from ruda.fusion.graph import Graph
from ruda.fusion.passes import improve
from ruda.fusion.program import Program, looker
from ruda.fusion.pytree import Given, rebuilt
from ruda.fusion.replay import Replay
from ruda.tensor.dispatch import OPS
from ruda.tensor.node import Leaf
from ruda.tensor.tensor import RudaTensor, wrap

_INFINITE = float("inf")


class Entry(NamedTuple):
    """One compared tensor: ||compiled - eager|| / ||eager||, and what the step's code calls it."""

    name: str
    ratio: float
    path: str = ""

    def __str__(self) -> str:
        path = f" ({self.path})" if self.path else ""
        return f"{self.name}{path}: {self.ratio:.3g}"


class Report(NamedTuple):
    """What a shadow check found; ``skipped`` says why there was none."""

    entries: tuple[Entry, ...]
    skipped: str | None = None

    @property
    def worst(self) -> float:
        """The largest ratio."""
        return max((entry.ratio for entry in self.entries), default=0.0)

    def __str__(self) -> str:
        if self.skipped is not None:
            return f"skipped: {self.skipped}"
        return "\n".join(map(str, self.entries))


class _Eager:
    """A tracer that launches at once and notes the gradients as they are before a leaf changes."""

    def __init__(self, leaves: dict[int, Leaf]) -> None:
        # By the id of the base handle of the leaf's tensor.
        self.leaves = leaves
        self.early: dict[Leaf, Any] | None = None

    def emit(self, plan: Any, handles: Any) -> Any:
        return handles, plan.run(*handles)

    def assign(self, spec: Any, handle: Any, value_spec: Any, value: Any) -> None:
        root = handle.root or handle
        if id(root) in self.leaves and self.early is None:
            self.early = self.gradients()
        spec.client.write(spec, handle, value_spec, value)
        root.version += 1

    def gradients(self) -> dict[Leaf, Any]:
        """Copies of the gradients as they are now."""
        graded = [leaf for leaf in self.leaves.values() if leaf.grad is not None]
        return {leaf: _array(leaf.grad).copy() for leaf in graded}

    def alias(self, spec: Any, handle: Any) -> Any:
        return spec.client.alias(handle)

    def read(self, spec: Any, handle: Any, op: str) -> Any:
        return spec.client.read(spec, handle)

    def constant(self, spec: Any, handle: Any) -> RudaTensor:
        return wrap(spec, handle)

    def get_grad(self, leaf: Leaf) -> Any:
        return leaf.grad

    def set_grad(self, leaf: Leaf, grad: Any) -> None:
        leaf.grad = grad

    def set_node(self, tensor: RudaTensor, node: Any) -> None:
        tensor.node, NODES.mark = node, object()

    def draw(self, generator: Any) -> int:
        return generator.advance(1)  # type: ignore[no-any-return]

    def seed(self, generator: Any) -> int:
        return generator.seed  # type: ignore[no-any-return]

    def _nothing(self, *_: Any) -> None:
        """Nothing to refuse outside of a trace."""

    compared = meet = recorded = visiting = refuse = leaf_changed = state_changed = _nothing


def compare(program: Program, given: Given, fn: Callable[[], Any]) -> Report:
    """Run a compiled and an eager step from the same state, and put that back.

    The compiled one is the one that calls run, down to its graph on a device that has one.
    """
    targets = [source.fetch(given) for source, _, _ in program.writes]
    needed = 3 * sum(value.spec.nbytes for _, value, _ in program.writes if value.spec)
    if needed > _available(program.client):
        return Report((), f"needs {needed / 2**30:.1f} GB")
    leaves = {id(t.handle.root or t.handle): t.node for t in program.leaf_tensors(given)}
    eager = _Eager(leaves)
    kept = [_copied(program.client.base(target), target) for target in targets]
    settings = [(setattr, leaf, "grad", leaf.grad) for leaf in leaves.values()]
    settings += [generator.advancing(0) for generator, _ in program.draws]

    def restore(versions: int = 0) -> None:
        back = [(target, copy, versions) for target, copy in zip(targets, kept, strict=True)]
        commit([*program.client.writes(back), *settings])

    try:
        compiled, state = _compiled(program, given, restore)
    finally:
        restore()
    early = _early(program, given)
    try:
        with Using(MODE.get().but(tracer=eager)):
            outputs = _arrays(fn())
        changed = [_read(program.client, target).copy() for target in targets]
        gradients = eager.gradients() if eager.early is None else eager.early
    finally:
        restore(1)
    both = [leaf for leaf in early if leaf in gradients]
    paths = [program.leaf_names.get(id(leaf), "") for leaf in both]
    written = [str(source) for source, _, _ in program.writes]
    entries = [
        *_compared("output", compiled, outputs, [""] * len(outputs)),
        *_compared("state", state, changed, written),
        *_compared("gradient", [early[k] for k in both], [gradients[k] for k in both], paths),
    ]
    return Report(tuple(entries))


def _compiled(
    program: Program, given: Given, restore: Callable[[], None]
) -> tuple[list[Any], list[Any]]:
    """Outputs and new state of a run as calls have it."""
    out, state = program.uncommitted(given, restore)
    return _arrays(out), [_read(program.client, value).copy() for _, value in state]


def _early(program: Program, given: Given) -> dict[Leaf, Any]:
    """Gradients as they are before the optimizer, by the kernels of a step that gives them out."""
    if not program.early_grads:
        return {}
    wanted = [*program.wanted, *program.early_grads.values()]
    graph = Graph()
    # Passes change instructions where they are, and those of the program are in use.
    graph.instructions = [i.but() for i in program.everything]
    used = [v for i in graph.instructions for v in i.inputs] + wanted
    graph.inputs = list({v for v in used if v.kind not in ("result", "constant")})
    graph.prune(wanted)
    improve(graph, wanted, program.client)
    replay = Replay(graph, wanted)
    look = looker(replay.run(given), replay.registers)
    return {leaf: _read(program.client, look(v)).copy() for leaf, v in program.early_grads.items()}


def _copied(spec: Spec, handle: Any) -> Any:
    return OPS["copy"].lookup((spec,), ()).run(handle)


def _read(client: Any, handle: Any) -> Any:
    return client.read(client.base(handle.root or handle), handle)


def _available(client: Any) -> int:
    """Bytes that are free where the copies go."""
    if hasattr(client, "available"):
        return int(client.available())
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _array(tensor: RudaTensor) -> Any:
    return tensor.spec.client.read(tensor.spec, tensor.handle)


def _arrays(out: Any) -> list[Any]:
    found: list[Any] = []

    def note(leaf: Any) -> Any:
        if leaf.__class__ is RudaTensor:
            found.append(_array(leaf).copy())
        return leaf

    rebuilt(out, note)
    return found


def _compared(
    name: str, compiled: list[Any], eager: list[Any], paths: list[str]
) -> Iterator[Entry]:
    for i, (a, b, path) in enumerate(zip(compiled, eager, paths, strict=True)):
        yield Entry(f"{name} {i}", _ratio(a, b), path)


def _ratio(a: Any, b: Any) -> float:
    """||a - b|| / ||b||, where equal elements (infinities and NaN included) differ by nothing.

    Infinite where one of them alone is NaN or infinite: no norm is large enough beside that.
    """
    kind = "complex128" if a.dtype.kind == "c" else "float64"
    a, b = a.astype(kind).reshape(-1), b.astype(kind).reshape(-1)
    apart = ~((a == b) | ((a != a) & (b != b)))
    if not apart.any():
        return 0.0
    size = _norm(abs(a[apart] - b[apart]))
    norm = _norm(abs(b[abs(b) < _INFINITE]))
    return size / norm if norm and size < _INFINITE else _INFINITE


def _norm(values: Any) -> float:
    """The root of the sum of squares, of values none of which is below 0."""
    most = float(values.max()) if values.size else 0.0
    if most == 0.0 or not most < _INFINITE:
        return most
    return float(most * ((values / most) ** 2).sum() ** 0.5)
