"""An index out of range on a device: clamped, raised at the next synchronisation with its line."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import random
from ruda.core.errors import ArgumentError, IndexRangeError
from ruda.nn import functional

pytest.importorskip("cuda.bindings.nvrtc")


@pytest.fixture
def x(device: str) -> ruda.Tensor:
    """A matrix on the device."""
    return ruda.asarray(np.arange(12.0).reshape(4, 3), dtype="float32", device=device)


def here() -> int:
    """The line that calls this."""
    return sys._getframe(1).f_lineno


def places(device: str, *values: Any) -> ruda.Tensor:
    return ruda.asarray(np.array(values), device=device)


def test_the_error_names_operator_value_place_and_line(device: str, x: ruda.Tensor) -> None:
    index = places(device, [0, 1], [4, 2])
    out, line = ruda.take(x, index, axis=0), here()
    with pytest.raises(IndexRangeError) as caught:
        out.numpy()
    error = caught.value
    assert isinstance(error, IndexError)
    assert error.op == "take"
    assert str(error) == (
        f"take: index out of range, queued at {__file__}:{line}. "
        "Got 4 at (1, 0) for axis 0 of size 4. Expected -4 to 3."
    )


def test_values_are_clamped_and_the_device_goes_on(device: str, x: ruda.Tensor) -> None:
    out = ruda.take(x, places(device, 9, -9, 1), axis=0)
    with pytest.raises(IndexRangeError, match="Got 9 at"):
        x.client.synchronize()
    np.testing.assert_array_equal(out.numpy(), x.numpy()[[3, 0, 1]])
    assert float((x + 1).sum()) == 78.0


def test_the_first_one_is_told_and_then_forgotten(device: str, x: ruda.Tensor) -> None:
    ruda.take(x, places(device, 7), axis=0)
    ruda.take(x, places(device, 8), axis=0)
    with pytest.raises(IndexRangeError, match="Got 7"):
        x.numpy()
    x.numpy()
    ruda.take(x, places(device, -5), axis=0)
    with pytest.raises(IndexRangeError, match="Got -5"):
        x.numpy()


def test_of_two_threads_that_find_a_fault_one_raises(device: str, x: ruda.Tensor) -> None:
    ruda.take(x, places(device, 7), axis=0)
    record, both = x.client.faults, threading.Barrier(2)

    class Words(list[int]):
        """The record, of which two threads have seen at once that there is something in it."""

        def __getitem__(self, place: Any) -> Any:
            found = super().__getitem__(place)
            both.wait(timeout=60)
            return found

    words, record._words = record._words, Words(record._words)

    def look() -> str:
        try:
            record.check()
        except IndexRangeError as error:
            return str(error)
        return ""

    try:
        with ThreadPoolExecutor(2) as threads:
            found = [done.result() for done in [threads.submit(look) for _ in range(2)]]
        assert record._words == [0, 0, 0, 0]
    finally:
        record._words = words
        words[:] = [0, 0, 0, 0]
    assert sorted(map(bool, found)) == [False, True] and "Got 7 at" in max(found)


def test_places_of_several_threads_have_numbers_of_their_own(x: ruda.Tensor) -> None:
    from ruda.backends.cuda import faults

    form = faults.Form("take", x.spec, (0,), (4,), True)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            places = [(i, "here.py:1") for i in range(4000)]
            made = list(threads.map(lambda at: faults._intern(form, at, "here.py:1", None), places))
    finally:
        sys.setswitchinterval(before)
    assert len(set(made)) == len(made)


def test_each_operator_says_its_name(device: str, x: ruda.Tensor) -> None:
    bad = places(device, 0, 5)
    along = ruda.broadcast_to(bad[:, None], (2, 3))
    calls = {
        "index": lambda: x[bad],
        "take_along_axis": lambda: ruda.take_along_axis(x, along, axis=0),
        "gather": lambda: ruda.gather(x, along, axis=0),
        "scatter": lambda: ruda.scatter(x, along, 1.0, axis=0, mode="add"),
        "index_add": lambda: ruda.index_add(x, bad, x[:2]),
        "index_put": lambda: ruda.index_put(x, bad, 0.0),
        "embedding": lambda: functional.embedding(bad, x),
    }
    for name, call in calls.items():
        call()
        with pytest.raises(IndexRangeError, match=f"^{name}: index out of range.* 5 at") as caught:
            x.numpy()
        assert "test_faults.py:" in str(caught.value)


def test_many_places_and_several_axes(device: str, x: ruda.Tensor) -> None:
    many = np.tile([0, 1], 100)
    many[120] = -7
    index = ruda.asarray(many, device=device)
    for write in (
        lambda: ruda.index_add(x, index, ruda.ones((200, 3), device=device)),
        lambda: ruda.index_put(x, index, ruda.ones((200, 3), device=device)),
    ):
        write()
        with pytest.raises(IndexRangeError, match=r"Got -7 at \(120,\) for axis 0 of size 4"):
            x.numpy()
    ruda.index_put(x, (index * 0, index), 1.0)
    with pytest.raises(IndexRangeError, match=r"Got -7 at \(120,\) for axis 1 of size 3"):
        x.numpy()


def test_the_place_is_found_through_strides(device: str, x: ruda.Tensor) -> None:
    index = ruda.asarray(np.array([[0, 1, 2], [1, 6, 0]]), device=device)
    for view, place in ((index.T, "(1, 1)"), (index[::-1], "(0, 1)"), (index[1:, 1:], "(0, 0)")):
        x[view]
        with pytest.raises(IndexRangeError) as caught:
            x.numpy()
        assert f"Got 6 at {place} " in str(caught.value)


def test_unsigned_indices_and_tables(device: str, x: ruda.Tensor) -> None:
    huge = ruda.asarray(np.array([2**64 - 1], np.uint64), device=device)
    ruda.take(x, huge, axis=0)
    with pytest.raises(IndexRangeError, match=f"Got {2**64 - 1} at"):
        x.numpy()
    functional.embedding(places(device, -1), x)
    with pytest.raises(IndexRangeError, match=r"Got -1 at .* Expected 0 to 3"):
        x.numpy()


def test_an_axis_of_nothing_has_no_index_at_all(device: str, x: ruda.Tensor) -> None:
    with pytest.raises(IndexRangeError, match="no index at all"):
        x[:0][places(device, 0)]


def test_a_line_in_a_loop_is_one_site(device: str, x: ruda.Tensor) -> None:
    from ruda.backends.cuda import faults

    index = places(device, 0)
    before: int | None = None
    for _ in range(5):
        x[index]
        before = before or faults._last
    assert faults._last == before


def test_old_sites_make_room(device: str, x: ruda.Tensor, monkeypatch: Any) -> None:
    from ruda.backends.cuda import faults

    monkeypatch.setattr(faults, "_REMEMBERED", 4)
    index = places(device, 0)
    for i in range(9):
        x[:, i % 3 :][index]
        exec(compile(f"x[index]{' ' * i}", f"made{i}.py", "eval"), {"x": x, "index": index})
    exec(compile("x[bad]", "wrong.py", "eval"), {"x": x, "bad": index + 4})
    with pytest.raises(IndexRangeError, match=r"queued at wrong\.py:1"):
        x.numpy()


@pytest.mark.parametrize("shape", [(5, 7), (2, 7, 3)])
@pytest.mark.parametrize("bad", [7, -1])
def test_a_target_that_is_no_class(device: str, shape: tuple[int, ...], bad: int) -> None:
    logits = ruda.asarray(np.zeros(shape, "f"), device=device)
    rows = shape[:1] + shape[2:]
    values = np.zeros((2, *rows), "int64")
    values[0, -1] = -100
    values[(1, *(n - 1 for n in rows))] = bad
    target = places(device, *values)[1]
    loss = functional.cross_entropy(logits, target, reduction="none", axis=1)
    line = here() - 1
    with pytest.raises(IndexRangeError) as caught:
        loss.numpy()
    where = tuple(n - 1 for n in rows)
    assert str(caught.value) == (
        f"cross_entropy: no such class, queued at {__file__}:{line}. "
        f"Got {bad} at {where}. Expected 0 to 6, or ignore_index=-100."
    )
    fine = functional.cross_entropy(logits, places(device, *values)[0], reduction="sum", axis=1)
    assert np.isfinite(float(fine))


@pytest.mark.parametrize(
    ("draw", "bad", "text"),
    [
        (random.bernoulli, 1.5, "bernoulli: p is no probability, {}. Got p=1.5 at (0, 1)."),
        (random.bernoulli, np.nan, "bernoulli: p is no probability, {}. Got p=nan at (0, 1)."),
        (
            lambda p: random.gamma((3, 2), p),
            -1.0,
            "gamma: concentration out of its domain, {}. Got concentration=-1.0 at (0, 1).",
        ),
        (
            lambda p: random.categorical(p, 4),
            np.inf,
            "categorical: bad probabilities, {}. Got inf at (0, 1).",
        ),
        (
            lambda p: random.categorical(p, 2, replacement=False),
            -0.5,
            "categorical: bad probabilities, {}. Got -0.5 at (0, 1).",
        ),
    ],
)
def test_parameters_outside_of_their_domain(device: str, draw: Any, bad: float, text: str) -> None:
    values = np.full((3, 2), 0.5)
    for where in ("cpu", device):
        assert np.all(np.isfinite(draw(ruda.asarray(values, device=where)).numpy()))
    values[0, 1] = bad
    with pytest.raises(ArgumentError, match=text[: text.index(",")]):
        draw(ruda.asarray(values))
    out = draw(ruda.asarray(values, device=device))
    with pytest.raises(ArgumentError) as caught:
        out.numpy()
    assert str(caught.value).startswith(text.format(f"queued at {__file__}:{caught_line(caught)}"))


def caught_line(caught: Any) -> str:
    """The line that the error names."""
    return str(caught.value).split(__file__ + ":")[1].split(".")[0]


@pytest.mark.parametrize("replacement", [True, False])
def test_too_few_categories_of_a_row(device: str, replacement: bool) -> None:
    weights = np.array([[1.0, 1.0, 0.5], [0.0, 0.0, 0.0 if replacement else 1.0]])
    out = random.categorical(ruda.asarray(weights, device=device), 2, replacement=replacement)
    what = "categorical: too few possible categories in a row, queued at .*"
    got = rf"Got {0 if replacement else 1} at \(1, 0\) for 2 samples"
    with pytest.raises(ArgumentError, match=what + got):
        out.numpy()
    np.testing.assert_array_equal(out.numpy()[1, 1], -1)
