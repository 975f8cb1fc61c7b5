"""Special functions against the standard library, identities, and SciPy where it is installed.

Tolerances are units in the last place of the result, float64 unless said otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
from ruda.ops.reference import special
from ruda.testing import gradcheck

EPS = np.finfo(np.float64).eps
GAMMA, ZETA2 = 0.57721566490153286, math.pi**2 / 6
LINE = np.concatenate([np.linspace(-30, 30, 1201), np.geomspace(1e-300, 1, 50), [0.0, -0.0]])


def ratios(got: Any, x: Any, exact: Callable[[float], float]) -> Any:
    """Relative errors in units of float64, zeros compared as they are."""
    want = np.array([exact(v) for v in np.asarray(x, np.float64).tolist()])
    gap = np.abs(np.asarray(got, np.float64) - want)
    return np.where(gap == 0, 0, gap / np.maximum(np.abs(want), np.finfo(np.float64).tiny)) / EPS


def test_erf() -> None:
    got = ruda.erf(ruda.asarray(LINE)).numpy()
    assert ratios(got, LINE, math.erf).max() <= 3
    np.testing.assert_array_equal(np.signbit(got), np.signbit(LINE))


def test_erf_in_float32(rng: np.random.Generator) -> None:
    x = np.concatenate([LINE, rng.uniform(-4.5, 4.5, 20000)]).astype(np.float32)
    x = x[np.abs(x) > np.finfo(np.float32).tiny]
    got = ruda.erf(ruda.asarray(x)).numpy()
    assert got.dtype == np.float32
    assert ratios(got, x, math.erf).max() * EPS <= 2 * np.finfo(np.float32).eps
    assert np.abs(got).max() == 1


def test_erfc_keeps_its_tail() -> None:
    x = LINE[LINE < 26]
    assert ratios(ruda.erfc(ruda.asarray(x)).numpy(), x, math.erfc).max() <= 8
    assert ruda.erfc(ruda.asarray([30.0, math.inf, -math.inf])).tolist() == [0.0, 0.0, 2.0]


def test_erfinv_inverts() -> None:
    y = np.concatenate([np.linspace(-0.999, 0.999, 501), np.geomspace(1e-300, 0.5, 50)])
    x = ruda.erfinv(ruda.asarray(y)).numpy()
    # An error of x by one unit moves erf by x erf'(x) of them, which is below erf itself.
    assert ratios(special.erf(x), y, float).max() <= 8
    near = 1 - np.geomspace(1e-15, 0.1, 40)
    gap = special.erfc(ruda.erfinv(ruda.asarray(near)).numpy()) / (1 - near) - 1
    # The tail multiplies the error of x by up to 2 x² = 70.
    assert np.abs(gap).max() <= 200 * EPS
    ends = ruda.erfinv(ruda.asarray([-1.0, 1.0, 0.0, -0.0, 1.5]))
    np.testing.assert_array_equal(ends.numpy(), [-np.inf, np.inf, 0.0, -0.0, np.nan])
    assert ruda.erfinv(ruda.asarray(0.5)).dtype is ruda.float32


def test_lgamma() -> None:
    x = np.concatenate([np.linspace(2.5, 40, 4000), np.geomspace(1e-300, 0.5, 601), [1e9, 1e300]])
    assert ratios(ruda.lgamma(ruda.asarray(x)).numpy(), x, math.lgamma).max() <= 16
    assert ruda.lgamma(ruda.asarray([1.0, 2.0])).tolist() == [0.0, 0.0]
    # Next to its zeros the standard library loses digits: the first terms of the series do not.
    e = np.concatenate([s * np.geomspace(1e-12, 1e-6, 40) for s in (-1, 1)])
    for zero, slope, bend in ((1.0, -GAMMA, ZETA2), (2.0, 1 - GAMMA, ZETA2 - 1)):
        step = (zero + e) - zero
        want = slope * step + bend * step**2 / 2
        np.testing.assert_allclose(special.lgamma(zero + e), want, rtol=1e-11)
        inner = zero + e[np.abs(e) < 1e-8]
        want = slope * (inner - zero) + bend * (inner - zero) ** 2 / 2
        np.testing.assert_allclose(special.lgamma(inner), want, rtol=16 * EPS)
    below = -np.linspace(0.05, 20, 1000)
    below = below[below != np.rint(below)]
    gap = ruda.lgamma(ruda.asarray(below)).numpy() - [math.lgamma(v) for v in below]
    # Below zero lgamma has zeros of its own: absolute, on the scale of the terms that cancel.
    assert np.abs(gap).max() <= 1e-13
    poles = ruda.lgamma(ruda.asarray([0.0, -1.0, -2.0, math.inf, -math.inf]))
    assert poles.tolist() == [math.inf] * 5


def test_digamma_by_its_recurrence_and_known_values() -> None:
    x = np.array([1.0, 0.5, 2.0, 0.25])
    known = [-GAMMA, -GAMMA - 2 * math.log(2), 1 - GAMMA]
    known.append(-GAMMA - math.pi / 2 - 3 * math.log(2))
    np.testing.assert_allclose(special.digamma(x), known, rtol=8 * EPS)
    line = np.concatenate([np.linspace(-9.9, 30, 333), np.geomspace(0.01, 1e6, 50)])
    line = line[np.abs(line - np.rint(line)) > 1e-3]
    step = special.digamma(line + 1) - special.digamma(line)
    np.testing.assert_allclose(step, 1 / line, rtol=1e-11, atol=64 * EPS * np.abs(step).max())
    poles = ruda.digamma(ruda.asarray([0.0, -0.0, -1.0, -7.0])).numpy()
    np.testing.assert_array_equal(poles, [-np.inf, np.inf, np.nan, np.nan])


def test_polygamma_of_known_values() -> None:
    one = ruda.asarray(1.0, dtype="float64")
    assert ruda.polygamma(0, one).item() == ruda.digamma(one).item()
    assert ruda.polygamma(1, one).item() == pytest.approx(math.pi**2 / 6, rel=8 * EPS)
    assert ruda.polygamma(3, one).item() == pytest.approx(math.pi**4 / 15, rel=8 * EPS)
    assert ruda.polygamma(2, one).item() == pytest.approx(-2 * 1.2020569031595943, rel=8 * EPS)
    half = ruda.asarray(-0.5, dtype="float64")
    assert ruda.polygamma(1, half).item() == pytest.approx(math.pi**2 / 2 + 4, rel=8 * EPS)
    assert math.isnan(ruda.polygamma(2, half).item())


@pytest.mark.parametrize("name", ["digamma", "erfinv", "lgamma", "erf", "erfc"])
def test_against_scipy(name: str) -> None:
    scipy = pytest.importorskip("scipy.special")
    x = np.linspace(-0.95, 0.95, 400) if name == "erfinv" else np.linspace(0.05, 20, 400)
    want = getattr(scipy, {"lgamma": "gammaln"}.get(name, name))(x)
    got = getattr(ruda, name)(ruda.asarray(x)).numpy()
    # SciPy's own erfc loses x² units in the tail, which is 400 at the end of this line.
    np.testing.assert_allclose(got, want, rtol=400 * EPS, atol=8 * EPS)


@pytest.mark.parametrize("name", ["erf", "erfc", "erfinv", "lgamma", "digamma"])
def test_shapes_and_half_types(name: str) -> None:
    f = getattr(ruda, name)
    assert f(ruda.zeros((0, 3))).shape == (0, 3)
    assert f(ruda.asarray(0.5)).shape == ()
    x = ruda.asarray(np.linspace(0.1, 0.9, 30).reshape(5, 6).T)
    np.testing.assert_array_equal(f(x).numpy(), f(x.contiguous()).numpy())
    half = ruda.asarray([0.25, 0.5]).astype("bfloat16")
    want = f(half.astype("float32")).astype("bfloat16").numpy()
    np.testing.assert_array_equal(f(half).numpy(), want)


def test_gradients_below_zero() -> None:
    x = np.array([-0.5, -1.3, -4.7])
    gradcheck(ruda.lgamma, [x])
    gradcheck(ruda.digamma, [x], order=1)
