"""Convolution without columns: one product for each place of the kernel, in either layout.

The functions take channels-first views, so a channels-last array is read as it lies. A kernel that
joins no channels (depthwise) becomes plain multiply-adds, the least memory traffic there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ruda.ops.reference.windows import Array, Index, Padding, offset_slices, volume


def add_forward(
    out: Array,
    x: Array,
    w: Array,
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
    groups: int,
) -> None:
    """Add the correlation of ``x [N, C, *S]`` with ``w [O, C / groups, *K]`` to ``out [N, O,
    *windows]``.

    ``out`` may be a view of any strides.
    """
    y, source, kernels = _grouped(out, groups), _grouped(x, groups), _kernels(w, groups)
    for offset, there, here in _places(source, y, w, stride, padding, dilation):
        _add_product(y[there], kernels[offset], source[here])


def add_data_backward(
    dx: Array,
    g: Array,
    w: Array,
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
    groups: int,
) -> None:
    """Add the transpose of ``add_forward`` in ``x`` to ``dx [N, C, *S]``."""
    target, source, kernels = _grouped(dx, groups), _grouped(g, groups), _kernels(w, groups)
    for offset, there, here in _places(target, source, w, stride, padding, dilation):
        _add_product(target[here], kernels[offset].swapaxes(1, 2), source[there])


def add_weight_backward(
    dw: Array,
    g: Array,
    x: Array,
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
    groups: int,
) -> None:
    """Add the transpose of ``add_forward`` in ``w`` to ``dw [O, C / groups, *K]``."""
    gradient, source = _grouped(g, groups), _grouped(x, groups)
    found = np.zeros((volume(dw.shape[2:]), groups, dw.shape[0] // groups, dw.shape[1]), g.dtype)
    for offset, there, here in _places(source, gradient, dw, stride, padding, dilation):
        found[offset] = _paired(gradient[there], source[here])
    dw += np.moveaxis(found, 0, -1).reshape(dw.shape)


def _grouped(x: Array, groups: int) -> Array:
    """View [N, C, *S] as [N, groups, C / groups, *S]; splitting an axis never copies."""
    return x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:], copy=False)


def _kernels(w: Array, groups: int) -> Array:
    """Kernels [O, C / groups, *K] by place: [places, groups, O / groups, C / groups]."""
    flat = w.reshape(groups, w.shape[0] // groups, w.shape[1], volume(w.shape[2:]))
    return np.ascontiguousarray(np.moveaxis(flat, -1, 0))


def _places(
    x: Array,
    y: Array,
    w: Array,
    stride: Sequence[int],
    padding: Padding,
    dilation: Sequence[int],
) -> Iterator[tuple[int, Index, Index]]:
    return offset_slices(x.shape[3:], y.shape[3:], w.shape[2:], stride, padding, dilation)


def _add_product(out: Array, kernel: Array, x: Array) -> None:
    """``out[n, g, o, ...] += sum over c of kernel[g, o, c] * x[n, g, c, ...]``."""
    if 1 in kernel.shape[1:]:
        spatial = (1,) * (x.ndim - 3)
        for c in range(kernel.shape[2]):
            weights = kernel[:, :, c].reshape(*kernel.shape[:2], *spatial)
            out += weights * x[:, :, c : c + 1]
        return
    columns = x.reshape(*x.shape[:3], volume(x.shape[3:]))
    out += np.matmul(kernel, columns).reshape(out.shape)


def _paired(g: Array, x: Array) -> Array:
    """``sum over n and places of g[n, g, o, ...] * x[n, g, c, ...]``: [groups, o, c]."""
    places = x.shape[0] * volume(x.shape[3:])
    rows = [np.moveaxis(a, 0, 2).reshape(*a.shape[1:3], places) for a in (g, x)]
    return np.matmul(rows[0], rows[1].swapaxes(1, 2))
