"""What is promised of random numbers."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.random as rr
from ruda.ops.reference import philox

DRAWS: dict[str, Any] = {
    "uniform": lambda shape, **o: rr.uniform(shape, low=-1.0, high=3.0, **o),
    "normal": lambda shape, **o: rr.normal(shape, mean=1.0, std=2.0, **o),
    "truncated_normal": lambda shape, **o: rr.truncated_normal(shape, low=-1.0, high=2.0, **o),
    "exponential": lambda shape, **o: rr.exponential(shape, scale=3.0, **o),
    "gamma": lambda shape, **o: rr.gamma(shape, concentration=2.5, **o),
    "integers": lambda shape, **o: rr.integers(-3, 9, shape, **o),
    "bernoulli": lambda shape, **o: rr.bernoulli(0.3, shape, **o),
}


@pytest.mark.parametrize("name", DRAWS)
def test_the_stream_follows_from_seed_and_counter_alone(name: str) -> None:
    draw = DRAWS[name]
    first, second = rr.Generator(5), rr.Generator(5)
    a = [draw((7,), generator=first) for _ in range(3)]
    b = [draw((7,), generator=second) for _ in range(3)]
    assert [x.tolist() for x in a] == [x.tolist() for x in b]
    assert a[0].tolist() != a[1].tolist()
    assert draw((7,), generator=rr.Generator(6)).tolist() != a[0].tolist()


@pytest.mark.parametrize("name", DRAWS)
def test_a_call_takes_one_draw_whatever_its_size(name: str) -> None:
    for shape in ((), (1,), (1000,), (0, 3)):
        generator = rr.Generator(1)
        assert DRAWS[name](shape, generator=generator).shape == shape
        assert generator.draw == 1


@pytest.mark.parametrize("name", ["uniform", "normal", "exponential", "integers", "bernoulli"])
def test_elements_do_not_depend_on_the_size_or_shape_of_the_draw(name: str) -> None:
    long = DRAWS[name]((600,), generator=rr.Generator(1)).numpy()
    short = DRAWS[name]((10,), generator=rr.Generator(1)).numpy()
    square = DRAWS[name]((20, 30), generator=rr.Generator(1)).numpy()
    assert np.array_equal(long[:10], short) and np.array_equal(square.ravel(), long)


def test_philox_4x32_10_gives_the_published_words() -> None:
    # Known answers of the reference implementation (Random123, kat_vectors), counter and key zero.
    words = philox.words(0, 0, 4, 0)
    assert [f"{int(w):08x}" for w in words] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]


def test_state_split_and_jump() -> None:
    generator = rr.Generator(3)
    rr.normal((4,), generator=generator)
    state = generator.state_dict()
    ahead = rr.normal((4,), generator=generator).tolist()
    again, pickled = rr.Generator(), pickle.loads(pickle.dumps(generator))
    again.load_state_dict(state)
    assert rr.normal((4,), generator=again).tolist() == ahead
    assert pickled.state_dict() == generator.state_dict()
    children = rr.Generator(3).split(3)
    assert len({child.seed for child in children}) == 3
    streams = [rr.uniform((8,), generator=g).tolist() for g in (*children, rr.Generator(3).jump())]
    assert len({tuple(s) for s in streams}) == 4


@pytest.mark.parametrize(
    ("name", "mean", "variance"),
    [
        ("uniform", 1.0, 16 / 12),
        ("normal", 1.0, 4.0),
        ("exponential", 3.0, 9.0),
        ("gamma", 2.5, 2.5),
        ("integers", 2.5, 143 / 12),
        ("bernoulli", 0.3, 0.21),
    ],
)
def test_moments(name: str, mean: float, variance: float) -> None:
    n = 100_000
    x = DRAWS[name]((n,), generator=rr.Generator(0)).numpy().astype(np.float64)
    # Six standard errors, with a fourth moment of at most 9 squared variances.
    assert abs(x.mean() - mean) < 6 * np.sqrt(variance / n)
    assert abs(x.var() - variance) < 6 * np.sqrt(9 * variance**2 / n)


def test_ranges() -> None:
    u = rr.uniform((10_000,), generator=rr.Generator(0)).numpy()
    assert u.min() >= 0 and u.max() < 1
    t = rr.truncated_normal((10_000,), low=8.0, high=8.5, generator=rr.Generator(0)).numpy()
    assert t.min() >= 8 and t.max() <= 8.5
    full = rr.integers(-(2**63), 2**63, (100,), dtype="int64", generator=rr.Generator(0)).numpy()
    assert full.min() < 0 < full.max()
    small = rr.integers(0, 2, (1000,), dtype="uint8", generator=rr.Generator(0))
    assert set(small.tolist()) == {0, 1}


def test_categorical_with_and_without_replacement() -> None:
    p = ruda.asarray([0.1, 0.0, 0.9])
    with_them = rr.categorical(p, 20_000, replacement=True, generator=rr.Generator(0)).numpy()
    counts = np.bincount(with_them, minlength=3) / 20_000
    assert counts[1] == 0 and abs(counts[0] - 0.1) < 6 * np.sqrt(0.09 / 20_000)
    without = rr.categorical(ruda.ones((50, 6)), 6, replacement=False, generator=rr.Generator(0))
    assert np.array_equal(np.sort(without.numpy(), -1), np.tile(np.arange(6), (50, 1)))


def test_permutation_orders_everything_once() -> None:
    order = rr.permutation(1000, generator=rr.Generator(0)).tolist()
    assert sorted(order) == list(range(1000)) and order != sorted(order)
    rows = rr.permutation(ruda.arange(10).reshape((5, 2)), generator=rr.Generator(0)).tolist()
    assert sorted(rows) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


BAD = {
    "an empty interval": (lambda: rr.uniform((2,), low=2.0, high=1.0), ruda.ArgumentError),
    "an infinite bound": (lambda: rr.uniform((2,), high=float("inf")), ruda.ArgumentError),
    "a bound of NaN": (lambda: rr.uniform((2,), low=float("nan")), ruda.ArgumentError),
    "a huge integer": (lambda: rr.uniform((2,), high=10**400), ruda.ArgumentError),
    "a negative width": (lambda: rr.normal((2,), std=-1.0), ruda.ArgumentError),
    "a scale of zero": (lambda: rr.exponential((2,), scale=0.0), ruda.ArgumentError),
    "no concentration": (lambda: rr.gamma((2,), concentration=0.0), ruda.ArgumentError),
    "no probability": (lambda: rr.bernoulli(1.5, (2,)), ruda.ArgumentError),
    "a negative weight": (
        lambda: rr.categorical(ruda.asarray([0.5, -0.5]), 1),
        ruda.ArgumentError,
    ),
    "weights of zero": (lambda: rr.categorical(ruda.zeros(3), 1), ruda.ArgumentError),
    "more than there are": (
        lambda: rr.categorical(ruda.ones(3), 4, replacement=False),
        ruda.ArgumentError,
    ),
    "no integers between": (lambda: rr.integers(5, 5, (2,)), ruda.ArgumentError),
    "a range beyond the dtype": (
        lambda: rr.integers(0, 300, (2,), dtype="int8"),
        ruda.ArgumentError,
    ),
    "a negative size": (lambda: rr.normal((-1,)), ruda.ShapeError),
    "no shape": (lambda: rr.normal(), ruda.ShapeError),
    "an integer dtype": (lambda: rr.uniform((2,), dtype="int32"), ruda.DTypeError),
    "a seed of another kind": (lambda: rr.Generator(1.5), ruda.DTypeError),  # type: ignore[arg-type]
    "a negative seed": (lambda: rr.Generator(-1), ruda.ArgumentError),
    "a seed of 65 bits": (lambda: rr.Generator(2**64), ruda.ArgumentError),
    "not a generator": (lambda: rr.normal((2,), generator=np.random), ruda.DTypeError),
    "a state of another": (lambda: rr.Generator().load_state_dict({}), ruda.ArgumentError),
    "no vendor": (
        lambda: rr.uniform((2,), device="cpu", generator=rr.Generator(1, engine="vendor")),
        ruda.StrategyError,
    ),
    "no such engine": (lambda: rr.Generator(1, engine="mt19937"), ruda.ArgumentError),
}


@pytest.mark.parametrize("case", BAD)
def test_parameters_are_validated(case: str) -> None:
    call, error = BAD[case]
    before = rr.default_generator.draw
    with pytest.raises(error, match=r"^[\w.]+: .*Got "):
        call()
    # Only values of a tensor are seen too late to keep the draw.
    late = case in ("a negative weight", "weights of zero")
    assert rr.default_generator.draw == before + late


def test_each_replay_of_a_compiled_step_draws_anew_and_as_eager_does() -> None:
    rr.seed(11)
    eager = [rr.normal((5,)).tolist() for _ in range(4)]
    rr.seed(11)
    step = ruda.compile(lambda: rr.normal((5,)))
    assert [step().tolist() for _ in range(4)] == eager


def test_the_first_random_number_of_a_program_may_be_in_a_compiled_step() -> None:
    code = "import ruda; print(ruda.compile(lambda: ruda.random.normal((2,)))().shape)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout.strip() == "(2,)", run.stderr


def test_gradients_reach_parameters_that_are_tensors() -> None:
    mean, std = ruda.tensor([1.0, 2.0], requires_grad=True), ruda.tensor(3.0, requires_grad=True)
    x = rr.normal(mean=mean, std=std, generator=rr.Generator(0))
    x.sum().backward()
    standard = rr.normal((2,), generator=rr.Generator(0)).numpy()
    assert mean.grad.tolist() == [1, 1]
    np.testing.assert_allclose(std.grad.item(), standard.sum(), rtol=1e-6)
