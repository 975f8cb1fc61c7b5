"""Activations of half types by the instructions of the device, which are not those of the CPU."""

from __future__ import annotations

import pytest

from tests.cuda.test_quick import check


@pytest.mark.parametrize("name", ["sigmoid", "silu"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_every_number(device: str, dtype: str, name: str) -> None:
    check(device, dtype, name)
