"""``Generator(engine="vendor")``: what cuRAND is asked for, and what becomes of its numbers."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import random
from ruda.core.errors import ArgumentError, CaptureError, StrategyError
from ruda.random import Generator

pytest.importorskip("ruda.backends.cuda.compiler")

from ruda.backends.cuda.rand import curand
from tests.cuda.libraries.curand import Curand


@pytest.fixture(autouse=True)
def _library(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = curand.Library(client, Curand())
    monkeypatch.setattr(curand, "library", lambda client: made)


def draws(generator: Generator, device: str) -> list[Any]:
    where: Any = {"device": device, "generator": generator}
    return [
        random.uniform((5, 7), -1.0, 3.0, **where),
        random.uniform((9,), dtype="bfloat16", **where),
        random.normal((3, 3), 2.0, 0.5, dtype="float64", **where),
        random.normal((1001,), dtype="float16", **where),
        random.integers(-3, 4, (2000,), **where),
        random.integers(0, 2**32, (50,), dtype="uint64", **where),
        random.uniform((0, 3), **where),
    ]


def test_kinds_shapes_and_ranges(device: str) -> None:
    generator = Generator(7, engine="vendor")
    assert repr(generator) == "Generator(seed=7, draw=0, engine='vendor')"
    wide, half, normal, small, whole, large, nothing = draws(generator, device)
    assert generator.draw == 7
    assert wide.shape == (5, 7) and wide.dtype == ruda.float32
    assert float(wide.min()) >= -1 and float(wide.max()) < 3
    # cuRAND gives 1, which becomes 0, and what is so small that 1 less it is 1.
    assert float(half.min()) == 0 and float(half.max()) < 1
    assert normal.dtype == ruda.float64 and abs(float(normal.mean()) - 2) < 1
    assert small.dtype == ruda.float16 and abs(float(small.astype("float32").std()) - 1) < 0.1
    assert set(whole.tolist()) == set(range(-3, 4))
    assert large.dtype == ruda.uint64 and max(large.tolist()) > 2**31
    assert nothing.shape == (0, 3)


def test_seed_and_draw_number_are_the_state(device: str) -> None:
    first = Generator(7, engine="vendor")
    want = [x.numpy() for x in draws(first, device)]
    again = Generator(7, engine="vendor")
    random.normal((3,), device=device, generator=again)
    state = again.state_dict()
    assert state == {"seed": 7, "draw": 1, "engine": "vendor"}
    copy = pickle.loads(pickle.dumps(again))
    other = Generator(1, engine="vendor")
    other.load_state_dict(state)
    for generator in (again, copy, other):
        found = random.uniform((9,), dtype="bfloat16", device=device, generator=generator)
        np.testing.assert_array_equal(found.numpy(), want[1])
    split = [g.engine for g in Generator(7, engine="vendor").split(2)]
    assert split == ["vendor", "vendor"]


def test_parameters_that_are_tensors_have_gradients(device: str) -> None:
    mean = ruda.zeros(4, device=device).requires_grad_()
    out = random.normal((3, 4), mean, 1.0, generator=Generator(1, engine="vendor"))
    out.sum().backward()
    assert mean.grad.tolist() == [3.0] * 4


def test_what_a_vendor_does_not_do_raises(device: str) -> None:
    generator = Generator(7, engine="vendor")
    with pytest.raises(StrategyError, match="gamma: a vendor's generator draws uniform"):
        random.gamma((3,), generator=generator, device=device)
    with pytest.raises(StrategyError, match="uniform: no generator of a vendor's library"):
        random.uniform((3,), generator=generator, device="cpu")
    with pytest.raises(ArgumentError, match="the range is too wide"):
        random.integers(0, 2**33, (3,), dtype="int64", generator=generator, device=device)
    with pytest.raises(ArgumentError, match="not a generator's state"):
        generator.load_state_dict({"seed": 1, "draw": 0})
    with pytest.raises(StrategyError, match="too short"):
        generator.jump()
    generator.advance(2**30 - generator.draw)
    with pytest.raises(ArgumentError, match="leaves the stream"):
        random.uniform((3,), generator=generator, device=device)

    @ruda.compile
    def step() -> Any:
        return random.uniform((3,), device=device, generator=Generator(7, engine="vendor"))

    with pytest.raises(CaptureError):
        step()
