"""Products of bfloat16 that do the gelu behind them, or its gradient: rounded once less."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn
from ruda.backends.cuda.blas import cublaslt, gelu_ends
from tests.cuda.libraries.cublaslt import CublasLt
from tests.cuda.test_regions import normal


@pytest.fixture
def library(client: Any, monkeypatch: pytest.MonkeyPatch) -> CublasLt:
    fake = CublasLt()
    made = cublaslt.Library(client, fake)
    monkeypatch.setattr(cublaslt, "library", lambda client: made)
    monkeypatch.setattr(gelu_ends, "_LEAST", 1)
    return fake


def gelu(x: Any) -> Any:
    return F.gelu(x, approximate="tanh")


def half(*shape: int, seed: int = 0) -> Any:
    return normal(*shape, dtype="bfloat16", seed=seed)


def epilogues(library: CublasLt) -> set[int]:
    return {call.how.epilogue for call in library.calls}


def assert_near(found: Any, wanted: Any) -> None:
    """Apart by one rounding to 8 bits, at most, of what is rounded twice on the other side."""
    got, want = (v.astype("float32").numpy() for v in (found, wanted))
    np.testing.assert_allclose(got, want, rtol=2**-7, atol=2**-7)


def test_a_gelu_behind_a_linear(device: str, library: CublasLt) -> None:
    x, w, b = half(80, 24), half(40, 24, seed=1), half(40, seed=2)
    wanted = gelu(F.linear(x, w, b))
    step = ruda.compile(lambda x: gelu(F.linear(x, w, b)))
    library.calls.clear()
    for _ in range(2):
        assert_near(step(x), wanted)
    assert epilogues(library) == {36}


def test_what_the_gelu_is_of_is_written_where_it_is_needed(device: str, library: CublasLt) -> None:
    x, w, b = half(80, 24), half(40, 24, seed=1), half(40, seed=2)

    def plain(x: Any) -> Any:
        z = F.linear(x, w, b)
        return z, gelu(z)

    wanted = plain(x)
    step = ruda.compile(plain)
    library.calls.clear()
    for _ in range(2):
        between, found = step(x)
        assert between.numpy().tobytes() == wanted[0].numpy().tobytes()
        assert_near(found, wanted[1])
    assert epilogues(library) == {164}


def test_forward_and_backward_of_two_layers(device: str, library: CublasLt) -> None:
    up, down = nn.Linear(24, 40).to("cuda"), nn.Linear(40, 24).to("cuda")
    layers = (up.weight, up.bias, down.weight, down.bias)

    def plain(x: Any) -> Any:
        with ruda.autocast("bfloat16"):
            loss = (down(gelu(up(x))) ** 2).sum()
        loss.backward()
        found = [p.grad for p in layers]
        for p in layers:
            p.grad = None
        return found

    x = normal(80, 24)
    wanted = plain(x)
    step = ruda.compile(plain)
    library.calls.clear()
    # The first call runs operator by operator; a graph does not hold what stands in for a library.
    found = step(x)
    assert {164, 192} <= epilogues(library)
    for got, want in zip(found, wanted, strict=True):
        norm = np.linalg.norm(want.numpy())
        assert np.linalg.norm(got.numpy() - want.numpy()) <= 2**-6 * norm


def test_what_is_left_apart(device: str, library: CublasLt) -> None:
    x, w, b = half(80, 24), half(40, 24, seed=1), half(40, seed=2)
    odd, less = half(36, 24, seed=1), half(36, seed=2)
    single = [v.astype("float32") for v in (x, w, b)]
    cases: list[Any] = [
        (lambda x: gelu(F.linear(x, odd, less)), x),
        (lambda x: gelu(F.linear(x, single[1], single[2])), single[0]),
        (lambda x: gelu(F.linear(x, w, b)) * 2, x),
        (lambda x: gelu(F.linear(x, w)), x),
    ]
    for plain, given in cases:
        wanted = plain(given)
        library.calls.clear()
        found = ruda.compile(plain)(given)
        assert epilogues(library) <= {1, 4}
        assert found.numpy().tobytes() == wanted.numpy().tobytes()


def test_addresses_that_are_no_multiples_of_16(device: str, library: CublasLt) -> None:
    w, b = half(40, 24, seed=1), half(41, seed=2)[1:]
    x = half(80, 24)
    wanted = gelu(F.linear(x, w, b))
    step = ruda.compile(lambda x: gelu(F.linear(x, w, b)))
    for _ in range(2):
        assert step(x).numpy().tobytes() == wanted.numpy().tobytes()
