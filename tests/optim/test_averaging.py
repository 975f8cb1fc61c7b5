"""Averages of weights: their values, swapping, saving, and the statistics of batch norms."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import nn, optim
from ruda.core.errors import ArgumentError, ShapeError


def walk(layer: nn.Module, average: Any, compiled: bool = False) -> list[np.ndarray]:
    """Weights of five steps, each averaged."""
    seen: list[np.ndarray] = []

    def step(x: ruda.Tensor) -> None:
        with ruda.no_grad():
            layer.weight.assign(x)
        average.update()

    run = ruda.compile(step) if compiled else step
    for i in range(5):
        value = np.random.default_rng(i).standard_normal(layer.weight.shape)
        seen.append(value)
        run(ruda.asarray(value, dtype=layer.weight.dtype))
    return seen


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("warmup", [False, True])
def test_the_exponential_average(warmup: bool, compiled: bool) -> None:
    layer = nn.Linear(3, 2, dtype="float64")
    ema = optim.EMA(layer, 0.6, warmup)
    expected = layer.weight.numpy(copy=True)
    for t, value in enumerate(walk(layer, ema, compiled)):
        decay = min(0.6, (1 + t) / (10 + t)) if warmup else 0.6
        expected = decay * expected + (1 - decay) * value
    np.testing.assert_allclose(ema.state_dict()["average"]["weight"].numpy(), expected, rtol=1e-13)
    assert ema.count.item() == 5


def test_the_equal_average_is_that_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    layer, other = nn.Linear(3, 2, dtype="float64"), torch.nn.Linear(3, 2, dtype=torch.float64)
    swa, theirs = optim.SWA(layer), torch.optim.swa_utils.AveragedModel(other)
    for value in walk(layer, swa):
        with torch.no_grad():
            other.weight.copy_(torch.from_numpy(value))
        theirs.update_parameters(other)
    got = swa.state_dict()["average"]["weight"].numpy()
    np.testing.assert_allclose(got, theirs.module.weight.detach().numpy(), rtol=1e-13)
    swa.apply()
    np.testing.assert_array_equal(layer.weight.numpy(), got)


def test_swapping_keeps_tensors_and_comes_back() -> None:
    layer = nn.Linear(3, 2, dtype="bfloat16")
    ema = optim.EMA(layer, 0.5)
    walk(layer, ema)
    weight, before = layer.weight, layer.weight.tolist()
    average = ema.state_dict()["average"]["weight"]
    assert average.dtype is ruda.float32
    with ema.swapped() as model:
        assert model is layer
        assert layer.weight is weight
        assert weight.tolist() == average.astype("bfloat16").tolist() != before
        assert layer(ruda.ones((1, 3), dtype="bfloat16")).requires_grad
        with pytest.raises(ArgumentError, match="update: the model holds the averages"):
            ema.update()
    assert weight.tolist() == before
    with pytest.raises(ShapeError), ema.swapped():
        layer(ruda.ones((1, 4), dtype="bfloat16"))
    assert weight.tolist() == before


def test_the_state_goes_round() -> None:
    layer = nn.Linear(3, 2)
    ema = optim.EMA(layer, 0.5, warmup=True)
    walk(layer, ema)
    saved = pickle.loads(pickle.dumps(ema.state_dict()))
    other = optim.EMA(layer, 0.5, warmup=True)
    other.load_state_dict(saved)
    for average in (ema, other):
        average.update()
    one, two = (a.state_dict() for a in (ema, other))
    assert one["count"].item() == two["count"].item() == 6
    assert one["average"]["weight"].tolist() == two["average"]["weight"].tolist()
    with pytest.raises(nn.StateDictError, match=r"names do not match. Got \['bias'\]"):
        optim.EMA(nn.Linear(3, 2, bias=False)).load_state_dict(saved)
    with pytest.raises(ShapeError, match=r"load_state_dict: a shape does not fit. Got weight"):
        optim.EMA(nn.Linear(4, 2)).load_state_dict(saved)
    with pytest.raises(ArgumentError, match="EMA: decay out of range"):
        optim.EMA(layer, 1.5)


def test_tied_weights_are_averaged_once_and_buffers_on_demand() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2, bias=False), nn.Linear(2, 2))
    model[2].weight = model[1].weight
    names = list(optim.EMA(model).state_dict()["average"])
    assert names == ["0.weight", "0.bias", "1.weight", "2.bias"]
    more = list(optim.EMA(model, buffers=True).state_dict()["average"])
    assert more == [*names, "0.running_mean", "0.running_var"]


def test_batch_norms_take_the_mean_of_their_statistics() -> None:
    torch = pytest.importorskip("torch")
    model = nn.Sequential(nn.BatchNorm1d(3, dtype="float64"), nn.Linear(3, 2, dtype="float64"))
    other = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2)).double()
    batches = [np.random.default_rng(i).standard_normal((4 + i, 3)) for i in range(3)]
    model(ruda.asarray(batches[0]))
    model.eval()
    optim.update_batch_norm(model, [(ruda.asarray(x), None) for x in batches])
    torch.optim.swa_utils.update_bn([torch.from_numpy(x) for x in batches], other)
    for name in ("running_mean", "running_var"):
        expected = getattr(other[0], name).numpy()
        np.testing.assert_allclose(getattr(model[0], name).numpy(), expected, rtol=1e-13)
    assert model[0].momentum == 0.1
    assert not model.training
    assert not model[0].training
