"""Reading a part of a tensor without touching the rest, on whatever device it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ruda.core.spec import Spec
from ruda.tensor.tensor import Metadata, RudaTensor


def window(
    tensor: Any, starts: Sequence[int], counts: Sequence[int], steps: Sequence[int]
) -> RudaTensor:
    """A view of the elements ``start + step * k``, k < count, of each axis, without history."""
    spec = tensor.spec
    offset = sum(start * stride for start, stride in zip(starts, spec.strides, strict=True))
    strides = tuple(step * stride for step, stride in zip(steps, spec.strides, strict=True))
    geometry = Metadata(tuple(counts), strides, offset)
    return RudaTensor(spec.client, tensor.handle, geometry, spec.dtype)


def stored_shape(spec: Spec) -> tuple[int, ...]:
    """The shape with repeated axes (stride 0) of length 1."""
    return tuple(
        1 if stride == 0 and length > 1 else length
        for length, stride in zip(spec.shape, spec.strides, strict=True)
    )


def without_repeats(tensor: Any) -> Any:
    """``tensor`` with one element of each axis that repeats a single one."""
    shape = stored_shape(tensor.spec)
    if shape == tensor.spec.shape:
        return tensor
    return window(tensor, (0,) * len(shape), shape, (1,) * len(shape))


def thinned(tensor: Any, limit: int) -> Any:
    """An evenly spaced part of ``tensor`` with at most ``limit`` elements."""
    shape = tensor.spec.shape
    if tensor.spec.size <= limit:
        return tensor
    steps = [1] * len(shape)
    counts = list(shape)
    while math.prod(counts) > limit:
        axis = counts.index(max(counts))
        # Odd, since what repeats in tensors mostly does so with a power of two.
        steps[axis] = 2 * steps[axis] + 1
        counts[axis] = -(-shape[axis] // steps[axis])
    starts = [
        (length - 1 - (count - 1) * step) // 2
        for length, count, step in zip(shape, counts, steps, strict=True)
    ]
    return window(tensor, starts, counts, steps)
