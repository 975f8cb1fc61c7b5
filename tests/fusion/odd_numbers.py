"""Random programs on numbers at the edges of their dtypes, for results that are equal to the bit.

As in ``programs.py`` a program is a list of numbers that choose operators. Here all of them are
elementwise, on every dtype, and the values are infinities, NaN, zeros of both signs, denormals,
ties of rounding, the largest and the smallest integers, and zeros to divide by.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import ruda
import ruda.nn.functional as F
from tests.fusion.programs import FLOATS, Draw, words

INTEGERS = words("int8 int16 int32 int64 uint8 uint16 uint32 uint64")
_REALS = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 2.5, -2.5, 3.0, -3.0, 65504.0, 7e4)
_REALS = (*_REALS, 6e-8, 3e38, -3e38, 1e-45, -1e-40, 2.0**24 + 1, 2.0**31, 1 / 3, -7.3, 1.0000001)
_WHOLE = (0, 0, 1, -1, 2, -2, 3, 7, 100, 127, -128, 255, 32767, 65535, 2**31 - 1, -(2**31))
_WHOLE = (*_WHOLE, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1)
_NUMBERS = (0, 1, -1, 3, -2, True, 0.0, -0.0, 0.5, -2.5, 1e-3, 1e10, 70000.0)
_NUMBERS = (*_NUMBERS, float("inf"), float("nan"))
# Those that every device rounds alike.
_UNARY = words(
    "abs sqrt floor ceil round trunc sign isnan isinf isfinite relu negative square signbit relu6 "
    "positive hardtanh bitwise_invert logical_not hardshrink softshrink leaky_relu softsign"
)
_BINARY = words(
    "add subtract multiply divide maximum minimum remainder floor_divide less less_equal greater "
    "greater_equal equal not_equal copysign nextafter bitwise_and bitwise_or bitwise_xor "
    "bitwise_left_shift bitwise_right_shift logical_and logical_or logical_xor"
)
# Those that are only compared with themselves.
_UNEVEN = words("exp log tanh sigmoid expm1 log1p erf silu gelu rsqrt reciprocal atan")


def odd(draw: Draw, shape: tuple[int, ...], dtype: str, device: str) -> ruda.Tensor:
    """A tensor of odd numbers, some ordinary ones among them."""
    size = int(np.prod(shape))
    if dtype == "bool":
        values = draw.rng.integers(0, 2, size).astype(bool)
    elif dtype in INTEGERS:
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        values = np.array([min(max(draw.of(_WHOLE), least), most) for _ in range(size)], dtype)
    else:
        some = [draw.of(_REALS) for _ in range(size)]
        values = np.where(draw.rng.random(size) < 0.6, some, draw.rng.standard_normal(size) * 2)
    return ruda.astype(ruda.asarray(values.reshape(shape), device=device), dtype)


class OddProgram:
    """The program of a seed; an ``even`` one has no operator that devices round differently.

    With ``grads`` it is of floats, and the gradients of its arguments are results as well.
    """

    def __init__(self, seed: int, *, even: bool = False, grads: bool = False) -> None:
        draw = Draw(seed, 99)
        self.seed, self.grads = seed, grads
        dtypes = FLOATS if grads else (*FLOATS, *INTEGERS, "bool")
        main = draw.of(dtypes)
        shapes = ((5, 8), (5, 8), (8,), (5, 1), ())
        self.specs = [(shape, draw.of((main, draw.of(dtypes)))) for shape in shapes]
        self.turned = [draw.below(3) for _ in shapes]
        self.unary = _UNARY if even else (*_UNARY, *_UNEVEN)
        self.tokens = [draw.below(1 << 30) for _ in range(draw.below(24, 4))]

    def inputs(self, call: int, device: str) -> list[ruda.Tensor]:
        """The arguments of one call: other values, in the same layouts."""
        made = []
        for i, ((shape, dtype), turned) in enumerate(zip(self.specs, self.turned, strict=True)):
            draw = Draw(self.seed, i, call)
            if turned and len(shape) == 2:
                x = odd(draw, shape[::-1], dtype, device)
                made.append(ruda.swapaxes(x, 0, 1) if turned == 1 else ruda.swapaxes(x, 0, 1)[::-1])
            else:
                made.append(odd(draw, shape, dtype, device))
        return made

    def __call__(self, *given: Any) -> list[Any]:
        pool = [x.detach().requires_grad_() for x in given] if self.grads else list(given)
        leaves = list(pool)
        for token in self.tokens:
            draw = Draw(token)
            x = draw.of(pool[-5:] if draw.chance(0.7) else pool)
            try:
                pool.append(self._made(draw, x, pool))
            except ruda.CaptureError:
                raise
            except ruda.RudaError:
                continue
        if not self.grads:
            return pool[len(given) :]
        ends = [ruda.astype(x, "float32").sum() for x in pool[-4:] if x.requires_grad]
        if ends:
            sum(ends[1:], start=ends[0]).backward()
        return [x.detach() for x in pool[len(given) :]] + [leaf.grad for leaf in leaves]

    def _made(self, draw: Draw, x: Any, pool: list[Any]) -> Any:
        kind = draw.of(("unary", "unary", "binary", "binary", "number", "where", "clip", "cast"))
        if kind == "unary":
            name = draw.of(self.unary)
            return (getattr(ruda, name, None) or getattr(F, name))(x)
        if kind == "binary":
            return getattr(ruda, draw.of(_BINARY))(x, draw.of(pool))
        if kind == "number":
            pair = x, draw.of(_NUMBERS)
            return getattr(ruda, draw.of(_BINARY))(*(pair if draw.chance(0.6) else pair[::-1]))
        if kind == "where":
            other = draw.of(_NUMBERS) if draw.chance(0.4) else draw.of(pool)
            return ruda.where(draw.of(pool) != 0, x, other)
        if kind == "clip":
            return ruda.clip(x, draw.of((None, -1, 0, 0.5)), draw.of((None, 1, 2.5, 100)))
        return self._cast(draw, x)

    @staticmethod
    def _cast(draw: Draw, x: Any) -> Any:
        dtype = draw.of((*FLOATS, *INTEGERS, "bool"))
        if dtype in INTEGERS and x.dtype.is_inexact:
            # What an integer cannot hold is whatever the device makes of it.
            x = ruda.clip(ruda.where(ruda.isnan(x), 0.0, x), 0 if dtype[0] == "u" else -100, 100)
        return ruda.astype(x, dtype)


def same_numbers(found: Any, expected: Any) -> bool:
    """Whether two tensors are equal to the bit, whichever NaN is where a NaN is."""
    if found is None or expected is None:
        return found is expected
    if found.dtype is not expected.dtype or found.shape != expected.shape:
        return False
    a, b = (t.detach().numpy() for t in (found, expected))
    if not found.dtype.is_inexact:
        return a.tobytes() == b.tobytes()
    gone = np.isnan(a.astype("f8")), np.isnan(b.astype("f8"))
    equal = [
        np.where(nan, np.zeros_like(v), v).tobytes() for v, nan in zip((a, b), gone, strict=True)
    ]
    return np.array_equal(*gone) and equal[0] == equal[1]
