"""Maximum pooling with channels last on an emulated GPU, against the CPU and the other layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ruda
import ruda.nn.functional as F
from ruda.core.dtypes import as_dtype
from tests.cuda.test_compile import ARCHITECTURES, spills

compiler = pytest.importorskip("ruda.backends.cuda.compiler")
pool_last = pytest.importorskip("ruda.backends.cuda.prim.pool_last")


def pooled(where: str, x: np.ndarray, layout: str, *settings: Any, **more: Any) -> list[np.ndarray]:
    """Values, and the gradient of a sum with weights."""
    t = ruda.asarray(x, device=where).requires_grad_()
    y = F.max_pool2d(t, *settings, layout=layout, **more)
    order = np.arange(y.size, dtype="f4").reshape(y.shape if layout == "nhwc" else last(y.shape))
    weights = order if layout == "nhwc" else order.transpose(0, 3, 1, 2)
    (
        y.astype("float32") * ruda.asarray(np.ascontiguousarray(weights) % 5, device=where)
    ).sum().backward()
    return [y.detach().to("cpu").numpy(), t.grad.to("cpu").numpy()]


def last(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[0], *shape[2:], shape[1])


# Packs of 8 and of 1; ties; windows that overlap, leave gaps, stick out; planes of padding.
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("channels", [24, 3])
@pytest.mark.parametrize(
    ("settings", "more"),
    [
        ((3, 2, 1), {}),
        ((5, 2, 2), {"ceil_mode": True}),
        ((2, 3, 0, 2), {"ceil_mode": True}),
        (((4, 1), 1, (2, 0)), {}),
    ],
)
def test_both_layouts_agree(
    device: str, dtype: str, channels: int, settings: Any, more: Any
) -> None:
    values = np.random.default_rng(0).integers(-9, 9, (2, 9, 11, channels))
    x = values.astype(as_dtype(dtype).numpy)
    x[0, 3, 4, 1] = np.nan
    got = pooled(device, x, "nhwc", *settings, **more)
    want = pooled("cpu", np.ascontiguousarray(x.transpose(0, 3, 1, 2)), "nchw", *settings, **more)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a.astype("f4"), b.astype("f4").transpose(0, 2, 3, 1))


def test_views_and_gradients_of_gradients(device: str) -> None:
    x = np.random.default_rng(1).standard_normal((2, 3, 8, 6)).astype("f4")
    t = ruda.asarray(x, device=device).permute_dims((0, 2, 3, 1))
    want = F.max_pool2d(ruda.asarray(x), 2).numpy().transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(F.max_pool2d(t, 2, layout="nhwc").to("cpu").numpy(), want)
    shifted = ruda.asarray(np.concatenate([[0], x.ravel()]).astype("f4"), device=device)[1:]
    got = F.max_pool2d(shifted.reshape((2, 3, 6, 8)), 2, layout="nhwc").to("cpu").numpy()
    same = F.max_pool2d(ruda.asarray(x.reshape(2, 3, 6, 8)), 2, layout="nhwc").numpy()
    np.testing.assert_array_equal(got, same)

    def cubed(t: Any) -> Any:
        return (F.max_pool2d(t, 2, layout="nhwc") ** 3).sum()

    inner = ruda.grad(lambda t: (ruda.grad(cubed)(t) ** 2).sum())
    other = inner(ruda.asarray(x)).numpy()
    np.testing.assert_allclose(
        inner(ruda.asarray(x, device=device)).to("cpu").numpy(), other, rtol=1e-5
    )


def test_nothing_to_pool(device: str) -> None:
    assert F.max_pool2d(ruda.ones((0, 4, 4, 3), device=device), 2, layout="nhwc").shape == (
        0,
        2,
        2,
        3,
    )


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_no_register_is_spilt(arch: str) -> None:
    kinds = ((ruda.bfloat16, 8), (ruda.float32, 4), (ruda.float64, 2), (ruda.int64, 1))
    cases = [(op, *kind) for kind in kinds for op in (0, 1, 3)]
    for op, dtype, vec in [*cases, (0, ruda.int8, 8), (2, ruda.float32, 1)]:
        name, text = pool_last.text(op, dtype, vec)
        _, log = compiler.compile_cubin(text, name, arch)
        assert not any(spills(log).values()), name
