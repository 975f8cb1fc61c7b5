"""Random rows on the GPU: the CPU's stream at sizes of several million, and distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.nn import functional as F
from ruda.random import Generator
from ruda.testing import tolerance

R = ruda.random
N = 3_000_017
# Six standard errors: a sound generator fails one assertion in 10**9.
SIGMAS = 6

Draw = Callable[..., ruda.Tensor]


def stream(seed: int, draw: int = 0) -> Generator:
    made = Generator(seed)
    made.advance(draw)
    return made


def both(draw: Draw, device: str, seed: int = 7, at: int = 2) -> tuple[Any, Any]:
    want, got = (
        draw(device=where, generator=stream(seed, at)).numpy() for where in ("cpu", device)
    )
    assert got.dtype == want.dtype
    return want, got


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_uniform_bits(device: str, dtype: str) -> None:
    for seed, at in ((0, 0), (2**64 - 1, 2**40 + 1)):
        want, got = both(lambda **k: R.uniform((N,), dtype=dtype, **k), device, seed, at)
        np.testing.assert_array_equal(got, want)
        want, got = both(lambda **k: R.uniform((N,), -3.3, 0.7, dtype=dtype, **k), device, seed, at)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_integer_bits(device: str, dtype: str) -> None:
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    for span in ((0, 100), (low, low + (high - low) // 3 * 2), (low, high + 1)):
        want, got = both(lambda **k: R.integers(*span, (N,), dtype=dtype, **k), device)  # noqa: B023
        np.testing.assert_array_equal(got, want)


def test_mask_bits(device: str) -> None:
    want, got = both(lambda **k: R.bernoulli(0.3, (N,), **k), device)
    np.testing.assert_array_equal(got, want)
    p = np.linspace(0, 1, N)
    want, got = both(
        lambda device, **k: R.bernoulli(ruda.asarray(p, device=device), (N,), **k), device
    )
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_dropout(device: str, dtype: str) -> None:
    found = []
    for where in ("cpu", device):
        x = ruda.ones((N,), dtype=dtype, device=where).requires_grad_()
        y = F.dropout(x, 0.4, generator=stream(5, 1))
        y.backward(ruda.ones((N,), dtype=dtype, device=where))
        np.testing.assert_array_equal(y.detach().numpy(), x.grad.numpy())
        found.append(x.grad.numpy())
    np.testing.assert_array_equal(*found)


def test_permutation_is_that_of_the_cpu(device: str) -> None:
    for n in (0, 1, 1000, 1_000_003):
        want, got = both(lambda **k: R.permutation(n, **k), device)  # noqa: B023
        np.testing.assert_array_equal(got, want)


FLOATS: dict[str, Draw] = {
    "normal": lambda **k: R.normal((N,), 1.0, 2.0, **k),
    "exponential": lambda **k: R.exponential((N,), 3.0, **k),
    "gamma": lambda **k: R.gamma((N,), 2.5, **k),
    "small gamma": lambda **k: R.gamma((N,), 0.3, **k),
    "bulk": lambda **k: R.truncated_normal((N,), **k),
    "box": lambda **k: R.truncated_normal((N,), 1.0, 2.0, 1.5, 2.0, **k),
    "tail": lambda **k: R.truncated_normal((N,), 0.0, 1.0, 4.0, np.inf, **k),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FLOATS)
def test_floats_are_those_of_the_cpu(device: str, name: str, dtype: str) -> None:
    want, got = both(lambda **k: FLOATS[name](dtype=dtype, **k), device)
    limit = 16 * tolerance(dtype) * (np.abs(want) + 1)
    # A rounding may accept what the other refuses: about once in 2**24 tests in float32.
    assert int((~(np.abs(got - want) <= limit)).sum()) <= 20


def test_moments(device: str) -> None:
    def mean(x: ruda.Tensor, power: int = 1) -> float:
        return float((x.numpy().astype("d") ** power).mean())

    assert abs(mean(R.uniform((N,), device=device)) - 0.5) < SIGMAS * 0.29 / N**0.5
    z = R.normal((N,), device=device)
    assert abs(mean(z)) < SIGMAS / N**0.5
    assert abs(mean(z, 2) - 1) < SIGMAS * 2**0.5 / N**0.5
    assert abs(mean(R.gamma((N,), 2.5, device=device)) - 2.5) < SIGMAS * 2.5**0.5 / N**0.5
    kept = F.dropout(ruda.ones((N,), device=device), 0.25)
    assert abs(mean(kept) - 1) < SIGMAS * (0.25 / 0.75) ** 0.5 / N**0.5


@pytest.mark.parametrize("logits", [False, True])
def test_categories(device: str, logits: bool) -> None:
    rng = np.random.default_rng(0)
    # The vocabulary of a language model, and a short row drawn from often.
    for shape, samples in (((64, 128256), 1), ((3, 1000), 100_000)):
        weights = rng.standard_normal(shape) * 3 if logits else rng.random(shape)
        found = []
        for where in ("cpu", device):
            w = ruda.asarray(weights, dtype="float32", device=where)
            found.append(R.categorical(w, samples, logits=logits, generator=stream(9)).numpy())
        assert int((found[0] != found[1]).sum()) <= 2


def test_categories_without_replacement(device: str) -> None:
    weights = np.random.default_rng(0).random((16, 5000)) + 0.1
    found = []
    for where in ("cpu", device):
        w = ruda.asarray(weights, dtype="float64", device=where)
        found.append(R.categorical(w, 50, replacement=False, generator=stream(9)).numpy())
    np.testing.assert_array_equal(*found)


def test_more_elements_than_32_bits_count(device: str) -> None:
    n = 2**31 + 12345
    x = R.bernoulli(0.5, (n,), device=device, generator=stream(3))
    tail = x[n - 1000 :].numpy()
    from ruda.ops.reference import philox

    first = (n - 1000) // 4
    words = philox.words(3, 0, 1004, start_block=first)[(n - 1000) % 4 :][:1000]
    np.testing.assert_array_equal(tail, words < 2**31)


def test_draws_of_the_vendor(device: str) -> None:
    """Their distribution, the same again from the state, and another stream than ruda's own."""
    pytest.importorskip("nvmath.bindings.curand", reason="nvmath-python is not installed")
    pathfinder = pytest.importorskip("cuda.pathfinder")
    try:
        pathfinder.load_nvidia_dynamic_lib("curand")
    except pathfinder.DynamicLibNotFoundError:
        pytest.skip("nvmath-python is here without the library that it calls: no cuRAND")
    generator = R.Generator(3, engine="vendor")
    where = {"device": device, "generator": generator}
    u = R.uniform((N,), 2.0, 5.0, **where)
    assert float(u.min()) >= 2 and float(u.max()) < 5
    assert abs(float(u.numpy().mean(dtype=float)) - 3.5) < SIGMAS * (9 / 12) ** 0.5 / N**0.5
    state = generator.state_dict()
    z = R.normal((N - 1,), dtype="float64", **where)
    assert abs(float(z.mean())) < SIGMAS / N**0.5
    assert abs(float((z * z).mean()) - 1) < SIGMAS * 2**0.5 / N**0.5
    whole = R.integers(-5, 6, (N,), **where)
    assert sorted(set(whole.numpy().tolist())) == list(range(-5, 6))
    assert abs(float(whole.numpy().mean())) < SIGMAS * 10**0.5 / N**0.5
    again = R.Generator(8, engine="vendor")
    again.load_state_dict(state)
    np.testing.assert_array_equal(
        R.normal((N - 1,), dtype="float64", device=device, generator=again).numpy(), z.numpy()
    )
    own = R.uniform((N,), 2.0, 5.0, device=device, generator=R.Generator(3))
    assert not np.array_equal(own.numpy(), u.numpy())
