"""Row kernels at the sizes that models have: against the CPU's results in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.ops.add_norm import add_rms_norm
from ruda.testing import assert_close

SHAPES = [(2048, 512), (1024, 4096), (300, 8192), (64, 50257), (8, 131072), (100_000, 128)]
# Rows that fill a multiprocessor, and longer ones.
SHAPES += [(301, 20008), (37, 65536)]
# Gradients out of a ring: more rows than clusters, odd ones in two pieces, clusters of 16 blocks.
SHAPES += [(70, 70000), (133, 65537), (300, 3001), (20, 262144)]
# More rows than clusters run at a time, which begin at no multiple of a pack.
ODD = [(5003, 2047), (1201, 12289), (1201, 20001), (601, 50257), (301, 65537), (201, 131071)]


def values(dtype: str, *shape: int, seed: int = 0) -> ruda.Tensor:
    """Normal values on the CPU, rounded to a dtype."""
    found = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return ruda.asarray(found, dtype=dtype)


def check(function: Callable[..., Any], device: str, *operands: ruda.Tensor) -> None:
    """Outputs and gradients of all operands, with one cotangent for all outputs."""
    found, seeds = [], []
    for where in (device, "cpu"):
        given = [x.to(where) if where == device else x.astype("float64") for x in operands]
        out, pull = ruda.vjp(function, *given)
        outs = out if isinstance(out, tuple) else (out,)
        # Rounded to the device's dtypes for both: another cotangent would be another gradient.
        seeds = seeds or [values(str(t.dtype), *t.shape, seed=9) for t in outs]
        placed = tuple(s.astype(t.dtype).to(where) for s, t in zip(seeds, outs, strict=True))
        grads = pull(placed if isinstance(out, tuple) else placed[0])
        found.append([t.to("cpu") for t in (*outs, *grads)])
    length = max(x.shape[-1] for x in operands) + max(x.shape[0] for x in operands)
    for got, want in zip(*found, strict=True):
        assert_close(got, want.numpy(), length=length)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_norms(device: str, dtype: str, shape: tuple[int, int]) -> None:
    x = values(dtype, *shape)
    w, b = values("float32", shape[1], seed=1), values("float32", shape[1], seed=2)
    check(F.layer_norm, device, x, w, b)
    check(F.rms_norm, device, x, w)


@pytest.mark.parametrize(
    ("dtype", "beside"),
    [("bfloat16", "bfloat16"), ("bfloat16", "float32"), ("float32", "float32")],
)
@pytest.mark.parametrize("shape", ODD, ids=str)
def test_norms_of_rows_that_begin_anywhere(
    device: str, shape: tuple[int, int], dtype: str, beside: str
) -> None:
    x, w, b = values(dtype, *shape), *(values(beside, shape[1], seed=i) for i in (1, 2))
    for function, columns in ((F.layer_norm, (w, b)), (F.rms_norm, (w,))):
        got = function(x.to(device), *(c.to(device) for c in columns)).to("cpu")
        want = function(*(t.astype("float64") for t in (x, *columns)))
        assert_close(got, want.numpy(), length=shape[1])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_softmax(device: str, dtype: str, shape: tuple[int, int]) -> None:
    x = values(dtype, *shape)
    check(F.softmax, device, x)
    check(F.log_softmax, device, x)


def test_residual_and_norm(device: str) -> None:
    # In sixteenths their sum is exact: backward reads it rounded, and dw is float32.
    x, residual = (ruda.round(values("bfloat16", 1000, 4096, seed=i) * 16) / 16 for i in (0, 1))
    check(add_rms_norm, device, x, residual, values("float32", 4096, seed=2))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_cross_entropy(device: str, dtype: str) -> None:
    x = values(dtype, 512, 50304)
    target = np.random.default_rng(0).integers(0, 50304, 512)
    target[::7] = -100

    def loss(logits: Any) -> Any:
        classes = ruda.asarray(target, device=logits.device)
        return F.cross_entropy(logits, classes, label_smoothing=0.1, reduction="none")

    check(loss, device, x)


def test_results_repeat_bit_by_bit(device: str) -> None:
    x, w = values("bfloat16", 20000, 1024).to(device), values("float32", 1024).to(device)
    _, pull = ruda.vjp(F.rms_norm, x, w)
    g = values("bfloat16", 20000, 1024, seed=1).to(device)
    first, second = (pull(g)[1].numpy() for _ in range(2))
    np.testing.assert_array_equal(first, second)


# Channels of all widths of packs, and runs of positions that no pack divides.
IMAGES = [("nhwc", (64, 28, 28, 64)), ("nhwc", (32, 14, 14, 1000)), ("nhwc", (900, 30, 7))]
IMAGES += [("nchw", (16, 96, 28, 28)), ("nchw", (64, 64, 7, 7)), ("nhwc", (300_000, 3))]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("layout", "shape"), IMAGES, ids=str)
def test_batch_norm(device: str, dtype: str, layout: str, shape: tuple[int, ...]) -> None:
    count = shape[1 if layout == "nchw" else -1]
    x = (values("float32", *shape) * 2 + 3).astype(dtype)
    w, b = (values("float32", count, seed=i) for i in (1, 2))

    def norm(x: Any, w: Any, b: Any) -> Any:
        return F.batch_norm(x, None, None, w, b, training=True, layout=layout)

    check(norm, device, x, w, b)


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_a_compiled_block_of_batch_norms(device: str, layout: str) -> None:
    shape = (32, 28, 28, 64) if layout == "nhwc" else (32, 64, 28, 28)
    given = [values("bfloat16", *shape, seed=i).to(device) for i in range(3)]
    found = []
    for compiled in (True, False):
        norms = [ruda.nn.BatchNorm2d(64, layout=layout).to(device) for _ in range(3)]
        x, y, g = (t.detach() for t in given)
        leaves = [x.requires_grad_(), y.requires_grad_(), *norms[1].parameters()]

        def step() -> Any:
            for leaf in leaves:  # noqa: B023
                leaf.grad = None
            a, b, c = norms  # noqa: B023
            z = F.relu(b(F.relu(a(x))) + c(y))  # noqa: B023
            (z * g).astype("float32").sum().backward()  # noqa: B023
            return z

        run = ruda.compile(step) if compiled else step
        out = [run() for _ in range(3)][-1]
        found.append([t.to("cpu") for t in (out, *(leaf.grad for leaf in leaves))])
    np.testing.assert_array_equal(*(results[0].numpy() for results in found))
    # Sums over the batch are those of other parts: kernels that do more have fewer blocks.
    for got, want in zip(*found, strict=True):
        scale = float(np.abs(want.numpy().astype("f4")).max())
        assert_close(got, want.numpy(), length=64, scale=scale)


def test_channels_last_pooling_of_networks(device: str) -> None:
    x = values("bfloat16", 16, 112, 112, 64)

    def pool(layout: str) -> Callable[..., Any]:
        return lambda t: F.max_pool2d(t, 3, 2, 1, layout=layout)

    check(pool("nhwc"), device, x)
    last = pool("nhwc")(x.to(device)).to("cpu").numpy()
    first = pool("nchw")(x.permute_dims((0, 3, 1, 2))).numpy()
    np.testing.assert_array_equal(last, first.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("shape", [(3000, 8191), (400, 65536), (300, 100001)], ids=str)
def test_gradients_repeat_bit_by_bit(device: str, shape: tuple[int, int]) -> None:
    x, dy = (values("bfloat16", *shape, seed=i).to(device) for i in range(2))
    w, b = (values("float32", shape[1], seed=i).to(device) for i in (2, 3))
    _, pull = ruda.vjp(F.layer_norm, x, w, b)
    first = pull(dy)
    for _ in range(10):
        assert all(bool((a == b).all()) for a, b in zip(pull(dy), first, strict=True))
