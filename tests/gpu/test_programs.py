"""Random programs, compiled on the GPU, give what eager code gives on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ruda
from tests.fusion.programs import Program


def leaves(found: Any) -> Iterator[Any]:
    """All tensors of a result."""
    if isinstance(found, tuple | list):
        for item in found:
            yield from leaves(item)
    else:
        yield found


@pytest.mark.parametrize("seed", range(16))
def test_random_programs_give_what_the_cpu_gives(device: str, seed: int) -> None:
    program = Program(seed, grads=seed % 3 == 0, wide=seed % 5 == 0, steady=True)
    compiled = ruda.compile(program)
    for call in range(2):
        given = program.inputs(call, "cpu")
        with np.errstate(all="ignore"):
            wanted = program(*given)
        found = compiled(*(x.to(device) for x in given))
        for got, want in zip(leaves(found), leaves(wanted), strict=True):
            if got is None or want is None:
                assert got is want
                continue
            assert got.dtype is want.dtype and got.shape == want.shape
            expected = want.numpy()
            size = max(1.0, np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
            np.testing.assert_allclose(got.numpy(), expected, rtol=1e-3, atol=1e-4 * size)
