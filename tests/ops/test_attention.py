"""Attention against PyTorch and its own composite body: rules, groups, dropout, packed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.ops.reference.sampling import dropout_mask
from tests.ops.peer import assert_near, assert_same, torch

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "scale": {"scale": 0.3},
    "causal": {"is_causal": True},
    "window": {"window": (1, 2)},
    "causal window": {"window": (2, None), "is_causal": True},
    "softcap": {"softcap": 0.8},
    "dropout": {"dropout_p": 0.4},
}


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def qkv(heads: int = 4, kv_heads: int = 2, queries: int = 5, keys: int = 7) -> tuple[Any, ...]:
    return (
        values(2, heads, queries, 3),
        values(2, kv_heads, keys, 3, seed=1),
        values(2, kv_heads, keys, 4, seed=2),
    )


def peer(*tensors: Any, **options: Any) -> Any:
    """PyTorch's attention by plain products, which alone has derivatives of order 2."""
    module = torch()
    with module.nn.attention.sdpa_kernel(module.nn.attention.SDPBackend.MATH):
        return module.nn.functional.scaled_dot_product_attention(*tensors, **options)


def test_plain_and_scaled() -> None:
    assert_same(F.attention, peer, *qkv(4, 4))
    assert_same(lambda *a: F.attention(*a, scale=0.3), lambda *a: peer(*a, scale=0.3), *qkv(4, 4))


def test_grouped_heads_and_causality() -> None:
    assert_same(
        lambda *a: F.attention(*a, is_causal=True),
        lambda *a: peer(*a, is_causal=True, enable_gqa=True),
        *qkv(6, 2, 5, 5),
    )


@pytest.mark.parametrize("shape", [(5, 7), (2, 1, 5, 7), (2, 4, 1, 7)], ids=str)
def test_mask_and_bias(shape: tuple[int, ...]) -> None:
    mask = np.random.default_rng(3).random(shape) < 0.6
    mask[..., 0] = True
    assert_same(
        lambda *a: F.attention(*a, mask=ruda.asarray(mask)),
        lambda *a: peer(*a, attn_mask=torch().tensor(mask)),
        *qkv(4, 4),
    )
    assert_same(
        lambda *a: F.attention(*a[:3], bias=a[3]),
        lambda *a: peer(*a[:3], attn_mask=a[3].expand(2, 4, 5, 7)),
        *qkv(4, 4),
        values(*shape),
    )


@pytest.mark.parametrize("lead", [(), (2,), (2, 3), (2, 3, 2)], ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_spelling_of_pytorch(lead: tuple[int, ...], causal: bool) -> None:
    arrays = [values(*lead, n, d, seed=n + d) for n, d in ((5, 3), (7, 3), (7, 4))]
    assert_same(
        lambda *a: F.scaled_dot_product_attention(*a, is_causal=causal),
        lambda *a: peer(*a, is_causal=causal),
        *arrays,
    )
    bias = values(*lead[:-1], *(1 for _ in lead[-1:]), 5, 7)
    assert_same(
        lambda *a: F.scaled_dot_product_attention(*a[:3], a[3]),
        lambda *a: peer(*a[:3], attn_mask=a[3]),
        *arrays,
        bias,
    )


@pytest.mark.parametrize("name", OPTIONS)
def test_kernel_agrees_with_the_body_in_both_outputs_and_gradients(name: str) -> None:
    results = []
    for strategy in ("auto", "composite"):
        leaves = [ruda.tensor(x, requires_grad=True) for x in qkv()]
        generator = ruda.random.Generator(5)
        out, lse = F.attention(
            *leaves, **OPTIONS[name], strategy=strategy, return_lse=True, generator=generator
        )
        (ruda.sum(out * ruda.asarray(values(*out.shape))) + ruda.sum(lse * lse)).backward()
        results.append([out, lse, *(x.grad for x in leaves)])
    for kernel, body in zip(*results, strict=True):
        assert_near(kernel, body)


def test_dropout_acts_on_the_probabilities() -> None:
    q, k, v = (ruda.asarray(x) for x in qkv(2, 2))
    out = F.attention(q, k, v, dropout_p=0.4, generator=ruda.random.Generator(7))
    keep = dropout_mask(7, 0, (2, 2, 5, 7), 0.4)
    p = F.softmax((q @ k.mT) * 3**-0.5).numpy()
    assert_near(out, (p * keep / 0.6) @ v.numpy())


def test_a_query_that_sees_nothing_gives_zeros_and_zero_gradients() -> None:
    leaves = [ruda.tensor(x, requires_grad=True) for x in qkv(2, 2)]
    mask = np.ones((5, 7), bool)
    mask[2] = False
    out, lse = F.attention(*leaves, mask=ruda.asarray(mask), return_lse=True)
    assert not out.numpy()[:, :, 2].any()
    assert (lse.numpy()[:, :, 2] == -np.inf).all()
    ruda.sum(out * out).backward()
    grads = [x.grad.numpy() for x in leaves]  # type: ignore[union-attr]
    assert all(np.isfinite(g).all() for g in grads)
    assert not grads[0][:, :, 2].any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_compute_in_float32(dtype: str) -> None:
    half = [ruda.asarray(x).astype(dtype) for x in qkv()]
    out, lse = F.attention(*half, return_lse=True)
    wide = F.attention(*(x.astype("float32") for x in half))
    assert lse.dtype == "float32"
    np.testing.assert_array_equal(out.numpy(), wide.astype(dtype).numpy())


def test_autocast_lowers_attention() -> None:
    x = ruda.ones((1, 2, 3, 4))
    with ruda.autocast("bfloat16"):
        assert F.attention(x, x, x).dtype == "bfloat16"


@pytest.mark.parametrize("name", ["plain", "causal", "window", "softcap"])
def test_packed_sequences_are_separate_ones(name: str) -> None:
    q, k, v = values(9, 4, 3), values(11, 2, 3, seed=1), values(11, 2, 5, seed=2)
    starts, key_starts = [0, 3, 3, 9], [0, 4, 6, 11]
    options = OPTIONS[name]
    out = F.attention_varlen(*(ruda.asarray(x) for x in (q, k, v, starts, key_starts)), **options)
    for i in range(3):
        rows, keys = (slice(s[i], s[i + 1]) for s in (starts, key_starts))
        one = [x.swapaxes(0, 1)[None] for x in (q[rows], k[keys], v[keys])]
        alone = F.attention(*(ruda.asarray(x.copy()) for x in one), **options)
        assert_near(out.numpy()[rows], alone.numpy()[0].swapaxes(0, 1))


def test_rows_behind_the_last_sequence_give_zeros() -> None:
    x = ruda.asarray(values(6, 2, 3))
    ends = ruda.asarray([0, 2, 4])
    assert not F.attention_varlen(x, x, x, ends, ends).numpy()[4:].any()
