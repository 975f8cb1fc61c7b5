"""Compiled steps over shared state, whatever happens between calls, are what eager ones are."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fusion.worlds import differences


@pytest.mark.parametrize("seed", [11, *range(5)])
def test_a_compiled_life_is_the_eager_one(seed: int) -> None:
    with np.errstate(all="ignore"):
        assert differences(seed, "cpu") == []
