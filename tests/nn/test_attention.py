"""Attention layers: beside PyTorch's with the same parameters, and step by step with a cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn
from ruda.core.errors import ArgumentError, IndexRangeError, ShapeError

WIDTH, HEADS, LENGTH = 16, 4, 7


def near(got: Any, expected: Any) -> None:
    """Equal but for the order of float64 sums of at most a few hundred terms of size one."""
    values = expected.numpy() if isinstance(expected, ruda.Tensor) else expected.detach().numpy()
    np.testing.assert_allclose(got.numpy(), values, rtol=1e-10, atol=1e-12)


def beside(torch: Any, **sizes: Any) -> tuple[Any, Any]:
    """The layer here and PyTorch's, with its parameters in both."""
    other = torch.nn.MultiheadAttention(
        WIDTH, HEADS, batch_first=True, dtype=torch.float64, **sizes
    )
    own = nn.MultiHeadAttention(WIDTH, HEADS, dtype="float64", is_causal=False, **sizes)
    # Biases start at zero and would hide mistakes.
    with torch.no_grad():
        other.in_proj_bias.normal_()
        other.out_proj.bias.normal_()
    own.load_state_dict(other.state_dict())
    return own, other


@pytest.mark.parametrize("widths", [(WIDTH, WIDTH), (10, 6)])
@pytest.mark.parametrize("masked", [False, True])
def test_cross_attention_is_that_of_pytorch(
    widths: tuple[int, int], masked: bool, rng: np.random.Generator
) -> None:
    torch = pytest.importorskip("torch")
    sizes = {} if widths == (WIDTH, WIDTH) else {"kdim": widths[0], "vdim": widths[1]}
    own, other = beside(torch, **sizes)
    shapes = ((2, LENGTH, WIDTH), (2, 5, widths[0]), (2, 5, widths[1]))
    values = [rng.standard_normal(shape) for shape in shapes]
    inputs = [ruda.tensor(v, requires_grad=True) for v in values]
    mine = [torch.from_numpy(v).requires_grad_() for v in values]
    shown = rng.random((LENGTH, 5)) < 0.6
    shown[:, 0] = True
    out = own(*inputs, mask=ruda.asarray(shown) if masked else None)
    hidden = torch.from_numpy(~shown) if masked else None
    expected, _ = other(*mine, attn_mask=hidden, need_weights=False)
    near(out, expected)
    weight = rng.standard_normal(out.shape)
    ruda.sum(out * ruda.asarray(weight)).backward()
    (expected * torch.from_numpy(weight)).sum().backward()
    for x, y in zip(inputs, mine, strict=True):
        near(x.grad, y.grad)
    for name, parameter in other.named_parameters():
        near(dict(own.named_parameters())[name].grad, parameter.grad)


def test_values_default_to_keys(rng: np.random.Generator) -> None:
    layer = nn.MultiHeadAttention(WIDTH, HEADS, dtype="float64")
    x, y = (ruda.asarray(rng.standard_normal((2, n, WIDTH))) for n in (3, 5))
    near(layer(x, y), layer(x, y, y))
    # Causality belongs to a sequence attending to itself.
    near(layer(x, x, is_causal=True), layer(x))
    assert not np.allclose(layer(x, x).numpy(), layer(x).numpy())


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "grouped": {"num_kv_heads": 2},
    "one head of keys": {"num_kv_heads": 1, "head_dim": 6},
    "window": {"window": (2, 0)},
    "rotary": {"rotary": nn.RotaryEmbedding(4)},
    "alibi": {"alibi": True},
    "everything": {
        "num_kv_heads": 2,
        "window": (3, 0),
        "rotary": nn.RotaryEmbedding(4, interleaved=True),
        "alibi": True,
    },
}


def cache_of(layer: Any, kind: str) -> Any:
    return layer.new_cache(2, LENGTH + 3) if kind == "static" else nn.DynamicKVCache()


@pytest.mark.parametrize("parts", [(1,) * LENGTH, (4, 1, 2), (LENGTH,)])
@pytest.mark.parametrize("kind", ["static", "dynamic"])
@pytest.mark.parametrize("name", VARIANTS)
@ruda.no_grad()
def test_cached_decoding_is_full_attention(
    name: str, kind: str, parts: tuple[int, ...], rng: np.random.Generator
) -> None:
    layer = nn.MultiHeadAttention(WIDTH, HEADS, dtype="float64", **VARIANTS[name])
    x = ruda.asarray(rng.standard_normal((2, LENGTH, WIDTH)))
    cache = cache_of(layer, kind)
    ends = np.cumsum(parts)
    outs = [layer(x[:, end - n : end], cache=cache) for n, end in zip(parts, ends, strict=True)]
    near(ruda.concat(outs, axis=1), layer(x))
    cache.reset()
    near(layer(x[:, :2], cache=cache), layer(x[:, :2]))


def test_a_window_hides_what_is_far(rng: np.random.Generator) -> None:
    layer = nn.MultiHeadAttention(WIDTH, HEADS, dtype="float64", window=(2, 0))
    values = rng.standard_normal((1, LENGTH, WIDTH))
    before = layer(ruda.asarray(values)).numpy()
    values[:, 1] += 1.0
    changed = np.abs(layer(ruda.asarray(values)).numpy() - before).max(axis=(0, 2)) > 0
    assert changed.tolist() == [False, True, True, True, False, False, False]


def test_alibi_is_a_bias_of_the_formula(rng: np.random.Generator) -> None:
    layer = nn.MultiHeadAttention(WIDTH, HEADS, dtype="float64", alibi=True)
    plain = nn.MultiHeadAttention(WIDTH, HEADS, dtype="float64")
    plain.load_state_dict(layer.state_dict())
    x = ruda.asarray(rng.standard_normal((1, LENGTH, WIDTH)))
    distance = np.abs(np.subtract.outer(np.arange(LENGTH), np.arange(LENGTH)))
    bias = -np.array(F.alibi_slopes(HEADS))[:, None, None] * distance
    near(layer(x), plain(x, bias=ruda.asarray(bias)))


def test_a_mask_joins_a_cache(rng: np.random.Generator) -> None:
    """Left padding of the second row is hidden in each step."""
    layer = nn.MultiHeadAttention(WIDTH, HEADS, dtype="float64")
    x = ruda.asarray(rng.standard_normal((2, LENGTH, WIDTH)))
    real = np.ones((2, 1, 1, LENGTH), bool)
    real[1, ..., :2] = False
    cache = layer.new_cache(2, LENGTH)
    with ruda.no_grad():
        for i in range(LENGTH):
            out = layer(x[:, i : i + 1], mask=ruda.asarray(real), cache=cache)
        near(out[0], layer(x)[0, -1:])
        near(out[1], layer(x[1:, 2:])[0, -1:])


@ruda.no_grad()
def test_a_compiled_decode_step_is_traced_once(rng: np.random.Generator) -> None:
    layer = nn.MultiHeadAttention(WIDTH, HEADS, 2, rotary=nn.RotaryEmbedding(4), dtype="float64")
    x = ruda.asarray(rng.standard_normal((2, LENGTH, WIDTH)))
    cache = layer.new_cache(2, LENGTH)

    @ruda.compile
    @ruda.no_grad()
    def step(token: ruda.Tensor) -> ruda.Tensor:
        return layer(token, cache=cache)

    outs = [step(x[:, i : i + 1].copy()) for i in range(LENGTH)]
    near(ruda.concat(outs, axis=1), layer(x))
    ((_,),) = step.programs.values()
    assert cache.position.item() == LENGTH


def test_a_full_cache_raises() -> None:
    layer = nn.MultiHeadAttention(WIDTH, HEADS)
    cache = layer.new_cache(1, 2)
    with ruda.no_grad(), pytest.raises(IndexRangeError):
        layer(ruda.ones((1, 3, WIDTH)), cache=cache)
    assert cache.position.item() == 0


def test_caches_check_what_they_are_given() -> None:
    ones = ruda.ones
    for cache in (nn.KVCache(1, 4, heads=2, head_dim=3), nn.DynamicKVCache()):
        cache.append(ones((1, 2, 1, 3)), ones((1, 2, 1, 3)))
        for key in ((1, 3, 1, 3), (2, 2, 1, 3), (1, 2, 1, 4)):
            with pytest.raises(ShapeError, match="do not fit"):
                cache.append(ones(key), ones(key))
        assert cache.positions(1).tolist() == [1]


@pytest.mark.parametrize("option", [{"window": (1, 0)}, {"alibi": True}])
def test_positions_belong_to_one_sequence(option: Any) -> None:
    layer = nn.MultiHeadAttention(WIDTH, HEADS, **option)
    x = ruda.ones((1, 2, WIDTH))
    with pytest.raises(ArgumentError, match="belong to one sequence"):
        layer(x, x)
    plain = nn.MultiHeadAttention(WIDTH, HEADS)
    with pytest.raises(ArgumentError, match="belong to one sequence"):
        plain(x, x, cache=plain.new_cache(1, 4))
    with pytest.raises(ArgumentError, match="a value without a key"):
        plain(x, value=x)
    with pytest.raises(ShapeError, match="key or value does not fit"):
        plain(x, ruda.ones((1, 2, WIDTH + 1)))
