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
from ruda.core.errors import DeviceError
from ruda.fusion.captured import Captured
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
del test_reading_an_array_names_the_line  # noqa: F821

MODULES: tuple[ModuleType, ...] = (
    test_capture,
    test_guards,
    test_replay,
    test_state,
    test_steps,
    twins,
)

# What a step must not do, and the tests that set it a trap.
TRAPS = {
    "draw one mask again and again": ("test_dropout_draws_a_new_mask_in_each_replay",),
    "freeze the learning rate or the count of steps": (
        "test_a_schedule_and_the_step_count_are_not_frozen",
        "test_a_learning_rate_set_outside_arrives",
    ),
    "spoil gradients that add up": (
        "test_gradients_accumulate_over_replays",
        "test_accumulation_and_update_alternate",
    ),
    "take a global or a closure for a constant": (
        "test_a_global_that_changes",
        "test_closures_defaults_and_keyword_defaults",
    ),
    "overwrite what it gave before": ("test_an_output_that_is_kept_stays_as_it_was",),
    "read other strides, or a part of a buffer, as the first": (
        "test_other_dtypes_shapes_and_strides",
        "test_slices_of_one_buffer_share_a_signature",
    ),
    "go on training in eval()": ("test_train_and_eval_are_two_signatures_and_no_more",),
    "read parameters that were replaced": (
        "test_load_state_dict_and_replaced_parameters_are_seen",
    ),
    "miss an optimizer's state that appears later": (
        "test_optimizer_state_that_appears_inside_is_refused",
        "test_a_parameter_group_that_appears_later_is_seen",
    ),
    "miss a change of a tensor from outside": ("test_a_counter_counts_each_replay",),
    "keep state of its own that two steps share": ("test_two_steps_share_one_model",),
    "leave state changed by half": ("test_a_number_that_cannot_be_made_commits_nothing",),
    "freeze the statistics of a batch norm": ("test_batch_norm_statistics_move_as_in_eager_code",),
    "draw otherwise after a resume": ("test_draws_go_on_where_a_saved_generator_stood",),
    "lose what is compiled inside": ("test_nested_and_recursive_compiled_functions_are_inlined",),
    "mix up threads": ("test_threads_share_one_compiled_step",),
}
SET = {name for names in TRAPS.values() for name in names}

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


def test_sixteen_traps_are_set() -> None:
    assert len(TRAPS) == 16 and set(globals()) >= SET


@pytest.fixture(autouse=True)
def replays_graphs(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[None]:
    """A trap is one for graphs if one is replayed."""
    run, replayed = Captured.run, []

    def counted(self: Captured, given: Any) -> Any:
        replayed.append(self.graph is not None)
        return run(self, given)

    monkeypatch.setattr(Captured, "run", counted)
    yield
    assert any(replayed) or request.node.originalname not in SET


@pytest.fixture(autouse=True)
def on_the_gpu(device: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in MODULES:
        for name, value in list(vars(module).items()):
            if value is twins_bits:
                monkeypatch.setattr(module, name, about)
            elif isinstance(value, ruda.Tensor):
                monkeypatch.setattr(module, name, value.to(device))
    ruda.set_default_device(device)
    yield
    ruda.set_default_device(None)


def test_an_array_is_refused_as_outside(device: str) -> None:
    x = ruda.ones(2, device=device)
    with pytest.raises(DeviceError) as outside:
        np.asarray(x)
    with pytest.raises(DeviceError) as inside:
        ruda.compile(lambda x: np.asarray(x))(x)
    assert str(inside.value) == str(outside.value)
