"""Compiled steps over shared state on a GPU, in one stream and in two, are as eager ones."""

from __future__ import annotations

import pytest

from tests.fusion.worlds import differences


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_compiled_life_is_the_eager_one(device: str, seed: int, streams: bool) -> None:
    assert differences(seed, device, streams=streams) == []
