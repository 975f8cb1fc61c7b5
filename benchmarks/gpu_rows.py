"""Rows along the last axis on a GPU: norms, softmax, losses, SwiGLU, rotary, against PyTorch.

Forward is timed without a tape; backward is what follows from an output that is kept, gradients of
parameters included. A backward of PyTorch runs on a graph that it keeps as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks import Line, row
from benchmarks.gpu import alternate, facts, result, rotated

# bytes/s that a copy reaches
BANDWIDTH = 4.25e12
# More than the L2 cache holds.
_COLD = 64 << 20
# The float64 reference looks at so many of the first rows.
_CHECKED = 256


class Contest(NamedTuple):
    """One function in both libraries, its operands, and the bytes that it has to move."""

    row: str
    shapes: tuple[tuple[int, ...], ...]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    forward: float | None
    backward: float | None
    goals: tuple[float, float]
    peers: tuple[str, ...] = ()
    # Operands that are not normal numbers of the dtype: class indices below this.
    classes: int = 0
    # The last operands are constants: so many have no gradient.
    constants: int = 0


class Measured(NamedTuple):
    """One direction of a contest: times by name, bytes to move, the goal, errors by name."""

    case: str
    times: Any
    nbytes: float
    goal: float
    errors: dict[str, float]


def _arrays(contest: Contest, seed: int) -> list[Any]:
    """Normal values in bfloat16, as tensors of PyTorch on the device."""
    import torch

    made = torch.Generator(device="cuda").manual_seed(seed)
    values = [
        torch.randn(shape, generator=made, device="cuda").bfloat16() for shape in contest.shapes
    ]
    if contest.classes:
        shape = contest.shapes[0][:-1]
        values.append(torch.randint(contest.classes, shape, generator=made, device="cuda"))
    return values


def _ours(tensor: Any) -> Any:
    import ruda

    return ruda.from_dlpack(tensor)


def _flat(out: Any) -> list[Any]:
    return list(out) if isinstance(out, tuple | list) else [out]


def _error(got: Any, want: Any) -> float:
    """The distance between two tensors of PyTorch over the length of the second."""
    return float((got.double() - want).norm() / want.norm())


def _as_torch(tensor: Any) -> Any:
    import torch

    return torch.from_dlpack(tensor)


def _errors(contest: Contest, values: list[Any], outs: dict[str, Any]) -> dict[str, float]:
    """The worst error of each library's outputs on the first rows, against float64."""
    cut = [v[:_CHECKED] if v.shape[:-1] == values[0].shape[:-1] else v for v in values]
    want = _flat(contest.theirs(*(v.double() for v in cut)))
    found = {}
    for name, out in outs.items():
        pairs = zip(_flat(out), want, strict=True)
        found[name] = max(_error(g[: len(w)], w) for g, w in pairs)
    return found


def measured(contest: Contest) -> Iterator[Measured]:
    """Forward, then backward, as far as the contest has them."""
    import torch._functorch.config

    import ruda

    torch._functorch.config.donated_buffer = False
    # In its default mode: others try more kernels, for which time on a device is too short.
    compiled = torch.compile(contest.theirs)
    first = _arrays(contest, 0)
    nbytes = sum(v.numel() * v.element_size() for v in first)
    sets = [first, *(_arrays(contest, i + 1) for i in range(max(0, -(-_COLD // nbytes) - 1)))]
    mine = [tuple(_ours(v) for v in values) for values in sets]
    with torch.no_grad(), ruda.no_grad():
        outs = {
            "ruda": [_as_torch(t) for t in _flat(contest.ours(*mine[0]))],
            "TE": contest.theirs(*first),
            "TC": compiled(*first),
        }
        errors = _errors(contest, first, outs)
        del outs
        if contest.forward is not None:
            times = alternate(
                {
                    "ruda": rotated(contest.ours, mine),
                    "TE": rotated(contest.theirs, [tuple(v) for v in sets]),
                    "TC": rotated(compiled, [tuple(v) for v in sets]),
                }
            )
            yield Measured("forward", times, contest.forward, contest.goals[0], errors)
    if contest.backward is not None:
        times = alternate(_backwards(contest, compiled, sets, mine))
        yield Measured("backward", times, contest.backward, contest.goals[1], errors)


def run(contest: Contest) -> Iterator[Line]:
    """The lines of forward and of backward."""
    for found in measured(contest):
        yield _line(contest, found)


def _line(contest: Contest, found: Measured) -> Line:
    return result(
        contest.row,
        found.case,
        found.times,
        goal=found.goal,
        peers=contest.peers or ("TE", "TC"),
        strategy="row-engine",
        floor=found.nbytes / BANDWIDTH,
        error=found.errors["ruda"],
        peer_error=min(found.errors["TE"], found.errors["TC"]),
        **facts(),
    )


def _against(contest: Contest, found: Measured, goals: dict[str, float]) -> Iterator[Line]:
    """A line for each peer that has a goal of its own, of one measurement."""
    for peer, goal in goals.items():
        case = f"{found.case}, against {peer}"
        yield _line(contest._replace(peers=(peer,)), found._replace(case=case, goal=goal))


def _backwards(contest: Contest, compiled: Any, sets: Any, mine: Any) -> dict[str, Any]:
    """What makes all gradients again from outputs that are kept, in turn over the operands."""
    import torch

    import ruda

    count = len(contest.shapes) - contest.constants

    def pulled(values: Any) -> tuple[Any, ...]:
        real, rest = values[:count], values[count:]
        out, pull = ruda.vjp(lambda *x: contest.ours(*x, *rest), *real)
        seeds = tuple(ruda.ones(t.shape, dtype=t.dtype, device="cuda") for t in _flat(out))
        return pull, seeds if isinstance(out, tuple) else seeds[0]

    def grads(function: Any, values: Any) -> tuple[Any, ...]:
        real = [v.detach().requires_grad_() for v in values[:count]]
        outs = _flat(function(*real, *values[count:]))
        return outs, real, [torch.ones_like(t) for t in outs]

    def again(outs: Any, real: Any, seeds: Any) -> Any:
        return torch.autograd.grad(outs, real, seeds, retain_graph=True)

    return {
        "ruda": rotated(lambda pull, seed: pull(seed), [pulled(v) for v in mine]),
        "TE": rotated(again, [grads(contest.theirs, v) for v in sets]),
        "TC": rotated(again, [grads(compiled, v) for v in sets]),
    }


def _bytes(*shapes: tuple[int, ...]) -> float:
    return float(sum(2 * np.prod(shape) for shape in shapes))


def _norm(name: str, shape: tuple[int, int], affine: int, goals: tuple[float, float]) -> Contest:
    import torch.nn.functional as T

    import ruda.nn.functional as F

    n, params = shape[1], ((shape[1],),) * affine
    if affine == 1:
        pair: Any = (
            lambda x, w: F.rms_norm(x, w, eps=1e-6),
            lambda x, w: T.rms_norm(x, (n,), w, 1e-6),
        )
    else:
        pair = (F.layer_norm, lambda x, w, b: T.layer_norm(x, (n,), w, b))
    moved = _bytes(shape)
    return Contest(name, (shape, *params), *pair, 2 * moved, 3 * moved, goals)


@row("A1", "RMSNorm 16384 x 4096 in bfloat16, forward and backward")
def rms_norm() -> Iterator[Line]:
    yield from run(_norm("A1", (16384, 4096), 1, (1.0, 1.8)))


@row("A2", "LayerNorm with weight and bias, 8192 x 8192 in bfloat16, forward and backward")
def layer_norm() -> Iterator[Line]:
    yield from run(_norm("A2", (8192, 8192), 2, (1.0, 1.7)))


@row("A3", "RMSNorm of short rows, 131072 x 128 in bfloat16, forward and backward")
def short_rows() -> Iterator[Line]:
    yield from run(_norm("A3", (131072, 128), 1, (1.0, 2.0)))


@row("A4", "residual added and RMSNorm, both results, 16384 x 4096 in bfloat16")
def added_norm() -> Iterator[Line]:
    import torch.nn.functional as T

    from ruda.ops.add_norm import add_rms_norm

    shape = (16384, 4096)

    def theirs(x: Any, residual: Any, w: Any) -> Any:
        total = x + residual
        return T.rms_norm(total, (4096,), w, 1e-6), total

    moved = 4 * _bytes(shape)
    shapes = (shape, shape, (4096,))
    contest = Contest("A4", shapes, add_rms_norm, theirs, moved, None, (1.0, 1.0))
    for found in measured(contest):
        yield from _against(contest, found, {"TC": 1.0, "TE": 1.2})


@row("A5", "softmax of long rows, 16384 x 131072 in bfloat16")
def softmax() -> Iterator[Line]:
    import torch

    import ruda.nn.functional as F

    shape = (16384, 131072)
    pair = (lambda x: F.softmax(x, axis=-1), lambda x: torch.softmax(x, -1))
    yield from run(Contest("A5", (shape,), *pair, 2 * _bytes(shape), None, (1.3, 1.0), ("TC",)))


@row("A6", "cross-entropy 8192 x 128256 in bfloat16, loss and gradient together")
def cross_entropy() -> Iterator[Line]:
    import torch
    import torch.nn.functional as T

    import ruda
    import ruda.nn.functional as F

    shape = (8192, 128256)
    contest = Contest(
        "A6", (shape,), F.cross_entropy, T.cross_entropy, None, None, (1.0, 1.0), classes=shape[1]
    )
    x, target = _arrays(contest, 0)
    leaf, compiled = x.requires_grad_(), torch.compile(T.cross_entropy)
    own, index = _ours(x.detach()).requires_grad_(), _ours(target)
    step = ruda.compile(ruda.value_and_grad(F.cross_entropy))

    def eager() -> Any:
        own.grad = None
        F.cross_entropy(own, index).backward()
        return own.grad

    def theirs(function: Any) -> Any:
        return torch.autograd.grad(function(leaf, target), leaf)[0]

    peers = {"TE": lambda: theirs(T.cross_entropy), "TC": lambda: theirs(compiled)}
    with torch.no_grad():
        want = torch.softmax(x[:_CHECKED].double(), -1)
        want[torch.arange(_CHECKED), target[:_CHECKED]] -= 1
        want /= len(x)
    errors = {name: _error(call()[:_CHECKED], want) for name, call in peers.items()}
    given = own.detach()
    for case, ours in (("", eager), (", compiled", lambda: step(given, index)[1])):
        errors["ruda"] = _error(_as_torch(ours())[:_CHECKED], want)
        times = alternate({"ruda": ours, **peers})
        moved = 2 * _bytes(shape)
        both = Measured(f"forward and backward{case}", times, moved, 1.0, errors)
        yield from _against(contest, both, {"TE": 3.0, "TC": 1.2})


@row("A8", "SwiGLU 8192 x 16384 in bfloat16, forward and backward")
def swiglu() -> Iterator[Line]:
    import torch.nn.functional as T

    import ruda

    shape = (8192, 16384)
    pair = (ruda.swiglu, lambda gate, up: T.silu(gate) * up)
    moved = _bytes(shape)
    yield from run(Contest("A8", (shape, shape), *pair, 3 * moved, 5 * moved, (1.0, 1.0)))


# Batch, length, heads of queries and of keys, features of a head.
_HEADS = (4, 4096, 32, 8, 128)


def _turned(x: Any, cos: Any, sin: Any, interleaved: bool) -> Any:
    """Pairs of features of a tensor of PyTorch turned by their angles."""
    import torch

    if interleaved:
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


@row("A9", "rotary positions of queries and keys, 4 x 4096 x (32 + 8) x 128 in bfloat16")
def rotary() -> Iterator[Line]:
    from ruda.nn.functional import apply_rotary

    batch, length, queries, keys, width = _HEADS
    q, k = (batch, length, queries, width), (batch, length, keys, width)
    angles = (length, 1, width // 2)
    moved = 2 * _bytes(q, k) + 2 * _bytes(angles)
    for interleaved in (False, True):

        def ours(q: Any, k: Any, *turn: Any, together: bool = interleaved) -> Any:
            return apply_rotary(q, *turn, together), apply_rotary(k, *turn, together)

        def theirs(q: Any, k: Any, *turn: Any, together: bool = interleaved) -> Any:
            return _turned(q, *turn, together), _turned(k, *turn, together)

        shapes = (q, k, angles, angles)
        contest = Contest("A9", shapes, ours, theirs, moved, moved, (1.0, 1.0), constants=2)
        pairs = "neighbours" if interleaved else "halves"
        for found in measured(contest):
            named = found._replace(case=f"{found.case}, pairs of {pairs}")
            yield from _against(contest, named, {"TC": 1.0, "TE": 3.0})
