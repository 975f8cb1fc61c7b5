"""Random programs give what eager code gives, to the last bit, and so do their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda.backends.numpy import kernels, large, pool, regions
from tests.fusion.odd_numbers import OddProgram, same_numbers
from tests.fusion.programs import Program
from tests.fusion.twins import bits


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("grads", [False, True])
def test_random_programs_equal_eager_code(grads: bool, wide: bool) -> None:
    for seed in range(12 if grads else 24):
        program = Program(seed, grads=grads, wide=wide)
        compiled = ruda.compile(program)
        for call in range(2):
            given = program.inputs(call, "cpu")
            with np.errstate(all="ignore"):
                wanted, found = bits(program(*given)), bits(compiled(*given))
            assert found == wanted, f"seed {seed}, {program.specs}"
        assert repr(compiled).endswith("1 signature(s)>")


def few_at_a_time(size: int, step: int = 16) -> list[slice]:
    """Tiles of 16 elements."""
    return pool.tiles(size, 16)


def check_odd(program: OddProgram) -> None:
    """Raise where two calls of ``program`` differ, compiled and eager."""
    compiled = ruda.compile(program)
    for call in range(2):
        given = program.inputs(call, "cpu")
        with np.errstate(all="ignore"):
            pairs = zip(compiled(*given), program(*given), strict=True)
        differing = [i for i, pair in enumerate(pairs) if not same_numbers(*pair)]
        assert not differing, f"seed {program.seed}, results {differing}, {program.specs}"


@pytest.mark.parametrize("tiled", [False, True])
def test_odd_numbers_come_out_as_in_eager_code(tiled: bool, monkeypatch: Any) -> None:
    if tiled:
        # Chains are done a tile at a time, which otherwise only large tensors are.
        for module, name, value in (
            (regions, "TILE", 1),
            (regions, "tiles", few_at_a_time),
            (large, "tiles", few_at_a_time),
            (large, "LEAST", 1),
        ):
            monkeypatch.setattr(module, name, value)
        monkeypatch.setattr(kernels, "_BY_ROW", {})
    for seed in range(30):
        check_odd(OddProgram(seed, grads=seed % 3 == 0))
