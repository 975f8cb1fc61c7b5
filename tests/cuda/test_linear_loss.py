"""Cross-entropy of a linear map with its gradients made going forward, on an emulated GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.backends.cuda.blas import cublaslt
from ruda.backends.cuda.memory import allocate_piece
from ruda.backends.cuda.prim import linear_chunks, linear_groups, linear_parts, linear_places
from ruda.backends.cuda.prim.cross_entropy import Into
from ruda.core.errors import IndexRangeError
from ruda.ops.table import TABLE
from ruda.tensor.dispatch import clear_plans
from ruda.testing import assert_close
from tests.cuda.libraries.cublaslt import CublasLt
from tests.cuda.test_steps import Queued

ROWS, HIGH, CLASSES = 37, 16, 56
SMALL = {
    # A group of 13 rows, 8 of them at a time, before groups of 8; others are of 10, in chunks of 3.
    (linear_groups, "_ROOM"): 4 * CLASSES * 9,
    (linear_groups, "_FEWEST"): 1,
    # 22 classes are kept in the gradient of the weight in three blocks, 4 beside it, 16 in that of
    # the hidden states; of 14 the logits are computed again, of 6 at a time.
    (linear_places, "_ALL"): 4 * ROWS * HIGH + 2 * ROWS * 4,
    (linear_places, "_CHUNK"): 5,
    (linear_places, "_AGAIN"): 4 * 6 * 7,
    (linear_places, "_FIRST"): 3,
    (linear_places, "_FEWEST"): 6,
    (linear_parts, "_LARGE"): 0,
}


@pytest.fixture(autouse=True)
def library(client: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cuBLASLt of NumPy, and rooms so small that all is done in parts."""
    fake = CublasLt()
    made = cublaslt.Library(client, fake)
    monkeypatch.setattr(cublaslt, "library", lambda client: made)
    for (module, name), room in SMALL.items():
        monkeypatch.setattr(module, name, room)
    clear_plans()
    yield
    clear_plans()
    for address in made.workspaces.values():
        client.driver.release(address)


def inputs(rows: int = ROWS) -> list[Any]:
    """Hidden states, weight and bias that bfloat16 holds, and targets of which one is ignored."""
    rng = np.random.default_rng(0)
    shapes = ((rows, HIGH), (CLASSES, HIGH), (CLASSES,))
    target = rng.integers(0, CLASSES, rows)
    target[rows // 2] = -100
    return [*(rng.integers(-8, 8, s) / 8 for s in shapes), target]


def step(
    device: str, dtype: str, given: list[Any], biased: bool, turned: bool = False, **options: Any
) -> list[Any]:
    """Three times the loss, and the gradients, as float64 on the CPU."""
    *arrays, target = given
    tensors = [ruda.tensor(x, dtype=dtype, device=device, requires_grad=True) for x in arrays]
    hidden, weight, bias = tensors
    if turned:
        tensors[1] = ruda.tensor(arrays[1].T, dtype=dtype, device=device, requires_grad=True)
        tensors[0] = ruda.tensor(arrays[0].T, dtype=dtype, device=device, requires_grad=True)
        hidden, weight = tensors[0].mT, tensors[1].mT
    labels = ruda.asarray(target, device=device)
    loss = F.linear_cross_entropy(hidden, weight, labels, bias=bias if biased else None, **options)
    (loss * 3).backward()
    outs = [loss.detach(), *(x.grad for x in tensors[: 2 + biased])]
    return [x.to("cpu").astype("float64") for x in outs]


def check(device: str, dtype: str, given: list[Any], biased: bool, **more: Any) -> None:
    expected = step("cpu", "float64", given, biased, **more)
    for got, want in zip(step(device, dtype, given, biased, **more), expected, strict=True):
        scale = float(abs(want).max().item())
        assert_close(got.astype(dtype), want.astype(dtype), length=ROWS * CLASSES, scale=scale)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("biased", [True, False], ids=["bias", "bare"])
def test_all_ways_of_parts(device: str, dtype: str, biased: bool) -> None:
    options = {"label_smoothing": 0.1, "z_loss": 0.01, "reduction": "sum"} if biased else {}
    check(device, dtype, inputs(), biased, **options)


def test_fewer_rows_than_wait_in_the_weight(device: str) -> None:
    check(device, "bfloat16", inputs(12), True)
    check(device, "bfloat16", inputs(18), True)


@pytest.mark.parametrize("rows", [1, 7, 64, 130, 1000])
@pytest.mark.parametrize("room", [0, 20000, 1 << 20])
def test_nothing_overwrites_what_waits(
    rows: int, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear_places, "_ALL", room)
    monkeypatch.setattr(linear_places, "_AGAIN", 4096)
    high, classes, total = 48, 331, 4 * 48 * rows
    found = linear_places.places(linear_places.Sizes(rows, high, classes, 2, 4, total))
    blocks = found.blocks
    assert [0, *(end for _, end in blocks)] == [*(low for low, _ in blocks), classes]
    for low, end in blocks[: found.inside]:
        assert end * high <= found.start + rows * low
        assert found.start + rows * end <= classes * high
    assert found.beside - found.inside <= 1 and found.kept - found.beside <= 1
    assert all(end - low <= high for low, end in blocks[found.beside : found.kept])
    for low, end in blocks[found.kept :]:
        assert (end - low) * (rows * 2 + found.again * 4) <= found.extra - 256 and found.again
    assert total <= found.front


@pytest.mark.parametrize("rows", [1, 7, 64, 130, 1000])
@pytest.mark.parametrize("room", [0, 20000, 1 << 20])
@pytest.mark.parametrize("total", [0, 1])
def test_logits_lie_where_nothing_waits(
    rows: int, room: int, total: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear_places, "_ALL", room)
    monkeypatch.setattr(linear_places, "_AGAIN", 4096)
    sizes = linear_places.Sizes(rows, 48, 331, 2, 4, total * 4 * 48 * rows)
    found = linear_places.places(sizes)
    sides = {"extra": found.extra + found.front, "hidden": rows * 96, "weight": 331 * 96}
    widths = [2 * (end - low) for low, end in found.blocks[: found.kept]]
    homes = [linear_chunks.home(sizes, found, b) for b in range(found.kept)]
    done = 0
    for start, stop, parts in linear_chunks.chunks(sizes, found):
        assert start == done < stop
        done = stop
        taken = [(r, at, at + stop * w) for (r, at), w in zip(homes, widths, strict=True)]
        for part in parts:
            end = part.at + (stop - start) * (part.end - part.low) * 4
            assert part.at >= 0 and end <= sides[part.room] and part.at % 4 == 0
            assert all(r != part.room or end <= a or e <= part.at for r, a, e in taken)
            if part.first < part.last:
                taken.append((part.room, part.at, end))
                assert found.blocks[part.first][0] == part.low
                assert found.blocks[part.last - 1][1] == part.end
        ends = sorted((part.low, part.end) for part in parts)
        assert [0, *(end for _, end in ends)] == [*(low for low, _ in ends), 331]
        kept = [b for part in parts for b in range(part.first, part.last)]
        # What is not kept is read before the same place has what is.
        assert kept == list(range(found.kept))
        waits = [part.first < part.last for part in parts]
        assert waits == sorted(waits)
    assert done == rows


@pytest.mark.parametrize("keeps", [True, False], ids=["over", "beside"])
def test_sums_of_a_half_type(device: str, keeps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not keeps:
        monkeypatch.setattr(Into, "keeps", False)
    options = {"label_smoothing": 0.1, "z_loss": 0.01}
    with ruda.precision(half_reduction=True):
        check(device, "bfloat16", inputs(), True, **options)
        check(device, "bfloat16", inputs(13), False)
    check(device, "float32", inputs(), True)


def test_operands_that_lie_otherwise(device: str) -> None:
    check(device, "bfloat16", inputs(), False, turned=True)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_only_what_is_wanted(device: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a sum for the hidden states logits of more rows fit where gradients will wait.
    monkeypatch.setattr(linear_places, "_CHUNK", 2)
    hidden, weight, _, target = inputs()
    labels = ruda.asarray(target, device=device)
    expected = step("cpu", "float64", inputs(), False)[1:]
    for i in (0, 1):
        given = [ruda.tensor(x, dtype=dtype, device=device) for x in (hidden, weight)]
        given[i].requires_grad_()
        (F.linear_cross_entropy(*given, labels) * 3).backward()
        assert given[1 - i].grad is None
        got, want = given[i].grad.to("cpu"), expected[i]
        scale = float(abs(want).max().item())
        assert_close(got, want.astype(dtype), length=ROWS * CLASSES, scale=scale)


def test_a_graph_that_is_kept_gives_the_same_twice(device: str) -> None:
    hidden, weight, _, target = inputs()
    given = [
        ruda.tensor(x, dtype="float32", device=device, requires_grad=True) for x in (hidden, weight)
    ]
    loss = F.linear_cross_entropy(*given, ruda.asarray(target, device=device)) * 3
    loss.backward(retain_graph=True)
    first = [x.grad.numpy().copy() for x in given]
    loss.backward()
    for x, once in zip(given, first, strict=True):
        np.testing.assert_array_equal(x.grad.numpy(), 2 * once)


def test_a_gradient_is_scaled_where_it_lies(device: str, client: Any) -> None:
    hidden, weight, _, target = inputs()
    given = [
        ruda.tensor(x, dtype="float32", device=device, requires_grad=True) for x in (hidden, weight)
    ]
    loss = F.linear_cross_entropy(*given, ruda.asarray(target, device=device))
    pool = client.pool
    used = pool.peak = pool.used
    loss.backward()
    assert pool.peak - used < min(x.nbytes for x in given)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("start", [0, 1])
def test_scaling_over_itself_and_elsewhere(device: str, dtype: str, start: int) -> None:
    row = TABLE["linear_cross_entropy_scaled"].call
    drawn = np.random.default_rng(0).integers(-8, 8, 10001) / 8
    for by in (1.0, -0.5, np.inf):
        factor = ruda.asarray(by, dtype="float64" if dtype == "float64" else "float32")
        with np.errstate(invalid="ignore"):
            expected = (drawn * by)[start:]
        for spent in (False, True):
            x = ruda.tensor(drawn, dtype=dtype, device=device)
            out = row(x[start:], factor.to(device), spent)
            np.testing.assert_array_equal(out.to("cpu").astype("float64").numpy(), expected)
            assert (spent and start == 0) or (x.to("cpu").astype("float64").numpy() == drawn).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_such_class(device: str, dtype: str) -> None:
    hidden, weight, _, target = inputs()
    given = [
        ruda.tensor(x, dtype=dtype, device=device, requires_grad=True) for x in (hidden, weight)
    ]
    target[20] = CLASSES
    with pytest.raises(IndexRangeError, match="no such class"):
        F.linear_cross_entropy(*given, ruda.asarray(target, device=device)).item()


def test_a_compiled_step_is_the_eager_one(deferred: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made, device = cublaslt.Library(deferred, Queued(deferred)), "cuda:0"
    monkeypatch.setattr(cublaslt, "library", lambda client: made)
    hidden, weight, _, target = inputs()
    given = [ruda.tensor(x, dtype="bfloat16", device=device) for x in (hidden, weight)]
    labels = ruda.asarray(target, device=device)

    def slopes(h: Any, w: Any) -> Any:
        return ruda.grad(lambda h, w: F.linear_cross_entropy(h, w, labels) * 3, (0, 1))(h, w)

    def piece(pool: Any, spec: Any) -> Any:
        assert not deferred.order.planned, "memory of a graph from the common pool"
        return allocate_piece(pool, spec)

    monkeypatch.setattr(linear_parts, "allocate_piece", piece)
    step_of = ruda.compile(slopes)
    expected = slopes(*given)
    others = [ruda.tensor(-x, dtype="bfloat16", device=device) for x in (hidden, 2 * weight)]
    kept = [step_of(*given) for _ in range(3)]
    # What a graph writes belongs to it: neither results nor tensors made since are overwritten.
    since = [ruda.full((CLASSES, HIGH), 7, dtype="bfloat16", device=device) for _ in range(4)]
    step_of(*others)
    assert all((x.numpy() == 7).all() for x in since)
    for outs in kept:
        for got, want in zip(outs, expected, strict=True):
            np.testing.assert_array_equal(got.numpy(), want.numpy())
