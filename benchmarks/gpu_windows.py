"""Windows over images on a GPU, against PyTorch eager: rows F4 (pooling), F5 and F6 (sampling)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import Line, row
from benchmarks.gpu import alternate, facts, result

# bytes/s that a copy reaches
BANDWIDTH = 4.25e12

Call = Callable[[], Any]


def images(torch: Any, *shape: int, dtype: str = "bfloat16") -> tuple[Any, Any]:
    """The same random values for ruda and for PyTorch, with gradients to come."""
    import ruda

    values = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    ours = ruda.asarray(values, dtype=dtype, device="cuda")
    theirs = torch.from_numpy(values).cuda().to(getattr(torch, dtype))
    return ours.requires_grad_(), theirs.requires_grad_()


def as_torch(torch: Any, found: Any) -> Any:
    """A result of either library in float64."""
    if isinstance(found, torch.Tensor):
        return found.detach().double()
    # PyTorch warns of arrays that it may not write to.
    values = np.array(found.detach().numpy())
    if values.dtype.itemsize == 2:
        bits = torch.from_numpy(values.view(np.int16))
        return bits.cuda().view(torch.bfloat16).double()
    return torch.from_numpy(values).cuda().double()


def error(torch: Any, found: Any, exact: Any) -> float:
    """The distance between a result and the exact one, over its length."""
    return float((as_torch(torch, found) - exact).norm() / exact.norm())


def backward(y: Any, x: Any, g: Any) -> Callable[[], Any]:
    """The gradient of ``x`` once more, through the recorded ``y``."""

    def call() -> Any:
        x.grad = None
        y.backward(g, retain_graph=True)
        return x.grad

    return call


def both(
    name: str,
    case: str,
    torch: Any,
    functions: tuple[Callable[[Any], Any], Callable[[Any], Any]],
    given: tuple[Any, Any],
    goals: tuple[float, float],
    nbytes: tuple[int, int],
    strategy: str,
) -> Iterator[Line]:
    """A line for the forward and one for the backward, each checked against float64."""
    ours, theirs = given
    exact_x = theirs.detach().double().requires_grad_()
    exact_y = functions[1](exact_x)
    mine, other = functions[0](ours), functions[1](theirs)
    g, seed = images(torch, *mine.shape, dtype=str(mine.dtype))
    exact_y.backward(seed.detach().double())
    work: dict[str, tuple[Any, dict[str, Call]]] = {
        "forward": (
            exact_y.detach(),
            {"ruda": lambda: functions[0](ours), "TE": lambda: functions[1](theirs)},
        ),
        "backward": (
            exact_x.grad,
            {
                "ruda": backward(mine, ours, g.detach()),
                "TE": backward(other, theirs, seed.detach()),
            },
        ),
    }
    for (part, (exact, calls)), goal, moved in zip(work.items(), goals, nbytes, strict=True):
        errors = {peer: error(torch, call(), exact) for peer, call in calls.items()}
        yield result(
            name,
            f"{case} {part}",
            alternate(calls),
            goal=goal,
            peers=("TE",),
            strategy=strategy,
            floor=moved / BANDWIDTH,
            error=errors["ruda"],
            peer_error=errors["TE"],
            **facts(),
        )


@row("F4", "max-pool 3 x 3, stride 2, of 256 x 64 x 112 x 112 in bfloat16, channels last")
def pooling() -> Iterator[Line]:
    import torch

    import ruda
    from ruda.nn import functional as F

    given = images(torch, 256, 112, 112, 64)
    functions = (
        lambda x: F.max_pool2d(ruda.moveaxis(x, -1, 1), 3, 2, 1),
        lambda x: torch.nn.functional.max_pool2d(x.permute(0, 3, 1, 2), 3, 2, 1),
    )
    whole, small = 256 * 64 * 112 * 112 * 2, 256 * 64 * 56 * 56 * 2
    moved = (whole + small, whole + small)
    case = "channels last"
    yield from both("F4", case, torch, functions, given, (1.2, 1.2), moved, "gather")


@row("F5", "bilinear upsampling by 2 of 16 x 256 x 128 x 128 in bfloat16")
def resizing() -> Iterator[Line]:
    import torch

    from ruda.nn import functional as F

    given = images(torch, 16, 256, 128, 128)
    functions = (
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        lambda x: torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear"),
    )
    moved = 16 * 256 * 128 * 128 * 2 * 5
    how = "axis by axis, gather"
    yield from both("F5", "bilinear 2x", torch, functions, given, (1.0, 8.0), (moved, moved), how)


@row("F6", "grid_sample of 16 x 256 x 128 x 128 at as many points")
def sampling() -> Iterator[Line]:
    import torch

    from ruda.nn import functional as F

    for dtype in ("bfloat16", "float32"):
        given = images(torch, 16, 256, 128, 128, dtype=dtype)
        lines = np.linspace(-1, 1, 128, dtype=np.float32)
        even = np.stack(np.meshgrid(lines, lines), axis=-1)
        moves = np.random.default_rng(1).standard_normal((16, 128, 128, 2), dtype=np.float32)
        points = even + 0.05 * moves
        yield from sampled(torch, F, dtype, given, points)


def sampled(torch: Any, F: Any, dtype: str, given: Any, points: Any) -> Iterator[Line]:
    """The lines of one dtype: points near an even grid, moved by a twentieth of the image."""
    import ruda

    grid = ruda.asarray(points, dtype=dtype, device="cuda")
    theirs = torch.from_numpy(points).cuda().to(getattr(torch, dtype))
    functions = (
        lambda x: F.grid_sample(x, grid),
        lambda x: torch.nn.functional.grid_sample(x, theirs.to(x.dtype), align_corners=False),
    )
    size = 16 * 256 * 128 * 128 * given[0].dtype.itemsize
    moved = (2 * size, 2 * size)
    how = "one pass forward, operators backward"
    yield from both("F6", dtype, torch, functions, given, (1.3, 2.0), moved, how)
