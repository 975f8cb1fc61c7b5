"""Which faster arithmetic is allowed where, and that IEEE runs on the CPU all the same."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import ruda
from ruda.core.errors import ArgumentError
from ruda.core.mode import MODE


def allowed(x: Any) -> Any:
    return x.node.plan.precision


@pytest.fixture
def x() -> Any:
    return ruda.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)


def test_default_is_ieee(x: Any) -> None:
    assert allowed(x @ x) is None
    assert ruda.explain_precision().startswith("matmul: ieee\n")


def test_scope_nests_and_ends(x: Any) -> None:
    with ruda.precision(matmul="tf32"):
        with ruda.precision(conv="tf32", half_reduction=True):
            assert allowed(x @ x) == ("tf32", "tf32", "ieee", True, False)
        with ruda.precision(matmul="ieee"):
            assert allowed(x @ x) is None
        assert allowed(x @ x).matmul == "tf32"
    assert allowed(x @ x) is None


def test_decorator_and_threads(x: Any) -> None:
    found = []

    @ruda.precision(matmul="tf32")
    def product() -> Any:
        thread = threading.Thread(target=lambda: found.append(allowed(x @ x)))
        thread.start()
        thread.join()
        return allowed(x @ x)

    assert product().matmul == "tf32"
    assert found == [None]


def test_call(x: Any) -> None:
    assert allowed(ruda.matmul(x, x, precision="tf32")).matmul == "tf32"
    with ruda.precision(matmul="tf32"):
        assert allowed(ruda.matmul(x, x, precision="ieee")) is None


def test_backward_runs_as_forward_did(x: Any) -> None:
    seen = []
    with ruda.precision(matmul="tf32"):
        fast = x @ x
    slow = x @ fast
    fast.register_hook(lambda g: seen.append(MODE.get().precision))
    gradient = ruda.ones((2, 2))
    with ruda.precision(matmul="tf32"):
        slow.backward(gradient, create_graph=True)
    assert seen == [None]
    products = products_below(x.grad.node, set())
    assert {None, "tf32"} == {p and p.matmul for p in products}


def products_below(node: Any, seen: set[Any]) -> list[Any]:
    """The precision of every product that a gradient was made from."""
    if node is None or node in seen or not hasattr(node, "plan"):
        return []
    seen.add(node)
    own = [node.plan.precision] if node.plan.op.name == "matmul" else []
    return own + [p for edge in node.edges() for p in products_below(edge, seen)]


def test_only_products_have_it(x: Any) -> None:
    with ruda.precision(matmul="tf32"):
        assert allowed(x + x) is None


def test_values_are_ieee_on_the_cpu(x: Any) -> None:
    exact = ruda.asarray([[1 + 2**-20, 0.0], [0.0, 1.0]])
    with ruda.precision(matmul="tf32"):
        assert (exact @ ruda.asarray([[1.0], [0.0]]))[0, 0].item() == 1 + 2**-20
        assert "tf32 is allowed; cpu has no such arithmetic" in ruda.explain_precision("cpu")


@pytest.mark.parametrize(
    "wrong", [{"matmul": "fp8"}, {"conv": True}, {"rnn": 1}, {"half_reduction": "yes"}], ids=str
)
def test_unknown_values_raise(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match=f"precision: unknown value of {next(iter(wrong))}"):
        ruda.precision(**wrong)
