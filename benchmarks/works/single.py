"""What the CPU rows time: the same work on the same numbers by ruda and by PyTorch.

Each function gets the name of a library and returns a call to time, after it compared the result of
one call with a float64 reference written in NumPy.
"""

from __future__ import annotations

import functools
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


def chain(library: str, compiled: bool = False) -> Work:
    """P2: six operators on 4 M elements; eager, each has a result of its own."""
    lib, x = load(library), normal(0, (4 << 20,))
    given, tanh = lib.tensor(x), lib.tanh

    def six(x: Any, tanh: Any) -> Any:
        return tanh((x * x * CUBIC + SLOPE) * x) * x

    run = step_of(lib, lambda x: six(x, tanh), compiled)
    call = functools.partial(run, given)
    return Work(call, ratio([call()], [six(x.astype("f8"), np.tanh)]))


def rows(library: str, name: str) -> Work:
    """P3: one operator of rows on 8192 x 1024 and its gradient, in a compiled step."""
    lib, x, g = load(library), normal(0, (8192, 1024)), normal(1, (8192, 1024))
    target = np.arange(8192) * 7 % 1024
    classes, norm = lib.tensor(target), lib.nn.LayerNorm(1024)
    functions = {
        "softmax": lambda x: lib.F.softmax(x, -1),
        "layer_norm": norm,
        "cross_entropy": lambda x: lib.F.cross_entropy(x, classes),
    }
    # Of its weights, which start as ones and zeros, no gradient is asked for.
    norm.requires_grad_(False)
    seed = None if name == "cross_entropy" else g
    call = both_ways(lib, (x,), seed, functions[name], compiled=True)
    exact = _ROWS[name](x.astype("f8"), g.astype("f8"), target)
    return Work(call, ratio(call(), exact))


def _softmax_reference(x: Any, g: Any, target: Any) -> list[Any]:
    p = np.exp(x)
    p /= p.sum(axis=1, keepdims=True)
    return [p, p * (g - (p * g).sum(axis=1, keepdims=True))]


def _layer_norm_reference(x: Any, g: Any, target: Any) -> list[Any]:
    rstd = 1 / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    y = (x - x.mean(axis=1, keepdims=True)) * rstd
    along = (g * y).mean(axis=1, keepdims=True)
    return [y, (g - g.mean(axis=1, keepdims=True) - y * along) * rstd]


def _cross_entropy_reference(x: Any, g: Any, target: Any) -> list[Any]:
    places = np.arange(len(target)), target
    level = np.log(np.exp(x).sum(axis=1))
    dx = np.exp(x - level[:, None])
    dx[places] -= 1
    return [np.mean(level - x[places]), dx / len(target)]


_ROWS: dict[str, Callable[..., list[Any]]] = {
    "softmax": _softmax_reference,
    "layer_norm": _layer_norm_reference,
    "cross_entropy": _cross_entropy_reference,
}


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
    lib: SimpleNamespace,
    arrays: Any,
    g: Any,
    function: Callable[..., Any],
    compiled: bool = False,
) -> Callable[[], list[Any]]:
    """A call of `function` and of its backward: returns the result and fresh gradients."""
    inputs = [lib.tensor(x).requires_grad_() for x in arrays]
    seed = None if g is None else lib.tensor(g)

    def call() -> list[Any]:
        for x in inputs:
            x.grad = None
        out = function(*inputs)
        out.backward(seed)
        return [out, *(x.grad for x in inputs)]

    return step_of(lib, call, compiled)


def step_of(lib: SimpleNamespace, function: Callable[..., Any], compiled: bool) -> Any:
    """`function`, as a compiled step of ruda; the peer of the CPU rows is eager PyTorch always."""
    return lib.module.compile(function) if compiled and lib.module.__name__ == "ruda" else function


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
    "chain compiled": lambda library: chain(library, compiled=True),
    "softmax rows": lambda library: rows(library, "softmax"),
    "layer_norm rows": lambda library: rows(library, "layer_norm"),
    "cross_entropy rows": lambda library: rows(library, "cross_entropy"),
    "conv": conv,
    "attention": attention,
    "adamw": adamw,
}
