"""Weight gradients of convolutions whose windows are single pixels, as products of matrices.

Where sums have to be in one order cuDNN has but slow kernels for float32. ``dw [O, C]`` is the sum
over images and pixels of ``dy [N, O, P]`` times ``x [N, P, C]``: one product for each image and the
sum of those, or one product of all pixels where they lie together or parts would be too large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from ruda.backends.cuda.blas import gemm
from ruda.backends.cuda.blas.dispatch import Task
from ruda.backends.cuda.dnn.graph import is_ordered
from ruda.core.mode import IEEE
from ruda.core.shapes import Shape
from ruda.core.spec import Spec, spec_of
from ruda.tensor.dispatch import OPS

Ready = Callable[[Any], Any]
# Channels below which a product for each image is slow (three, of 224 x 224: ten times cuDNN).
_FEW = 16
_OVER_IMAGES = ((0,), False, None)


def fits(plan: Any) -> bool:
    """Whether ``conv_weight_backward`` is left to us, and is a product that cuDNN is slow at."""
    kernel, *settings = plan.attrs
    few = min(plan.out.shape[0], plan.out.size // plan.out.shape[0]) < _FEW
    wanted = is_ordered(plan) or (_is_exact(plan) and not few)
    return _is_product(plan, kernel, settings) and wanted


def _is_product(plan: Any, kernel: Shape, settings: Sequence[Any]) -> bool:
    """Whether windows are pixels, one for each, and who multiplies float32 is left to us."""
    stride, padding, _, groups, layout, strategy = settings
    taps = kernel[2:] if layout == "nchw" else kernel[1:-1]
    single = set(taps) == set(stride) == {1} and not any(map(any, padding)) and groups == 1
    ours = strategy == "auto" and plan.out.dtype.name == "float32"
    return single and ours and plan.out.size > 0 and all(s.size for s in plan.specs)


def _is_exact(plan: Any) -> bool:
    """Whether no faster arithmetic is allowed, of which cuDNN makes more."""
    return plan.precision is None or plan.precision.conv == IEEE.conv


def bind(client: Any, plan: Any, together: bool | None = None) -> Callable[..., Any]:
    """The function from dy and x to dw; ``together`` says whether all images are one product."""
    layout = plan.attrs[5]
    made = [_planes(client, spec, layout) for spec in plan.specs]
    (_, high, pixels), deep = made[0][1].shape, made[1][1].shape[1]
    if together is None:
        large = high * deep > (high + deep) * pixels
        together = layout == "nhwc" or large or min(high, deep) < _FEW
    product = (_of_pixels if together else _of_images)(client, plan, *(spec for _, spec in made))

    def run(hdy: Any, hx: Any) -> Any:
        return product(*(ready(h) for (ready, _), h in zip(made, (hdy, hx), strict=True)))

    return _named(run)


def fits_image(plan: Any) -> bool:
    """Whether ``conv`` or ``conv_data_backward`` is a product that is left to us."""
    settings = plan.attrs if plan.op.name == "conv" else plan.attrs[1:]
    return _is_product(plan, plan.specs[1].shape, settings) and _is_exact(plan)


def bind_image(client: Any, plan: Any) -> Callable[..., Any]:
    """The function from x or dy, and w, to the image of the other channels."""
    image, w = plan.specs
    forward = plan.op.name == "conv"
    layout = plan.attrs[4 if forward else 5]
    channels = 1 if layout == "nchw" else w.ndim - 1
    steps = w.strides[0], w.strides[channels]
    matrix = spec_of(client, (w.shape[0], w.shape[channels]), w.dtype, steps)
    ready, planes = _planes(client, image, layout)
    if layout == "nchw" and planes.shape[2] > 1:
        matrix = matrix if forward else _turned(client, matrix)
        multiply = _product(client, plan, matrix, planes, plan.out)
        return _named(lambda himage, hw: multiply(hw, ready(himage)))
    close, rows = _rows(client, planes)
    matrix = _turned(client, matrix) if forward else matrix
    multiply = _product(client, plan, rows, matrix, plan.out)
    return _named(lambda himage, hw: multiply(close(ready(himage)), hw))


def _named(run: Callable[..., Any]) -> Callable[..., Any]:
    run.strategy = "product"  # type: ignore[attr-defined]
    return run


def _planes(client: Any, spec: Spec, layout: str) -> tuple[Ready, Spec]:
    """An operand as ``[images, channels, pixels]``: copied densely where it does not lie so."""
    pixels = [i + (layout == "nchw") for i in range(1, spec.ndim - 1)]
    channels = 1 if layout == "nchw" else spec.ndim - 1
    strides, ready = spec.strides, _as_it_is
    if not _is_even(spec.shape, strides, pixels):
        dense = spec_of(client, spec.shape, spec.dtype)
        strides, ready = dense.strides, client.copier(dense, spec)
    shape = spec.shape[0], spec.shape[channels], math.prod(spec.shape[i] for i in pixels)
    # An axis of one pixel has any stride.
    inner = next((strides[i] for i in reversed(pixels) if spec.shape[i] > 1), 1)
    steps = strides[0], strides[channels], inner
    return ready, spec_of(client, shape, spec.dtype, steps)


def _as_it_is(handle: Any) -> Any:
    return handle


def _is_even(shape: Shape, strides: Shape, axes: list[int]) -> bool:
    """Whether neighbouring axes are one axis."""
    steps = [(shape[i], strides[i]) for i in axes if shape[i] > 1]
    return all(s == t * n for (_, s), (n, t) in pairwise(steps))


def _of_images(client: Any, plan: Any, dy: Spec, x: Spec) -> Callable[..., Any]:
    """A product for each image, and their sum."""
    turned = _turned(client, x)
    if dy.shape[0] == 1:
        return _product(client, plan, dy, turned, plan.out)
    parts = spec_of(client, (dy.shape[0], *plan.out.shape), plan.out.dtype)
    total = OPS["sum"].lookup((parts,), _OVER_IMAGES)
    multiply = _product(client, plan, dy, turned, parts)
    return lambda hdy, hx: total.run(multiply(hdy, hx))


def _of_pixels(client: Any, plan: Any, dy: Spec, x: Spec) -> Callable[..., Any]:
    """One product of all pixels, which are copied next to each other where they are not."""
    made = [_rows(client, spec) for spec in (dy, x)]
    multiply = _product(client, plan, _turned(client, made[0][1]), made[1][1], plan.out)
    return lambda hdy, hx: multiply(*(r(h) for (r, _), h in zip(made, (hdy, hx), strict=True)))


def _rows(client: Any, spec: Spec) -> tuple[Ready, Spec]:
    """``[images, channels, pixels]`` as ``[images * pixels, channels]``."""
    lying = _turned(client, spec)
    images, pixels, channels = lying.shape
    if _is_even(lying.shape, lying.strides, [0, 1]) and lying.strides[2] == 1:
        step = lying.strides[1 if pixels > 1 else 0]
        return _as_it_is, spec_of(client, (images * pixels, channels), spec.dtype, (step, 1))
    dense = spec_of(client, lying.shape, spec.dtype)
    rows = spec_of(client, (images * pixels, channels), spec.dtype)
    return client.copier(dense, lying), rows


def _turned(client: Any, spec: Spec) -> Spec:
    """The matrices of a spec with their axes exchanged."""
    *lead, a, b = spec.shape
    *steps, s, t = spec.strides
    return spec_of(client, (*lead, b, a), spec.dtype, (*steps, t, s))


def _product(client: Any, plan: Any, x: Spec, y: Spec, out: Spec) -> Callable[..., Any]:
    how = IEEE if _is_exact(plan) else IEEE._replace(matmul=plan.precision.conv)
    return gemm.bound(Task(client, plan.op.name, x, y, None, out, out.dtype, how))
