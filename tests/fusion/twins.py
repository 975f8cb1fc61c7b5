"""Two copies of a small world, one stepped eagerly and one compiled, that must stay equal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import ruda


def bits(value: Any) -> Any:
    """What a tensor holds, to the last bit; other values as they are."""
    if isinstance(value, ruda.Tensor):
        return value.dtype, value.shape, value.detach().numpy().tobytes()
    if isinstance(value, tuple | list):
        return [bits(item) for item in value]
    if isinstance(value, dict):
        return {name: bits(item) for name, item in value.items()}
    return value


def run_twins(
    build: Callable[[], tuple[Callable[..., Any], Callable[[], Iterable[Any]]]],
    inputs: Iterable[tuple[Any, ...]],
    *,
    signatures: int = 1,
) -> Any:
    """Build the world twice; after each step outputs and what ``look`` shows must be equal.

    ``build`` gives a step and a function that lists the state. Returns the compiled step.
    """
    eager, look_eager = build()
    step, look = build()
    compiled = ruda.compile(step)
    for args in inputs:
        wanted, found = bits(eager(*args)), bits(compiled(*args))
        assert found == wanted
        assert bits(list(look())) == bits(list(look_eager()))
    assert sum(map(len, compiled.programs.values())) == signatures
    return compiled


def batches(count: int, *shape: int, dtype: str = "float32") -> list[ruda.Tensor]:
    """Different random tensors."""
    rng = np.random.default_rng(5)
    return [ruda.asarray(rng.standard_normal(shape).astype(dtype)) for _ in range(count)]
