"""Random tensors: the streams of generators, distributions, gradients of parameters, dropout."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.autodiff.checkpoint import checkpoint
from ruda.core.errors import ArgumentError
from ruda.ops.reference import random as continuous
from ruda.ops.reference import sampling
from ruda.random import Generator
from tests.ops.peer import assert_near

# Six standard errors: a sound generator fails one assertion in 10**9.
SIGMAS = 6


def near(samples: Any, mean: float, std: float) -> bool:
    """Whether the mean of independent samples is where it should be."""
    error = abs(float(samples.astype(np.float64).mean()) - mean)
    return error < SIGMAS * std / samples.size**0.5


def test_draws_are_those_of_the_reference() -> None:
    generator = Generator(11)
    got = [
        ruda.random.uniform((5,), -1.0, 2.0, generator=generator),
        ruda.random.normal((5,), 1.0, 3.0, dtype="float64", generator=generator),
        ruda.random.integers(0, 9, (5,), generator=generator),
        ruda.random.bernoulli(0.3, (5,), generator=generator),
    ]
    want = [
        continuous.uniform(11, 0, (5,), -1.0, 2.0),
        continuous.normal(11, 1, (5,), 1.0, 3.0, np.float64),
        sampling.integers(11, 2, (5,), 0, 9),
        sampling.bernoulli(11, 3, (5,), 0.3),
    ]
    for mine, reference in zip(got, want, strict=True):
        np.testing.assert_array_equal(mine.numpy(), reference)
    assert generator.draw == 4


def test_one_plan_serves_every_draw() -> None:
    op = ruda.ops.table.TABLE["normal"]
    generator = Generator(3)
    ruda.random.normal((4,), generator=generator)
    before = len(op.hot)
    for i in range(10):
        ruda.random.normal((4,), mean=float(i), generator=generator)
    assert len(op.hot) == before


def test_state_goes_on_exactly() -> None:
    generator = Generator(2**64 - 1)
    ruda.random.normal((3,), generator=generator)
    others = [pickle.loads(pickle.dumps(generator)), copy.deepcopy(generator), Generator(0)]
    others[2].load_state_dict(generator.state_dict())
    expected = ruda.random.normal((3,), generator=generator).tolist()
    assert all(ruda.random.normal((3,), generator=g).tolist() == expected for g in others)


def test_split_jump_and_labels_give_other_streams() -> None:
    generator = Generator(5)
    streams = [
        *generator.split(3),
        *generator.split(2),
        generator.jump(),
        generator.jump(2),
        Generator(5, 0),
        Generator(5, 0, 1),
        Generator(5, 1, 0),
        Generator(5),
    ]
    words = {tuple(ruda.random.uniform((2,), generator=g).tolist()) for g in streams}
    assert len(words) == len(streams)
    assert [g.seed for g in Generator(5).split(3)] == [g.seed for g in streams[:3]]


def test_threads_never_share_a_draw() -> None:
    generator, taken = Generator(0), []

    def take() -> None:
        for _ in range(500):
            taken.append(generator.advance())

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(2000))


def test_a_stream_ends_with_an_error() -> None:
    generator = Generator(0)
    generator.advance(2**64 - 1)
    generator.advance()
    with pytest.raises(ArgumentError, match="leaves the stream"):
        generator.advance()


def test_the_default_generator_can_be_seeded() -> None:
    before = ruda.random.default_generator.state_dict()
    try:
        ruda.random.seed(4)
        first = ruda.random.rand(3).tolist()
        ruda.random.manual_seed(4)
        assert ruda.random.rand((3,)).tolist() == first
        assert ruda.random.randn(2, 3).shape == (2, 3)
    finally:
        ruda.random.default_generator.load_state_dict(before)


@pytest.mark.parametrize(
    ("draw", "mean", "std"),
    [
        (lambda g: ruda.random.uniform((20000,), 1.0, 3.0, generator=g), 2.0, 3**-0.5),
        (lambda g: ruda.random.normal((20000,), 1.0, 2.0, generator=g), 1.0, 2.0),
        (lambda g: ruda.random.exponential((20000,), 2.0, generator=g), 2.0, 2.0),
        (lambda g: ruda.random.gamma((20000,), 0.5, 2.0, generator=g), 1.0, 2**0.5),
        (lambda g: ruda.random.integers(0, 10, (20000,), generator=g), 4.5, 8.25**0.5),
        (lambda g: ruda.random.bernoulli(0.3, (20000,), generator=g), 0.3, 0.21**0.5),
        (lambda g: ruda.random.truncated_normal((20000,), generator=g), 0.0, 0.88),
    ],
    ids=["uniform", "normal", "exponential", "gamma", "integers", "bernoulli", "truncated"],
)
def test_means(draw: Any, mean: float, std: float) -> None:
    assert near(draw(Generator(1)).numpy(), mean, std)


def test_tensors_scale_and_shift_and_get_gradients() -> None:
    mean = ruda.tensor([1.0, 2.0], dtype="float64", requires_grad=True)
    std = ruda.tensor([[0.5], [2.0], [1.0]], dtype="float64", requires_grad=True)
    out = ruda.random.normal(None, mean, std, generator=Generator(2))
    z = continuous.normal(2, 0, (3, 2), dtype=np.float64)
    assert_near(out, mean.detach().numpy() + std.detach().numpy() * z)
    ruda.sum(out).backward()
    assert_near(mean.grad, np.full(2, 3.0))
    assert_near(std.grad, z.sum(axis=1, keepdims=True))


def test_probabilities_per_element() -> None:
    p = ruda.asarray([0.0, 1.0])
    assert ruda.random.bernoulli(p, (50, 2)).numpy().sum(axis=0).tolist() == [0, 50]


def test_categories_and_permutations() -> None:
    weights = ruda.asarray([[0.0, 1.0, 3.0], [1.0, 0.0, 0.0]])
    drawn = ruda.random.categorical(weights, 4000, generator=Generator(8)).numpy()
    assert near((drawn[0] == 2), 0.75, 0.1875**0.5)
    assert set(drawn[0]) == {1, 2}
    assert not drawn[1].any()
    assert ruda.random.categorical(weights).shape == (2,)
    assert sorted(ruda.random.multinomial(ruda.ones(4), 4).tolist()) == [0, 1, 2, 3]
    x = ruda.asarray(np.arange(12).reshape(3, 4))
    shuffled = ruda.random.permutation(x, axis=1).numpy()
    assert (np.sort(shuffled, axis=1) == x.numpy()).all()
    assert len({tuple(row - row.min()) for row in shuffled}) == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dtypes_of_floats(dtype: str) -> None:
    draws = [ruda.random.uniform, ruda.random.normal, ruda.random.exponential, ruda.random.gamma]
    assert all(d((3,), dtype=dtype).dtype == dtype for d in draws)


def test_dropout_keeps_only_integers_for_its_mask() -> None:
    x = ruda.ones((64, 64)).requires_grad_()
    out = F.dropout(x, 0.25, generator=Generator(6))
    assert out.node is not None
    saved = [h for h in out.node.sx if h is not None]
    assert [h.__class__ for h in saved] == [float, int, int]
    ruda.sum(out * out).backward()
    keep = sampling.dropout_mask(6, 0, (64, 64), 0.25)
    np.testing.assert_array_equal(out.detach().numpy(), np.where(keep, np.float32(4 / 3), 0))
    np.testing.assert_array_equal(x.grad.numpy() != 0, keep)  # type: ignore[union-attr]


def test_dropout_off_is_the_input_itself() -> None:
    x = ruda.ones(3)
    assert F.dropout(x, 0.5, False) is x
    assert F.dropout(x, 0.0) is x
    assert not F.dropout(x, 1.0).numpy().any()


def test_dropout_of_channels_is_constant_in_each() -> None:
    out = F.dropout2d(ruda.ones((8, 16, 3, 3)), 0.5, generator=Generator(1)).numpy()
    assert set(np.unique(out)) == {0.0, 2.0}
    assert (out == out[:, :, :1, :1]).all()


def test_checkpoint_draws_the_same_mask_twice() -> None:
    def block(x: Any) -> Any:
        return F.dropout(x * x, 0.5)

    grads = []
    for run in (block, lambda x: checkpoint(block, x)):
        ruda.random.seed(9)
        x = ruda.asarray(np.linspace(1, 2, 32)).requires_grad_()
        ruda.sum(run(x)).backward()
        grads.append(x.grad.numpy())  # type: ignore[union-attr]
    ruda.random.seed(0)
    np.testing.assert_array_equal(*grads)


def test_compiled_masks_are_those_of_eager_steps() -> None:
    eager, compiled = Generator(12), Generator(12)
    x = ruda.ones((4, 5))

    def step(generator: Generator) -> Any:
        return F.dropout(x, 0.5, generator=generator) + ruda.random.normal(
            (4, 5), generator=generator
        )

    fast = ruda.compile(lambda: step(compiled))
    for _ in range(3):
        np.testing.assert_array_equal(fast().numpy(), step(eager).numpy())
    assert compiled.draw == eager.draw == 6
