"""Optimizer steps of many and of large tensors: the CPU's trajectories, in memory that stays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import nn, optim
from ruda.ops.joint_norm import joint_norm
from ruda.testing import assert_close

SIZES = (3_000_001, 1, 32768, 70_000, *range(100, 160))


def step(make: Any, where: str, steps: int = 3) -> list[ruda.Tensor]:
    """Parameters after some steps with the same gradients."""
    params = [
        ruda.asarray(np.linspace(-1, 1, n), dtype="float32", device=where).requires_grad_()
        for n in SIZES
    ]
    opt = make(params)
    for i in range(steps):
        for p in params:
            grad = np.cos(np.arange(p.size) * (i + 1.0))
            p.grad = ruda.asarray(grad, dtype="float32", device=where)
        opt.step()
    return [p.detach().to("cpu") for p in params]


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Lion", "RMSprop", "Adan", "RAdam"])
def test_trajectories(device: str, name: str) -> None:
    def make(params: Any) -> Any:
        return getattr(optim, name)(params, lr=0.01)

    for got, want in zip(step(make, device), step(make, "cpu"), strict=True):
        assert_close(got, want.numpy().astype("float64"), length=1024)


def test_a_step_allocates_nothing(device: str) -> None:
    params = [ruda.ones(1 << 20, device=device).requires_grad_() for _ in range(4)]
    for p in params:
        p.grad = ruda.ones(1 << 20, device=device)
    opt = optim.AdamW(params)
    opt.step()
    pool = params[0].client.pool
    pool.peak = before = pool.used
    opt.step()
    assert pool.peak - before < 1 << 16


def test_a_bounded_norm_and_a_scaled_step(device: str) -> None:
    grads = [np.sin(np.arange(n)).astype("f") for n in SIZES]
    params = [ruda.zeros(n, device=device).requires_grad_() for n in SIZES]
    for p, grad in zip(params, grads, strict=True):
        p.grad = ruda.asarray(grad, device=device)
    want = np.sqrt(sum(np.square(g.astype("float64")).sum() for g in grads))
    norm = joint_norm([p.grad for p in params])
    assert_close(norm.to("cpu"), np.asarray(want), length=1 << 15)
    opt = optim.SGD(params, lr=1.0)
    opt.step(scale=1.0 / norm, where=ruda.asarray(False, device=device))
    assert not any(p.detach().numpy().any() for p in params[:4])
    opt.step(scale=1.0 / norm)
    for p, grad in zip(params, grads, strict=True):
        assert_close(p.detach().to("cpu"), -grad.astype("float64") / want, length=1024)


def graded(where: str, dtype: str) -> list[ruda.Tensor]:
    """Parameters with gradients."""
    params = [ruda.zeros(n, dtype=dtype, device=where).requires_grad_() for n in SIZES]
    for p in params:
        p.grad = ruda.asarray(np.sin(np.arange(p.size)), dtype=dtype, device=where)
    return params


CHANGES: dict[str, Any] = {
    "norm": lambda params: optim.clip_grad_norm_(params, 0.5),
    "largest": lambda params: optim.clip_grad_norm_(params, 0.5, math.inf),
    "value": lambda params: optim.clip_grad_value_(params, 0.25),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", CHANGES)
def test_bounded_gradients(device: str, name: str, dtype: str) -> None:
    own, cpu = graded(device, dtype), graded("cpu", dtype)
    # A second time with other memory: what was sent of the first must not be used again.
    for _ in range(2):
        for params in (own, cpu):
            CHANGES[name](params)
        for p, q in zip(own, cpu, strict=True):
            assert_close(p.grad.to("cpu"), q.grad.numpy().astype("float64"), length=1 << 15)
        kept = [p.grad for p in own]
        for p, q in zip(own, cpu, strict=True):
            p.grad, q.grad = p.grad * 3.0, q.grad * 3.0
        del kept


def test_averages_of_weights(device: str) -> None:
    found = []
    for where in (device, "cpu"):
        model = nn.Sequential(nn.Linear(1000, 700), nn.Linear(700, 3))
        for i, p in enumerate(model.parameters()):
            with ruda.no_grad():
                p.assign(
                    ruda.asarray(np.cos(np.arange(p.size) + i), dtype="float32").reshape(p.shape)
                )
        model = model.to(where)
        ema = optim.EMA(model, decay=0.75)
        for _ in range(3):
            with ruda.no_grad():
                for p in model.parameters():
                    p.assign(p * 2)
            ema.update()
        found.append([v.to("cpu") for v in ema.state_dict()["average"].values()])
    for got, want in zip(*found, strict=True):
        assert_close(got, want.numpy().astype("float64"), length=64)


@pytest.mark.parametrize("finite", [True, False])
def test_unscaled_steps(device: str, finite: bool) -> None:
    found = []
    for where in (device, "cpu"):
        params = graded(where, "float32")
        if not finite:
            params[1].grad = params[1].grad + math.inf
        opt, scaler = optim.SGD(params, lr=1.0), optim.GradScaler(64.0, device=where)
        scaler.unscale_(opt)
        scaler.step(opt)
        scaler.update()
        found.append([p.detach().to("cpu") for p in params] + [scaler.get_scale().to("cpu")])
    for got, want in zip(*found, strict=True):
        assert_close(got, want.numpy().astype("float64"), length=64)
