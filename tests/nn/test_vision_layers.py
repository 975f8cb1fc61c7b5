"""Lazy layers, bags, bilinear, deformable and unpooling layers, and layers that draw."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn
from ruda.core.errors import ArgumentError, ShapeError
from tests.ops.peer import assert_near, torch


def values(*shape: int) -> Any:
    return ruda.asarray(np.random.default_rng(len(shape)).standard_normal(shape))


LAZY: dict[str, Any] = {
    "linear": (lambda: nn.LazyLinear(3, bias=False, dtype="float64"), (2, 5), nn.Linear),
    "line": (lambda: nn.LazyConv1d(4, 3, dtype="float64"), (2, 5, 6), nn.Conv1d),
    "plane": (lambda: nn.LazyConv2d(4, 3, 2, 1, dtype="float64"), (5, 6, 7), nn.Conv2d),
    "solid": (lambda: nn.LazyConv3d(4, 2, dtype="float64"), (2, 5, 3, 3, 3), nn.Conv3d),
    "norm 1": (lambda: nn.LazyBatchNorm1d(1e-3, dtype="float64"), (4, 5), nn.BatchNorm1d),
    "norm 2": (lambda: nn.LazyBatchNorm2d(dtype="float64"), (4, 5, 2, 2), nn.BatchNorm2d),
    "norm 3": (lambda: nn.LazyBatchNorm3d(dtype="float64"), (4, 5, 2, 2, 1), nn.BatchNorm3d),
}


@pytest.mark.parametrize("name", LAZY)
def test_lazy_layers_become_the_layer_they_stand_for(name: str) -> None:
    make, shape, cls = LAZY[name]
    layer, x = make(), values(*shape)
    assert not list(layer.parameters())
    calls: list[Any] = []
    layer.register_forward_hook(lambda module, args, out: calls.append(type(module)))
    layer.eval()
    out = layer(x)
    assert type(layer) is cls
    assert calls == [cls]
    assert not layer.training
    ordinary = cls(5, 3, bias=False) if name == "linear" else None
    if ordinary is not None:
        ordinary.to("float64").load_state_dict(layer.state_dict())
        assert_near(out, ordinary(x))
    ruda.sum(layer(x) ** 2).backward()
    assert all(p.grad is not None for p in layer.parameters())


def test_lazy_layers_inside_a_model() -> None:
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
    assert "?" in repr(model)
    assert model(ruda.ones((2, 3, 5, 5))).shape == (2, 2)
    assert "?" not in repr(model)
    assert sorted(model.state_dict())[:2] == ["0.bias", "0.weight"]
    other = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(36, 2))
    other.load_state_dict(model.state_dict())


def test_lazy_layers_say_what_they_need() -> None:
    with pytest.raises(ShapeError, match="LazyConv2d: too few axes"):
        nn.LazyConv2d(3, 2)(ruda.ones((2, 2)))


def test_bags_look_up_and_leave_padding_out() -> None:
    layer = nn.EmbeddingBag(5, 2, mode="sum", padding_idx=0)
    out = layer(ruda.asarray([[0, 3], [3, 1]]))
    ruda.sum(out).backward()
    assert layer.weight.grad.tolist() == [[0, 0], [1, 1], [0, 0], [2, 2], [0, 0]]
    again = layer(ruda.asarray([0, 3, 3, 1]), ruda.asarray([0, 2]))
    assert again.tolist() == out.tolist()
    with pytest.raises(ArgumentError, match="EmbeddingBag: unknown mode"):
        nn.EmbeddingBag(5, 2, mode="min")


def test_bilinear_is_that_of_pytorch() -> None:
    layer = nn.Bilinear(3, 4, 2, dtype="float64")
    other = torch().nn.Bilinear(3, 4, 2).double()
    other.load_state_dict(
        {k: torch().tensor(v.numpy(copy=True)) for k, v in layer.state_dict().items()}
    )
    a, b = values(5, 3), values(5, 4)
    assert_near(layer(a, b), other(*(torch().tensor(v.numpy(copy=True)) for v in (a, b))))


def test_unpooling_inverts_pooling() -> None:
    for rank in (1, 2, 3):
        pool = getattr(nn, f"MaxPool{rank}d")(2, return_indices=True)
        unpool = getattr(nn, f"MaxUnpool{rank}d")(2)
        x = values(1, 2, *(4,) * rank)
        best, places = pool(x)
        back = unpool(best, places)
        assert_near(pool(back + 10 * ruda.astype(back != 0, "float64"))[0], best + 10)
        assert unpool(best, places, (5,) * rank).shape == (1, 2, *(5,) * rank)


def test_transposed_convolutions_reach_the_sizes_asked_for() -> None:
    x, down = ruda.ones((1, 3, 10)), nn.Conv1d(3, 4, 3, 2, 1)
    up = nn.ConvTranspose1d(4, 3, 3, 2, 1)
    assert up(down(x)).shape == (1, 3, 9)
    assert up(down(x), (10,)).shape == x.shape
    with pytest.raises(ShapeError, match="output_size is out of reach"):
        up(down(x), (11,))


def test_a_deformable_layer_without_offsets_is_a_convolution() -> None:
    layer, x = nn.DeformConv2d(4, 6, 3, 2, 1, groups=2, dtype="float64"), values(2, 4, 6, 6)
    offset = ruda.zeros((2, 18, 3, 3), dtype="float64")
    expected = F.conv2d(x, layer.weight, layer.bias, 2, 1, groups=2)
    assert_near(layer(x, offset), expected)
    half = ruda.full((2, 9, 3, 3), 0.5, dtype="float64")
    halved = F.conv2d(x, layer.weight, None, 2, 1, groups=2) / 2
    assert_near(layer(x, offset, half), halved + ruda.reshape(layer.bias, (-1, 1, 1)))


def test_layers_that_draw_do_so_while_training() -> None:
    x = ruda.ones((64, 32))
    for make in (nn.AlphaDropout, nn.RReLU):
        layer = make(generator=ruda.random.Generator(0))
        assert len(np.unique(layer(-x).numpy())) > 1
        layer.eval()
        assert len(np.unique(layer(-x).numpy())) == 1
    channels = nn.FeatureAlphaDropout()(ruda.ones((4, 8, 3, 3))).numpy()
    assert np.all(channels == channels[:, :, :1, :1])


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: nn.Conv2d(3, 4, 3, padding_mode="wrap"), ArgumentError, "unknown padding mode"),
        (lambda: nn.ConvTranspose2d(3, 4, 3, groups=2), ArgumentError, "channels do not divide"),
        (lambda: nn.ConvTranspose2d(3, 4, (3,)), ArgumentError, "wrong kernel size"),
        (lambda: nn.ReflectionPad2d((1, 2)), ArgumentError, "ReflectionPad2d: padding does not"),
        (lambda: nn.ZeroPad3d(1)(ruda.ones((2, 2))), ShapeError, "ZeroPad3d: too few axes"),
        (lambda: nn.InstanceNorm2d(3)(ruda.ones((2, 3))), ShapeError, "InstanceNorm2d: wrong"),
        (lambda: nn.Softmax2d()(ruda.ones((2, 3))), ShapeError, "Softmax2d: wrong rank"),
        (lambda: nn.RReLU(2.0, 1.0), ArgumentError, "RReLU: the bounds are in disorder"),
    ],
)
def test_errors(call: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()


def test_hard_sigmoid_is_its_formula() -> None:
    # PyTorch's derivative has a sixth in float32.
    x = values(3, 6)
    layer = nn.Hardsigmoid()
    assert_near(layer(4 * x), np.clip(4 * x.numpy() / 6 + 0.5, 0, 1))


def test_an_empty_batch_is_flattened() -> None:
    assert nn.Flatten()(ruda.ones((0, 3, 4))).shape == (0, 12)


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("widths", [(1, 2), (2, 0, 1, 1)], ids=str)
def test_padding_takes_pairs_from_the_last_axis_on(mode: str, widths: Any) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)[: 2 + len(widths) // 2])
    mine = F.pad(ruda.asarray(x), widths, mode)
    assert_near(mine, torch().nn.functional.pad(torch().tensor(x), widths, mode))


def test_padding_may_cut_off_and_names_mistakes() -> None:
    x = ruda.ones((2, 3))
    assert F.pad(x, (-1, 0, 0, 1), value=7.0).tolist() == [[1.0, 1.0], [1.0, 1.0], [7.0, 7.0]]
    with pytest.raises(ArgumentError, match="pad: the widths do not fit"):
        F.pad(x, (1, 1, 1))
    with pytest.raises(ArgumentError, match=r"unknown mode. Got 'edge'. Expected one of constant"):
        F.pad(x, (1, 1), "edge")
