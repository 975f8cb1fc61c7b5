"""Functions that differentiate functions: ``grad``, ``vjp``, ``jvp``, ``hessian`` and friends.

They work on any function of tensors; nested lists, tuples and dicts of tensors are welcome as
arguments and results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ruda.autodiff.engine import Way, check_seed, walk, way_to
from ruda.autodiff.trees import flatten, rebuilt
from ruda.core.errors import ArgumentError, DTypeError, GradientError, ShapeError
from ruda.core.mode import recording
from ruda.ops.create import zeros_like
from ruda.ops.join import stack, unstack
from ruda.ops.movement import reshape
from ruda.tensor.given import given_tensors
from ruda.tensor.node import Leaf
from ruda.tensor.tensor import RudaTensor, wrap

Function = Callable[..., Any]


@given_tensors
def gradients(
    outputs: Sequence[RudaTensor],
    inputs: Sequence[RudaTensor],
    seeds: Sequence[RudaTensor | None] | None = None,
    *,
    create_graph: bool = False,
    retain_graph: bool = False,
) -> list[RudaTensor | None]:
    """d(outputs)/d(inputs) times ``seeds``, without touching any ``.grad``.

    ``inputs`` are leaves or results of recorded operators; one that no output depends on gets
    None. ``seeds`` are the cotangents of the outputs, ones for single elements by default.

    >>> x = ruda.tensor([1.0, 2.0], requires_grad=True)
    >>> [g.tolist() for g in gradients([(x * x).sum()], [x])]
    [[2.0, 4.0]]
    """
    _check_listed("gradients", outputs=outputs, inputs=inputs)
    for x in inputs:
        if x.node is None:
            what = "an input does not require grad"
            raise GradientError("gradients", what, x.spec, hint="requires_grad_() on it first")
    given = seeds if seeds is not None else [None] * len(outputs)
    live = [(o, seed) for o, seed in zip(outputs, given, strict=True) if o.node is not None]
    wanted = {x.node for x in inputs}
    found = _walked(live, wanted, create_graph, retain_graph or create_graph)
    return [found.get(x.node) for x in inputs]


def _check_listed(op: str, **given: Any) -> None:
    """Raise where a tensor stands for a list of tensors: its rows would be taken for them."""
    for name, value in given.items():
        if value.__class__ is RudaTensor:
            expected = "a list or tuple of tensors"
            raise DTypeError(op, f"{name} are one tensor", value.spec, expected, f"{name}=[x]")


def _walked(
    live: Sequence[tuple[RudaTensor, Any]],
    wanted: set[Any],
    create_graph: bool,
    retain_graph: bool,
    way: Way | None = None,
) -> dict[Any, RudaTensor]:
    """The cotangent of each node in ``wanted`` that recorded outputs with their seeds lead to."""
    roots: list[tuple[Any, RudaTensor]] = []
    ones: tuple[Any, ...] = ()
    for out, given in live:
        seed = check_seed(out, given, "gradients")
        roots.append((out.node, seed))
        if given is None:
            ones = (*ones, seed.handle)
    found: dict[Any, RudaTensor] = {}
    walk(roots, found.__setitem__, wanted, retain_graph, create_graph, ones, way)
    return found


def value_and_grad(
    fn: Function, argnums: int | Sequence[int] = 0, *, has_aux: bool = False
) -> Function:
    """A function that returns ``fn``'s value and its gradient by the arguments ``argnums``.

    ``fn`` returns one real element, or with ``has_aux`` a pair of it and anything else. The
    gradient has the structure of the argument (a tuple of them for several ``argnums``).

    >>> f = value_and_grad(lambda x: (x * x).sum())
    >>> value, gradient = f(ruda.asarray([1.0, 2.0]))
    >>> value.item(), gradient.tolist()
    (5.0, [2.0, 4.0])
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def differentiated(*args: Any, **kwargs: Any) -> Any:
        outer, probes, leaves = _probed(args, numbers, "value_and_grad")
        with recording(True):
            result = fn(*probes, **kwargs)
            value, aux = result if has_aux else (result, None)
            _check_scalar(value)
        found = _or_zeros([value], leaves, None, outer)
        parts = iter(found)
        trees = tuple(rebuilt(args[n], lambda _: next(parts)) for n in numbers)
        shown = value if outer else value.detach()
        gradient = trees[0] if isinstance(argnums, int) else trees
        return ((shown, aux), gradient) if has_aux else (shown, gradient)

    return differentiated


def grad(fn: Function, argnums: int | Sequence[int] = 0, *, has_aux: bool = False) -> Function:
    """A function that returns the gradient of ``fn`` by the arguments ``argnums``.

    Nests for higher orders. With ``has_aux`` it returns the gradient and ``fn``'s second result.

    >>> cube = lambda x: x * x * x
    >>> grad(grad(cube))(ruda.asarray(2.0)).item()
    12.0
    """
    both = value_and_grad(fn, argnums, has_aux=has_aux)

    def differentiated(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return differentiated


def vjp(fn: Function, *primals: Any) -> tuple[Any, Function]:
    """``fn(*primals)`` and a function from cotangents of the result to those of the primals.

    >>> out, pull = vjp(lambda x: x * 3.0, ruda.asarray([1.0, 2.0]))
    >>> pull(ruda.asarray([1.0, 10.0]))[0].tolist()
    [3.0, 30.0]
    """
    outer, probes, leaves = _probed(primals, range(len(primals)), "vjp")
    with recording(True):
        result = fn(*probes)
    outputs = flatten(result)
    ends = [out.node for out in outputs]
    way = way_to([end for end in ends if end is not None], {leaf.node for leaf in leaves})

    plain = all(p.__class__ is RudaTensor for p in primals)

    def pull(cotangent: Any) -> tuple[Any, ...]:
        seeds = [cotangent] if cotangent.__class__ is RudaTensor else flatten(cotangent)
        if len(seeds) != len(outputs):
            raise ArgumentError(
                "vjp", "cotangents do not match the result", len(seeds), len(outputs)
            )
        recorded = outer or any(s.node is not None for s in seeds)
        # An output that was changed in place since then comes from elsewhere.
        known = way if [out.node for out in outputs] == ends else None
        found = _or_zeros(outputs, leaves, seeds, recorded, retain=True, way=known)
        if plain:
            return tuple(found)
        parts = iter(found)
        return tuple([rebuilt(p, lambda _: next(parts)) for p in primals])

    shown = result if outer else rebuilt(result, lambda t: t.detach())
    return shown, pull


def jvp(fn: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """``fn(*primals)`` and its directional derivative along ``tangents``.

    By two reverse passes: the vjp is linear in its cotangent, and the vjp of that linear map is
    the jvp (the double-backward trick of J. Townsend, 2017).

    >>> jvp(lambda x: x * x, [ruda.asarray(3.0)], [ruda.asarray(1.0)])[1].item()
    6.0
    """
    _check_listed("jvp", primals=primals, tangents=tangents)
    if len(primals) != len(tangents):
        raise ArgumentError("jvp", "one tangent per primal is needed", len(tangents), len(primals))
    outer, probes, leaves = _probed(tuple(primals), range(len(primals)), "jvp")
    directions = flatten(tuple(tangents))
    for leaf, direction in zip(leaves, directions, strict=True):
        if leaf.shape != direction.shape:
            raise ShapeError("jvp", "a tangent does not fit", direction.shape, leaf.shape)
    with recording(True):
        result = fn(*probes)
        outputs = flatten(result)
        dummies = [zeros_like(o).requires_grad_() for o in outputs]
        pulled = _or_zeros(outputs, leaves, dummies, True)
    recorded = outer or any(d.node is not None for d in directions)
    live = [(p, d) for p, d in zip(pulled, directions, strict=True) if p.node is not None]
    pushed = _or_zeros([p for p, _ in live], dummies, [d for _, d in live], recorded)
    parts = iter(pushed)
    tangent = rebuilt(result, lambda _: next(parts))
    return (result if outer else rebuilt(result, lambda t: t.detach())), tangent


def hessian(fn: Function) -> Function:
    """A function that returns the matrix of second derivatives of a scalar ``fn`` of one tensor.

    The result has the argument's shape twice over.

    >>> hessian(lambda x: (x * x * x).sum())(ruda.asarray([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """

    def second(x: RudaTensor) -> RudaTensor:
        outer, probes, leaves = _probed((x,), (0,), "hessian")
        with recording(True):
            value = fn(*probes)
            _check_scalar(value)
            flat = reshape(_or_zeros([value], leaves, None, True)[0], (-1,))
            entries = unstack(flat)
        rows = [_or_zeros([entry], leaves, None, outer, retain=True)[0] for entry in entries]
        return reshape(stack(rows) if rows else zeros_like(x), x.shape + x.shape)

    return second


def _probed(args: Sequence[Any], numbers: Any, op: str) -> tuple[bool, list[Any], list[RudaTensor]]:
    """``args`` with their tensors replaced by ones to differentiate by.

    The first result says whether any of them already had history: then the derivative is recorded
    in turn, and the replacements stay tied to it.
    """
    chosen = [t for n in numbers for t in _tensors(args, n, op)]
    outer = any(t.node is not None for t in chosen)
    leaves: list[RudaTensor] = []

    def probe(t: RudaTensor) -> RudaTensor:
        if t.node is None:
            leaf = wrap(t.spec, t.handle, Leaf())
        else:
            with recording(True):
                leaf = reshape(t, t.shape)
        leaves.append(leaf)
        return leaf

    picked = set(numbers)
    return outer, [rebuilt(a, probe) if i in picked else a for i, a in enumerate(args)], leaves


def _tensors(args: Sequence[Any], number: int, op: str) -> list[RudaTensor]:
    if not 0 <= number < len(args):
        raise ArgumentError(op, "no such argument", number, f"0 to {len(args) - 1}")
    tensors = flatten(args[number])
    for t in tensors:
        if not t.dtype.is_inexact:
            raise DTypeError(op, "has no gradient", t.dtype, "a floating dtype", "astype")
    return tensors


def _check_scalar(value: Any) -> None:
    if value.__class__ is not RudaTensor or value.size != 1:
        got = value.shape if value.__class__ is RudaTensor else type(value).__name__
        hint = "a sum or mean over the result"
        raise GradientError("grad", "the function must return one element", got, hint=hint)
    if value.dtype.kind == "complex":
        raise GradientError("grad", "the value must be real", value.dtype, hint="abs or real")


def _or_zeros(
    outputs: Sequence[RudaTensor],
    leaves: Sequence[RudaTensor],
    seeds: Sequence[Any] | None,
    create_graph: bool,
    retain: bool = False,
    way: Way | None = None,
) -> list[RudaTensor]:
    """``gradients`` with zeros where nothing depends on a leaf."""
    given = [None] * len(outputs) if seeds is None else seeds
    live = [(o, s) for o, s in zip(outputs, given, strict=True) if o.node is not None]
    nodes = [x.node for x in leaves]
    found = _walked(live, set(nodes), create_graph, retain or create_graph, way)
    return [
        g if (g := found.get(node)) is not None else zeros_like(x)
        for node, x in zip(nodes, leaves, strict=True)
    ]
