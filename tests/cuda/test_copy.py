"""Copies, casts and maps over views on the emulated GPU, tensors from a rule, and cheap views."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ruda
from ruda.backends.cuda.geometry import by_packs, by_tiles, layout_of
from ruda.core.devices import client as client_of
from ruda.core.dtypes import as_dtype
from ruda.core.spec import spec_of, weak_spec
from ruda.ops.geometry import fast_offset, view_offset
from ruda.tensor.dispatch import OPS
from ruda.tensor.tensor import wrap

CODES = (ruda.float8_e4m3, ruda.float8_e5m2, ruda.float4_e2m1)


def moved(x: Any, device: str) -> ruda.Tensor:
    return ruda.asarray(x, device=device)


def same(got: ruda.Tensor, want: np.ndarray) -> None:
    """Equal bit by bit, but for the sign and payload of NaN."""
    found = got.numpy()
    assert found.dtype == want.dtype and found.shape == want.shape
    np.testing.assert_array_equal(found.astype(np.float64), want.astype(np.float64))


def test_a_copier_makes_memory_broadcasts_and_casts(device: str) -> None:
    """The one function behind every dense copy that a kernel asks for."""
    client, x = client_of(device), np.arange(6.0, dtype=np.float32).reshape(2, 3)
    given = moved(x, device).T[::-1]
    wide = spec_of(client, (4, 3, 2), ruda.float64)
    copied = client.copier(wide, given.spec)
    first, second = copied(given.handle), copied(given.handle)
    assert first.spec is wide and first.root is None
    assert first.address != second.address
    same(wrap(wide, first), np.broadcast_to(x.T[::-1], (4, 3, 2)).astype(np.float64))
    none = spec_of(client, (0, 3, 2), ruda.float64)
    assert client.copier(none, given.spec)(given.handle).spec is none


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_permuted_copies(order: tuple[int, ...], device: str) -> None:
    x = np.arange(35 * 18 * 40, dtype=np.float32).reshape(35, 18, 40)
    np.testing.assert_array_equal(
        moved(x, device).permute_dims(order).copy().numpy(), x.transpose(order)
    )


@pytest.mark.parametrize("shape", [(17, 70), (70, 130), (33, 33), (3, 200)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "uint8", "bfloat16", "complex128"])
def test_turned_copies(shape: tuple[int, int], dtype: str, device: str) -> None:
    x = np.arange(shape[0] * shape[1]).reshape(shape) % 251
    t = moved(x.astype(as_dtype(dtype).numpy), device)
    np.testing.assert_array_equal(t.T.copy().numpy(), t.numpy().T)


def test_turned_copies_by_pairs(device: str, client: Any) -> None:
    """Pairs where sizes, strides and addresses are even; else element by element."""
    whole = np.arange(3 * 72 * 151).reshape(3, 72, 151).astype(ruda.bfloat16.numpy)
    t = moved(whole, device)
    for start, stop in ((0, 150), (1, 151), (0, 151)):
        shown = t[:, :, start:stop]
        same(shown.permute_dims((0, 2, 1)).copy(), whole[:, :, start:stop].transpose(0, 2, 1))
    even = np.ascontiguousarray(whole[:, :, :150])
    t = moved(even, device)
    for start, stop in ((0, 150), (2, 150), (1, 149)):
        shown = t[:, :, start:stop].permute_dims((0, 2, 1))
        same(shown.copy(), even[:, :, start:stop].transpose(0, 2, 1))
        same(
            (shown * 2).astype("float16"),
            (even[:, :, start:stop] * 2).transpose(0, 2, 1).astype(np.float16),
        )
    pairs = [n for n in client.driver.launches if "_by2_tile64" in n]
    assert any(n.startswith("copy") for n in pairs) and any("multiply" in n for n in pairs), pairs


def test_maps_of_turned_operands(device: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((50, 70)).astype(np.float32)
    y = rng.standard_normal((70, 50)).astype(np.float32)
    a, b = moved(x, device), moved(y, device)
    np.testing.assert_array_equal((a + b.T).numpy(), x + y.T)
    np.testing.assert_array_equal((a.T * b.T.T).numpy(), x.T * y)
    np.testing.assert_array_equal((a.T + a.T).numpy(), x.T + x.T)
    np.testing.assert_array_equal((b.T + b[:, :1].T).numpy(), y.T + y[:, :1].T)


def test_broadcast_rows_and_columns(device: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((9, 6, 24)).astype(np.float32)
    t = moved(x, device)
    for index in ((0, 0), (slice(None), slice(0, 1)), (slice(None), slice(None), slice(0, 1))):
        np.testing.assert_array_equal((t + t[index]).numpy(), x + x[index])
    # An address that allows no wide access, and a row length that divides by nothing.
    np.testing.assert_array_equal((t[0, 0, 1:] + t[..., 1:]).numpy(), x[0, 0, 1:] + x[..., 1:])
    flat = moved(x.reshape(-1), device)
    shifted = flat[1 : 1 + 24 * 50].reshape(50, 24)
    want = x.reshape(-1)[1 : 1 + 24 * 50].reshape(50, 24)
    np.testing.assert_array_equal((shifted + t[0, 0]).numpy(), want + x[0, 0])


def test_writes_into_views(device: str) -> None:
    x = np.arange(40 * 48, dtype=np.float32).reshape(40, 48)
    t, want = ruda.zeros((48, 96), device=device), np.zeros((48, 96), np.float32)
    t[:, 8:48] = moved(x, device).T
    want[:, 8:48] = x.T
    t.T[56:96, :] = moved(x, device)
    want.T[56:96, :] = x
    t[::2, 50] = 7.0
    want[::2, 50] = 7.0
    ruda.flip(t)[0] = moved(want[3], device)
    np.flip(want)[0] = want[3].copy()
    np.testing.assert_array_equal(t.numpy(), want)


def kinds(
    operand: tuple[tuple[int, ...], tuple[int, ...]], out: tuple[int, ...]
) -> tuple[int, int]:
    """Packs and tile that a copy of this geometry uses."""
    cpu = client_of("cpu")
    source = spec_of(cpu, operand[0], ruda.float32, operand[1])
    layout = layout_of((source,), spec_of(cpu, out, ruda.float32))
    packs, tiles = by_packs(layout, (4, 4)), by_tiles(layout, (4, 4))
    return (packs.count if packs else 0), (tiles.tile if tiles else 0)


def test_which_loop_serves_a_copy() -> None:
    assert kinds(((64,), (1,)), (8, 64)) == (4, 0)
    assert kinds(((8, 1), (1, 1)), (8, 64)) == (4, 0)
    assert kinds(((100, 200), (1, 100)), (100, 200)) == (0, 64)
    assert kinds(((20, 200), (1, 20)), (20, 200)) == (0, 32)
    assert kinds(((3, 200), (1, 3)), (3, 200)) == (0, 0)
    assert kinds(((5, 7, 16), (16, 80, 1)), (5, 7, 16)) == (4, 0)
    assert kinds(((5, 7, 6), (6, 30, 1)), (5, 7, 6)) == (2, 0)


@pytest.mark.parametrize("code", CODES, ids=str)
def test_casts_to_codes(code: ruda.DType, device: str, rng: np.random.Generator) -> None:
    edges = [
        np.nan,
        -np.nan,
        np.inf,
        -np.inf,
        0.0,
        -0.0,
        1e9,
        -1e9,
        1e-9,
        448,
        464,
        464.1,
        465,
        480,
    ]
    edges += [57344, 61439, 61440, 65536, 6, 7, 5, 2.5, 2.0**-9, 2.0**-10, 1.5 * 2.0**-10, 2.0**-17]
    values = np.concatenate([edges, rng.standard_normal(500) * 2.0 ** rng.integers(-18, 18, 500)])
    x = values.astype(np.float32)
    got = moved(x, device).astype(code).numpy()
    np.testing.assert_array_equal(got.view(np.uint8), x.astype(code.numpy).view(np.uint8))
    half = x[np.abs(x) < 60_000].astype(np.float16)
    got = moved(half, device).astype(code).numpy()
    np.testing.assert_array_equal(got.view(np.uint8), half.astype(code.numpy).view(np.uint8))


@pytest.mark.parametrize("code", CODES, ids=str)
def test_casts_from_codes(code: ruda.DType, device: str) -> None:
    every = np.arange(16 if code is ruda.float4_e2m1 else 256, dtype=np.uint8).view(code.numpy)
    t = moved(every, device)
    for dtype in (ruda.float32, ruda.bfloat16, ruda.bool):
        same(t.astype(dtype), every.astype(dtype.numpy))
    for other in CODES:
        if other is not code:
            want = every.astype(other.numpy).view(np.uint8)
            np.testing.assert_array_equal(t.astype(other).numpy().view(np.uint8), want)
    full = ruda.full((5,), 1.3, dtype=code, device=device).numpy()
    np.testing.assert_array_equal(full, np.full(5, 1.3, np.float32).astype(code.numpy))


def test_a_double_becomes_a_half_in_one_rounding(device: str) -> None:
    x = np.array(
        [1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11, 1 + 3 * 2.0**-11 - 2.0**-40, 1e300, -1e300]
    )
    x = np.concatenate([x, [np.inf, np.nan, 2.0**-25 + 2.0**-60, 2.0**-25, 65519.999999999, 0.0]])
    with np.errstate(over="ignore"):
        same(moved(x, device).astype(ruda.float16), x.astype(np.float16))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_neighbours_of_halves(dtype: Any, device: str) -> None:
    x = np.array([0, -0.0, 1, 1, -1, 65504, np.inf, np.nan, 2.0**-24, 3, 0, 0], dtype)
    y = np.array([1, -1, 2, 0, 0, np.inf, 0, 1, 0, 3, np.nan, -0.0], dtype)
    got = ruda.nextafter(moved(x, device), moved(y, device)).numpy()
    with np.errstate(over="ignore"):
        want = np.nextafter(x, y).astype(np.float32)
    np.testing.assert_array_equal(got.astype(np.float32), want)


@pytest.mark.parametrize("order", [1, 2, 5])
def test_polygamma(order: int, device: str) -> None:
    x = np.array([0.1, 0.5, 0.7, 3.0, 40.0, -1.3, np.nan, 0.0])
    got = ruda.polygamma(order, moved(x, device)).numpy()
    np.testing.assert_allclose(got, ruda.polygamma(order, ruda.asarray(x)).numpy(), rtol=1e-13)


@pytest.mark.parametrize(
    ("arguments", "dtype"),
    [
        ((7,), None),
        ((2, -100, -3), "int8"),
        ((2**62, 2**62 + 5000, 17), "int64"),
        ((250, 260), "uint16"),
        ((0.1, 300.0, 0.1), "float32"),
        ((0.1, 300.0, 0.1), "float64"),
        ((0.5, 40, 3), "float16"),
        ((0, 10_000), "bfloat16"),
        ((3, 3), None),
    ],
    ids=str,
)
def test_arange(arguments: tuple[Any, ...], dtype: Any, device: str) -> None:
    got = ruda.arange(*arguments, dtype=dtype, device=device).numpy()
    np.testing.assert_array_equal(got, ruda.arange(*arguments, dtype=dtype).numpy())


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((0.1, 0.9, 1001), {}),
        ((0.1, 0.9, 1001), {"endpoint": False, "dtype": "float64"}),
        ((-3, 7, 64), {"dtype": "int32"}),
        ((5.0, 6.0, 1), {}),
        ((5.0, 6.0, 0), {}),
        ((0.0, 5e-324, 3), {"dtype": "float64"}),
        ((1 + 2j, 3 - 1j, 77), {}),
        ((0.0, 1.0, 100), {"dtype": "float16"}),
    ],
    ids=str,
)
def test_linspace(arguments: Any, options: Any, device: str) -> None:
    got = ruda.linspace(*arguments, **options, device=device).numpy()
    np.testing.assert_array_equal(got, ruda.linspace(*arguments, **options).numpy())


@pytest.mark.parametrize("k", [0, 3, -2, 100])
def test_eye(k: int, device: str) -> None:
    got = ruda.eye(70, 33, k=k, dtype="float32", device=device).numpy()
    np.testing.assert_array_equal(got, np.eye(70, 33, k, dtype=np.float32))


VIEWS = (
    ("permute", (), ((1, 0, 2),)),
    ("flip", (), ((0, 2),)),
    ("slice", ((2,),), ((1,), (1,), (0,))),
    ("slice", ((3, 4, 1),), ((2, 2, 2), (-1, -2, 1), (1,))),
    ("diagonal", (), (-2, 0, 1)),
    ("diagonal", (), (1, 1, 2)),
    ("unfold", (), (1, 2, 2)),
    ("expand", (), ((2, 4, 5, 6),)),
)


@pytest.mark.parametrize(("name", "values", "attrs"), VIEWS, ids=str)
def test_offsets_are_those_of_the_reference(name: str, values: Any, attrs: Any) -> None:
    cpu = client_of("cpu")
    for strides in ((30, 6, 1), (-1, 40, 8), (2, -40, -8)):
        specs = (spec_of(cpu, (4, 5, 6), ruda.float32, strides),)
        if values:
            specs += (weak_spec(cpu, "int"),)
        plan = OPS[name].lookup(specs, attrs)
        offset = fast_offset(plan)
        got = offset(*values) if callable(offset) else offset
        assert got == view_offset(plan, values)


def test_views_of_views(device: str) -> None:
    x = np.arange(120, dtype=np.float32).reshape(4, 5, 6)
    t = moved(x, device)
    np.testing.assert_array_equal(t[1].T[2:][-1].numpy(), x[1].T[2:][-1])
    np.testing.assert_array_equal(t[::-1, 1:4, ::2][2, :, -1].numpy(), x[::-1, 1:4, ::2][2, :, -1])
    np.testing.assert_array_equal(ruda.diagonal(t[2], offset=1).numpy(), np.diagonal(x[2], 1))
