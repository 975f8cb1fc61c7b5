"""The module tree: names, registration, saving, moving, copying, hooks and errors."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import nn
from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from tests.nn.models import GPT, pair


class Scaled(nn.Module):
    """A layer with a parameter, buffers and a plain attribute of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(ruda.ones(3))
        self.inner = nn.Linear(3, 2)
        self.register_buffer("seen", ruda.zeros(3))
        self.register_buffer("scratch", ruda.zeros(3), persistent=False)
        self.rate = 0.5

    def forward(self, x: ruda.Tensor) -> ruda.Tensor:
        return self.inner(x * self.scale)


def equal_states(a: nn.Module, b: nn.Module) -> bool:
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(
        np.array_equal(left[name].numpy(), right[name].numpy()) for name in left
    )


def test_names_follow_the_order_of_attributes() -> None:
    model = nn.Sequential(Scaled(), nn.ReLU())
    assert [name for name, _ in model.named_parameters()] == [
        "0.scale",
        "0.inner.weight",
        "0.inner.bias",
    ]
    assert [name for name, _ in model.named_buffers()] == ["0.seen", "0.scratch"]
    assert [name for name, _ in model.named_modules()] == ["", "0", "0.inner", "1"]
    assert list(model.state_dict()) == ["0.scale", "0.inner.weight", "0.inner.bias", "0.seen"]


def test_a_state_dict_shares_memory_and_loads_by_copying() -> None:
    one, two = Scaled(), Scaled()
    assert not equal_states(one, two)
    weight = two.inner.weight
    assert two.load_state_dict(one.state_dict()) == ([], [])
    assert equal_states(one, two)
    assert two.inner.weight is weight
    with ruda.no_grad():
        one.state_dict()["scale"].assign(7.0)
    assert one.scale.tolist() == [7.0] * 3
    assert two.scale.tolist() == [1.0] * 3


def test_loading_takes_arrays_and_casts() -> None:
    layer = nn.Linear(2, 1)
    layer.load_state_dict({"weight": np.array([[1.0, 2.0]]), "bias": [3.0]})
    assert layer.weight.dtype is ruda.float32
    assert layer.weight.tolist() == [[1.0, 2.0]]
    assert layer.bias.tolist() == [3.0]


@pytest.mark.parametrize("name", ["mlp", "conv", "gpt"])
def test_the_names_of_pytorch_checkpoints_are_ours(name: str) -> None:
    torch = pytest.importorskip("torch")
    own, other = pair(name, torch, "float32")
    theirs = other.state_dict()
    assert {k: v.shape for k, v in own.state_dict().items()} == {
        k: tuple(v.shape) for k, v in theirs.items()
    }
    other.load_state_dict(
        {k: torch.from_numpy(v.numpy(copy=True)) for k, v in own.state_dict().items()}
    )


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    model = Scaled()
    before = {name: value.numpy(copy=True) for name, value in model.state_dict().items()}
    state = {name: value + 1 for name, value in model.state_dict().items()}
    with pytest.raises(nn.StateDictError, match=r"missing \['scale'\], unexpected \['size'\]"):
        model.load_state_dict({**{k: v for k, v in state.items() if k != "scale"}, "size": 1})
    with pytest.raises(ShapeError, match=r"a shape does not fit. Got seen \(4,\)"):
        model.load_state_dict({**state, "seen": ruda.zeros(4)})
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])
    found = model.load_state_dict({"scale": ruda.zeros(3), "size": 1}, strict=False)
    assert found == (["inner.weight", "inner.bias", "seen"], ["size"])
    assert model.scale.tolist() == [0.0] * 3


def test_copies_are_apart_and_keep_what_the_model_is() -> None:
    model = Scaled()
    ruda.sum(model(ruda.ones((1, 3)))).backward()
    model.inner.bias.requires_grad_(False)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert equal_states(model, twin)
        assert isinstance(twin.scale, nn.Parameter)
        assert twin.scale.requires_grad and not twin.inner.bias.requires_grad
        assert [n for n, _ in twin.named_parameters()] == [n for n, _ in model.named_parameters()]
        with ruda.no_grad():
            twin.scale.assign(5.0)
        assert model.scale.tolist() == [1.0] * 3
    assert copy.deepcopy(model).scale.grad.tolist() == model.scale.grad.tolist()
    assert "scratch" not in model.state_dict()


def test_tied_weights_are_one_parameter_and_stay_so() -> None:
    model = GPT("float32")
    names = [name for name, _ in model.named_parameters()]
    assert "token.weight" in names
    assert "head.weight" not in names
    assert "head.weight" in model.state_dict()
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model.to("float64")):
        assert twin.head.weight is twin.token.weight
    assert model.head.weight.dtype is ruda.float64
    ruda.sum(model(ruda.asarray([[1, 2]]))).backward()
    assert model.head.weight.grad is model.token.weight.grad


def test_freezing_stops_gradients() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model[0].requires_grad_(False)
    ruda.sum(model(ruda.ones((1, 2)))).backward()
    assert model[0].weight.grad is None
    assert model[1].weight.grad is not None
    assert isinstance(model[0].weight, nn.Parameter)
    model.zero_grad(set_to_none=False)
    assert model[1].weight.grad.tolist() == [[0.0, 0.0]]
    model.zero_grad()
    assert model[1].weight.grad is None


def test_hooks_change_what_goes_in_and_out() -> None:
    layer = nn.Identity()
    calls: list[str] = []
    drop_first = layer.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    drop_second = layer.register_forward_hook(lambda module, args, out: out * 10)
    layer.register_forward_hook(lambda module, args, out: calls.append(type(module).__name__))
    x = ruda.asarray([1.0])
    assert layer(x).tolist() == [20.0]
    drop_first()
    assert layer(x).tolist() == [10.0]
    drop_second()
    drop_second()
    assert layer(x).tolist() == [1.0]
    assert calls == ["Identity"] * 3


def test_modes_and_functions_reach_every_module() -> None:
    model = nn.Sequential(Scaled(), nn.Dropout())
    assert model.eval() is model
    assert not any(m.training for m in model.modules())
    assert all(m.training for m in model.train().modules())
    seen: list[str] = []
    model.apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Linear", "Scaled", "Dropout", "Sequential"]


def test_assigning_registers_replaces_and_forgets() -> None:
    model = Scaled()
    model.scale = nn.Parameter(ruda.zeros(3))
    model.extra = nn.Parameter(ruda.zeros(1))
    assert "extra" in dict(model.named_parameters())
    model.extra = None
    assert "extra" not in dict(model.named_parameters())
    model.inner = None
    assert [name for name, _ in model.named_parameters()] == ["scale"]
    model.seen = ruda.ones(3)
    assert model.state_dict()["seen"].tolist() == [1.0] * 3
    del model.scale
    assert not hasattr(model, "scale")
    model.scale = 3
    assert model.scale == 3
    assert not list(model.parameters())


def test_moving_casts_floats_alone() -> None:
    layer = nn.BatchNorm2d(2).to("float64").to("cpu")
    assert layer.weight.dtype is layer.running_mean.dtype is ruda.float64
    assert layer.num_batches_tracked.dtype is ruda.int64
    assert isinstance(layer.weight, nn.Parameter)
    assert layer.to(dtype=ruda.float32, device="cpu").weight.requires_grad


def test_changes_count_the_version_and_values_do_not() -> None:
    model = Scaled()

    def version(change: Any) -> int:
        before = model._ruda_version
        change()
        return int(model._ruda_version - before)

    assert version(lambda: setattr(model, "rate", 0.25)) == 1
    assert version(lambda: setattr(model, "rate", 0.25)) == 0
    assert version(model.eval) == 1
    assert version(model.eval) == 0
    assert version(lambda: model.requires_grad_(False)) == 1
    assert version(lambda: model.register_forward_hook(print)) == 1
    assert version(lambda: model.to("float64")) > 0
    assert version(lambda: model.load_state_dict(model.state_dict())) == 0


def test_the_text_shows_the_tree() -> None:
    lines = repr(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.1))).splitlines()
    assert lines == [
        "Sequential(",
        "  (0): Linear(3, 4, bias=True, 16 parameters)",
        "  (1): Dropout(p=0.1)",
        ")",
    ]


def test_errors() -> None:
    class Hasty(nn.Module):
        def __init__(self) -> None:
            self.layer = nn.Linear(1, 1)

    with pytest.raises(ArgumentError, match=r"Hasty: an attribute is set before .* super"):
        Hasty()
    layer = nn.Linear(2, 2)
    with pytest.raises(DTypeError, match=r"Linear.weight: not a parameter"):
        layer.weight = ruda.zeros((2, 2))
    with pytest.raises(DTypeError, match=r"BatchNorm2d.running_mean: not a tensor"):
        nn.BatchNorm2d(2).running_mean = 3
    with pytest.raises(DTypeError, match=r"register_buffer: not a tensor. Got list"):
        layer.register_buffer("x", [1.0])
    with pytest.raises(AttributeError, match="Linear has no attribute 'wieght'"):
        _ = layer.wieght
    with pytest.raises(DTypeError, match="Parameter: not a tensor"):
        nn.Parameter([1.0])
    with pytest.raises(DTypeError, match="requires_grad"):
        nn.Parameter(ruda.arange(3))
    with pytest.raises(NotImplementedError, match="Module has no forward"):
        nn.Module()(1)
