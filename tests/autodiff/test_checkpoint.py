"""Recomputation gives the gradients of the plain run, and refuses what it cannot repeat."""

from __future__ import annotations

import gc
import weakref

import pytest

import ruda
from ruda.core.errors import GradientError, VersionError


def leaf(*values: float) -> ruda.Tensor:
    return ruda.tensor(list(values), dtype="float64", requires_grad=True)


def both(f: object, *leaves: ruda.Tensor) -> tuple[list, list]:
    found = []
    for run in (lambda: f(*leaves), lambda: ruda.checkpoint(f, *leaves)):
        for t in leaves:
            t.grad = None
        run().backward()
        found.append([t.grad.tolist() for t in leaves])
    return found[0], found[1]


def test_gradients_equal_the_plain_run_bit_for_bit() -> None:
    plain, again = both(lambda x, y: (ruda.exp(x * y) * x).sum(), leaf(0.5, 1.5), leaf(2.0, -1.0))
    assert plain == again


def test_closures_over_parameters_and_earlier_results() -> None:
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    early = w * w
    ruda.checkpoint(lambda t: (ruda.exp(t * early) * w).sum(), x * 0.1).backward()
    seen = x.grad.tolist(), w.grad.tolist()
    x.grad = w.grad = None
    early = w * w
    (ruda.exp((x * 0.1) * early) * w).sum().backward()
    assert seen == (x.grad.tolist(), w.grad.tolist())


def test_second_order() -> None:
    f = lambda t: (t * t * t).sum()  # noqa: E731
    g = ruda.grad(ruda.grad(lambda t: ruda.checkpoint(f, t)))(ruda.asarray(2.0, dtype="float64"))
    assert g.item() == pytest.approx(12.0)


def test_intermediates_are_not_kept() -> None:
    held: list[weakref.ref] = []

    def f(t: ruda.Tensor) -> ruda.Tensor:
        y = ruda.exp(t)
        held.append(weakref.ref(y.handle))
        return (y * y).sum()

    out = ruda.checkpoint(f, leaf(1.0))
    gc.collect()
    assert held[0]() is None
    out.backward()
    assert len(held) == 2


def test_nested() -> None:
    inner = lambda t: ruda.exp(t) * t  # noqa: E731
    plain, again = both(lambda t: (ruda.checkpoint(inner, t) * t).sum(), leaf(0.3, 0.7))
    assert plain == again


def test_outside_state_is_assigned_once() -> None:
    count = ruda.tensor(0.0)

    def f(t: ruda.Tensor) -> ruda.Tensor:
        with ruda.no_grad():
            count.assign(count + 1.0)
        return (t * t).sum()

    ruda.checkpoint(f, leaf(1.0)).backward()
    assert count.item() == 1.0


def test_a_function_that_changes_its_steps_raises() -> None:
    calls: list[int] = []

    def f(t: ruda.Tensor) -> ruda.Tensor:
        calls.append(1)
        return (t * t * t).sum() if len(calls) == 1 else (t * t).sum()

    y = ruda.checkpoint(f, leaf(1.0))
    with pytest.raises(GradientError, match="second run of the function differs"):
        y.backward()


def test_a_parameter_changed_before_backward_raises() -> None:
    w = leaf(2.0)
    y = ruda.checkpoint(lambda t: (t * w).sum(), leaf(1.0))
    with ruda.no_grad():
        w.assign(5.0)
    with pytest.raises(VersionError, match="changed in place"):
        y.backward()


def test_without_a_tape_it_is_a_plain_call() -> None:
    with ruda.no_grad():
        assert ruda.checkpoint(lambda t: t + 1.0, leaf(1.0)).node is None
