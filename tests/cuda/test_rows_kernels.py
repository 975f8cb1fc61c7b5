"""Row kernels on an emulated GPU: the CPU's results and gradients, in every way a row is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.core.dtypes import as_dtype
from ruda.ops.add_norm import add_layer_norm, add_rms_norm
from ruda.ops.statistics import logsumexp
from ruda.testing import assert_close
from tests.cuda.test_regions import launched

Function = Callable[..., Any]


def of(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    """Normal values in a dtype of ruda."""
    values = np.random.default_rng(seed).standard_normal(shape)
    return values.astype(as_dtype(dtype).numpy)


def is_real(array: np.ndarray) -> bool:
    return as_dtype(array.dtype).is_floating


def weighted(out: Any) -> Any:
    """A loss in which the elements of each output have different weights."""
    total: Any = 0.0
    for t in out if isinstance(out, tuple) else (out,):
        ramp = ruda.reshape(ruda.arange(t.size, device=t.device) % 7, t.shape)
        total = total + ruda.sum(t.astype("float64") * (ramp.astype("float64") - 2.5))
    return total


def results(function: Function, arrays: Any, where: str) -> list[ruda.Tensor]:
    """Outputs, and gradients of all real operands."""
    given = [ruda.asarray(a, device=where) for a in arrays]
    leaves = [t.requires_grad_() for t in given if t.dtype.is_floating]
    out = function(*given)
    weighted(out).backward()
    outs = out if isinstance(out, tuple) else (out,)
    return [t.detach().to("cpu") for t in (*outs, *(t.grad for t in leaves))]


def check(function: Function, device: str, *arrays: np.ndarray) -> None:
    """Against the CPU in float64; a gradient may be as wrong as its terms are."""
    wide = [a.astype("float64") if is_real(a) else a for a in arrays]
    length = 64 * max(a.shape[-1] for a in arrays if a.ndim)
    pairs = zip(results(function, arrays, device), results(function, wide, "cpu"), strict=True)
    for got, want in pairs:
        assert_close(got, want.numpy(), length=length, scale=np.sqrt(max(want.size, 1)))


# Kept by a part of a warp, by a block; too long for the registers of sums; too long for any.
@pytest.mark.parametrize("n", [1, 7, 96, 1000, 20000])
def test_lengths(device: str, n: int) -> None:
    x, w, b = of("float32", 3, n), of("float32", n, seed=1), of("float32", n, seed=2)
    check(lambda x: F.softmax(x), device, x)
    check(lambda x, w, b: F.layer_norm(x, w, b), device, x, w, b)


@pytest.mark.parametrize("n", [40, 9001])
def test_the_other_rows(device: str, n: int) -> None:
    x, y, w = (of("float32", 5, n, seed=i) for i in range(3))
    check(lambda x: F.log_softmax(x), device, x)
    check(lambda x: logsumexp(x, axis=-1), device, x)
    check(lambda x, w: F.rms_norm(x, w), device, x, w[0])
    check(lambda x, y, w: add_rms_norm(x, y, w), device, x, y, w[0])
    check(lambda x, y, w, b: add_layer_norm(x, y, w, b), device, x, y, w[0], w[1])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes_with_parameters_of_their_own(device: str, dtype: str) -> None:
    beside = "float64" if dtype == "float64" else "float32"
    x, w, b = of(dtype, 40, 64), of(beside, 64, seed=1), of(beside, 64, seed=2)
    check(lambda x, w, b: F.layer_norm(x, w, b), device, x, w, b)
    check(lambda x: F.softmax(x), device, x)
    check(lambda x: F.rms_norm(x, axis=0), device, x)


def test_many_rows_for_each_block(device: str) -> None:
    x, w = of("float32", 700, 24), of("float32", 24, seed=1)
    check(lambda x, w: F.rms_norm(x, w), device, x, w)


VIEWS: dict[str, Function] = {
    "transposed": lambda x: ruda.permute_dims(x, (2, 0, 1)),
    "reversed": lambda x: ruda.flip(x, axis=-1),
    "every second": lambda x: x[:, :, ::2],
    "from the second on": lambda x: ruda.reshape(x, (-1,))[1:181].reshape(5, 36),
    "repeated": lambda x: ruda.broadcast_to(x[:1, :, :1], (3, 8, 12)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(device: str, name: str) -> None:
    x, view = of("float32", 6, 8, 12), VIEWS[name]
    check(lambda x: F.softmax(view(x)), device, x)
    check(lambda x: F.layer_norm(view(x)), device, x)


@pytest.mark.parametrize("axis", [0, 1])
def test_other_axes(device: str, axis: int) -> None:
    x, w = of("float32", 6, 8, 12), of("float32", (6, 8)[axis], seed=1)
    check(lambda x: F.log_softmax(x, axis), device, x)
    check(lambda x, w: F.layer_norm(x, w, axis=axis), device, x, w)


def test_no_rows(device: str) -> None:
    x, w = of("float32", 0, 5), of("float32", 5)
    check(lambda x: F.softmax(x), device, x)
    check(lambda x, w: F.rms_norm(x, w), device, x, w)


def test_rows_without_a_softmax(device: str) -> None:
    inf, nan = np.inf, np.nan
    rows = np.array([[1, inf, 2], [-inf] * 3, [1, nan, 2], [-inf, 1, 1]], "f")
    x = ruda.asarray(rows, device=device)
    np.testing.assert_array_equal(np.isnan(F.softmax(x).numpy()).all(1), [1, 1, 1, 0])
    got = logsumexp(x, axis=1).numpy()
    np.testing.assert_array_equal(got[:2], [inf, -inf])
    assert np.isnan(got[2]) and got[3] == pytest.approx(1 + np.log(2))


@pytest.mark.parametrize("name", ["batch", "instance", "group", "axes"])
def test_norms_over_other_axes(device: str, name: str) -> None:
    x, w, b = of("float32", 3, 4, 5, 6), of("float32", 4, seed=1), of("float32", 4, seed=2)
    kinds: dict[str, Function] = {
        "batch": lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        "instance": lambda x, w, b: F.instance_norm(x, None, None, w, b),
        "group": lambda x, w, b: F.group_norm(x, 2, w, b),
        "axes": lambda x, w, b: F.layer_norm(x, axis=(1, 3)) * w[0] + b[0],
    }
    check(kinds[name], device, x, w, b)


TARGET = np.array([0, 3, -100, 8, 2])


@pytest.mark.parametrize("classes", [9, 5000])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_cross_entropy(device: str, classes: int, dtype: str) -> None:
    x = of(dtype, 5, classes)
    weight = np.abs(of("float32", classes, seed=1))
    check(lambda x: F.cross_entropy(x, ruda.asarray(TARGET, device=x.device)), device, x)
    more: dict[str, Any] = {"label_smoothing": 0.1, "z_loss": 0.01, "reduction": "sum"}
    check(
        lambda x: F.cross_entropy(
            x,
            ruda.asarray(TARGET, device=x.device),
            weight=ruda.asarray(weight, device=x.device).astype(
                "float64" if x.dtype == "float64" else "float32"
            ),
            **more,
        ),
        device,
        x,
    )


@pytest.mark.parametrize(
    ("classes", "dtype", "kept"),
    [
        (512, "bfloat16", "held16x4x8"),
        (513, "bfloat16", "held16x4x8"),
        (1024, "float32", "held32x8x4"),
    ],
)
def test_losses_of_rows_that_a_warp_keeps(device: str, classes: int, dtype: str, kept: str) -> None:
    logits = ruda.asarray(of("float32", 19, classes), dtype=dtype)
    target = np.random.default_rng(1).integers(0, classes, 19)
    target[3], target[7] = -100, classes - 1

    def loss(x: Any) -> Any:
        return F.cross_entropy(x, ruda.asarray(target, device=x.device), reduction="none")

    with ruda.no_grad():
        got, names = launched(lambda: loss(logits.to(device)))
    assert_close(got.to("cpu"), loss(logits.astype("float64")).numpy(), length=classes)
    assert any(kept in name for name in names), names


def test_second_order(device: str) -> None:
    def slope(x: Any, w: Any) -> Any:
        value = ruda.sum(F.layer_norm(x, w) ** 3) + ruda.sum(F.softmax(x) ** 2)
        return ruda.sum(ruda.grad(lambda v: value_of(v, w))(x) ** 2) + value * 0

    def value_of(x: Any, w: Any) -> Any:
        return ruda.sum(F.layer_norm(x, w) ** 3) + ruda.sum(F.softmax(x) ** 2)

    check(slope, device, of("float64", 3, 6), of("float64", 6, seed=1))


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "relu", "silu", "gelu"])
def test_gradients_of_activations_are_one_launch(device: str, client: Any, name: str) -> None:
    x = ruda.asarray(of("float32", 7, 40), device=device).requires_grad_()
    out, g = getattr(ruda, name)(x), ruda.ones((7, 40), device=device)
    client.driver.launches.clear()
    out.backward(g)
    assert [n.split("_f32")[0] for n in client.driver.launches] == [f"{name}_backward"]


def test_the_gradient_of_a_weight_is_rounded_where_it_is_added_up(device: str) -> None:
    x, g = (ruda.asarray(of("bfloat16", 40, 96, seed=s), device=device) for s in (0, 1))
    half = ruda.asarray(of("bfloat16", 96, seed=2), device=device)
    whole = half.astype("float32")

    def pull(weight: Any) -> Any:
        return ruda.vjp(lambda x, w: F.rms_norm(x, w), x, weight)[1](g)

    pull(half)
    (dx, dw), names = launched(lambda: pull(half))
    kinds = [name.split("_")[0] for name in names]
    assert kinds == ["rms", "rms", "fold"], names
    wide = pull(whole)
    assert dw.dtype == "bfloat16" and wide[1].dtype == "float32"
    np.testing.assert_array_equal(dw.numpy(), wide[1].astype("bfloat16").numpy())
    np.testing.assert_array_equal(dx.numpy(), wide[0].numpy())
