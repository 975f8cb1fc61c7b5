"""Products of bfloat16 that add a shortcut, or a gradient so far: rounded once less."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn
from ruda.backends.cuda.blas import lt, shortcut_ends
from tests.cuda.libraries.cublaslt import CublasLt
from tests.cuda.test_regions import normal


@pytest.fixture
def library(client: Any, monkeypatch: pytest.MonkeyPatch) -> CublasLt:
    fake = CublasLt()
    made = lt.Library(client, fake)
    monkeypatch.setattr(lt, "library", lambda client: made)
    monkeypatch.setattr(shortcut_ends, "_LEAST", 1)
    monkeypatch.setattr(shortcut_ends, "_LEAST_WEIGHT", 1)
    return fake


def half(*shape: int, seed: int = 0) -> Any:
    return normal(*shape, dtype="bfloat16", seed=seed)


def beside(library: CublasLt) -> list[bool]:
    return [call.beside for call in library.calls]


def assert_near(found: Any, wanted: Any) -> None:
    """Apart by the rounding of a product to 8 bits and one of the sum, at most."""
    got, want = (v.astype("float32").numpy() for v in (found, wanted))
    np.testing.assert_allclose(got, want, rtol=2**-7, atol=2**-5)


def block(x: Any, w: Any, b: Any) -> Any:
    """A layer beside a shortcut, of which a norm and another sum are made."""
    y = x + F.linear(F.relu(x), w, b)
    return y, F.layer_norm(y)


@pytest.mark.parametrize("biased", [True, False])
def test_a_shortcut_of_halves(device: str, library: CublasLt, biased: bool) -> None:
    x, w, b = half(80, 40), half(40, 40, seed=1), half(40, seed=2) if biased else None
    wanted = block(x, w, b)
    step = ruda.compile(lambda x: block(x, w, b))
    library.calls.clear()
    # The first call runs operator by operator; a graph does not hold what stands in for a library.
    found = step(x)
    for got, want in zip(found, wanted, strict=True):
        assert_near(got, want)
    assert beside(library) and all(beside(library))
    # Of the sum before it is rounded: exact values round to what comes out.
    f, g, h = (v.astype("float32").numpy().astype("f8") for v in (x, w, x))
    exact = np.maximum(f, 0) @ g.T + h + (0 if b is None else b.astype("float32").numpy())
    got = found[0].astype("float32").numpy()
    assert (got == ruda.asarray(exact.astype("f4")).astype("bfloat16").astype("float32")).all()


def test_gradients_of_several_calls_are_added_up_in_the_product(
    device: str, library: CublasLt
) -> None:
    layers = nn.Sequential(nn.Linear(24, 40), nn.ReLU(), nn.Linear(40, 24)).to("cuda")
    xs = [normal(80, 24, seed=k) for k in range(2)]

    def plain(x: Any) -> None:
        with ruda.autocast("bfloat16"):
            loss = (layers(x) ** 2).sum()
        loss.backward()

    def gradients(step: Any) -> list[Any]:
        for p in layers.parameters():
            p.grad = None
        plain(xs[0])
        library.calls.clear()
        for x in xs[1:]:
            step(x)
        return [p.grad.numpy() for p in layers.parameters()]

    wanted = gradients(plain)
    found = gradients(ruda.compile(plain))
    assert sum(beside(library)) >= 2
    for got, want in zip(found, wanted, strict=True):
        assert np.linalg.norm(got - want) <= 2**-7 * np.linalg.norm(want)


def test_what_is_left_apart(device: str, library: CublasLt) -> None:
    x, w, b = half(80, 40), half(40, 40, seed=1), half(40, seed=2)
    single = [v.astype("float32") for v in (x, w, b)]
    row = half(40, seed=3)
    cases: list[Any] = [
        # Read by one elementwise kernel or norm alone, which reads both operands instead.
        (lambda x: F.tanh(x + F.linear(x, w, b)), x),
        (lambda x: F.layer_norm(x + F.linear(x, w, b)), x),
        # A row, itself, what is made later of the product, and float32.
        (lambda x: row + F.linear(x, w), x),
        (lambda x: (lambda y: y + y)(F.linear(x, w, b)), x),
        (lambda x: (lambda y: (y, x + y))(F.linear(x, w, b)), x),
        (lambda x: (lambda y: y + F.linear(y, w, b))(F.linear(x, w, b)), x),
        (lambda x: x + F.linear(x, single[1], single[2]), single[0]),
        # A shortcut of float32 beside layers of halves.
        (lambda x: x + F.linear(x.astype("bfloat16"), w), single[0]),
        (lambda x: x + F.linear(x.astype("bfloat16"), w, b), single[0]),
    ]
    for k, (plain, given) in enumerate(cases):
        wanted = plain(given)
        library.calls.clear()
        found = ruda.compile(plain)(given)
        several = found.__class__ is tuple
        pairs = zip(found, wanted, strict=True) if several else [(found, wanted)]
        same = all(a.numpy().tobytes() == b.numpy().tobytes() for a, b in pairs)
        # One has a product that nobody else reads behind one that is kept.
        assert any(beside(library)) is (k == 5), k
        assert same or k == 5, k


def test_addresses_that_are_no_multiples_of_16(device: str, library: CublasLt) -> None:
    w, b = half(40, 40, seed=1), half(41, seed=2)[1:]
    x = half(80, 40)
    wanted = block(x, w, b)
    step = ruda.compile(lambda x: block(x, w, b))
    for got, want in zip(step(x), wanted, strict=True):
        assert got.numpy().tobytes() == want.numpy().tobytes()
