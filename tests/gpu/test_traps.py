"""The traps of compiled steps, set on the GPU, where each step is one graph after its first call.

The tests are those of tests/fusion with CUDA as the default device. Kernels of a graph do several
operators at once, so floats are compared by dtype and not by bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import ruda
from tests.fusion import test_capture, test_guards, test_replay, test_state, test_steps, twins
from tests.fusion.test_capture import *  # noqa: F403
from tests.fusion.test_guards import *  # noqa: F403
from tests.fusion.test_replay import *  # noqa: F403
from tests.fusion.test_state import *  # noqa: F403
from tests.fusion.test_steps import *  # noqa: F403

# How registers are used on the CPU; memory of NumPy; errors that a GPU tells at the next wait.
del test_registers_are_used_again  # noqa: F821
del test_memory_shared_through_numpy_is_refused_or_right  # noqa: F821
del test_read_only_state_is_refused_before_anything_is_written  # noqa: F821
del test_a_replay_that_fails_commits_nothing  # noqa: F821

MODULES: tuple[ModuleType, ...] = (
    test_capture,
    test_guards,
    test_replay,
    test_state,
    test_steps,
    twins,
)


twins_bits = twins.bits


class About:
    """An array that equals those which differ by rounding alone."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __repr__(self) -> str:
        return repr(self.array)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, About) or self.array.shape != other.array.shape:
            return False
        if self.array.dtype.kind != "f":
            return bool(np.array_equal(self.array, other.array))
        near = 1e-4 if self.array.dtype == np.float32 else 1e-10
        return np.allclose(self.array, other.array, rtol=near, atol=near, equal_nan=True)

    __hash__ = None  # type: ignore[assignment]


def about(value: Any) -> Any:
    """As ``twins.bits``, with room for rounding."""
    if isinstance(value, ruda.Tensor):
        return value.dtype, About(value.detach().numpy())
    if isinstance(value, tuple | list):
        return [about(item) for item in value]
    if isinstance(value, dict):
        return {name: about(item) for name, item in value.items()}
    return value


@pytest.fixture(autouse=True)
def on_the_gpu(
    device: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[None]:
    if request.node.name == "test_reading_a_value_names_the_line[7]":
        pytest.skip("np.asarray of a tensor on a GPU is refused with and without a trace")
    for module in MODULES:
        for name, value in list(vars(module).items()):
            if value is twins_bits:
                monkeypatch.setattr(module, name, about)
            elif isinstance(value, ruda.Tensor):
                monkeypatch.setattr(module, name, value.to(device))
    ruda.set_default_device(device)
    yield
    ruda.set_default_device(None)
