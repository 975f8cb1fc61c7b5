"""Rows along the last axis on a GPU: norms, softmax, losses, SwiGLU, against PyTorch.

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


def _errors(contest: Contest, outs: dict[str, Any]) -> dict[str, float]:
    """The worst error of each library's outputs on the first rows, against float64."""
    wide = [v.double() if v.is_floating_point() else v for v in _arrays(contest, 0)]
    rows = len(wide[0])
    cut = [v[:_CHECKED] if len(v) == rows else v for v in wide]
    want = _flat(contest.theirs(*cut))
    if want[0].ndim == 0:
        want, outs = _flat(contest.theirs(*wide)), outs
    found = {}
    for name, out in outs.items():
        pairs = zip(_flat(out), want, strict=True)
        found[name] = max(_error(g[: len(w)] if w.ndim else g, w) for g, w in pairs)
    return found


def run(contest: Contest) -> Iterator[Line]:
    """The lines of forward and of backward."""
    import torch._functorch.config

    import ruda

    torch._functorch.config.donated_buffer = False
    compiled = torch.compile(contest.theirs, mode="max-autotune-no-cudagraphs")
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
        errors = _errors(contest, outs)
        del outs
        if contest.forward is not None:
            times = alternate(
                {
                    "ruda": rotated(contest.ours, mine),
                    "TE": rotated(contest.theirs, [tuple(v) for v in sets]),
                    "TC": rotated(compiled, [tuple(v) for v in sets]),
                }
            )
            yield _line(contest, "forward", times, contest.forward, contest.goals[0], errors)
    if contest.backward is not None:
        times = alternate(_backwards(contest, compiled, sets, mine))
        yield _line(contest, "backward", times, contest.backward, contest.goals[1], errors)


def _line(
    contest: Contest, case: str, times: Any, nbytes: float, goal: float, errors: dict[str, float]
) -> Line:
    return result(
        contest.row,
        case,
        times,
        goal=goal,
        peers=contest.peers or ("TE", "TC"),
        strategy="row-engine",
        floor=nbytes / BANDWIDTH,
        error=errors["ruda"],
        peer_error=min(errors["TE"], errors["TC"]),
        **facts(),
    )


def _backwards(contest: Contest, compiled: Any, sets: Any, mine: Any) -> dict[str, Any]:
    """What makes all gradients again from outputs that are kept, in turn over the operands."""
    import torch

    import ruda

    def pulled(values: Any) -> tuple[Any, ...]:
        real = [v for v in values if v.dtype.is_floating]
        rest = [v for v in values if not v.dtype.is_floating]
        out, pull = ruda.vjp(lambda *x: contest.ours(*x, *rest), *real)
        seeds = tuple(ruda.ones(t.shape, dtype=t.dtype, device="cuda") for t in _flat(out))
        return pull, seeds if isinstance(out, tuple) else seeds[0]

    def grads(function: Any, values: Any) -> tuple[Any, ...]:
        leaves = [v.detach().requires_grad_() if v.is_floating_point() else v for v in values]
        outs = _flat(function(*leaves))
        real = [v for v in leaves if v.is_floating_point()]
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
    for goal, peer in ((1.0, "TC"), (1.2, "TE")):
        contest = Contest("A4", shapes, add_rms_norm, theirs, moved, None, (goal, goal), (peer,))
        for made in run(contest):
            yield {**made, "case": f"forward, against {peer}"}


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

    import ruda.nn.functional as F

    shape = (8192, 128256)
    contest = Contest(
        "A6", (shape,), F.cross_entropy, T.cross_entropy, None, None, (1.0, 1.0), classes=shape[1]
    )
    x, target = _arrays(contest, 0)
    leaf, compiled = x.requires_grad_(), torch.compile(T.cross_entropy)
    own, index = _ours(x.detach()).requires_grad_(), _ours(target)

    def ours() -> Any:
        own.grad = None
        F.cross_entropy(own, index).backward()
        return own.grad

    def theirs(function: Any) -> Any:
        return torch.autograd.grad(function(leaf, target), leaf)[0]

    calls = {"ruda": ours, "TE": lambda: theirs(T.cross_entropy), "TC": lambda: theirs(compiled)}
    with torch.no_grad():
        want = torch.softmax(x[:_CHECKED].double(), -1)
        want[torch.arange(_CHECKED), target[:_CHECKED]] -= 1
        want /= len(x)
    found = {name: call() for name, call in calls.items()}
    found["ruda"] = _as_torch(found["ruda"])
    errors = {name: _error(grad[:_CHECKED], want) for name, grad in found.items()}
    del found
    times = alternate(calls)
    for goal, peer in ((3.0, "TE"), (1.2, "TC")):
        target_of = contest._replace(peers=(peer,))
        case = f"forward and backward, against {peer}"
        yield _line(target_of, case, times, 3 * _bytes(shape), goal, errors)


@row("A8", "SwiGLU 8192 x 16384 in bfloat16, forward and backward")
def swiglu() -> Iterator[Line]:
    import torch.nn.functional as T

    import ruda

    shape = (8192, 16384)
    pair = (ruda.swiglu, lambda gate, up: T.silu(gate) * up)
    moved = _bytes(shape)
    yield from run(Contest("A8", (shape, shape), *pair, 3 * moved, 5 * moved, (1.0, 1.0)))
