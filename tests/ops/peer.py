"""PyTorch as an outside judge: values, gradients and gradients of gradients of the same function.

The tolerance is a ratio of norms: a few hundred roundings of float64, which covers sums as long as
the tests have.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda

TOLERANCE = 512 * float(np.finfo(np.float64).eps)


def torch() -> Any:
    """PyTorch, or a skipped test."""
    return pytest.importorskip("torch")


def leaves(*arrays: Any) -> tuple[list[Any], list[Any]]:
    """Each array as a leaf of ruda and as one of PyTorch."""
    mine = [ruda.tensor(a, requires_grad=True) for a in arrays]
    return mine, [torch().tensor(a, requires_grad=True) for a in arrays]


def assert_same(
    mine: Callable[..., Any], theirs: Callable[..., Any], *arrays: Any, seed: int = 0
) -> None:
    """Both functions of ``arrays`` agree in value and in derivatives of orders 1 and 2."""
    ours, judges = leaves(*arrays)
    out = mine(*ours)
    with warnings.catch_warnings():
        # What PyTorch warns of, such as padding that needs a copy, is its own affair.
        warnings.simplefilter("ignore")
        expected = theirs(*judges)
    assert_near(out, expected)
    rng = np.random.default_rng(seed)
    direction = np.asarray(rng.standard_normal(tuple(expected.shape)), arrays[0].dtype)
    weighted = out * ruda.asarray(direction), expected * torch().tensor(direction)
    first = backward(ours, judges, *map(real, weighted))
    used = [(x, y) for x, y in first if y is not None and y.requires_grad and x.requires_grad]
    if used:
        second = [ruda.sum(real(x * x)) for x, _ in used], [real(y * y).sum() for _, y in used]
        backward(ours, judges, *(sum(terms[1:], terms[0]) for terms in second))


def real(x: Any) -> Any:
    """The real part of a tensor of either kind."""
    return ruda.real(x) if isinstance(x, ruda.Tensor) else x.real


def backward(ours: list[Any], judges: list[Any], out: Any, expected: Any) -> list[Any]:
    """Compare the gradients of the sums of both outputs, and return them in pairs."""
    for x, y in zip(ours, judges, strict=True):
        x.grad = y.grad = None
    ruda.sum(out).backward(create_graph=True)
    with warnings.catch_warnings():
        # PyTorch warns of the cycle that create_graph makes in its own tensors.
        warnings.simplefilter("ignore")
        expected.sum().backward(create_graph=True)
    pairs = [(x.grad, y.grad) for x, y in zip(ours, judges, strict=True)]
    for x, y in pairs:
        if x is None or y is None:
            known = x if y is None else y
            assert known is None or not np.any(_array(known))
        else:
            assert_near(x, y)
    return pairs


def assert_near(got: Any, expected: Any, tolerance: float = TOLERANCE) -> None:
    """Equal shapes, and a distance small beside the norm of what is expected."""
    a, b = _array(got), _array(expected)
    assert a.shape == b.shape
    scale = np.linalg.norm(b.reshape(-1))
    error = np.linalg.norm((a - b).reshape(-1))
    assert error <= tolerance * max(scale, 1e-3), f"error {error / max(scale, 1e-3):.2g}"


def _array(x: Any) -> Any:
    if isinstance(x, ruda.Tensor):
        return x.detach().numpy()
    return x.detach().numpy(force=True) if hasattr(x, "detach") else np.asarray(x)
