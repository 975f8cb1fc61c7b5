"""Batch norm by kernels over channels on an emulated GPU: the CPU's results, in either layout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.core.dtypes import as_dtype
from ruda.core.spec import spec_of
from ruda.fusion.region import Region, Step
from ruda.ops.standard_norm import standard_norm
from ruda.tensor.dispatch import OPS, clear_plans
from ruda.testing import assert_close
from tests.cuda.test_compile import ARCHITECTURES, spills

compiler = pytest.importorskip("ruda.backends.cuda.compiler")
moving = pytest.importorskip("ruda.backends.cuda.prim.moving")
channel_region = pytest.importorskip("ruda.backends.cuda.prim.channel_region")
channels = pytest.importorskip("ruda.backends.cuda.prim.channels")


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """These kernels for small tensors as well."""
    monkeypatch.setattr(channels, "LEAST", 1)
    clear_plans()
    yield
    clear_plans()


def of(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    """Normal values about 1 in a dtype of ruda."""
    values = np.random.default_rng(seed).standard_normal(shape) + 1
    return values.astype(as_dtype(dtype).numpy)


def results(where: str, layout: str, x: Any, g: Any, *params: Any) -> list[ruda.Tensor]:
    """The output, moved statistics, and all gradients."""
    x, *params = (ruda.asarray(a, device=where).requires_grad_() for a in (x, *params))
    count = x.shape[1 if layout == "nchw" else -1]
    mean, var = (ruda.zeros(count, device=where, dtype=x.dtype) for _ in range(2))
    w, b = params or (None, None)
    y = F.batch_norm(x, mean, var, w, b, training=True, layout=layout)
    (y * ruda.asarray(g, device=where)).astype("float64").sum().backward()
    grads = [t.grad for t in (x, *params)]
    return [t.detach().to("cpu") for t in (y, mean, var, *grads)]


def check(device: str, layout: str, x: np.ndarray, *params: np.ndarray) -> None:
    """Against the CPU in float64; the terms of sums are of the size of normal values."""
    g = of(str(ruda.asarray(x).dtype), *x.shape, seed=5)
    wide = [a.astype("float64") for a in (x, g, *params)]
    count = x.shape[1 if layout == "nchw" else -1]
    length = x.size // count
    pairs = zip(results(device, layout, x, g, *params), results("cpu", layout, *wide), strict=True)
    for number, (got, want) in enumerate(pairs):
        scale = np.sqrt(length) if number > 3 else 1.0
        assert_close(got, want.numpy(), length=64 * length, scale=scale, name=f"result {number}")


def parameters(dtype: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    return of(dtype, count, seed=1), of(dtype, count, seed=2)


# Packs of 8, 4, 2 and 1 elements; one and several tiles of channels; partial chunks.
@pytest.mark.parametrize("shape", [(5, 9, 7, 64), (700, 520), (70, 3, 12), (90, 11, 7), (300, 2)])
def test_channels_last(device: str, shape: tuple[int, ...]) -> None:
    x = of("bfloat16", *shape)
    check(device, "nhwc", x, *parameters("float32", shape[-1]))


@pytest.mark.parametrize("shape", [(5, 6, 8, 32), (3, 70, 7, 7), (9, 3, 4100), (40, 5, 12)])
def test_channels_first(device: str, shape: tuple[int, ...]) -> None:
    x = of("bfloat16", *shape)
    check(device, "nchw", x, *parameters("float32", shape[1]))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_dtypes(device: str, dtype: str) -> None:
    for layout, shape in (("nhwc", (40, 10, 12)), ("nchw", (40, 12, 12))):
        check(device, layout, of(dtype, *shape), *parameters(dtype, 12))
        check(device, layout, of(dtype, *shape))


def test_a_mean_far_from_zero_leaves_the_variance(device: str) -> None:
    noise = np.random.default_rng(0).standard_normal((4096, 8))
    x = (noise + 4096).astype("float32")
    first = np.ascontiguousarray(x.reshape(8, 512, 8).transpose(0, 2, 1))
    for axes, given in (((0,), x), ((0, 2), first)):
        _, _, var = standard_norm(ruda.asarray(given, device=device), None, None, axes, 1e-5)
        want = given.astype("float64").var(axis=axes)
        # Means are rounded to 4096 eps; with sums of squares the error were 4096 times that.
        eps = float(np.finfo(np.float32).eps)
        np.testing.assert_allclose(var.numpy().ravel(), want, rtol=4096 * eps)


def test_one_channel_of_nan_or_infinity_leaves_the_others(device: str) -> None:
    x = of("float32", 300, 16)
    x[7, 3], x[200, 5] = np.nan, np.inf
    y = F.batch_norm(ruda.asarray(x, device=device), training=True, layout="nhwc").numpy()
    bad = np.isnan(y).any(axis=0)
    assert bad.nonzero()[0].tolist() == [3, 5]


def test_layouts_that_are_no_rows_of_channels(device: str) -> None:
    x = of("float32", 6, 10, 16)
    want = results("cpu", "nhwc", x.transpose(1, 0, 2), 1.0)
    t = ruda.asarray(x, device=device)
    for view in (t.permute_dims((1, 0, 2)), t.permute_dims((1, 0, 2))[::-1][::-1]):
        y = F.batch_norm(view, training=True, layout="nhwc")
        assert_close(y.to("cpu"), want[0].numpy(), length=60, name="y")
    # One element on: packs would not begin at multiples of 16 bytes.
    shifted = ruda.asarray(np.concatenate([[0], x.ravel()]).astype("f4"), device=device)[1:]
    y = F.batch_norm(shifted.reshape((60, 16)), training=True, layout="nhwc")
    assert_close(y.to("cpu"), results("cpu", "nhwc", x.reshape(60, 16), 1.0)[0].numpy(), length=60)


def test_a_gradient_that_is_one_number(device: str) -> None:
    x, w, b = of("float32", 50, 16), *parameters("float32", 16)
    grads = []
    for where in (device, "cpu"):
        x_, w_, b_ = (ruda.asarray(a, device=where).requires_grad_() for a in (x, w, b))
        F.batch_norm(x_, None, None, w_, b_, training=True, layout="nhwc").sum().backward()
        grads.append([t.grad.to("cpu").numpy() for t in (x_, w_, b_)])
    for got, want in zip(*grads, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-4)


@pytest.mark.parametrize("momentum", [0.25, None])
def test_running_statistics_move_in_one_launch(device: str, momentum: float | None) -> None:
    x, found = of("float32", 6, 5, 5, 600), []
    for where in (device, "cpu"):
        layer = ruda.nn.BatchNorm2d(600, momentum=momentum, layout="nhwc").to(where)
        places = [b.handle.address for b in layer.buffers()] if where == device else []
        for part in (x, x * 2 + 1):
            layer(ruda.asarray(part, device=where))
        assert places == ([b.handle.address for b in layer.buffers()] if places else [])
        found.append([b.to("cpu").numpy() for b in layer.buffers()])
    for got, want in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert found[0][2] == 2


def test_channels_are_found_between_the_axes_that_go() -> None:
    found = channels.channels_of
    assert found((2, 3, 4, 5), (0, 2, 3)) == (2, 3, 20)
    assert found((2, 3, 4, 5), (0, 1, 2)) == (24, 5, 1)
    assert found((2, 3, 4, 5), (0, 3)) == (2, 12, 5)
    assert found((2, 3, 4, 5), (0, 2)) is None
    assert found((7, 1, 4), (0, 1, 2)) == (28, 1, 1) or found((7, 1, 4), (0, 1, 2)).count == 1


def sources() -> list[tuple[str, str]]:
    """A kernel of each kind, with packs and without."""
    bf16, f32, f64 = ruda.bfloat16, ruda.float32, ruda.float64
    kinds = [(bf16, f32, 8), (f32, f32, 4), (f64, f64, 2), (bf16, bf16, 1)]
    out = []
    for x, param, vec in kinds:
        for last in (True, False):
            for op, types in ((0, (x,)), (2, (x, param, param)), (3, (x,)), (5, (x, param))):
                out.append(channels.source(op, types, vec, last, channels.STEPS[op]))
        out += [channels.joining(moments, x) for moments in (True, False)]
        out.append(moving.text((param, param, ruda.int64, param, param)))
    return list(dict(out).items())


class Nothing:
    """In the place of a launcher: keeps what it would have compiled."""

    made: ClassVar[dict[str, str]] = {}

    def __init__(self, client: Any, source: str, name: str, *rest: Any) -> None:
        self.made[name] = source


def with_steps(client: Any) -> dict[str, str]:
    """The kernels of norms that take an addition and a relu, forward and backward."""
    x, w, mean = (
        spec_of(client, shape, dtype)
        for shape, dtype in (
            ((4096, 256), ruda.bfloat16),
            ((256,), ruda.float32),
            ((1, 256), ruda.float32),
        )
    )
    settings = ((0,), 1e-5)
    norm, add = OPS["standard_norm"].plan((x, w, w), settings), OPS["add"].plan((x, x), ())
    relu, mask = OPS["relu"].plan((x,), ()), OPS["relu_backward"].plan((x, x), ())
    back = OPS["standard_norm_backward"].plan((x, x, w, mean, mean), (*settings, (256,)))
    OPS["standard_norm_relu_backward"].plan((x, x, w, w, mean, mean), (*settings, (256,)))
    steps = [Step(norm, (0, 1, 2)), Step(add, (4, 3)), Step(relu, (7,))]
    channel_region.bind(client, Region(steps, (x, w, w, x), (1, 2, 4)))
    steps = [Step(add, (0, 1)), Step(mask, (7, 2)), Step(back, (8, 3, 4, 5, 6))]
    for kept in ((1, 2, 3, 4), (2, 3, 4)):
        channel_region.bind(client, Region(steps, (x, x, x, x, w, mean, mean), kept))
    return Nothing.made


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_no_register_is_spilt(client: Any, monkeypatch: pytest.MonkeyPatch, arch: str) -> None:
    monkeypatch.setattr(channels, "Launcher", Nothing)
    found = dict(sources())
    if arch != "sm_90a":
        found = {k: v for k, v in found.items() if k.endswith("bf16_last8")}
    found |= with_steps(client)
    assert sum("relu" in name for name in found) == 2
    for name, text in found.items():
        _, log = compiler.compile_cubin(text, name, arch)
        assert not any(spills(log).values()), name


@pytest.mark.parametrize(("layout", "dtype"), [("nhwc", "bfloat16"), ("nchw", "float32")])
def test_a_compiled_block(device: str, layout: str, dtype: str) -> None:
    """A residual block: what surrounds the norms is done by their kernels, as one by one."""
    shape = (6, 5, 5, 16) if layout == "nhwc" else (6, 16, 5, 5)
    given = [of("float32", *shape, seed=i) for i in range(3)]

    def made(where: str) -> tuple[Any, list[Any]]:
        a, b, c = (ruda.nn.BatchNorm2d(16, layout=layout).to(where) for _ in range(3))
        x, y, g = (ruda.asarray(v, device=where).astype(dtype) for v in given)
        leaves = [x.requires_grad_(), y.requires_grad_(), *b.parameters(), *c.parameters()]

        def step() -> Any:
            for leaf in leaves:
                leaf.grad = None
            h = F.relu(a(x * 0.5)) * 2.0
            z = F.relu(b(h) + c(y * 3.0))
            out = F.relu(b(z * 0.5) + z)
            (out * g).astype("float32").sum().backward()
            return out

        return step, leaves

    found = []
    for compiled in (True, False):
        step, leaves = made(device)
        run = ruda.compile(step) if compiled else step
        out = [run() for _ in range(3)][-1]
        if compiled:
            text = run.explain()
            for name in (
                "norm+relu(",
                "norm+add+relu",
                "+standard_norm_backward(",
                "relu_backward(",
            ):
                assert name in text
        found.append([t.to("cpu").numpy() for t in (out, *(leaf.grad for leaf in leaves))])
    for got, want in zip(*found, strict=True):
        np.testing.assert_array_equal(got, want)
