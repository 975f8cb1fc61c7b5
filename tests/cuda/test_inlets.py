"""What a call changes comes to the places of a graph by one launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda


def on(array: Any) -> ruda.Tensor:
    return ruda.asarray(array, device="cuda:0")


@pytest.fixture
def names(deferred: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of kernels as they are queued."""
    found: list[str] = []
    driver, real = deferred.driver, deferred.driver.launch

    def launch(kernel: int, *rest: int) -> None:
        found.append(str(driver._kernels[kernel][0]))
        real(kernel, *rest)

    monkeypatch.setattr(driver, "launch", launch)
    return found


def arguments(call: int) -> list[Any]:
    """Of many sizes and dtypes; two begin at places that no word of 16 bytes begins at."""
    rng = np.random.default_rng(call)
    values = [
        rng.standard_normal((33, 7)).astype("f4"),
        rng.integers(-100, 100, 1001).astype("i1"),
        rng.standard_normal(()).astype("f8"),
        rng.standard_normal((64, 129)).astype("f2"),
        rng.integers(0, 2, 15).astype(bool),
    ]
    made = [on(v) for v in values]
    made.append(on(rng.standard_normal(100).astype("f4"))[3:60])
    made.append(on(rng.integers(0, 255, 200).astype("u1"))[5:177])
    return made


@pytest.mark.parametrize("floats", [0, 1, 5])
def test_arguments_and_numbers_come_together(names: list[str], floats: int) -> None:
    def scaled(*xs: Any) -> Any:
        turned = [x[::-1] if x.ndim else x * 1.5 for x in xs[:7]]
        return [*turned, *(xs[0] * rate for rate in xs[7:])]

    step = ruda.compile(scaled)
    for call in range(5):
        given = [*arguments(call), *(0.5 + call + i for i in range(floats))]
        names.clear()
        out = step(*given)
        if call > 1:
            brought = [n for n in names if n.startswith(("bring", "copy", "store"))]
            assert [n for n in brought if n.startswith("store")] == []
            assert sum(n.startswith("bring") for n in names) == 1, names
        for got, wanted in zip(out, scaled(*given), strict=True):
            np.testing.assert_array_equal(got.numpy(), wanted.numpy())
    assert "replayed as one graph" in step.explain()


def test_what_is_large_or_strided_or_empty_comes_by_itself(names: list[str]) -> None:
    step = ruda.compile(lambda a, b, c, d, e: (a + 1, b + 1, c + 1, d + 1, e + 1))
    for call in range(4):
        rng = np.random.default_rng(call)
        large = on(rng.standard_normal(300_000).astype("f4"))
        turned = on(rng.standard_normal((5, 9)).astype("f4")).mT
        few = [on(rng.standard_normal(n).astype("f4")) for n in (3, 40)]
        names.clear()
        args = large, turned, on(np.zeros((0, 4), "f4")), *few
        out = step(*args)
        if call > 1:
            assert sum(n.startswith("bring_2") for n in names) == 1, names
        for got, wanted in zip(out, args, strict=True):
            np.testing.assert_array_equal(got.numpy(), wanted.numpy() + 1)


@pytest.mark.parametrize(("tensors", "floats"), [(17, 0), (2, 65), (1, 0), (0, 1)])
def test_one_thing_and_very_many_come_as_before(
    names: list[str], tensors: int, floats: int
) -> None:
    state = on(np.arange(4.0, dtype="f4"))

    def plain(*xs: Any) -> Any:
        total = state * 1.25
        for x in xs:
            total = total * x
        return total

    step = ruda.compile(plain)
    for call in range(4):
        rng = np.random.default_rng(call)
        given = [on(rng.standard_normal(4).astype("f4")) for _ in range(tensors)]
        given += [1.0 + float(v) * 1e-3 for v in rng.standard_normal(floats)]
        names.clear()
        found = step(*given)
        assert not any(n.startswith("bring") for n in names)
        np.testing.assert_allclose(found.numpy(), plain(*given).numpy(), rtol=1e-5)


def test_a_later_call_does_not_reach_an_earlier_one(names: list[str]) -> None:
    step = ruda.compile(lambda x, y, rate: x * rate + y)
    results = []
    for call in range(6):
        x, y = on(np.full(5, float(call), "f4")), on(np.full(5, 0.25, "f4"))
        results.append(step(x, y, 2.0 + call))
    for call, found in enumerate(results):
        assert found.tolist() == [call * (2.0 + call) + 0.25] * 5
