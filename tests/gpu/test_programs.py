"""Random programs, compiled on the GPU, give what eager code gives on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ruda
from tests.fusion.odd_numbers import OddProgram, same_numbers
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


@pytest.mark.parametrize("seed", [*range(24), 66])
def test_programs_on_odd_numbers_give_what_the_cpu_gives(device: str, seed: int) -> None:
    program = OddProgram(seed, even=True)
    given = program.inputs(0, "cpu")
    with np.errstate(all="ignore"):
        wanted = program(*given)
    there = [x.to(device) for x in given]
    compiled = ruda.compile(program)
    for found in (program(*there), compiled(*there), compiled(*there)):
        assert all(same_numbers(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_wrap_around_in_fused_kernels(device: str, dtype: str) -> None:
    def signs(x: Any) -> Any:
        return ruda.signbit(ruda.abs(x)), x + 1 > x, x - 1 < x, ruda.where(x < 0, -x, x) < 0

    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    given = ruda.asarray(np.array([least, -1, 0, most], dtype))
    for call in (signs, ruda.compile(signs)):
        for found, want in zip(call(given.to(device)), signs(given), strict=True):
            assert found.tolist() == want.tolist()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_compared_with_the_half_nearest_to_a_number(device: str, dtype: str) -> None:
    def compared(x: Any, y: Any) -> Any:
        return x == 0.1, x < y, x != 1e10, x >= 0.1, y <= x, x * 0.1

    given = ruda.asarray([0.1, 1.0, float("inf")], dtype=dtype)
    for call in (compared, ruda.compile(compared)):
        for found, want in zip(call(given.to(device), 0.1), compared(given, 0.1), strict=True):
            assert found.tolist() == want.tolist()
    assert compared(given, 0.1)[0].tolist() == [True, False, False]
