"""Random programs give what eager code gives, to the last bit, and so do their gradients."""

from __future__ import annotations

import numpy as np
import pytest

import ruda
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
