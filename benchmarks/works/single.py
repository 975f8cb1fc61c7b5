"""What the CPU rows time: the same work on the same numbers by ruda and by PyTorch.

Each function gets the name of a library and returns a call to time, after it compared the result of
one call with a float64 reference written in NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np


class Work(NamedTuple):
    """A call to time, and how far its result is from the reference, as a ratio of norms."""

    call: Callable[[], object]
    error: float


def matmul(library: str, n: int, k: int, m: int) -> Work:
    """P1: one product of two float32 matrices."""
    x, y = normal(0, (n, k)), normal(1, (k, m))
    lib = load(library)
    a, b = lib.tensor(x), lib.tensor(y)
    found = lib.matmul(a, b)
    return Work(lambda: lib.matmul(a, b), ratio([found], [x.astype("f8") @ y.astype("f8")]))


# sqrt(2 / pi), and that times 0.044715: the tanh form of GELU.
SLOPE, CUBIC = math.sqrt(2 / math.pi), math.sqrt(2 / math.pi) * 0.044715


def chain(library: str) -> Work:
    """P2: six operators on 4 M elements, each with a result of its own."""
    lib, x = load(library), normal(0, (4 << 20,))
    given = lib.tensor(x)

    def call(x: Any = given, tanh: Any = lib.tanh) -> Any:
        return tanh((x * x * CUBIC + SLOPE) * x) * x

    return Work(call, ratio([call()], [call(x.astype("f8"), np.tanh)]))


def conv(library: str) -> Work:
    """P4: 3 x 3, 64 to 64 channels of 56 x 56, batch of 8, with both gradients."""
    x, w, g = normal(0, (8, 64, 56, 56)), normal(1, (64, 64, 3, 3)), normal(2, (8, 64, 56, 56))
    lib = load(library)
    convolve = lib.F.conv2d
    call = both_ways(lib, (x, w), g, lambda a, b: convolve(a, b, None, 1, 1))
    return Work(call, ratio(call(), _conv_reference(*(v.astype("f8") for v in (x, w, g)))))


def _conv_reference(x: Any, w: Any, g: Any) -> list[Any]:
    pad = ((0, 0), (0, 0), (1, 1), (1, 1))
    padded, dx = np.pad(x, pad), np.pad(np.zeros_like(x), pad)
    out, dw = np.zeros_like(g), np.zeros_like(w)
    for i in range(3):
        for j in range(3):
            part = np.s_[:, :, i : i + 56, j : j + 56]
            out += np.einsum("oc,nchw->nohw", w[:, :, i, j], padded[part], optimize=True)
            dw[:, :, i, j] = np.einsum("nohw,nchw->oc", g, padded[part], optimize=True)
            dx[part] += np.einsum("oc,nohw->nchw", w[:, :, i, j], g, optimize=True)
    return [out, dx[:, :, 1:-1, 1:-1], dw]


def attention(library: str) -> Work:
    """P5: batch 4, 8 heads, 512 queries and keys of depth 64, with all gradients."""
    q, k, v, g = (normal(i, (4, 8, 512, 64)) for i in range(4))
    lib = load(library)
    call = both_ways(lib, (q, k, v), g, lib.F.scaled_dot_product_attention)
    exact = (x.astype("f8") for x in (q, k, v, g))
    return Work(call, ratio(call(), _attention_reference(*exact)))


def _attention_reference(q: Any, k: Any, v: Any, g: Any) -> list[Any]:
    p = np.exp(q @ k.swapaxes(2, 3) / 8)
    p /= p.sum(axis=-1, keepdims=True)
    dp = g @ v.swapaxes(2, 3)
    ds = p * (dp - (p * dp).sum(axis=-1, keepdims=True)) / 8
    return [p @ v, ds @ k, ds.swapaxes(2, 3) @ q, p.swapaxes(2, 3) @ g]


def both_ways(
    lib: SimpleNamespace, arrays: Any, g: Any, function: Callable[..., Any]
) -> Callable[[], list[Any]]:
    """A call of `function` and of its backward: returns the result and fresh gradients."""
    inputs = [lib.tensor(x).requires_grad_() for x in arrays]
    seed = lib.tensor(g)

    def call() -> list[Any]:
        for x in inputs:
            x.grad = None
        out = function(*inputs)
        out.backward(seed)
        return [out, *(x.grad for x in inputs)]

    return call


def adamw(library: str) -> Work:
    """P6: one step on 10 M parameters in one tensor."""
    lib, size = load(library), 10_000_000
    p, g = normal(0, (size,)), normal(1, (size,))
    x = lib.tensor(p.copy()).requires_grad_()
    x.grad = lib.tensor(g)
    step = lib.AdamW([x], lr=1e-3, weight_decay=0.1).step
    step()
    exact = p * (1 - 1e-4) - 1e-3 * g.astype("f8") / (np.abs(g.astype("f8")) + 1e-8)
    return Work(step, ratio([x], [exact]))


def normal(seed: int, shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def ratio(found: Any, exact: Any) -> float:
    """The largest of the distances between results, each over the length of the exact one."""
    return max(
        float(np.linalg.norm(host(a).astype("f8") - b) / np.linalg.norm(b))
        for a, b in zip(found, exact, strict=True)
    )


def host(x: Any) -> Any:
    return x if isinstance(x, np.ndarray) else x.detach().numpy()


def load(library: str) -> SimpleNamespace:
    """The names that works use, from ruda or PyTorch; only the one asked for is imported."""
    if library == "torch":
        import torch
        from torch import nn

        def fused(params: Any, **settings: Any) -> Any:
            return torch.optim.AdamW(params, fused=True, **settings)

        clip = nn.utils.clip_grad_norm_
        functional, tensor = nn.functional, torch.from_numpy
        return SimpleNamespace(
            nn=nn, F=functional, tensor=tensor, AdamW=fused, clip=clip, **_shared(torch)
        )
    import ruda
    import ruda.nn.functional as functional
    from ruda import nn, optim

    return SimpleNamespace(
        nn=nn,
        F=functional,
        tensor=ruda.tensor,
        AdamW=optim.AdamW,
        clip=optim.clip_grad_norm_,
        **_shared(ruda),
    )


def _shared(module: Any) -> dict[str, Any]:
    return {"module": module, "matmul": module.matmul, "tanh": module.tanh}


WORKS: dict[str, Callable[[str], Work]] = {
    "matmul 1024": lambda library: matmul(library, 1024, 1024, 1024),
    "matmul 4096": lambda library: matmul(library, 4096, 256, 1024),
    "chain": chain,
    "conv": conv,
    "attention": attention,
    "adamw": adamw,
}
