"""Random programs over the operators, for a step that has to give what eager code gives.

A program is a list of numbers. Each of them chooses one operator and its operands among what is
there so far, so that the same numbers are the same operators wherever the program runs. What an
operator refuses is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import ruda
import ruda.nn.functional as F


def words(text: str) -> tuple[str, ...]:
    """What stands between spaces."""
    return tuple(text.split())


FLOATS = ("float32", "float16", "bfloat16", "float64")
DTYPES = (*FLOATS, "int32", "int64", "int8", "uint8", "bool")
SMOOTH = words(
    "exp tanh sigmoid relu negative square erf sin cos silu gelu softplus mish elu selu leaky_relu "
    "hardswish atan asinh softsign"
)
UNARY = words(
    "abs log sqrt rsqrt reciprocal floor ceil round trunc sign expm1 log1p isnan isinf isfinite "
    "hardtanh log_sigmoid signbit exp2 log2 relu6 positive"
)
PLAIN = ("add", "subtract", "multiply", "maximum", "minimum")
BINARY = words(
    "divide atan2 hypot logaddexp remainder floor_divide less greater_equal equal not_equal "
    "copysign bitwise_and bitwise_or bitwise_xor"
)
SUMS = ("sum", "mean", "max", "min", "logsumexp")
REDUCTIONS = ("prod", "any", "all", "argmax", "argmin", "var", "std")
ODD = (np.nan, np.inf, -np.inf, -0.0, 0.0, 300.0, 7e4, 1e-7)
# Larger results are dropped, so that programs stay quick.
_LARGEST = 6000


class Draw:
    """Choices that follow from one number."""

    def __init__(self, *seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def of(self, choices: Any) -> Any:
        """One of ``choices``."""
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, share: float) -> bool:
        """Yes, in ``share`` of all cases."""
        return bool(self.rng.random() < share)

    def below(self, n: int, start: int = 0) -> int:
        """An integer from ``start`` to ``n`` without it."""
        return int(self.rng.integers(start, max(n, start + 1)))

    def indices(self, n: int, *shape: int) -> Any:
        """Indices of an axis of ``n``."""
        return self.rng.integers(0, n, shape)


class Program:
    """The program of a seed: ``inputs`` makes its arguments, calling it runs it.

    With ``grads`` all floats are leaves, and their gradients are results as well. A ``steady`` one
    is of float32 and of operators in which a rounding stays small, for comparing two devices.
    """

    def __init__(
        self, seed: int, *, grads: bool = False, wide: bool = False, steady: bool = False
    ) -> None:
        draw = Draw(seed)
        self.seed, self.grads = seed, grads
        self.makers = STEADY if steady else SMOOTHLY if grads else ALL
        self.sizes = [draw.of((1, 2, 3, 4, 5, 7)) for _ in range(3)]
        if wide:
            self.sizes[-1] = draw.of((33, 64, 130, 257, 512))
        if steady and seed % 2:
            # Which axis is which cannot be told by its length.
            self.sizes = [draw.of((4, 5, 33))] * 3
        main = draw.of(FLOATS) if draw.chance(0.5) else "float32"
        others = FLOATS if grads else DTYPES
        self.specs = [
            (self._shape(draw), main if draw.chance(0.6) else draw.of(others))
            for _ in range(draw.below(4, 2))
        ]
        if steady:
            self.specs = [(shape, "float32") for shape, _ in self.specs]
        self.tokens = [draw.below(1 << 30) for _ in range(draw.below(12, 2))]

    def _shape(self, draw: Draw) -> tuple[int, ...]:
        shape = [1 if draw.chance(0.15) else n for n in self.sizes[draw.below(4) :]]
        if shape and draw.chance(0.03):
            shape[0] = 0
        return tuple(shape)

    def inputs(self, call: int, device: str) -> list[ruda.Tensor]:
        """The arguments of one call: other values, in the same layouts."""
        return [
            argument(Draw(self.seed, i), Draw(self.seed, i, call), shape, dtype, device)
            for i, (shape, dtype) in enumerate(self.specs)
        ]

    def __call__(self, *given: Any) -> Any:
        pool = list(given)
        if self.grads:
            pool = [x.detach().requires_grad_() for x in pool]
        leaves = list(pool)
        for token in self.tokens:
            draw = Draw(token)
            x = draw.of(pool[-6:] if draw.chance(0.8) else pool)
            made = _tried(draw.of(self.makers), draw, x, pool)
            if made is not None and made.size <= _LARGEST and made.ndim <= 4:
                pool.append(made)
        draw = Draw(self.seed, 17)
        kept = [x for x in pool if draw.chance(0.35)] + pool[-2:]
        return self._graded(kept, pool[len(given) :], leaves) if self.grads else kept

    @staticmethod
    def _graded(kept: list[Any], made: list[Any], leaves: list[Any]) -> Any:
        ends = [ruda.astype(x, "float32").sum() for x in made[-4:] if x.requires_grad]
        if not ends:
            return kept
        total = sum(ends[1:], start=ends[0])
        total.backward()
        return [x.detach() for x in kept], [leaf.grad for leaf in leaves], total.detach()


def _tried(make: Callable[..., Any], draw: Draw, x: Any, pool: list[Any]) -> Any:
    try:
        found = make(draw, x, pool)
    except ruda.CaptureError:
        raise
    except ruda.RudaError:
        return None
    return found[0] if isinstance(found, tuple) else found


def argument(how: Draw, draw: Draw, shape: tuple[int, ...], dtype: str, device: str) -> Any:
    """A tensor in a layout that ``how`` chooses, with values of ``draw``."""
    layout, odd = how.of(("dense", "dense", "turned", "reversed", "one", "every")), how.chance(0.1)
    values = np.asarray(draw.rng.standard_normal(shape) * draw.of((1.0, 1.0, 4.0)))
    if odd and values.size:
        places = draw.indices(values.size, len(ODD))
        values.reshape(-1)[places] = ODD
    if dtype in ("int32", "int64", "int8", "uint8"):
        values = np.nan_to_num(values * 9, posinf=100, neginf=-100).clip(-100, 100)
        values = (abs(values) if dtype == "uint8" else values).astype(dtype)

    def on(array: Any) -> Any:
        return ruda.asarray(np.ascontiguousarray(array).reshape(array.shape), device=device)

    def cast(x: Any) -> Any:
        return ruda.astype(x, dtype)

    if not values.size or not shape or layout == "dense":
        return cast(on(values))
    if layout == "turned" and len(shape) > 1:
        return ruda.swapaxes(cast(on(values.swapaxes(-1, -2))), -1, -2)
    if layout == "reversed":
        return cast(on(values[..., ::-1]))[..., ::-1]
    if layout == "one":
        return ruda.broadcast_to(cast(on(values[..., :1])), shape)
    return cast(on(np.repeat(values, 2, axis=-1)))[..., ::2]


def _smooth(draw: Draw, x: Any, pool: list[Any]) -> Any:
    name = draw.of(SMOOTH)
    return (getattr(ruda, name, None) or getattr(F, name))(x)


def _unary(draw: Draw, x: Any, pool: list[Any]) -> Any:
    name = draw.of(UNARY)
    return (getattr(ruda, name, None) or getattr(F, name))(x)


def _plain(draw: Draw, x: Any, pool: list[Any]) -> Any:
    return getattr(ruda, draw.of(PLAIN))(x, draw.of(pool))


def _binary(draw: Draw, x: Any, pool: list[Any]) -> Any:
    return getattr(ruda, draw.of(BINARY))(x, draw.of(pool))


def _number(draw: Draw, x: Any, pool: list[Any]) -> Any:
    number = draw.of((0, 1, 2, -1, 0.5, 3.0, -2.5, 1e-3, 100, 0.0))
    pair = (number, x) if draw.chance(0.3) else (x, number)
    return getattr(ruda, draw.of(PLAIN))(*pair)


def _axis(draw: Draw, x: Any) -> Any:
    if not x.ndim or draw.chance(0.2):
        return None
    axes = {draw.below(x.ndim) for _ in range(2 if draw.chance(0.25) else 1)}
    return tuple(sorted(axes)) if len(axes) > 1 else axes.pop()


def _sum(draw: Draw, x: Any, pool: list[Any]) -> Any:
    return getattr(ruda, draw.of(SUMS))(x, axis=_axis(draw, x), keepdims=draw.chance(0.5))


def _reduction(draw: Draw, x: Any, pool: list[Any]) -> Any:
    axis = draw.below(x.ndim) if x.ndim else None
    return getattr(ruda, draw.of(REDUCTIONS))(x, axis=axis, keepdims=draw.chance(0.5))


def _row(draw: Draw, x: Any, pool: list[Any]) -> Any:
    name = draw.of(("softmax", "log_softmax", "layer_norm", "rms_norm", "normalize", "loss"))
    if name in ("softmax", "log_softmax"):
        return getattr(F, name)(x, axis=-1 if draw.chance(0.7) else draw.below(x.ndim))
    if name != "loss":
        return getattr(F, name)(x)
    rows = x.reshape((-1, x.shape[-1])) if x.ndim > 1 else x.reshape((1, -1))
    labels = ruda.asarray(draw.indices(max(rows.shape[1], 1), rows.shape[0]), device=x.device)
    how = draw.of(("none", "mean", "sum"))
    return F.cross_entropy(rows, labels, reduction=how, label_smoothing=draw.of((0.0, 0.1)))


def _view(draw: Draw, x: Any, pool: list[Any]) -> Any:
    name = draw.of(("turned", "part", "reversed", "flat", "more", "every", "order", "diagonal"))
    if name == "flat":
        return x.reshape((-1,) if draw.chance(0.5) else (1, *x.shape))
    if name == "more":
        return ruda.broadcast_to(x, (2, *x.shape))
    if name == "order":
        return ruda.permute_dims(x, tuple(range(x.ndim))[::-1])
    if x.ndim > 1 and name in ("turned", "diagonal"):
        return ruda.swapaxes(x, -1, -2) if name == "turned" else ruda.diagonal(x)
    if not x.ndim or not x.shape[-1]:
        return x
    return {"part": x[..., 1:], "reversed": x[::-1]}.get(name, x[..., ::2])


def _joined(draw: Draw, x: Any, pool: list[Any]) -> Any:
    name = draw.of(("concat", "stack", "pad", "roll", "tile", "tril", "repeat"))
    like = draw.of([y for y in pool if y.shape == x.shape])
    axis = draw.below(x.ndim)
    if name in ("concat", "stack"):
        return getattr(ruda, name)([x, like, x], axis=axis)
    if name == "pad":
        return ruda.pad(x, [(draw.below(3), draw.below(3)) for _ in x.shape])
    if name == "tril":
        return ruda.tril(x, k=draw.below(3, -2))
    if name == "tile":
        return ruda.tile(x, (2,))
    count = draw.below(9, -8) if name == "roll" else 2
    return getattr(ruda, name)(x, count, axis=axis)


def _indexed(draw: Draw, x: Any, pool: list[Any]) -> Any:
    if not x.ndim or not x.size:
        return x
    axis = draw.below(x.ndim)
    n, device = x.shape[axis], x.device
    places = ruda.asarray(draw.indices(n, draw.below(5, 1)), device=device)
    name = draw.of(("take", "along", "rows", "add"))
    if name == "rows":
        return x[ruda.asarray(draw.indices(x.shape[0], 3), device=device)]
    if name == "take":
        return ruda.take(x, places, axis=axis)
    if name == "add":
        return ruda.index_add(x, places, ruda.take(x, places, axis=axis), axis=axis)
    shape = [2 if i == axis else size for i, size in enumerate(x.shape)]
    return ruda.take_along_axis(x, ruda.asarray(draw.indices(n, *shape), device=device), axis=axis)


def _product(draw: Draw, x: Any, pool: list[Any]) -> Any:
    rows = x if x.ndim > 1 else x.reshape((1, -1))
    if draw.chance(0.5):
        return ruda.matmul(rows, ruda.swapaxes(rows, -1, -2))
    return F.linear(rows, rows.reshape((-1, rows.shape[-1]))[:2])


def _cast(draw: Draw, x: Any, pool: list[Any]) -> Any:
    return ruda.astype(x, draw.of(FLOATS))


def _whole(draw: Draw, x: Any, pool: list[Any]) -> Any:
    return ruda.astype(x, draw.of(DTYPES)) if not x.dtype.name.startswith(("f", "b")) else x


def _choice(draw: Draw, x: Any, pool: list[Any]) -> Any:
    return ruda.where(draw.of(pool) > 0, x, draw.of(pool))


def _scan(draw: Draw, x: Any, pool: list[Any]) -> Any:
    return getattr(ruda, draw.of(("cumsum", "sort")))(x, axis=draw.below(x.ndim))


SMOOTHLY = (_smooth, _smooth, _smooth, _plain, _plain, _plain, _number, _sum, _row, _view, _view)
SMOOTHLY = (*SMOOTHLY, _joined, _indexed, _product, _cast, _choice, _scan)
ALL = (*SMOOTHLY, _unary, _unary, _binary, _binary, _binary, _reduction, _whole)


def _tame(draw: Draw, x: Any, pool: list[Any]) -> Any:
    name = draw.of(("negative", "relu", "tanh", "exp"))
    return ruda.exp(ruda.clip(x, -3, 3)) if name == "exp" else getattr(ruda, name)(x)


STEADY = (_tame, _plain, _plain, _plain, _plain, _number, _sum, _sum, _sum, _row, _view, _view)
STEADY = (*STEADY, _indexed, _joined, _choice)
