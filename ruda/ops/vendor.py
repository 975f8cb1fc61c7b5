"""Draws of a vendor's generator: what its library fills, in the form of ruda's own draws.

The device's client fills tensors of words, of numbers in (0, 1] and of standard normal numbers;
what is made of them are ordinary operators.
"""

from __future__ import annotations

import math
from typing import Any

from ruda.core.devices import Device
from ruda.core.devices import client as client_of
from ruda.core.dtypes import DType, compute_of, int64, uint64
from ruda.core.errors import ArgumentError, StrategyError
from ruda.core.shapes import Shape
from ruda.core.spec import spec_of
from ruda.ops.arith import remainder
from ruda.ops.cast import astype
from ruda.ops.generator import Generator
from ruda.ops.movement import reshape
from ruda.ops.reference import random as continuous
from ruda.ops.select import clip
from ruda.tensor.host import check_untraced
from ruda.tensor.tensor import RudaTensor, wrap

# Words of 64 bits modulo a span of 32 are even to 2**-32.
_LARGEST_SPAN = 1 << 32


def _filled(op: str, source: Generator, device: Device, kind: str, n: int, dtype: DType) -> Any:
    """``n`` numbers of a kind, on a device that has a vendor's library."""
    check_untraced(op, "a vendor's generator draws")
    client = client_of(device)
    fill = getattr(client, "fill_by_vendor", None)
    if fill is None:
        expected, hint = "a CUDA device with cuRAND", 'engine="philox"'
        what = "no generator of a vendor's library is there"
        raise StrategyError(op, what, client.device, expected, hint)
    spec = spec_of(client, (n,), dtype)
    return wrap(spec, fill(op, kind, spec, source.seed, source.advance()))


def uniform(
    source: Generator, device: Device, shape: Shape, dtype: DType, low: float, high: float
) -> RudaTensor:
    """Uniform on [low, high)."""
    real = compute_of(dtype)
    u = _filled("uniform", source, device, "uniform", math.prod(shape), real)
    least, greatest = continuous.inside("uniform", low, high, dtype.numpy, closed=False)
    # The library includes 1 and leaves 0 out.
    x = clip((1 - u) * (high - low) + low, float(least), float(greatest))
    return astype(reshape(x, shape), dtype, copy=False)


def normal(
    source: Generator, device: Device, shape: Shape, dtype: DType, mean: float, std: float
) -> RudaTensor:
    """Normal with a mean and a standard deviation."""
    n = math.prod(shape)
    # The library makes them in pairs.
    z = _filled("normal", source, device, "normal", n + n % 2, compute_of(dtype))[:n]
    return astype(reshape(z * std + mean, shape), dtype, copy=False)


def integers(
    source: Generator, device: Device, shape: Shape, dtype: DType, low: int, high: int
) -> RudaTensor:
    """Integers in [low, high); raises ``ArgumentError`` for more than 2**32 different ones."""
    if high - low > _LARGEST_SPAN:
        expected, hint = "at most 2**32 different integers", 'engine="philox"'
        what = "the range is too wide for a vendor's generator"
        raise ArgumentError("integers", what, f"low={low}, high={high}", expected, hint)
    words = _filled("integers", source, device, "words", math.prod(shape), uint64)
    found = remainder(words, high - low)
    x = found + low if dtype is uint64 else astype(found, int64) + low
    return astype(reshape(x, shape), dtype, copy=False)
