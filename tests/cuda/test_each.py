"""One launch for all tensors on an emulated GPU: what scales, bounds, unscales and averages."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import nn, optim
from ruda.core.errors import ArgumentError, VersionError
from ruda.ops.joint_norm import joint_finite
from ruda.tensor.batches import overwrite_each
from ruda.tensor.dispatch import OPS
from ruda.tensor.tensor import wrap
from ruda.testing import assert_close

# Several packs and a rest, a chunk and more, less than a pack, a scalar, nothing.
SHAPES = ((5, 7), (33000,), (3,), (), (0, 4))


def graded(where: str, dtype: str = "float32", scale: float = 1.0) -> list[ruda.Tensor]:
    """Parameters with gradients."""
    params = []
    for i, shape in enumerate(SHAPES):
        values = np.random.default_rng(i).standard_normal(shape) * scale
        p = ruda.zeros(shape, dtype=dtype, device=where).requires_grad_()
        p.grad = ruda.asarray(values, dtype=dtype, device=where)
        params.append(p)
    return params


def grads(params: list[ruda.Tensor]) -> list[np.ndarray]:
    return [p.grad.to("cpu").numpy() for p in params]


def check_alike(change: Callable[[Any], Any], device: str, dtype: str = "float32") -> None:
    """The gradients after ``change`` are those of the CPU."""
    found = []
    for where in (device, "cpu"):
        params = graded(where, dtype)
        change(params)
        found.append([p.grad.to("cpu") for p in params])
    for got, want in zip(*found, strict=True):
        assert_close(got, want.numpy().astype("float64"), length=1 << 15)


def many(client: Any) -> list[str]:
    return [name for name in client.driver.launches if name.endswith("_many")]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_a_bounded_norm(device: str, client: Any, dtype: str) -> None:
    client.driver.launches.clear()
    check_alike(lambda params: optim.clip_grad_norm_(params, 0.5), device, dtype)
    assert len(many(client)) == 1


def test_gradients_of_several_dtypes(device: str) -> None:
    found = []
    for where in (device, "cpu"):
        params = graded(where) + graded(where, "float64") + graded(where, "float16")
        optim.clip_grad_norm_(params, 0.5)
        # The squares of single precision are added up in it, whoever shares the norm.
        kept = [
            g if g.dtype != "float64" else g.astype("float32") for g in (p.grad for p in params)
        ]
        found.append([g.to("cpu") for g in kept])
    for got, want in zip(*found, strict=True):
        assert_close(got, want.numpy().astype("float64"), length=1 << 15)


def test_a_norm_below_the_bound_moves_nothing(device: str) -> None:
    params = graded(device)
    before = grads(params)
    optim.clip_grad_norm_(params, 1e6)
    for got, want in zip(grads(params), before, strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_norm_that_is_not_finite_reaches_all(device: str) -> None:
    params = graded(device)
    params[2].grad = ruda.asarray([1.0, np.nan, 2.0], dtype="float32", device=device)
    optim.clip_grad_norm_(params, 1.0)
    assert all(np.isnan(g).all() for g in grads(params))


def test_bounded_elements(device: str, client: Any) -> None:
    client.driver.launches.clear()
    check_alike(lambda params: optim.clip_grad_value_(params, 0.1), device)
    assert len(many(client)) == sum("clip" in name for name in client.driver.launches) == 1


def test_new_gradients_are_found_where_they_are(device: str) -> None:
    params, kept = graded(device), []
    for turn in range(3):
        for p, fresh in zip(params, graded(device, scale=turn + 1.0), strict=True):
            kept.append(p.grad)
            p.grad = fresh.grad
        before = grads(params)
        optim.clip_grad_value_(params, 0.5)
        for got, want in zip(grads(params), before, strict=True):
            np.testing.assert_array_equal(got, np.clip(want, -0.5, 0.5))


def test_a_gradient_that_two_share_is_scaled_twice(device: str) -> None:
    shared = ruda.ones(9, device=device)
    params = [ruda.zeros(9, device=device).requires_grad_() for _ in range(2)]
    for p in params:
        p.grad = shared
    optim.clip_grad_norm_(params, 0.5)
    factor = 0.5 / np.sqrt(18)
    assert_close(shared.to("cpu"), np.full(9, factor * factor), length=64)


def test_gradients_that_are_not_dense(device: str) -> None:
    p = ruda.zeros((4, 6), device=device).requires_grad_()
    p.grad = ruda.asarray(np.arange(24.0).reshape(6, 4), dtype="float32", device=device).mT
    optim.clip_grad_value_([p], 5.0)
    np.testing.assert_array_equal(
        p.grad.numpy(), np.minimum(np.arange(24.0).reshape(6, 4).T, 5).astype("f")
    )


def test_versions_count(device: str) -> None:
    params = graded(device)
    x = params[0].grad
    assert x is not None
    saved = x.detach().requires_grad_()
    out = ruda.sum(saved * saved)
    optim.clip_grad_value_(params, 0.1)
    with pytest.raises(VersionError):
        out.backward()


@pytest.mark.parametrize("bad", [None, np.inf, np.nan])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_whether_all_are_finite(device: str, client: Any, bad: float | None, dtype: str) -> None:
    # Squares of these would not be.
    params = graded(device, dtype, scale=1e30)
    xs = [p.grad for p in params]
    if bad is not None:
        whole = np.ones(33000)
        whole[-2] = bad
        xs[1] = ruda.asarray(whole, dtype=dtype, device=device)
    client.driver.launches.clear()
    assert joint_finite(xs).item() is (bad is None)
    assert len(client.driver.launches) == 2


@pytest.mark.parametrize("finite", [True, False])
def test_unscaled_steps(device: str, client: Any, finite: bool) -> None:
    found = []
    for where in (device, "cpu"):
        params = graded(where, scale=64.0)
        if not finite:
            params[0].grad = params[0].grad * np.inf
        opt, scaler = optim.SGD(params, lr=1.0), optim.GradScaler(64.0, device=where)
        client.driver.launches.clear()
        scaler.unscale_(opt)
        scaler.step(opt)
        scaler.update()
        found.append([p.detach().to("cpu") for p in params] + [scaler.get_scale().to("cpu")])
        if where == device:
            assert len(many(client)) == 2
    for got, want in zip(*found, strict=True):
        assert_close(got, want.numpy().astype("float64"), length=64)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_averages_of_weights(device: str, client: Any, dtype: str) -> None:
    found = []
    for where in ("cpu", device):
        model = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3)).to(dtype=dtype)
        for i, p in enumerate(model.parameters()):
            values = np.random.default_rng(i).standard_normal(p.shape)
            with ruda.no_grad():
                p.assign(ruda.asarray(values, dtype=dtype))
        model = model.to(where)
        ema = optim.EMA(model, decay=0.75)
        with ruda.no_grad():
            for p in model.parameters():
                p.assign(p * 2)
        client.driver.launches.clear()
        ema.update()
        found.append([v.to("cpu") for v in ema.state_dict()["average"].values()])
    assert len(many(client)) == 1
    for got, want in zip(*found[::-1], strict=True):
        assert_close(got, want.numpy().astype("float64"), length=64)


def test_half_parameters_follow_their_masters_in_one_launch(device: str, client: Any) -> None:
    params = graded(device, "bfloat16")
    opt = optim.AdamW(params)
    opt.step()
    client.driver.launches.clear()
    opt.step()
    # The step, which counts itself as well, and the casts of all masters.
    assert [name.rsplit("_", 1)[1] for name in client.driver.launches] == ["many", "many"]


def test_memory_that_cannot_be_written(device: str, client: Any) -> None:
    x = ruda.ones(4, device=device)
    shown = wrap(x.spec, client.borrow(x.handle.address, x.spec, x, read_only=True))
    with ruda.no_grad(), pytest.raises(ArgumentError, match="read-only"):
        overwrite_each(OPS["clip"], [shown], ([shown], 0.0, 0.5))
    assert x.tolist() == [1.0] * 4


@pytest.mark.parametrize("kind", ["float32", "float64", "float16"])
def test_the_mean_of_losses_that_count(device: str, client: Any, kind: str) -> None:
    rng = np.random.default_rng(0)
    losses, targets = rng.random((50, 70)), rng.integers(0, 5, (50, 70))
    losses[targets == 3] = 0.0
    for dtype, ignore in (("int32", 3), ("uint8", 3), ("int64", -100), ("uint8", -100)):
        x = ruda.asarray(losses, dtype=kind, device=device)
        y = ruda.asarray(targets, dtype=dtype, device=device)
        client.driver.launches.clear()
        mean, count = OPS["mean_where_counted"].call(x, y, ignore)
        assert (len(client.driver.launches) == 1) == (kind != "float16")
        many = int((targets != ignore).sum())
        assert count.item() == many
        want = x.to("cpu").numpy().astype("float64").sum() / many
        assert_close(mean.to("cpu"), np.asarray(want), length=3500)


def test_threads_that_share_a_launch_bound_their_own(device: str) -> None:
    def work(number: int) -> list[np.ndarray]:
        x = ruda.zeros(500, device=device).requires_grad_()
        y = ruda.zeros(30, device=device).requires_grad_()
        found = []
        for turn in range(30):
            x.grad = ruda.full((500,), number + turn + 1.0, device=device)
            y.grad = ruda.full((30,), -number - turn - 1.0, device=device)
            optim.clip_grad_value_([x, y], number + 0.5)
            found += [x.grad.numpy(), y.grad.numpy()]
        return found

    with ThreadPoolExecutor(4) as pool:
        for number, found in enumerate(pool.map(work, range(4))):
            for i, got in enumerate(found):
                np.testing.assert_array_equal(got, (number + 0.5) * (-1) ** i)
