"""Lengths that differ from call to call, brought to a few, as each is a signature of its own."""

from __future__ import annotations

from typing import Any

from ruda.core.dtypes import int64
from ruda.core.errors import ArgumentError, ShapeError
from ruda.core.shapes import normalize_axis
from ruda.ops.conversion import asarray
from ruda.ops.tiling import pad
from ruda.tensor.given import given_tensors
from ruda.tensor.tensor import RudaTensor

# Two sizes an octave: at most a third of a padded length is padding, down to a sixteenth.
_SHARES = (1 / 16, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 3 / 4, 1)


def bucket_size(length: int, most: int, *, multiple: int = 8) -> int:
    """The least of eight lengths up to ``most`` that ``length`` fits into.

    They are multiples of ``multiple``, about ``most`` times 1, 3/4, 1/2, 3/8, down to 1/16. Raises
    ``ArgumentError`` for a length beyond ``most``.

    >>> [ruda.bucket_size(n, 1024) for n in (3, 100, 500, 600, 1000)]
    [64, 128, 512, 768, 1024]
    """
    if not 0 <= length <= most or multiple < 1:
        hint = "most=, the longest length that there will be"
        raise ArgumentError("bucket_size", "no such length", length, f"0 to {most}", hint)
    sizes = (-(-int(most * share) // multiple) * multiple for share in _SHARES)
    return next(size for size in sizes if size >= length)


@given_tensors
def bucket(
    x: RudaTensor, most: int, *, axis: int = -1, multiple: int = 8, fill: Any = 0
) -> tuple[RudaTensor, RudaTensor]:
    """``x`` padded at the end of ``axis`` to ``bucket_size`` of its length, and that length.

    The length is a 0-d int64 tensor beside ``x``: what a compiled step masks the padding by,
    without another signature for it. Whatever lengths come, a step is traced eight times at most.

    >>> padded, length = ruda.bucket(ruda.ones((2, 5)), 64)
    >>> padded.shape, length.item()
    ((2, 8), 5)
    """
    if not x.ndim:
        raise ShapeError("bucket", "a tensor without axes has no length", x.shape)
    place = normalize_axis(axis, x.ndim, "bucket")
    length = x.shape[place]
    more = bucket_size(length, most, multiple=multiple) - length
    widths = [(0, more if i == place else 0) for i in range(x.ndim)]
    padded = pad(x, widths, value=fill) if more else x
    return padded, asarray(length, dtype=int64, device=x.device)
