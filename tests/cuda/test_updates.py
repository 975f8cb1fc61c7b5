"""Optimizer steps on an emulated GPU: the trajectories of the CPU, in place, many at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda import optim
from ruda.ops.joint_norm import joint_norm
from ruda.testing import assert_close

STEPS = 3
# Sizes: several packs and a rest, one chunk and more, less than a pack, a scalar, nothing.
SHAPES = ((5, 7), (33000,), (3,), (), (0, 4))
MAKERS: dict[str, Any] = {
    "sgd": lambda p: optim.SGD(p, lr=0.1, weight_decay=0.01),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1),
    "nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, maximize=True),
    "adamw": lambda p: optim.AdamW(p, lr=0.01),
    "adam": lambda p: optim.Adam(p, lr=0.01, weight_decay=0.1),
    "amsgrad": lambda p: optim.AdamW(p, lr=0.01, amsgrad=True),
    "lion": lambda p: optim.Lion(p, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.01, lr_decay=0.1),
    "adadelta": lambda p: optim.Adadelta(p, lr=0.1),
    "nadam": lambda p: optim.NAdam(p, lr=0.01),
    "radam": lambda p: optim.RAdam(p, lr=0.01),
    "adan": lambda p: optim.Adan(p, lr=0.01, weight_decay=0.02),
}


def values(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def trajectory(make: Any, where: str, dtype: str, steps: int = STEPS) -> list[np.ndarray]:
    """Parameters and state after some steps."""
    params = [
        ruda.asarray(values(s, i), dtype=dtype, device=where).requires_grad_()
        for i, s in enumerate(SHAPES)
    ]
    opt = make(params)
    for step in range(steps):
        for i, p in enumerate(params):
            grad = values(p.shape, 10 * step + i + 5)
            p.grad = ruda.asarray(grad, dtype=dtype, device=where)
        opt.step()
    state = [t for p in params for t in opt.state[p].values()]
    return [t.detach().to("cpu").numpy() for t in (*params, *state)]


def check_alike(make: Any, device: str, dtype: str) -> None:
    for got, want in zip(
        trajectory(make, device, dtype), trajectory(make, "cpu", dtype), strict=True
    ):
        if want.dtype.kind in "iu":
            np.testing.assert_array_equal(got, want)
        else:
            assert_close(ruda.asarray(got), want.astype("float64"), length=64 * STEPS)


@pytest.mark.parametrize("name", MAKERS)
def test_trajectories_equal_those_of_the_cpu(device: str, name: str) -> None:
    check_alike(MAKERS[name], device, "float32")


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_dtypes(device: str, dtype: str) -> None:
    check_alike(lambda p: optim.AdamW(p, lr=0.01, master=False), device, dtype)


def test_half_parameters_follow_their_masters(device: str) -> None:
    check_alike(lambda p: optim.AdamW(p, lr=0.01), device, "float16")


def test_one_launch_for_a_group(device: str, client: Any) -> None:
    params = [ruda.ones(n, device=device).requires_grad_() for n in (3, 70000, 8)]
    opt = optim.AdamW(params)
    for _ in range(3):
        for p in params:
            p.grad = ruda.ones(p.shape, device=device)
        client.driver.launches.clear()
        opt.step()
    assert [name.rsplit("_", 1)[1] for name in client.driver.launches] == ["many"]


def test_the_learning_rate_changes_without_a_new_table(device: str) -> None:
    found = []
    for where in ("cpu", device):
        p = ruda.ones(9, device=where).requires_grad_()
        opt = optim.SGD([p], lr=0.5)
        for rate in (0.5, 0.25, 0.125):
            opt.lr = rate
            p.grad = ruda.ones(9, device=where)
            opt.step()
        found.append(p.detach().numpy())
    np.testing.assert_array_equal(found[0], np.full(9, 0.125, "f"))
    np.testing.assert_array_equal(found[1], found[0])


def test_steps_write_where_the_parameters_are(device: str, client: Any) -> None:
    whole = ruda.zeros(40, device=device)
    first, second = whole[:20].requires_grad_(), whole[20:].requires_grad_()
    opt = optim.SGD([first, second], lr=1.0)
    for p, g in ((first, 1.0), (second, 2.0)):
        p.grad = ruda.full((20,), g, device=device)
    opt.step()
    np.testing.assert_array_equal(whole.numpy(), np.repeat([-1.0, -2.0], 20).astype("f"))


def test_gradients_that_are_not_dense(device: str) -> None:
    p = ruda.zeros((4, 6), device=device).requires_grad_()
    opt = optim.AdamW([p], lr=0.1, weight_decay=0.0)
    p.grad = ruda.broadcast_to(ruda.asarray([1.0, -1.0] * 3, device=device), (4, 6))
    opt.step()
    assert_close(p.detach(), np.tile([-0.1, 0.1], (4, 3)), length=64)


def test_a_step_alone_and_in_memory_of_its_own(device: str) -> None:
    from ruda.ops.update import adamw_step

    p, g = (ruda.asarray(values((11,), i), dtype="float32", device=device) for i in (0, 1))
    zero = ruda.zeros(11, device=device)
    step = ruda.asarray(4, dtype="int64", device=device)
    before = p.numpy().copy()
    outs = adamw_step(p, g, zero, zero, step, 0.1, 0.9, 0.99, 1e-8, None, True, False)
    cpu = [t.to("cpu") for t in (p, g, zero, zero, step)]
    wants = adamw_step(*cpu, 0.1, 0.9, 0.99, 1e-8, None, True, False)
    for got, want in zip(outs, wants, strict=True):
        assert_close(got.to("cpu"), want.numpy().astype("float64"), length=64)
    np.testing.assert_array_equal(p.numpy(), before)
    assert int(step) == 4


def scaled(where: str, finite: bool) -> list[np.ndarray]:
    """Parameters and counts after steps that are scaled, the second one perhaps skipped."""
    params = [ruda.asarray(values((n,), n), dtype="float32", device=where) for n in (9, 40)]
    opt = optim.AdamW([p.requires_grad_() for p in params], lr=0.1)
    for step in (0, 1):
        for p in params:
            p.grad = ruda.asarray(values(p.shape, step), dtype="float32", device=where)
        keep = ruda.asarray(finite or step == 0, device=where)
        opt.step(scale=ruda.asarray(0.25, dtype="float32", device=where), where=keep)
    return [t.detach().numpy() for p in params for t in (p, *opt.state[p].values())]


@pytest.mark.parametrize("finite", [True, False])
def test_scales_and_conditions_are_read_on_the_device(
    device: str, client: Any, finite: bool
) -> None:
    for got, want in zip(scaled(device, finite), scaled("cpu", finite), strict=True):
        assert_close(ruda.asarray(got), want.astype("float64"), length=64)
    assert sum(name.endswith("_many") for name in client.driver.launches) >= 2
    assert not any("where" in name for name in client.driver.launches)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_the_norm_of_many_tensors(device: str, client: Any, dtype: str) -> None:
    arrays = [values(s, i) for i, s in enumerate([(5, 7), (33001,), (), (0, 4), (3,)])]
    xs = [ruda.asarray(a, dtype=dtype, device=device) for a in arrays]
    client.driver.launches.clear()
    got = joint_norm(xs)
    assert len(client.driver.launches) == 2
    want = np.sqrt(sum(np.square(x.to("cpu").numpy().astype("float64")).sum() for x in xs))
    assert got.dtype == ("float64" if dtype == "float64" else "float32")
    assert_close(got.to("cpu"), np.asarray(want), length=33001)


def test_a_bounded_norm_and_its_gradient(device: str) -> None:
    found = []
    for where in ("cpu", device):
        xs = [ruda.asarray(values((n,), n), device=where).requires_grad_() for n in (3, 8)]
        (joint_norm(xs) ** 2 + joint_norm([xs[0]])).backward()
        norm = optim.clip_grad_norm_(xs, 0.5)
        found.append([norm.numpy(), *(x.grad.numpy() for x in xs)])
    for got, want in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)
