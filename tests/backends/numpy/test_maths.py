"""The kernels' own functions of float32, over all of its range, and that threads share them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda

pytest.importorskip("numba")
pytest.importorskip("threadpoolctl")

from ruda.backends.numpy.kernels import maths
from ruda.backends.numpy.kernels.compiler import kernel
from ruda.backends.numpy.kernels.pointwise import sigmoid, tanh

_SMALLEST = 2.0**-149


@kernel("void(f4[::1], f4[::1])")
def exp(x: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = maths.exp(x[i])


@kernel("void(f4[::1], f4[::1])")
def erf(x: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = maths.erf(x[i])


@kernel("void(f4[::1], f4[::1])")
def other_sigmoid(x: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = maths.sigmoids(x[i])[1]


def share(x: Any) -> Any:
    """The sigmoid in float64."""
    e = np.exp(-np.abs(x))
    return np.where(x > 0, 1 / (1 + e), e / (1 + e))


def error_function(x: Any) -> Any:
    return ruda.erf(ruda.asarray(x)).numpy()


# The error in units of the last place: each is what all floats show, rounded up.
CASES: dict[str, tuple[Any, Callable[[Any], Any], float]] = {
    "exp": (exp, np.exp, 1.1),
    "sigmoid": (sigmoid, share, 2.7),
    "sigmoid of minus x": (other_sigmoid, lambda x: share(-x), 2.7),
    "tanh": (tanh, np.tanh, 1.4),
    "erf": (erf, error_function, 5.6),
}


def everywhere(step: int) -> Any:
    """Every ``step``-th float32 there is, both signs, NaN and infinities, by their bits."""
    bits = np.arange(0, 1 << 32, step, dtype=np.uint64).astype(np.uint32)
    ends = np.array([0, -0.0, np.inf, -np.inf, np.nan, _SMALLEST, -_SMALLEST, 3.4e38], np.float32)
    near = np.linspace(-110, 110, 400_000, dtype=np.float32)
    return np.concatenate([bits.view(np.float32), ends, near])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", CASES)
def test_errors_over_the_whole_range(name: str) -> None:
    made, exact, most = CASES[name]
    x = everywhere(8191)
    found = np.empty_like(x)
    made.ready()(x, found)
    wanted = exact(x.astype(np.float64))
    with np.errstate(over="ignore"):
        rounded = wanted.astype(np.float32)
    assert (np.isnan(found) == np.isnan(wanted)).all()
    assert (np.isinf(found) == np.isinf(rounded)).all()
    finite = np.isfinite(rounded)
    found, wanted = found[finite].astype(np.float64), wanted[finite]
    exponents = np.frexp(np.maximum(np.abs(wanted), 2.0**-126))[1]
    units = np.maximum(np.ldexp(1.0, exponents - 24), _SMALLEST)
    errors = np.abs(found - wanted) / units
    worst = int(np.argmax(errors))
    assert errors[worst] <= most, (x[finite][worst], found[worst], wanted[worst])


def test_zeros_keep_their_sign() -> None:
    x = np.array([0.0, -0.0], np.float32)
    for made in (tanh, erf):
        out = np.empty_like(x)
        made.ready()(x, out)
        assert out.tobytes() == x.tobytes()


def test_a_kernel_lets_other_threads_run() -> None:
    x, began, ended = np.ones(1 << 24, np.float32), threading.Event(), threading.Event()
    out, run = np.empty_like(x), tanh.ready()

    def work() -> None:
        began.set()
        for _ in range(4):
            run(x, out)
        ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    began.wait()
    start = time.thread_time()
    while not ended.is_set():
        pass
    # One that kept the interpreter's lock would leave this thread the time of a switch, 5 ms.
    assert time.thread_time() - start > 0.015
    thread.join()
