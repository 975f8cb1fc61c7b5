"""Layers beside those of PyTorch with the same parameters, and what is ruda's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda import nn
from ruda.core.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError

IMAGE, ROWS = (2, 4, 9, 8), (3, 6)
SAME: dict[str, tuple[Any, tuple[int, ...]]] = {
    "linear": (lambda nn: nn.Linear(6, 4), ROWS),
    "linear without bias": (lambda nn: nn.Linear(6, 4, bias=False), (2, 3, 6)),
    "layer norm": (lambda nn: nn.LayerNorm(6), ROWS),
    "layer norm of two axes": (lambda nn: nn.LayerNorm((9, 8), eps=1e-3), IMAGE),
    "layer norm without bias": (lambda nn: nn.LayerNorm(6, bias=False), ROWS),
    "layer norm without weights": (lambda nn: nn.LayerNorm(6, elementwise_affine=False), ROWS),
    "rms norm": (lambda nn: nn.RMSNorm(6), ROWS),
    "rms norm of two axes": (lambda nn: nn.RMSNorm((9, 8), eps=1e-3), IMAGE),
    "group norm": (lambda nn: nn.GroupNorm(2, 4), IMAGE),
    "batch norm": (lambda nn: nn.BatchNorm2d(4), IMAGE),
    "batch norm of rows": (lambda nn: nn.BatchNorm1d(6, momentum=0.3), ROWS),
    "batch norm without running": (lambda nn: nn.BatchNorm2d(4, track_running_stats=False), IMAGE),
    "conv": (lambda nn: nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), IMAGE),
    "conv, same, dilated": (lambda nn: nn.Conv2d(4, 6, 3, padding="same", dilation=2), IMAGE),
    "conv of a line": (lambda nn: nn.Conv1d(4, 6, 3, bias=False), (2, 4, 9)),
    "conv of a volume": (lambda nn: nn.Conv3d(4, 2, (1, 2, 3)), (1, 4, 3, 4, 5)),
    "max pool": (lambda nn: nn.MaxPool2d(3, 2, 1), IMAGE),
    "average pool": (lambda nn: nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGE),
    "adaptive pool": (lambda nn: nn.AdaptiveAvgPool2d((3, 2)), IMAGE),
    "adaptive max pool": (lambda nn: nn.AdaptiveMaxPool2d(2), IMAGE),
    "flatten": (lambda nn: nn.Flatten(1, 2), IMAGE),
    "relu": (lambda nn: nn.ReLU(), ROWS),
    "gelu": (lambda nn: nn.GELU(), ROWS),
    "gelu by tanh": (lambda nn: nn.GELU("tanh"), ROWS),
    "silu": (lambda nn: nn.SiLU(), ROWS),
    "tanh": (lambda nn: nn.Tanh(), ROWS),
    "sigmoid": (lambda nn: nn.Sigmoid(), ROWS),
    "log sigmoid": (lambda nn: nn.LogSigmoid(), ROWS),
    "mish": (lambda nn: nn.Mish(), ROWS),
    "leaky relu": (lambda nn: nn.LeakyReLU(0.2), ROWS),
    "elu": (lambda nn: nn.ELU(0.5), ROWS),
    "softplus": (lambda nn: nn.Softplus(2.0), ROWS),
    "prelu": (lambda nn: nn.PReLU(), ROWS),
    "softmax": (lambda nn: nn.Softmax(1), ROWS),
    "log softmax": (lambda nn: nn.LogSoftmax(-1), ROWS),
    "glu": (lambda nn: nn.GLU(-1), ROWS),
    "conv, reflected": (
        lambda nn: nn.Conv2d(4, 6, 3, padding=(1, 2), padding_mode="reflect", bias=False),
        IMAGE,
    ),
    "conv, circular, same": (
        lambda nn: nn.Conv2d(4, 6, 4, padding="same", padding_mode="circular", dilation=2),
        IMAGE,
    ),
    "conv of a line, replicated": (
        lambda nn: nn.Conv1d(4, 6, 3, 2, 2, padding_mode="replicate"),
        (2, 4, 9),
    ),
    "conv of a volume, circular": (
        lambda nn: nn.Conv3d(4, 2, 3, padding=1, padding_mode="circular"),
        (4, 3, 4, 5),
    ),
    "transposed conv": (lambda nn: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2), IMAGE),
    "transposed conv of a line": (
        lambda nn: nn.ConvTranspose1d(4, 2, 3, bias=False, dilation=2),
        (4, 9),
    ),
    "transposed conv of a volume": (lambda nn: nn.ConvTranspose3d(4, 2, 2), (1, 4, 2, 3, 4)),
    "instance norm": (lambda nn: nn.InstanceNorm2d(4, affine=True), IMAGE),
    "instance norm, running": (lambda nn: nn.InstanceNorm2d(4, 1e-3, 0.3, True, True), IMAGE),
    "instance norm of a line": (lambda nn: nn.InstanceNorm1d(4), (4, 6)),
    "instance norm of a volume": (lambda nn: nn.InstanceNorm3d(4), (1, 4, 2, 3, 4)),
    "local response norm": (lambda nn: nn.LocalResponseNorm(3, 0.5), IMAGE),
    "max pool of a line": (lambda nn: nn.MaxPool1d(2), (2, 4, 9)),
    "max pool of a volume": (lambda nn: nn.MaxPool3d(2, ceil_mode=True), (1, 4, 3, 4, 5)),
    "average pool of a volume": (lambda nn: nn.AvgPool3d(2, 1), (1, 4, 3, 4, 5)),
    "power pool": (lambda nn: nn.LPPool2d(2, 3, 2), IMAGE),
    "power pool of a line": (lambda nn: nn.LPPool1d(4, 3), (2, 4, 9)),
    "power pool of a volume": (lambda nn: nn.LPPool3d(2, 2), (1, 4, 3, 4, 5)),
    "adaptive pool of a volume": (lambda nn: nn.AdaptiveAvgPool3d(2), (1, 4, 3, 4, 5)),
    "adaptive max pool of a volume": (lambda nn: nn.AdaptiveMaxPool3d((1, 2, 3)), (1, 4, 3, 4, 5)),
    "unflatten": (lambda nn: nn.Unflatten(1, (2, 2)), IMAGE),
    "pixel shuffle": (lambda nn: nn.PixelShuffle(2), IMAGE),
    "pixel unshuffle": (lambda nn: nn.PixelUnshuffle(2), (1, 4, 8, 6)),
    "channel shuffle": (lambda nn: nn.ChannelShuffle(2), IMAGE),
    "unfold": (lambda nn: nn.Unfold(3, 2, 1, (1, 2)), IMAGE),
    "fold": (lambda nn: nn.Fold((4, 5), 2, padding=1), (2, 8, 30)),
    "upsample": (lambda nn: nn.Upsample(scale_factor=2), IMAGE),
    "upsample, bilinear": (lambda nn: nn.Upsample((5, 20), None, "bilinear", True), IMAGE),
    "constant pad": (lambda nn: nn.ConstantPad2d((1, 2, -1, 3), 0.5), IMAGE),
    "constant pad of a line": (lambda nn: nn.ConstantPad1d(1, 0.5), (2, 4, 9)),
    "constant pad of a volume": (lambda nn: nn.ConstantPad3d(1, 0.5), (4, 3, 4, 5)),
    "zero pad": (lambda nn: nn.ZeroPad2d(2), IMAGE),
    "reflection pad": (lambda nn: nn.ReflectionPad2d((1, 2, 3, 0)), IMAGE),
    "reflection pad of a line": (lambda nn: nn.ReflectionPad1d(2), (2, 4, 9)),
    "reflection pad of a volume": (lambda nn: nn.ReflectionPad3d(1), (4, 3, 4, 5)),
    "replication pad": (lambda nn: nn.ReplicationPad2d((1, 2, 3, 0)), IMAGE),
    "replication pad of a line": (lambda nn: nn.ReplicationPad1d(2), (2, 4, 9)),
    "replication pad of a volume": (lambda nn: nn.ReplicationPad3d(1), (4, 3, 4, 5)),
    "circular pad": (lambda nn: nn.CircularPad2d((1, 2, 3, 0)), IMAGE),
    "relu6": (lambda nn: nn.ReLU6(), ROWS),
    "hardtanh": (lambda nn: nn.Hardtanh(-0.5, 0.3), ROWS),
    "hardswish": (lambda nn: nn.Hardswish(), ROWS),
    "hardshrink": (lambda nn: nn.Hardshrink(0.3), ROWS),
    "softshrink": (lambda nn: nn.Softshrink(0.3), ROWS),
    "tanhshrink": (lambda nn: nn.Tanhshrink(), ROWS),
    "threshold": (lambda nn: nn.Threshold(0.1, 0.7), ROWS),
    "softsign": (lambda nn: nn.Softsign(), ROWS),
    "celu": (lambda nn: nn.CELU(0.5), ROWS),
    "selu": (lambda nn: nn.SELU(), ROWS),
    "softmin": (lambda nn: nn.Softmin(1), ROWS),
    "softmax of channels": (lambda nn: nn.Softmax2d(), IMAGE),
    "rrelu in eval": (lambda nn: nn.RReLU().eval(), ROWS),
    "alpha dropout in eval": (lambda nn: nn.AlphaDropout(0.5).eval(), ROWS),
    "dropout in eval": (lambda nn: nn.Dropout(0.5).eval(), ROWS),
}


def doubled(own: nn.Module, other: Any, torch: Any) -> None:
    """Both in float64 with the parameters of ``own``."""
    own.to("float64")
    state = {k: torch.from_numpy(v.numpy(copy=True)) for k, v in own.state_dict().items()}
    other.double().load_state_dict(state)


def close(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(got.numpy(), expected.detach().numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", SAME)
def test_layers_are_those_of_pytorch(name: str, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    make, shape = SAME[name]
    own, other = make(nn), make(torch.nn)
    doubled(own, other, torch)
    for training in (own.training, False):
        own.train(training)
        other.train(training)
        values = rng.standard_normal(shape)
        x = ruda.tensor(values, requires_grad=True)
        y = torch.from_numpy(values).requires_grad_()
        out, expected = own(x), other(y)
        close(out, expected)
        weights = rng.standard_normal(out.shape)
        ruda.sum(out * ruda.asarray(weights)).backward()
        (expected * torch.from_numpy(weights)).sum().backward()
        close(x.grad, y.grad)
    for mine, theirs in zip(own.parameters(), other.parameters(), strict=True):
        close(mine.grad, theirs.grad)
    for key, value in own.state_dict().items():
        close(value, other.state_dict()[key])


def test_batch_norm_without_momentum_averages_all_batches(rng: np.random.Generator) -> None:
    layer = nn.BatchNorm1d(3, momentum=None).to("float64")
    batches = [rng.standard_normal((8, 3)) for _ in range(4)]
    for values in batches:
        layer(ruda.asarray(values))
    means = np.mean([v.mean(axis=0) for v in batches], axis=0)
    variances = np.mean([v.var(axis=0, ddof=1) for v in batches], axis=0)
    np.testing.assert_allclose(layer.running_mean.numpy(), means, rtol=1e-12)
    np.testing.assert_allclose(layer.running_var.numpy(), variances, rtol=1e-12)
    assert layer.num_batches_tracked.item() == 4
    layer.reset_running_stats()
    assert layer.running_var.tolist() == [1.0] * 3


def test_embedding_looks_up_and_leaves_padding_out() -> None:
    layer = nn.Embedding(4, 2, padding_idx=0)
    out = layer(ruda.asarray([[0, 3], [3, 1]]))
    assert out.shape == (2, 2, 2)
    ruda.sum(out).backward()
    assert layer.weight.grad.tolist() == [[0, 0], [1, 1], [0, 0], [2, 2]]
    with pytest.raises(IndexRangeError, match="embedding"):
        layer(ruda.asarray([4]))


def test_dropout_drops_while_training() -> None:
    layer = nn.Dropout(0.25, generator=ruda.random.Generator(2))
    out = layer(ruda.ones(10_000)).numpy()
    assert set(np.unique(out)) == {np.float32(0), np.float32(4 / 3)}
    assert (out == 0).mean() == pytest.approx(0.25, abs=0.02)
    channels = nn.Dropout2d(0.5)(ruda.ones((4, 8, 3, 3))).numpy()
    assert np.all(channels == channels[:, :, :1, :1])


@pytest.mark.parametrize("kv_heads", [None, 1, 2])
def test_attention_is_that_of_pytorch(kv_heads: int | None, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    layer = nn.MultiHeadAttention(8, 4, kv_heads, dtype="float64")
    values = rng.standard_normal((2, 5, 8))
    x = torch.from_numpy(values)
    weight = torch.from_numpy(layer.in_proj_weight.numpy(copy=True))
    shared = kv_heads or 4
    q, k, v = (
        part.unflatten(-1, (-1, 2)).transpose(1, 2)
        for part in (x @ weight.mT).split([8, 2 * shared, 2 * shared], dim=-1)
    )
    mixed = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=True, enable_gqa=True
    )
    out = mixed.transpose(1, 2).flatten(2)
    expected = out @ torch.from_numpy(layer.out_proj.weight.numpy(copy=True)).mT
    close(layer(ruda.asarray(values)), expected)


def test_attention_takes_a_mask_and_drops(rng: np.random.Generator) -> None:
    layer = nn.MultiHeadAttention(8, 2, dropout=0.5, is_causal=False)
    x = ruda.asarray(rng.standard_normal((1, 4, 8)).astype(np.float32))
    mask = ruda.asarray(np.tri(4, dtype=bool))
    causal = nn.MultiHeadAttention(8, 2)
    causal.load_state_dict(layer.state_dict())
    assert not np.array_equal(layer(x).numpy(), layer(x).numpy())
    layer.eval()
    # Another order of the same sums in float32.
    np.testing.assert_allclose(layer(x, mask=mask).numpy(), causal(x).numpy(), rtol=0, atol=1e-6)


LOSSES: dict[str, Any] = {
    "CrossEntropyLoss": {"label_smoothing": 0.1},
    "NLLLoss": {},
    "MSELoss": {"reduction": "sum"},
    "L1Loss": {},
    "SmoothL1Loss": {"beta": 0.5},
    "HuberLoss": {"delta": 0.5},
    "BCEWithLogitsLoss": {"reduction": "none"},
    "KLDivLoss": {"reduction": "batchmean"},
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_those_of_pytorch(name: str, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    own, other = getattr(nn, name)(**LOSSES[name]), getattr(torch.nn, name)(**LOSSES[name])
    x, target = rng.standard_normal((6, 4)), rng.random((6, 4))
    if name in ("CrossEntropyLoss", "NLLLoss"):
        target = rng.integers(0, 4, 6)
    got = own(ruda.asarray(x), ruda.asarray(target))
    close(got, other(torch.from_numpy(x), torch.from_numpy(target)))


def test_class_weights_are_a_buffer() -> None:
    loss = nn.CrossEntropyLoss(weight=ruda.asarray([1.0, 2.0]))
    assert list(loss.state_dict()) == ["weight"]
    x, y = ruda.asarray([[0.3, 0.1], [0.2, 0.5]]), ruda.asarray([0, 1])
    assert loss(x, y).item() == F.cross_entropy(x, y, weight=loss.weight).item()


def test_autocast_lowers_linear_layers() -> None:
    layer = nn.Linear(4, 3)
    with ruda.autocast("bfloat16"):
        out = layer(ruda.ones((2, 4)))
        again = layer(ruda.ones((2, 4), dtype="bfloat16"))
    assert out.dtype is again.dtype is ruda.bfloat16
    ruda.sum(out).backward()
    assert layer.weight.grad.dtype is ruda.float32
    with pytest.raises(DTypeError, match="linear: input and weight differ in dtype"):
        layer(ruda.ones((2, 4), dtype="bfloat16"))


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda: nn.Linear(4, 3)(np.ones((2, 4))),
            DTypeError,
            r"differ in dtype. Got float64. Expected float32. Try x.astype\('float32'\)",
        ),
        (
            lambda: nn.Linear(4, 3)(ruda.ones((2, 5))),
            ShapeError,
            r"linear: the input does not fit the weight. Got input \(2, 5\), weight \(3, 4\)",
        ),
        (lambda: nn.Linear(4, 3)(ruda.ones(())), ShapeError, "linear: the input does not fit"),
        (lambda: F.linear(ruda.ones(4), ruda.ones((3, 4)), ruda.ones(4)), ShapeError, "bias does"),
        (
            lambda: nn.LayerNorm(4)(ruda.ones((4, 3))),
            ShapeError,
            r"LayerNorm: the last axes do not fit. Got \(4, 3\). Expected \(4,\)",
        ),
        (lambda: nn.BatchNorm2d(3)(ruda.ones((2, 3))), ShapeError, "BatchNorm2d: wrong rank"),
        (lambda: nn.GroupNorm(3, 4), ArgumentError, "GroupNorm: channels do not divide"),
        (lambda: nn.Conv2d(3, 4, 3, groups=2), ArgumentError, "Conv2d: channels do not divide"),
        (lambda: nn.Conv2d(3, 4, (3, 3, 3)), ArgumentError, "Conv2d: wrong kernel size"),
        (lambda: nn.Dropout(1.5), ArgumentError, "Dropout: p is no probability"),
        (lambda: nn.Embedding(3, 2, 3), ArgumentError, "Embedding: padding_idx is no row"),
        (lambda: nn.GELU("erf"), ArgumentError, "GELU: unknown approximation"),
        (lambda: nn.MSELoss("avg"), ArgumentError, "MSELoss: unknown reduction"),
        (lambda: nn.MultiHeadAttention(8, 3), ArgumentError, "the width does not divide"),
        (lambda: nn.MultiHeadAttention(8, 4, 3), ArgumentError, "heads do not share evenly"),
        (
            lambda: nn.MultiHeadAttention(8, 4)(ruda.ones((2, 8))),
            ShapeError,
            r"the input does not fit. Got \(2, 8\). Expected \[B, T, 8\]",
        ),
    ],
)
def test_errors(call: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()
