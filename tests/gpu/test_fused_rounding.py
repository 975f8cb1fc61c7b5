"""Steps of one kernel round as operators that run one by one: no product is joined with a sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F

CHAINS: dict[str, Callable[..., Any]] = {
    "a product and a sum": lambda x, y, z: x * y + z,
    "a negative product and a sum": lambda x, y, z: -(x * y) + z,
    "a square and a difference": lambda x, y, z: z - ruda.square(x),
    "silu": lambda x, y, z: F.silu(x) + y,
    "gelu": lambda x, y, z: F.gelu(x, approximate="tanh") - y,
    "the gradient of tanh": lambda x, y, z: x * (1 - y * y) + z,
    "a quotient": lambda x, y, z: x / (1 + ruda.exp(-y)) + z * 3,
    "a product by chance": lambda x, y, z: F.dropout(x, 0.25) + y,
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_gives_what_its_operators_give(device: str, name: str, dtype: str) -> None:
    plain, rng = CHAINS[name], np.random.default_rng(0)
    args = [
        ruda.asarray(rng.standard_normal((1 << 8, 1 << 10)), dtype=dtype, device=device)
        for _ in range(3)
    ]
    step = ruda.compile(plain)
    for _ in range(2):
        ruda.random.manual_seed(1)
        found = step(*args)
    ruda.random.manual_seed(1)
    assert found.numpy().tobytes() == plain(*args).numpy().tobytes()


def test_a_row_kernel_takes_what_steps_before_it_have_rounded(device: str) -> None:
    rng = np.random.default_rng(0)
    x, y, z = (
        ruda.asarray(rng.standard_normal((512, 256)).astype("float32"), device=device)
        for _ in range(3)
    )

    def plain(x: Any, y: Any, z: Any) -> Any:
        shifted = x * y + z
        return shifted, F.softmax(x * y + z, axis=-1) * y + z

    step = ruda.compile(plain)
    step(x, y, z)
    found, wanted = step(x, y, z), plain(x, y, z)
    assert found[0].numpy().tobytes() == wanted[0].numpy().tobytes()
    np.testing.assert_allclose(found[1].numpy(), wanted[1].numpy(), rtol=1e-5, atol=1e-6)
