"""Transformers beside PyTorch's with the same parameters, values and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
from ruda import nn
from ruda.core.errors import ArgumentError, ShapeError

WIDTH, HEADS, HIDDEN, LENGTH, MEMORY = 8, 2, 12, 5, 6
KINDS = [
    pytest.param({}, id="plain"),
    pytest.param({"norm_first": True, "activation": "gelu"}, id="norm first"),
    pytest.param({"bias": False, "layer_norm_eps": 1e-2}, id="no bias"),
]


def near(got: Any, expected: Any) -> None:
    """Equal but for the order of float64 sums of at most a few hundred terms of size one."""
    np.testing.assert_allclose(got.numpy(), expected.detach().numpy(), rtol=1e-9, atol=1e-11)


def assert_same(own: Any, other: Any, run: Any, other_run: Any, inputs: list[Any]) -> None:
    """Values, and gradients of inputs and parameters, with PyTorch's parameters in both."""
    torch = pytest.importorskip("torch")
    own.load_state_dict(other.state_dict())
    assert [name for name, _ in own.named_parameters()] == [
        name for name, _ in other.named_parameters()
    ]
    xs = [ruda.tensor(v, requires_grad=True) for v in inputs]
    ys = [torch.from_numpy(v).requires_grad_() for v in inputs]
    out, expected = run(own, *xs), other_run(other, *ys)
    near(out, expected)
    weight = np.random.default_rng(1).standard_normal(out.shape)
    ruda.sum(out * ruda.asarray(weight)).backward()
    (expected * torch.from_numpy(weight)).sum().backward()
    for x, y in zip(xs, ys, strict=True):
        near(x.grad, y.grad)
    named = dict(own.named_parameters())
    for name, parameter in other.named_parameters():
        near(named[name].grad, parameter.grad)


def sizes(torch: Any, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    common = {"dim_feedforward": HIDDEN, "dropout": 0.0, **options}
    return {**common, "dtype": "float64"}, {**common, "dtype": torch.float64, "batch_first": True}


def padding() -> np.ndarray:
    """Which of the keys of two rows are real."""
    return np.arange(LENGTH) < np.array([[LENGTH], [3]])


@pytest.mark.parametrize("masks", ["none", "causal", "padding", "both"])
@pytest.mark.parametrize("options", KINDS)
def test_encoder_layer(options: Any, masks: str, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    own_sizes, other_sizes = sizes(torch, options)
    causal, padded = masks in ("causal", "both"), masks in ("padding", "both")
    hidden = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1) if causal else None
    ignored = torch.from_numpy(~padding()) if padded else None
    keys = ruda.asarray(padding()) if padded else None
    assert_same(
        nn.TransformerEncoderLayer(WIDTH, HEADS, **own_sizes),
        torch.nn.TransformerEncoderLayer(WIDTH, HEADS, **other_sizes),
        lambda layer, x: layer(x, key_mask=keys, is_causal=causal),
        lambda layer, x: layer(x, src_mask=hidden, src_key_padding_mask=ignored),
        [rng.standard_normal((2, LENGTH, WIDTH))],
    )


@pytest.mark.parametrize("options", KINDS)
def test_decoder_layer(options: Any, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    own_sizes, other_sizes = sizes(torch, options)
    hidden = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    shown = rng.random((LENGTH, MEMORY)) < 0.7
    shown[:, 0] = True
    assert_same(
        nn.TransformerDecoderLayer(WIDTH, HEADS, **own_sizes),
        torch.nn.TransformerDecoderLayer(WIDTH, HEADS, **other_sizes),
        lambda layer, x, y: layer(x, y, memory_mask=ruda.asarray(shown), is_causal=True),
        lambda layer, x, y: layer(x, y, tgt_mask=hidden, memory_mask=torch.from_numpy(~shown)),
        [rng.standard_normal((2, n, WIDTH)) for n in (LENGTH, MEMORY)],
    )


# What PyTorch says of its own fast path.
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm_first", [False, True])
def test_whole_transformer(norm_first: bool, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    own_sizes, other_sizes = sizes(torch, {"norm_first": norm_first})
    hidden = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    assert_same(
        nn.Transformer(WIDTH, HEADS, 2, 2, **own_sizes),
        torch.nn.Transformer(WIDTH, HEADS, 2, 2, **other_sizes),
        lambda model, x, y: model(x, y, tgt_is_causal=True),
        lambda model, x, y: model(x, y, tgt_mask=hidden),
        [rng.standard_normal((2, n, WIDTH)) for n in (MEMORY, LENGTH)],
    )


def test_layers_of_a_stack_differ() -> None:
    stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN), 3)
    first, second, third = (layer.linear1.weight.numpy() for layer in stack.layers)
    assert not np.array_equal(first, second)
    assert not np.array_equal(second, third)
    assert len({id(p) for p in stack.parameters()}) == 3 * 12


@ruda.no_grad()
def test_cached_decoder_is_the_whole_one(rng: np.random.Generator) -> None:
    layer = nn.TransformerDecoderLayer(
        WIDTH, HEADS, HIDDEN, num_kv_heads=1, rotary=nn.RotaryEmbedding(4), dtype="float64"
    )
    model = nn.TransformerDecoder(layer, 2, nn.LayerNorm(WIDTH, dtype="float64")).eval()
    x, y = (ruda.asarray(rng.standard_normal((2, n, WIDTH))) for n in (LENGTH, MEMORY))
    whole = model(x, y, is_causal=True).numpy()
    caches = model.new_caches(2, LENGTH)

    @ruda.compile
    @ruda.no_grad()
    def step(token: ruda.Tensor) -> ruda.Tensor:
        return model(token, y, caches=caches)

    for i in range(LENGTH):
        out = step(x[:, i : i + 1].copy()).numpy()
        np.testing.assert_allclose(out, whole[:, i : i + 1], rtol=1e-9, atol=1e-11)
    ((_,),) = step.programs.values()


def test_dropout_acts_while_training(rng: np.random.Generator) -> None:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, dropout=0.5)
    x = ruda.asarray(rng.standard_normal((2, LENGTH, WIDTH)).astype(np.float32))
    assert not np.array_equal(layer(x).numpy(), layer(x).numpy())
    layer.eval()
    np.testing.assert_array_equal(layer(x).numpy(), layer(x).numpy())


def test_activation_may_be_a_function(rng: np.random.Generator) -> None:
    x = ruda.asarray(rng.standard_normal((1, LENGTH, WIDTH)).astype(np.float32))
    named = nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, activation="silu").eval()
    given = nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, activation=nn.SiLU()).eval()
    given.load_state_dict(named.state_dict())
    np.testing.assert_array_equal(named(x).numpy(), given(x).numpy())


def test_what_does_not_fit() -> None:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN)
    x = ruda.ones((1, LENGTH, WIDTH))
    with pytest.raises(ArgumentError, match="unknown activation"):
        nn.TransformerEncoderLayer(WIDTH, HEADS, activation="step")
    with pytest.raises(ArgumentError, match="no layers"):
        nn.TransformerEncoder(layer, 0)
    with pytest.raises(ShapeError, match="key_mask does not fit"):
        layer(x, key_mask=ruda.ones((1, 1, LENGTH), dtype="bool"))
    with pytest.raises(ArgumentError, match="caches do not fit"):
        nn.TransformerEncoder(layer, 2)(x, caches=[nn.DynamicKVCache()])
