"""Convolution by cuDNN in one to three dimensions, with both gradients, in either layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.dnn import pointwise, stem
from ruda.backends.cuda.dnn.graph import Graph, Unsupported, is_ordered, kept, missing
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim import conv as own
from ruda.core.dtypes import DType
from ruda.core.errors import StrategyError
from ruda.core.mode import IEEE
from ruda.core.shapes import Shape
from ruda.core.spec import Spec, spec_of


def lack(client: Any, strategy: str, specs: tuple[Spec, ...], attrs: tuple[Any, ...]) -> str | None:
    """Why ``strategy`` cannot convolve here, or None."""
    return _vendor_lacks(specs[0].dtype) if strategy == "vendor" else None


def _vendor_lacks(dtype: DType) -> str | None:
    if dtype.kind != "float":
        return "cuDNN convolves real numbers alone"
    if dtype.name == "float64":
        return "cuDNN 9.19 gives wrong float64 gradients where channels come last"
    return missing()


def _geometry(spec: Spec, layout: str) -> tuple[Shape, Shape]:
    """Shape and strides with the channels second, and at least two spatial axes for cuDNN."""
    shape, strides = spec.shape, spec.strides
    if layout == "nhwc":
        shape = (shape[0], shape[-1], *shape[1:-1])
        strides = (strides[0], strides[-1], *strides[1:-1])
    if len(shape) == 3:
        # One row of pixels; its stride is never stepped over.
        shape, strides = (
            (*shape[:2], 1, shape[2]),
            (*strides[:2], strides[2] * shape[2], strides[2]),
        )
    return shape, strides


def _settings(attrs: tuple[Any, ...]) -> dict[str, Any]:
    stride, padding, dilation = attrs[:3]
    low, high = [p[0] for p in padding], [p[1] for p in padding]
    steps, spread = list(stride), list(dilation)
    if len(steps) == 1:
        low, high, steps, spread = [0, *low], [0, *high], [1, *steps], [1, *spread]
    return {"pre_padding": low, "post_padding": high, "stride": steps, "dilation": spread}


@kept
def _bound(client: Any, plan: Any, make: Callable[..., Any], attrs: tuple[Any, ...]) -> Any:
    """The graph of one convolution node over both operands, ready to run."""
    layout, out = attrs[4], plan.out
    # Without leave for faster arithmetic float32 is computed in float32.
    exact = plan.precision is None or plan.precision.conv == IEEE.conv
    precise = exact and not out.dtype.is_half
    g = Graph(client, out.dtype, tensor_cores=not precise, ordered=is_ordered(plan))
    readable = (_readable(client, s) for s in plan.specs)
    a, b = (g.operand(*_geometry(s, layout), s.dtype) for s in readable)
    g.result(make(g.graph, a, b, _settings(attrs)), *_geometry(out, layout), out.dtype)
    return g.ready()


def _by(client: Any, plan: Any, attrs: tuple[Any, ...], make: Any) -> Callable[..., Any] | None:
    """cuDNN's kernel, or with other strategies, or where ``auto`` finds it lacking, our own."""
    strategy, sizes = attrs[5], [s.size for s in (*plan.specs, plan.out)]
    usable = 0 not in sizes and _vendor_lacks(plan.out.dtype) is None
    if strategy in ("auto", "vendor") and usable:
        try:
            run = _bound(client, plan, make, attrs)
        except Unsupported as error:
            if strategy == "vendor":
                raise StrategyError(plan.op.name, f"cuDNN refuses: {error}", plan.specs) from error
        else:
            return _launch(client, plan, run)
    return own.KERNELS[plan.op.name](client, plan)


def _readable(client: Any, spec: Spec) -> Spec:
    """``spec``, or that of a dense copy where cuDNN cannot step (backwards, or by nothing)."""
    steps = (s for n, s in zip(spec.shape, spec.strides, strict=True) if n > 1)
    return spec if all(s > 0 for s in steps) else spec_of(client, spec.shape, spec.dtype)


def _launch(client: Any, plan: Any, run: Callable[..., None]) -> Callable[..., Any]:
    out = plan.out
    readable = [_readable(client, s) for s in plan.specs]
    copies = any(a is not b for a, b in zip(readable, plan.specs, strict=True))

    def launch(*handles: Any) -> Any:
        if copies:
            pairs = zip(readable, plan.specs, handles, strict=True)
            handles = tuple(_copied(client, a, b, h) for a, b, h in pairs)
        made = allocate(client.pool, out)
        run(*(h.address for h in handles), made.address)
        return made

    launch.strategy = "vendor"  # type: ignore[attr-defined]
    return launch


def _copied(client: Any, wanted: Spec, spec: Spec, handle: Any) -> Any:
    if wanted is spec:
        return handle
    return client.copier(wanted, spec)(handle)


def forward(client: Any, plan: Any) -> Callable[..., Any] | None:
    """``conv``: x and w to the windows' products."""

    def make(graph: Any, x: Any, w: Any, settings: dict[str, Any]) -> Any:
        return graph.conv_fprop(image=x, weight=w, **settings)

    if pointwise.fits_image(plan):
        return pointwise.bind_image(client, plan)
    x, w = (s.shape for s in plan.specs)
    how = stem.halved(x, w, plan.out.shape, plan.out.dtype, plan.attrs)
    if how is not None and _vendor_lacks(plan.out.dtype) is None:
        return stem.forward(client, plan, how, lambda c, p: _by(c, p, p.attrs, make))
    return _by(client, plan, plan.attrs, make)


def data_backward(client: Any, plan: Any) -> Callable[..., Any] | None:
    """``conv_data_backward``: dy and w to dx."""

    def make(graph: Any, dy: Any, w: Any, settings: dict[str, Any]) -> Any:
        return graph.conv_dgrad(loss=dy, filter=w, **settings)

    if pointwise.fits_image(plan):
        return pointwise.bind_image(client, plan)
    return _by(client, plan, plan.attrs[1:], make)


def weight_backward(client: Any, plan: Any) -> Callable[..., Any] | None:
    """``conv_weight_backward``: dy and x to dw."""

    def make(graph: Any, dy: Any, x: Any, settings: dict[str, Any]) -> Any:
        return graph.conv_wgrad(image=x, loss=dy, **settings)

    if pointwise.fits(plan):
        return pointwise.bind(client, plan)
    dy, x = (s.shape for s in plan.specs)
    how = stem.halved(x, plan.out.shape, dy, plan.out.dtype, plan.attrs[1:])
    if how is not None and _vendor_lacks(plan.out.dtype) is None:
        return stem.weight_backward(client, plan, how, lambda c, p: _by(c, p, p.attrs[1:], make))
    return _by(client, plan, plan.attrs[1:], make)


KERNELS = {
    "conv": forward,
    "conv_data_backward": data_backward,
    "conv_weight_backward": weight_backward,
}
