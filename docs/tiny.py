"""ruda on one page: the ideas of the whole framework, small enough to read in eight minutes.

Run `python docs/tiny.py`: it checks every gradient to order 3, replays traces and trains a network.
Read from the top; each part is the seed of a folder of `ruda/`: `core` (Spec, Mode), `tensor`
(Tensor, Op, Node), `ops` (the rows of TABLE), `autodiff` (gradient), `fusion` (Tracer, compile).
Left out: devices, mutation and its versions, promotion of types, fusion itself.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np


@dataclass(eq=False, frozen=True)
class Spec:
    """Shape and dtype, all that planning may look at. Interned, so `is` compares two of them."""

    shape: tuple[int, ...]
    dtype: np.dtype


spec_of = functools.cache(Spec)


class Mode(NamedTuple):
    """Every switch a call obeys, in one variable, so that a call reads the context once."""

    tracer: Tracer | None = None
    grad: bool = True


MODE = ContextVar("mode", default=Mode())


@contextmanager
def mode(**changes: Any) -> Iterator[None]:
    token = MODE.set(MODE.get()._replace(**changes))
    try:
        yield
    finally:
        MODE.reset(token)


@dataclass(eq=False, slots=True)
class Tensor:
    """A spec, a handle to the values, and the node that remembers where they came from."""

    spec: Spec
    handle: Any  # an ndarray; in a trace, the number of a slot
    node: Any = None


def tensor(data: Any) -> Tensor:
    values = np.asarray(data, np.float64)
    return Tensor(spec_of(values.shape, values.dtype), values)


def variable(x: Tensor) -> Tensor:
    """The same values as a leaf of the tape: any object that is not a Node ends the walk back."""
    return Tensor(x.spec, x.handle, object())


class Plan(NamedTuple):
    """What a call needs besides its values, worked out once for each signature."""

    inputs: tuple[Spec, ...]
    out: Spec
    run: Callable[..., np.ndarray]


class Op:
    """A row of the table: what an operator means, its shape rule, and its gradients."""

    def __init__(self, name: str, numpy, vjp, args: str, shape, domain=(-2.0, 2.0)):
        self.name, self.args, self.domain = name, args.split(), domain
        self.shape, self.numpy, self.vjp = shape, numpy, vjp
        self.plans: dict[tuple, Plan] = {}
        # What a vjp names is what the tape keeps: (g, y) keeps y, (g, x_spec) keeps no values.
        self.needs = [tuple(inspect.signature(rule).parameters) for rule in vjp]
        self.keeps = set(itertools.chain(*self.needs))

    def plan(self, specs: tuple[Spec, ...], attrs: tuple) -> Plan:
        """The slow and kind half of a call; another backend would pick its kernel here."""
        shapes = [spec.shape for spec in specs]
        try:
            shape = self.shape(*shapes, *attrs)
        except ValueError as error:
            got = " and ".join(map(str, shapes))
            raise ValueError(f"{self.name}: the shapes do not fit. Got {got}.") from error
        out = spec_of(shape, np.result_type(*[spec.dtype for spec in specs]))
        return Plan(specs, out, lambda *handles: self.numpy(*handles, *attrs))


def entry(op: Op) -> Callable[..., Tensor]:
    """The function that users call: one look-up, one launch, and a node if anybody wants it."""
    plans, arity = op.plans, len(op.args)

    def call(*args: Any) -> Tensor:
        inputs = [x if isinstance(x, Tensor) else tensor(x) for x in args[:arity]]
        key = tuple([x.spec for x in inputs]), args[arity:]
        plan = plans.get(key)
        if plan is None:
            plan = plans[key] = op.plan(*key)
        tracer, grad = MODE.get()
        handles = [x.handle for x in inputs]
        out = Tensor(plan.out, tracer.record(plan, handles) if tracer else plan.run(*handles))
        if grad and any(x.node for x in inputs):
            saved = {name: x for name, x in zip(op.args, inputs) if name in op.keeps}
            kept_out = out.handle if "out" in op.keeps else None
            out.node = Node(op, plan, [x.node for x in inputs], saved, kept_out)
        return out

    return call


@dataclass(eq=False, slots=True)
class Node:
    """What one call leaves for backward; `edges` are the nodes of its inputs."""

    op: Op
    plan: Plan
    edges: list[Any]
    saved: dict[str, Tensor]
    out: Any  # a handle: the tensor itself would make a cycle, and its memory would linger
    number: int = field(default_factory=itertools.count().__next__)

    def backward(self, g: Tensor) -> Iterator[tuple[Any, Tensor]]:
        """Each input's node with the gradient that flows to it."""
        known = {"g": g, "out": Tensor(self.plan.out, self.out, self), **self.saved}
        known |= {f"{name}_spec": spec for name, spec in zip(self.op.args, self.plan.inputs)}
        rules = zip(self.edges, self.plan.inputs, self.op.vjp, self.op.needs)
        for edge, spec, vjp, names in rules:
            if edge:
                yield edge, unbroadcast(vjp(*[known[name] for name in names]), spec.shape)


def unbroadcast(g: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Undo broadcasting, here and nowhere else, so that no row has to think of it."""
    if g.spec.shape == shape:
        return g
    lead = len(g.spec.shape) - len(shape)
    stretched = [lead + axis for axis, size in enumerate(shape) if size == 1]
    return reshape(sum(g, (*range(lead), *stretched)), shape)


TABLE: dict[str, Op] = {}


def row(name: str, numpy, *vjp, **columns: Any) -> Callable[..., Tensor]:
    op = TABLE[name] = Op(name, numpy, vjp, **columns)
    return entry(op)


def kept(x, axes):
    return tuple(1 if axis in axes else size for axis, size in enumerate(x))


def multiplied(x, y):
    if len(x) != 2 or len(y) != 2 or x[1] != y[0]:
        raise ValueError("matmul takes (n, k) and (k, m)")
    return x[0], y[1]


unary = functools.partial(row, args="x", shape=lambda x: x)
binary = functools.partial(row, args="x y", shape=np.broadcast_shapes)
view = functools.partial(row, args="x", shape=lambda x, shape: shape)

# A vjp is written in operators, so a gradient can be recorded like any other call, and its own
# gradient needs no further rule.
exp = unary("exp", np.exp, lambda g, out: g * out)
log = unary("log", np.log, lambda g, x: g / x, domain=(0.5, 4.0))
tanh = unary("tanh", np.tanh, lambda g, out: g * (1.0 - out * out))
neg = unary("neg", np.negative, lambda g: -g)
add = binary("add", np.add, lambda g: g, lambda g: g)
sub = binary("sub", np.subtract, lambda g: g, lambda g: -g)
mul = binary("mul", np.multiply, lambda g, y: g * y, lambda g, x: g * x)
div = binary("div", np.divide, lambda g, y: g / y, lambda g, y, out: -g * out / y, domain=(1, 2))

keep_sum = functools.partial(np.sum, keepdims=True)
sum = row("sum", keep_sum, lambda g, x_spec: expand(g, x_spec.shape), args="x", shape=kept)
expand = view("expand", np.broadcast_to, lambda g: g)
reshape = view("reshape", np.reshape, lambda g, x_spec: reshape(g, x_spec.shape))
transpose = view("transpose", np.transpose, lambda g: transpose(g), shape=lambda x: x[::-1])
matmul = row(
    "matmul",
    np.matmul,
    lambda g, y: g @ transpose(y),
    lambda g, x: transpose(x) @ g,
    args="x y",
    shape=multiplied,
)

# A method is the entry closure itself: no layer forwards to another.
Tensor.__neg__, Tensor.__add__, Tensor.__sub__, Tensor.__mul__ = neg, add, sub, mul
Tensor.__truediv__, Tensor.__matmul__, Tensor.__rmul__ = div, matmul, mul
Tensor.__rsub__ = lambda x, other: sub(other, x)


def mean(x: Tensor) -> Tensor:
    """A composite: a plain function of operators, with no row, kernel or gradient of its own."""
    shape = x.spec.shape
    return reshape(sum(x, tuple(range(len(shape)))), ()) / float(np.prod(shape))


def tape(node: Any) -> list[Node]:
    """The nodes behind `node`, newest first. Nodes are younger than those of their inputs, so age
    is a topological order, found without recursion however deep the network."""
    seen: set[Node] = set()
    stack = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, Node) and node not in seen:
            seen.add(node)
            stack.extend(node.edges)
    return sorted(seen, key=lambda node: -node.number)


def gradient(out: Tensor, wrt: Sequence[Tensor], seed=1.0, create_graph=False) -> list[Tensor]:
    """The derivative of sum(out * seed) with respect to each tensor of `wrt`."""
    with mode(grad=create_graph):
        grads = {out.node: expand(seed, out.spec.shape)}
        for node in tape(out.node):
            for edge, g in node.backward(grads[node]):
                grads[edge] = grads[edge] + g if edge in grads else g
        return [grads[x.node] if x.node in grads else 0.0 * x for x in wrt]


class Tracer:
    """Writes launches down instead of running them. Nodes are made as ever, so one trace can hold
    a whole step: forward, backward and update. Slot i is input i, then launch after launch."""

    def __init__(self, inputs: int) -> None:
        self.inputs, self.program = inputs, []

    def record(self, plan: Plan, handles: list[Any]) -> int:
        self.program.append((plan.run, handles))
        return self.inputs + len(self.program) - 1


def compile(function: Callable[..., Sequence[Tensor]]) -> Callable[..., list[Tensor]]:
    """Trace `function` once for each signature; from then on only its launches run."""

    @functools.cache
    def trace(*specs: Spec) -> tuple[list, Sequence[Tensor]]:
        tracer = Tracer(len(specs))
        with mode(tracer=tracer):
            outs = function(*[Tensor(spec, slot) for slot, spec in enumerate(specs)])
        return tracer.program, outs

    def replay(*args: Tensor) -> list[Tensor]:
        program, outs = trace(*[x.spec for x in args])
        memory = [x.handle for x in args]
        for run, handles in program:
            # What is no slot is a constant that the trace met, the seed of a gradient say.
            memory.append(run(*[memory[h] if isinstance(h, int) else h for h in handles]))
        return [Tensor(out.spec, memory[out.handle]) for out in outs]

    return replay


# A central difference of step h errs by h**2 from its third derivative and by eps / h from
# rounding, least where h = eps ** (1/3); 1e4 allows for derivatives and sums larger than one.
STEP = np.finfo(np.float64).eps ** (1 / 3)
TOLERANCE = 1e4 * STEP**2


def check_gradient(function, points: Sequence[np.ndarray], order: int, rng) -> None:
    """Compare the derivative along one random direction with a difference of values, then check
    the gradient function in the same way, and so on down to order 1."""
    seed = rng.standard_normal(function(*map(tensor, points)).spec.shape)
    ways = [rng.standard_normal(point.shape) for point in points]

    def gradients(*inputs: Tensor) -> list[Tensor]:
        leaves = [x if x.node else variable(x) for x in inputs]
        return gradient(function(*leaves), leaves, tensor(seed), create_graph=order > 1)

    def value(step: float) -> float:
        moved = [tensor(point + step * way) for point, way in zip(points, ways)]
        return np.vdot(function(*moved).handle, seed)

    measured = (value(STEP) - value(-STEP)) / (2 * STEP)
    found = gradients(*map(tensor, points))
    derived = np.sum([np.vdot(g.handle, way) for g, way in zip(found, ways)])
    error = abs(measured - derived)
    assert error <= TOLERANCE * max(1.0, abs(measured)), f"{derived} against {measured}"
    if order > 1:
        for i in range(len(points)):
            check_gradient(lambda *xs, i=i: gradients(*xs)[i], points, order - 1, rng)


SAMPLES = {
    "sum": ([(3, 4)], ((1,),)),
    "expand": ([(1, 4)], ((3, 4),)),
    "reshape": ([(3, 4)], ((2, 6),)),
    "matmul": ([(3, 4), (4, 2)], ()),
}


def check_row(op: Op, rng: np.random.Generator) -> None:
    """The tests that the table gives for free: meaning, rule, gradient to order 3, and trace."""
    shapes, attrs = SAMPLES.get(op.name, ([(3, 4), (4,)][: len(op.args)], ()))
    points = [rng.uniform(*op.domain, shape) for shape in shapes]
    call = entry(op)
    out = call(*map(tensor, points), *attrs)
    expected = op.numpy(*points, *attrs)
    assert np.array_equal(out.handle, expected), f"{op.name}: values"
    assert out.spec is tensor(expected).spec, f"{op.name}: rule"
    check_gradient(lambda *xs: call(*xs, *attrs), points, 3, rng)
    (traced,) = compile(lambda *xs: [call(*xs, *attrs)])(*map(tensor, points))
    assert np.array_equal(traced.handle, expected), f"{op.name}: trace"


def train(steps: int = 300) -> float:
    """Fit sin(3x) with a hidden layer of 16 units; the whole step is one replayed trace."""
    rng = np.random.default_rng(0)
    x = tensor(np.linspace(-1, 1, 64).reshape(64, 1))
    y = tensor(np.sin(3.0 * x.handle))
    weights = [tensor(rng.standard_normal(shape)) for shape in [(1, 16), (16,), (16, 1), (1,)]]

    @compile
    def step(x: Tensor, y: Tensor, *weights: Tensor) -> list[Tensor]:
        w1, b1, w2, b2 = leaves = [variable(w) for w in weights]
        error = tanh(x @ w1 + b1) @ w2 + b2 - y
        loss = mean(error * error)
        return [loss, *[w - 0.1 * g for w, g in zip(leaves, gradient(loss, leaves))]]

    for _ in range(steps):
        loss, *weights = step(x, y, *weights)
    return float(loss.handle)


if __name__ == "__main__":
    for op in TABLE.values():
        check_row(op, np.random.default_rng(0))
    print(f"{len(TABLE)} rows: values, rules, gradients to order 3 and traces agree")
    print(f"loss after 300 steps: {train():.5f}")
