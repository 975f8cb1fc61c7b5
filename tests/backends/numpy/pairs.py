"""A row run twice on the same operands: by its kernel, and by its NumPy reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.optim  # rows of optimizers
from ruda.backends.numpy import kernels
from ruda.core.spec import absent_spec, weak_spec
from ruda.ops.table import TABLE

EPS = float(np.finfo(np.float32).eps)
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, -1e-42, 3e38, -3e38, 88.0, -88.0, -104.0]


@contextmanager
def any_size() -> Iterator[None]:
    """Kernels for plans of every size, so that small and odd shapes reach them."""
    with pytest.MonkeyPatch.context() as patch:
        small = {row: family._replace(least=0) for row, family in kernels._BY_ROW.items()}
        patch.setattr(kernels, "_BY_ROW", small)
        yield


def both(name: str, values: Sequence[Any], *attrs: Any) -> tuple[list[Any], list[Any]]:
    """The outputs of the row ``name``: of its kernel, which must exist, and of its reference."""
    tensors = [ruda.asarray(v) if isinstance(v, np.ndarray) else v for v in values]
    client = next(t.spec.client for t in tensors if isinstance(t, ruda.Tensor))
    specs = tuple(_spec(t, client) for t in tensors)
    handles = [getattr(t, "handle", t) for t in tensors]
    results = []
    for setting in ("auto", "off"):
        with pytest.MonkeyPatch.context() as patch, any_size():
            patch.setenv("RUDA_CPU_KERNELS", setting)
            plan = TABLE[name].plan(specs, attrs)
            chosen = "ruda.backends.numpy.kernels" in plan.run.__module__
            assert chosen is (setting == "auto"), plan.run
        out = plan.run(*handles)
        several = out if isinstance(out, tuple) else (out,)
        results.append([h.array for h in several])
    return results[0], results[1]


def _spec(value: Any, client: Any) -> Any:
    if value is None:
        return absent_spec(client)
    return value.spec if isinstance(value, ruda.Tensor) else weak_spec(client, "float")


def check(found: Sequence[Any], expected: Sequence[Any], allowed: Any) -> None:
    """The same NaN, the same infinities, and all else within ``allowed``, one for each output."""
    bounds = allowed if isinstance(allowed, list) else [allowed] * len(expected)
    for a, b, bound in zip(found, expected, bounds, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert a.flags.c_contiguous
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        infinite = np.isinf(b)
        np.testing.assert_array_equal(a[infinite], b[infinite])
        finite = np.isfinite(b)
        distance = np.abs(a[finite] - b[finite])
        limit = np.broadcast_to(bound, b.shape)[finite]
        assert (distance <= limit).all(), (distance - limit).max()


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
