"""Power pooling, unpooling, norms, bags, bilinear maps and layers that draw, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from tests.ops.peer import assert_near, assert_same, torch


def values(*shape: int) -> Any:
    return np.random.default_rng(np.prod(shape, dtype=int)).standard_normal(shape)


def theirs(name: str) -> Any:
    return getattr(torch().nn.functional, name)


POWERS: dict[str, Any] = {
    "line": ((2, 3, 8), (2, 3), {}),
    "plane": ((2, 3, 7, 8), (2, (2, 3)), {"stride": (1, 2)}),
    "sums": ((2, 3, 7, 8), (1, 3), {}),
    "solid": ((1, 2, 4, 5, 6), (4, 2), {}),
    "ceil": ((1, 2, 7, 9), (3, 2), {"ceil_mode": True}),
    "no batch axis": ((2, 6, 6), (1.5, 2), {}),
}


@pytest.mark.parametrize("name", POWERS)
def test_power_pooling(name: str) -> None:
    shape, args, options = POWERS[name]
    rank = max(len(shape) - 2, 1) if name != "no batch axis" else 2
    call = f"lp_pool{rank}d"
    # Away from zero, where the curvature of a root has no bound; sums may have either sign.
    x = values(*shape) if args[0] == 1 else np.abs(values(*shape)) + 0.5
    assert_same(
        lambda a: getattr(F, call)(a, *args, **options),
        lambda a: theirs(call)(a, *args, **options),
        x,
    )


def test_a_window_of_zeros_has_no_slope() -> None:
    x = ruda.zeros((1, 1, 4)).requires_grad_()
    ruda.sum(F.lp_pool1d(x, 2, 2)).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[[0.0] * 4]]


@pytest.mark.parametrize(
    ("shape", "kernel", "options"),
    [
        ((2, 3, 8), 2, {}),
        ((1, 2, 6, 6), 2, {}),
        ((1, 2, 7, 7), 3, {"stride": 2}),
        ((1, 2, 4, 4, 6), 2, {}),
    ],
    ids=str,
)
def test_unpooling(shape: tuple[int, ...], kernel: int, options: dict[str, Any]) -> None:
    rank = len(shape) - 2
    x = values(*shape)
    best, places = getattr(F, f"max_pool{rank}d")(
        ruda.asarray(x), kernel, **options, return_indices=True
    )
    indices = torch().tensor(places.numpy(copy=True))
    call = f"max_unpool{rank}d"
    # Windows that share their maximum write one value twice; orders of adding do not show.
    got = getattr(F, call)(best, places, kernel, **options, output_size=shape[2:])
    want = theirs(call)(
        torch().tensor(best.numpy(copy=True)), indices, kernel, **options, output_size=shape[2:]
    )
    assert_near(got, want)
    if not options:
        assert_same(
            lambda a: getattr(F, call)(a, places, kernel),
            lambda a: theirs(call)(a, indices, kernel),
            best.numpy(copy=True),
        )


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, np.inf])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_normalize(p: float, axis: int) -> None:
    assert_same(
        lambda x: F.normalize(x, p, axis),
        lambda x: theirs("normalize")(x, p, axis),
        values(3, 4, 2),
    )


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("shape", [(2, 6, 4), (2, 5, 3, 2), (1, 4, 2, 2, 2)], ids=str)
def test_local_response_norm(shape: tuple[int, ...], size: int) -> None:
    how = (size, 0.3, 0.6, 1.5)
    assert_same(
        lambda x: F.local_response_norm(x, *how),
        lambda x: theirs("local_response_norm")(x, *how),
        values(*shape),
    )


def both(pair: Any) -> Any:
    """Normalised values and sum as one tensor, so that both get gradients."""
    y, total = pair
    return y + total * total


def test_a_residual_and_its_norm() -> None:
    x, r, w, b = values(3, 4, 6), values(4, 3, 6).reshape(3, 4, 6), values(6), values(2, 3).ravel()
    layer, rms = theirs("layer_norm"), theirs("rms_norm")
    assert_same(
        lambda x, r, w, b: both(F.add_layer_norm(x, r, w, b)),
        lambda x, r, w, b: both((layer(x + r, (6,), w, b), x + r)),
        x,
        r,
        w,
        b,
    )
    assert_same(
        lambda x, r, w: both(F.add_rms_norm(x, r, w, eps=1e-6)),
        lambda x, r, w: both((rms(x + r, (6,), w, eps=1e-6), x + r)),
        x,
        r,
        w,
    )


def test_the_sum_alone_or_the_norm_alone() -> None:
    x, r = (ruda.tensor(values(3, 4), requires_grad=True) for _ in range(2))
    y, total = F.add_rms_norm(x, r)
    ruda.sum(total).backward()
    assert x.grad is not None
    assert x.grad.tolist() == np.ones((3, 4)).tolist()
    assert_near(y, F.rms_norm(x + r))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_residuals_take_wide_weights(dtype: str) -> None:
    x, w = ruda.asarray(values(3, 4)).astype(dtype), ruda.ones(4)
    y, total = F.add_rms_norm(x, x, w)
    assert y.dtype == total.dtype == dtype


def test_bilinear() -> None:
    assert_same(
        F.bilinear,
        lambda a, b, w, c: theirs("bilinear")(a, b, w, c),
        values(2, 3, 4),
        values(2, 3, 5),
        values(6, 4, 5),
        values(6),
    )


def test_softmin() -> None:
    assert_same(F.softmin, lambda x: theirs("softmin")(x, -1), values(3, 4))


INDICES = np.array([1, 2, 4, 4, 0, 3, 1, 1])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 1, -1])
@pytest.mark.parametrize("closed", [False, True])
def test_bags(mode: str, padding: int | None, closed: bool) -> None:
    offsets = np.array([0, 3, 3, 6] + [8] * closed)
    how = {"mode": mode, "include_last_offset": closed, "padding_idx": padding}
    ours, peer = ruda.asarray(INDICES), torch().tensor(INDICES)
    table = values(5, 3)
    mine = F.embedding_bag(ours, ruda.asarray(table), ruda.asarray(offsets), **how)
    bags = theirs("embedding_bag")(peer, torch().tensor(table), torch().tensor(offsets), **how)
    assert_near(mine, bags)
    mine = F.embedding_bag(ours.reshape((2, 4)), ruda.asarray(table), mode=mode)
    assert_near(mine, theirs("embedding_bag")(peer.reshape(2, 4), torch().tensor(table), mode=mode))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_gradients_of_bags(mode: str) -> None:
    rows = INDICES.reshape(4, 2)
    ours, peer = ruda.asarray(rows), torch().tensor(rows)
    if mode == "sum":
        assert_same(
            lambda t, s: F.embedding_bag(ours, t, mode="sum", per_sample_weights=s),
            lambda t, s: torch().einsum("bnd,bn->bd", t[peer], s),
            values(5, 3),
            values(4, 2),
        )
        return
    # Equal maxima share the gradient, so the rows that meet there must differ.
    distinct = np.array([[0, 1], [2, 3], [4, 0]])
    ours, peer = ruda.asarray(distinct), torch().tensor(distinct)
    reduce = (lambda x: x.mean(1)) if mode == "mean" else (lambda x: x.amax(1))
    assert_same(
        lambda t: F.embedding_bag(ours, t, mode=mode), lambda t: reduce(t[peer]), values(5, 3)
    )


def test_what_lies_in_no_bag_is_left_out() -> None:
    table = ruda.asarray([[1.0], [2.0], [4.0]])
    out = F.embedding_bag(
        ruda.asarray([0, 1, 2, 2]),
        table,
        ruda.asarray([1, 2, 3]),
        mode="sum",
        include_last_offset=True,
    )
    assert out.tolist() == [[2.0], [4.0]]
    empty = F.embedding_bag(ruda.zeros(0, dtype="int64"), table, ruda.asarray([0, 0]))
    assert empty.tolist() == [[0.0], [0.0]]


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    generator = ruda.random.Generator(3)
    x = ruda.random.normal((200_000,), generator=generator)
    for rate in (0.1, 0.5):
        out = F.alpha_dropout(x, rate, generator=generator).numpy()
        # Five standard errors of a mean and of a variance over 200,000 draws.
        assert abs(out.mean()) < 5 / np.sqrt(out.size)
        assert abs(out.var() - 1) < 5 * np.sqrt(3 / out.size) * 2
    assert F.alpha_dropout(x, training=False) is x


def test_feature_alpha_dropout_saturates_whole_channels() -> None:
    out = F.feature_alpha_dropout(ruda.ones((8, 16, 3, 3)), generator=ruda.random.Generator(0))
    flat = out.numpy().reshape(8 * 16, 9)
    assert np.all(flat == flat[:, :1])
    assert len(np.unique(flat)) == 2


def test_random_slopes() -> None:
    x = ruda.full((10_000,), -1.0)
    out = F.rrelu(x, 0.1, 0.4, True, generator=ruda.random.Generator(0)).numpy()
    assert -0.4 < out.min() < -0.39
    assert -0.11 < out.max() <= -0.1
    np.testing.assert_allclose(F.rrelu(x, 0.1, 0.4).numpy(), -0.25, rtol=1e-6)
