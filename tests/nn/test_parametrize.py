"""Computed attributes, weight and spectral norm beside PyTorch's, hooks of backward."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import ruda
from ruda import nn
from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from ruda.nn.parametrize import (
    is_parametrized,
    register_parametrization,
    remove_parametrizations,
    spectral_norm,
    weight_norm,
)


def close(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(
        got.detach().numpy(), expected.detach().numpy(), rtol=1e-10, atol=1e-12
    )


class Symmetric(nn.Module):
    def forward(self, w: Any) -> Any:
        return ruda.triu(w) + ruda.triu(w).mT * 0.5

    def right_inverse(self, w: Any) -> Any:
        return ruda.triu(w)


class Product(nn.Module):
    def forward(self, a: Any, b: Any) -> Any:
        return a * b

    def right_inverse(self, w: Any) -> Any:
        return w * 2, ruda.full_like(w, 0.5)


def test_an_attribute_is_computed_and_trains_its_original() -> None:
    layer = nn.Linear(3, 3)
    before = layer.weight.tolist()
    assert register_parametrization(layer, "weight", Symmetric()) is layer
    names = [name for name, _ in layer.named_parameters()]
    assert names == ["bias", "parametrizations.weight.original"]
    original = layer.parametrizations.weight.original
    assert original.tolist() == np.triu(before).tolist()
    ruda.sum(layer(ruda.ones((2, 3)))).backward()
    assert original.grad is not None
    assert not np.tril(original.grad.numpy(), -1).any()
    assert layer.bias.grad.tolist() == [2.0] * 3


def test_assignment_goes_through_the_right_inverse() -> None:
    layer = register_parametrization(nn.Linear(2, 2), "weight", Product())
    assert [n for n, _ in layer.named_parameters()][1:] == [
        "parametrizations.weight.original0",
        "parametrizations.weight.original1",
    ]
    layer.weight = ruda.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert layer.weight.tolist() == [[1, 2], [3, 4]]
    assert layer.parametrizations.weight.original0.tolist() == [[2, 4], [6, 8]]
    layer.weight = nn.Parameter(ruda.ones((2, 2)))
    assert layer.weight.tolist() == [[1, 1], [1, 1]]
    with pytest.raises(DTypeError, match="not a tensor"):
        layer.weight = None


def test_several_apply_in_turn() -> None:
    layer = nn.Linear(3, 3)
    register_parametrization(layer, "weight", ruda.exp, right_inverse=ruda.log)
    kept = layer.weight.numpy()[layer.weight.numpy() > 0]
    register_parametrization(layer, "weight", lambda w: w * 2, right_inverse=lambda w: w / 2)
    assert len(layer.parametrizations.weight.chain()) == 2
    np.testing.assert_allclose(layer.weight.numpy()[layer.weight.numpy() > 0], kept, rtol=1e-6)
    register_parametrization(layer, "bias", lambda b: b + 1)
    assert is_parametrized(layer, "bias")
    assert is_parametrized(layer)
    assert not is_parametrized(layer, "other")


def test_buffers_are_computed_too() -> None:
    module = nn.Module()
    module.register_buffer("scale", ruda.asarray([1.0, 2.0]))
    register_parametrization(module, "scale", lambda s: s * 3)
    assert module.scale.tolist() == [3.0, 6.0]
    assert list(module.state_dict()) == ["parametrizations.scale.original"]
    assert not list(module.parameters())


@pytest.mark.parametrize("leave", [True, False])
def test_removal(leave: bool) -> None:
    layer = nn.Linear(2, 2)
    before = layer.weight.tolist()
    register_parametrization(layer, "weight", lambda w: w * 3)
    remove_parametrizations(layer, "weight", leave)
    assert not is_parametrized(layer)
    assert isinstance(layer.weight, nn.Parameter)
    np.testing.assert_allclose(layer.weight.numpy(), np.asarray(before) * (3 if leave else 1))
    assert sorted(n for n, _ in layer.named_parameters()) == ["bias", "weight"]
    with pytest.raises(ArgumentError, match="no such parametrization"):
        remove_parametrizations(layer, "weight")


def test_copies_and_pickles_compute_apart() -> None:
    layer = weight_norm(nn.Linear(3, 2))
    other = copy.deepcopy(layer)
    with ruda.no_grad():
        other.parametrizations.weight.original0.assign(ruda.ones((2, 1)))
    assert layer.weight.tolist() != other.weight.tolist()
    assert pickle.loads(pickle.dumps(layer)).weight.tolist() == layer.weight.tolist()
    assert layer.to("float64").weight.dtype == "float64"


@pytest.mark.parametrize("axis", [0, 1, None])
def test_weight_norm_is_that_of_pytorch(axis: int | None) -> None:
    torch = pytest.importorskip("torch")
    own, other = nn.Linear(3, 2).to("float64"), torch.nn.Linear(3, 2).double()
    other.load_state_dict({k: torch.tensor(v.numpy()) for k, v in own.state_dict().items()})
    weight_norm(own, axis=axis)
    torch.nn.utils.parametrizations.weight_norm(other, dim=axis)
    assert list(own.state_dict()) == list(other.state_dict())
    x = np.random.default_rng(0).standard_normal((4, 3))
    ruda.sum(own(ruda.asarray(x)) ** 2).backward()
    (other(torch.tensor(x)) ** 2).sum().backward()
    close(own.weight, other.weight)
    theirs = dict(other.named_parameters())
    for name, parameter in own.named_parameters():
        close(parameter.grad, theirs[name].grad)


@pytest.mark.parametrize("kind", ["Linear", "Conv2d", "ConvTranspose1d"])
def test_spectral_norm_is_that_of_pytorch(kind: str) -> None:
    torch = pytest.importorskip("torch")
    if not hasattr(nn, kind):
        pytest.skip(f"there is no {kind}")
    sizes, shape = {
        "Linear": ((4, 3), (2, 4)),
        "Conv2d": ((2, 3, 2), (2, 2, 4, 4)),
        "ConvTranspose1d": ((2, 3, 2), (2, 2, 4)),
    }[kind]
    own, other = getattr(nn, kind)(*sizes).to("float64"), getattr(torch.nn, kind)(*sizes).double()
    spectral_norm(own, generator=ruda.random.Generator(2))
    torch.nn.utils.parametrizations.spectral_norm(other)
    state = {k: torch.tensor(v.numpy(copy=True)) for k, v in own.state_dict().items()}
    other.load_state_dict(state)
    x = np.random.default_rng(0).standard_normal(shape)
    for training in (True, True, False):
        own.train(training)
        other.train(training)
        own.zero_grad()
        other.zero_grad()
        ruda.sum(own(ruda.asarray(x)) ** 2).backward()
        (other(torch.tensor(x)) ** 2).sum().backward()
        theirs = dict(other.named_parameters())
        for name, parameter in own.named_parameters():
            close(parameter.grad, theirs[name].grad)
        chained = own.parametrizations.weight.chain()[0]
        close(chained._u, other.parametrizations.weight[0]._u)


def test_a_vector_is_divided_by_its_length() -> None:
    layer = spectral_norm(nn.Linear(3, 4), "bias")
    assert np.linalg.norm(layer.bias.numpy()) == pytest.approx(1.0, rel=1e-6)


def test_a_compiled_step_trains_the_original() -> None:
    layer, twin = nn.Linear(3, 2), nn.Linear(3, 2)
    twin.load_state_dict(layer.state_dict())
    x = ruda.asarray(np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32))
    for module in (layer, twin):
        spectral_norm(module, generator=ruda.random.Generator(4))

    def step(module: Any) -> Any:
        loss = ruda.sum(module(x) ** 2)
        loss.backward()
        return loss

    compiled = ruda.compile(lambda: step(layer))
    for _ in range(3):
        assert compiled().item() == pytest.approx(step(twin).item(), rel=1e-6)
    for a, b in zip(layer.parameters(), twin.parameters(), strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda m: register_parametrization(m, "no", ruda.exp), ArgumentError, "no such tensor"),
        (lambda m: register_parametrization(m, "weight", 3), DTypeError, "no function"),
        (
            lambda m: register_parametrization(m, "weight", lambda w: w[:1]),
            ShapeError,
            "shape of weight would change",
        ),
        (
            lambda m: register_parametrization(m, "weight", Product(), right_inverse=ruda.log),
            ArgumentError,
            "its own right_inverse",
        ),
        (lambda m: spectral_norm(m, "no"), ArgumentError, "no such tensor"),
        (lambda m: spectral_norm(m, n_power_iterations=0), ArgumentError, "too small"),
        (
            lambda m: remove_parametrizations(weight_norm(m), "weight", False),
            ArgumentError,
            "several originals",
        ),
    ],
)
def test_errors(call: Any, error: type[Exception], match: str) -> None:
    layer = nn.Linear(3, 2)
    with pytest.raises(error, match=match):
        call(layer)
    assert layer.weight.shape == (2, 3)


class Pair(nn.Module):
    def forward(self, x: Any, y: Any, scale: float) -> Any:
        return x * y * scale, x + y


def test_backward_hooks_see_all_gradients_at_once() -> None:
    module, seen = Pair(), []
    remove = module.register_full_backward_hook(lambda m, gi, go: seen.append((m, gi, go)))
    x, y = (ruda.tensor([a, b], requires_grad=True) for a, b in ((1.0, 2.0), (3.0, 4.0)))
    product, total = module(x, y, 2.0)
    ruda.sum(product * 5 + total).backward()
    ((owner, inputs, outputs),) = seen
    assert owner is module
    assert [None if g is None else g.tolist() for g in inputs] == [[31, 41], [11, 21], None]
    assert [g.tolist() for g in outputs] == [[5, 5], [1, 1]]
    assert (x.grad.tolist(), y.grad.tolist()) == ([31, 41], [11, 21])
    remove()
    ruda.sum(module(x, y, 1.0)[0]).backward()
    assert len(seen) == 1


def test_backward_hooks_replace_gradients_of_inputs() -> None:
    module = nn.Linear(2, 1, bias=False)
    module.register_full_backward_hook(lambda m, gi, go: (gi[0] * 10,))
    x = ruda.ones((1, 2)).requires_grad_()
    module(x).backward()
    np.testing.assert_allclose(x.grad.numpy(), 10 * module.weight.numpy())
    assert module.weight.grad.tolist() == [[1.0, 1.0]]


def test_backward_hooks_without_gradients_of_inputs() -> None:
    module, seen = nn.Linear(2, 1), []
    module.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go[0].tolist())))
    module(ruda.ones((1, 2))).backward()
    assert seen == [((None,), [[1.0]])]
    with ruda.no_grad():
        module(ruda.ones((1, 2)))
    assert len(seen) == 1


def test_backward_hooks_need_one_dtype() -> None:
    module = Pair()
    module.register_full_backward_hook(lambda m, gi, go: None)
    x, y = (ruda.ones(2, dtype=d).requires_grad_() for d in ("float32", "float64"))
    with pytest.raises(DTypeError, match="one dtype"):
        module(x, y, 1.0)
