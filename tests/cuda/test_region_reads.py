"""Regions that read at places of their own, or draw: the same bits as eager code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.core.errors import IndexRangeError
from ruda.testing import assert_close
from tests.cuda.test_regions import launched, normal

Plain = Callable[..., Any]


def numbers(*values: int, dtype: str = "int64") -> Any:
    return ruda.asarray(np.array(values), dtype=dtype, device="cuda")


def check(plain: Plain, *args: Any, most: int = 1) -> list[str]:
    """A compiled step gives what ``plain`` gives, to the last bit, by ``most`` kernels."""
    step = ruda.compile(plain)
    step(*args)
    found, names = launched(lambda: step(*args))
    wanted = plain(*args)
    if not isinstance(wanted, tuple):
        found, wanted = (found,), (wanted,)
    for got, want in zip(found, wanted, strict=True):
        assert got.dtype is want.dtype and got.shape == want.shape
        assert got.numpy().tobytes() == want.numpy().tobytes()
    assert len(names) <= most, names
    return names


JOINED = [
    # Along the last axis in whole packs, and not; along the first; halves; what is no pack at all.
    ((8, 16), (8, 32), 1, "float32"),
    ((8, 5), (8, 3), 1, "float32"),
    ((3, 8), (5, 8), 0, "bfloat16"),
    ((3, 5), (2, 5), 0, "float16"),
    ((7,), (2,), 0, "float64"),
]


@pytest.mark.parametrize(("one", "other", "axis", "dtype"), JOINED)
def test_what_is_put_together_is_read_where_it_lies(
    device: str, one: Any, other: Any, axis: int, dtype: str
) -> None:
    a, b = normal(*one, dtype=dtype), normal(*other, dtype=dtype, seed=1)
    shape = [n + m if i == axis else n for i, (n, m) in enumerate(zip(one, other, strict=True))]
    c = normal(*shape, dtype=dtype, seed=2)
    check(lambda a, b, c: F.relu(ruda.concat([a, b], axis=axis)) * c, a, b, c)


def test_parts_of_other_dtypes_and_orders(device: str) -> None:
    a, b, c = normal(6, 8).T, normal(8, 10, dtype="float16"), normal(8, 2, seed=3)[:, ::-1]
    check(lambda a, b, c: ruda.exp(ruda.concat([a, b, c], axis=1)), a, b, c)


@pytest.mark.parametrize("shift", [(3, 0), (4, 1), ((1, 2), (0, 1))])
def test_rolling_is_a_part_of_the_difference(device: str, shift: Any) -> None:
    by, axis = shift
    check(lambda x: ruda.roll(x, by, axis=axis) - x, normal(6, 16), most=1 + isinstance(by, tuple))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
@pytest.mark.parametrize("widths", [((1, 2), (4, 8)), ((0, 0), (3, 2)), ((2, 0), (0, 0))])
def test_padding_is_a_comparison(device: str, widths: Any, dtype: str) -> None:
    x = normal(4, 12).astype(dtype)
    y = ruda.ones([12 + sum(w) if i else 4 + sum(w) for i, w in enumerate(widths)], device="cuda")
    y = y.astype(dtype)
    check(lambda x, y: ruda.pad(x, widths, value=3) * y, x, y)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_of_a_table_with_what_is_added(device: str, dtype: str) -> None:
    table, places = normal(11, 16, dtype=dtype), normal(5, 16, dtype=dtype, seed=1)
    ids = numbers(*range(10)).reshape((2, 5))
    (name,) = check(lambda t, i, p: F.embedding(i, t) + p, table, ids, places)
    assert name.startswith("fused_embedding_add")


def test_what_indices_point_to(device: str) -> None:
    x, y = normal(6, 5, 8), normal(4, 8, seed=1)
    some, more = numbers(0, -1, 3, 2), numbers(4, 0, -5, 1)
    check(lambda x, y, i: x[i, 2] + y, x, y, some, most=2)
    check(lambda x, y, i, j: x[i, j] * y, x, y, some, more, most=2)
    check(lambda x, i: ruda.take(x, i, axis=1) * 2, x, more)
    check(lambda x, i: ruda.take(x, i, axis=2) + 1, x, numbers(7, 0, 7, 1))
    along = ruda.asarray(np.arange(30).reshape(6, 5, 1) % 8, device="cuda")
    check(lambda x, i: -ruda.take_along_axis(x, i, axis=2), x, along)
    check(lambda x, i: x.mT[i] - 1, x, numbers(1, -6, dtype="int32"))


def test_a_result_that_others_need_is_written_once(device: str) -> None:
    x, places = normal(20, 8), numbers(3, 3, 1)

    def plain(x: Any, i: Any) -> Any:
        rows = x[i]
        return rows, rows * 2, ruda.exp(rows) + rows

    check(plain, x, places)


def test_what_is_read_is_not_made_in_the_same_kernel(device: str) -> None:
    x, places = normal(6, 8), numbers(5, 0, 3, 3, 1, 2)
    check(lambda x, i: (y := ruda.exp(x), y[i] + y)[1], x, places, most=2)
    check(lambda x: (y := ruda.exp(x), ruda.roll(y, 1, axis=0) + y)[1], x, most=2)


def test_an_index_out_of_range_is_told(device: str) -> None:
    table, extra = normal(4, 8), normal(3, 8)
    step = ruda.compile(lambda t, i, y: F.embedding(i, t) + y)
    step(table, numbers(0, 1, 2), extra).numpy()
    step(table, numbers(0, 1, 2), extra).numpy()
    with pytest.raises(IndexRangeError, match=r"embedding: index out of range.*9 at"):
        step(table, numbers(0, 9, 2), extra).numpy()
    assert step(table, numbers(0, 1, 2), extra).shape == (3, 8)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("shape", [(1000,), (3, 5), (1,)])
def test_dropout_in_a_chain_keeps_what_it_keeps_alone(
    device: str, dtype: str, shape: tuple[int, ...]
) -> None:
    x, y = normal(*shape, dtype=dtype), normal(*shape, dtype=dtype, seed=1)
    drawn_twice(lambda x, y: F.dropout(ruda.exp(x), 0.3) + y, x, y)


def test_dropout_of_other_layouts(device: str) -> None:
    drawn_twice(lambda x, y: F.dropout(x.T, 0.5) * y, normal(6, 8), normal(6, seed=1))


def test_noise_is_drawn_where_it_is_used(device: str) -> None:
    def plain(x: Any) -> Any:
        noise = ruda.random.uniform(x.shape, -1, 2, device="cuda")
        return ruda.exp(x) * noise + 1

    for shape in ((4, 9), (64,)):
        drawn_twice(plain, normal(*shape))


def drawn_twice(plain: Plain, *args: Any) -> None:
    """Two calls of a compiled step draw what two eager ones draw, by one kernel each."""
    ruda.random.manual_seed(5)
    wanted = [plain(*args).numpy().tobytes() for _ in range(3)]
    ruda.random.manual_seed(5)
    step = ruda.compile(plain)
    found = [step(*args)]
    for _ in range(2):
        out, names = launched(lambda: step(*args))
        found.append(out)
        assert len(names) == 1, names
    assert [out.numpy().tobytes() for out in found] == wanted


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("width", [16, 30, 600])
def test_a_norm_reads_the_rows_of_a_table(device: str, dtype: str, width: int) -> None:
    table, places = normal(11, width, dtype=dtype), normal(5, width, dtype=dtype, seed=1)
    ids = numbers(*range(10)).reshape((2, 5))

    def plain(t: Any, i: Any, p: Any) -> Any:
        x = F.embedding(i, t) + p
        return x, F.layer_norm(x)

    step = ruda.compile(plain)
    step(table, ids, places)
    found, (name,) = launched(lambda: step(table, ids, places))
    assert name.startswith("layer_norm")
    # With more operands a thread keeps fewer packs of each: rows are folded in another order.
    wanted = plain(table, ids, places)
    assert found[0].numpy().tobytes() == wanted[0].numpy().tobytes()
    assert_close(found[1].numpy(), wanted[1].numpy(), length=width, name="layer_norm")


def test_a_softmax_of_chosen_rows_with_what_else_needs_them(device: str) -> None:
    def plain(x: Any, i: Any) -> Any:
        rows = ruda.take(x, i, axis=1)
        return rows, F.softmax(rows, axis=-1)

    (name,) = check(plain, normal(3, 6, 8), numbers(-1, 2, 2, 0))
    assert name.startswith("softmax")
    # Elements that lie along the rows, or that the step makes, are not read by rows.
    check(
        lambda x, i: F.softmax(ruda.take(x, i, axis=1), axis=-1),
        normal(3, 6),
        numbers(5, 0),
        most=2,
    )
    check(lambda x, i: (y := F.softmax(x), y[i] + y)[1], normal(4, 8), numbers(3, 3, 0, 1), most=2)


BY_HAND: dict[str, Any] = {
    "sums of rows": lambda t, i, w: (F.embedding(i, t) * w).sum(axis=-1),
    "a softmax": lambda t, i, w: (e := ruda.exp(t[i])) / e.sum(axis=-1, keepdims=True) * w,
    "rows that are kept": lambda t, i, w: ((x := t[i] + w), x.max(axis=-1), (x * x).mean(axis=-1)),
    "rows of two tables": lambda t, i, w: (t[i] * (t * 2)[i - 1]).sum(axis=-1),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("width", [16, 30, 3000])
@pytest.mark.parametrize("name", BY_HAND)
def test_reductions_read_the_rows_of_a_table(
    device: str, name: str, width: int, dtype: str
) -> None:
    table, w = normal(11, width, dtype=dtype), normal(width, dtype=dtype, seed=1)
    # An embedding does not count from the end.
    start = 0 if name == "sums of rows" else -3
    ids = numbers(*range(start, start + 10)).reshape((2, 5))
    plain = BY_HAND[name]
    step = ruda.compile(plain)
    step(table, ids, w)
    found, names = launched(lambda: step(table, ids, w))
    # Of two tables one is read where it lies.
    assert len(names) == 1 or "two" in name, names
    assert sum(n.startswith("folded") for n in names) == 1
    wanted = plain(table, ids, w)
    pairs = zip(found, wanted, strict=True) if "kept" in name else ((found, wanted),)
    for got, want in pairs:
        assert_close(got.numpy(), want.numpy(), length=width, scale=4, name=name)


LEFT: dict[str, tuple[Plain, int]] = {
    "elements": (lambda x, i: (ruda.take(x, i, axis=1) * 2).sum(axis=-1), 2),
    "columns": (lambda x, i: (x[i] * 2).sum(axis=0), 2),
    "what the step makes": (lambda x, i: ((y := ruda.exp(x))[i] * y[:3]).sum(axis=-1), 3),
    "doubles": (lambda x, i: (x.astype("float64")[i] * 2).sum(axis=-1), 3),
    "no rows": (lambda x, i: (x[i[:0]] * 2).sum(axis=-1), 1),
    "one row": (lambda x, i: (x[i[2]] * 2).sum(axis=-1), 2),
    "more than rows": (lambda x, i: (x[:, None][i] * x[:1]).max(axis=(1, 2)), 1),
}


@pytest.mark.parametrize("name", LEFT)
def test_reductions_leave_what_is_not_read_by_rows(device: str, name: str) -> None:
    plain, most = LEFT[name]
    x, i = normal(6, 32), numbers(5, 0, -2)
    step = ruda.compile(plain)
    step(x, i)
    found, names = launched(lambda: step(x, i))
    assert_close(found.numpy(), plain(x, i).numpy(), length=32, scale=4, name=name)
    assert len(names) <= most, names


@pytest.mark.parametrize("kind", ["norm", "sum"])
def test_a_row_out_of_range_is_told(device: str, kind: str) -> None:
    table = normal(4, 8)

    def plain(t: Any, i: Any) -> Any:
        x = F.embedding(i, t) * 2
        return F.layer_norm(x) if kind == "norm" else x.sum(axis=-1)

    step = ruda.compile(plain)
    for _ in range(2):
        step(table, numbers(0, 3, 2)).numpy()
    with pytest.raises(IndexRangeError, match=r"embedding: index out of range.*4 at"):
        step(table, numbers(0, 4, 2)).numpy()


def test_single_elements_and_parts_of_nothing(device: str) -> None:
    x, one = normal(9), numbers(-2)
    check(lambda x, i: x[i] * 2, x, one)
    check(lambda x: ruda.concat([x[:0], x[:1], x[3:]]) + 1, x)
    check(lambda x, i: ruda.take_along_axis(x, i, axis=0) - 1, x, numbers(8, 0, -9))
    empty = normal(0, 4)
    check(lambda x: ruda.pad(x, ((1, 2), (0, 0))) * 2, empty, most=2)
    many = [normal(2, 4, seed=k) for k in range(5)]
    check(lambda *xs: ruda.concat(xs) * 2, *many, most=2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_that_repeat_are_read_by_packs(device: str, dtype: str) -> None:
    x, row, column = normal(6, 32, dtype=dtype), normal(32, dtype=dtype, seed=1), normal(6, 1)
    column = column.astype(dtype)

    def plain(x: Any, rate: float) -> Any:
        return (x + row) * rate, ruda.exp(x[:, ::-1] - column)

    step = ruda.compile(plain)
    for rate in (0.5, 0.25):
        step(x, rate)
        found, names = launched(lambda rate=rate: step(x, rate))
        assert len(names) == 1
        for got, want in zip(found, plain(x, rate), strict=True):
            assert got.numpy().tobytes() == want.numpy().tobytes()
