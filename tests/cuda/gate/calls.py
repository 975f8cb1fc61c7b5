"""Operators that take kernels beyond those of the table's samples: sizes, dtypes, several streams.

Tensors have no memory and no values here, so the sizes are those of real work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import ruda
from ruda import linalg, optim, random
from ruda.nn import functional
from ruda.ops import index
from ruda.ops.joint_norm import joint_finite
from ruda.tensor.batches import overwrite_each
from ruda.tensor.dispatch import OPS

FLOATS = ("float32", "bfloat16", "float64")
Call = Callable[[], Any]


def empty(*shape: int, dtype: str = "float32") -> ruda.Tensor:
    """A tensor on the GPU that is not there."""
    return ruda.empty(shape, dtype=dtype, device="cuda:0")


def every() -> Iterator[Call]:
    """All calls."""
    yield from reductions()
    yield from orders()
    yield from indices()
    yield from rows()
    yield from attentions()
    yield from draws()
    yield from windows()
    yield from products()
    yield from moves()
    yield from updates()
    yield from steps()


def reductions() -> Iterator[Call]:
    """Long and short runs, one output and many, odd lengths, columns wide and odd."""
    shapes = (
        ((1 << 24,), (0,)),
        ((1 << 20, 32), (1,)),
        ((1 << 16, 33), (1,)),
        ((1 << 16, 64, 32), (0, 2)),
        ((1 << 14, 1 << 14), (0,)),
        ((1 << 14, 1001), (0,)),
    )
    functions = (ruda.sum, ruda.prod, ruda.max, ruda.var, ruda.logsumexp, linalg.vector_norm)
    for shape, axes in shapes:
        for dtype in FLOATS:
            for function in functions:
                yield partial(function, empty(*shape, dtype=dtype), axis=axes)
        if len(axes) == 1:
            for dtype in ("float32", "int8"):
                yield partial(ruda.argmax, empty(*shape, dtype=dtype), axis=axes[0])
        yield partial(ruda.any, empty(*shape, dtype="bool"), axis=axes)
        yield partial(ruda.var, empty(*shape, dtype="complex64"), axis=axes)
        yield partial(ruda.sum, empty(*shape, dtype="int8"), axis=axes)


def orders() -> Iterator[Call]:
    """Scans and orders of lines of each length, along rows and columns."""
    for dtype in (*FLOATS, "int64", "bool"):
        for shape in ((1000, 7), (1000, 60), (1000, 9000), (1 << 24,)):
            x, last = empty(*shape, dtype=dtype), len(shape) - 1
            yield partial(ruda.cumsum, x, axis=last, reverse=True)
            yield partial(ruda.cummax, x, axis=0)
            yield partial(ruda.sort, x, axis=last, descending=True)
            yield partial(ruda.argsort, x, axis=last)
            yield partial(ruda.topk, x, 5, axis=last)
            if dtype in FLOATS:
                yield partial(ruda.cumlogsumexp, x, axis=last)
                yield partial(OPS["linear_recurrence"].call, x, x, last, False, False)
    for size in (1 << 27, 50_000_000):
        yield partial(ruda.cumsum, empty(size))
        yield partial(ruda.argsort, empty(size))
    for k in (64, 200):
        yield partial(ruda.topk, empty(64, 131_072), k)
    yield partial(ruda.searchsorted, empty(1000, dtype="bfloat16"), empty(300, dtype="float64"))
    for dtype in ("complex64", "float16", "int64"):
        yield partial(ruda.unique_all, empty(9000, dtype=dtype))
        yield partial(ruda.nonzero, empty(300, 40, dtype=dtype))
        yield partial(ruda.nonzero, empty(9000, dtype=dtype), size=20)
        if dtype != "complex64":
            yield partial(ruda.unique, empty(9000, dtype=dtype), size=20)
    for weights in ("int16", "float16", "float32", "float64"):
        x = empty(1 << 20, dtype="int32")
        yield partial(ruda.bincount, x, weights=empty(1 << 20, dtype=weights), length=100)


def indices() -> Iterator[Call]:
    """Reads and writes at places, by the size of elements, the kind of index and the views."""
    for dtype in ("float32", "bfloat16", "float64", "complex128", "int8"):
        x, cube = empty(300, 16, dtype=dtype), empty(5, 300, 2, 8, dtype=dtype)
        for count, kind in ((9, "int64"), (5000, "int32"), (9000, "uint8")):
            yield partial(_read, x, cube, empty(count, dtype=kind))
            yield partial(
                _written, x, cube, empty(count, dtype=kind), empty(count, 16, dtype=dtype)
            )


def _read(x: Any, cube: Any, i: Any) -> None:
    for part in (x, x[::2, ::2], cube):
        ruda.take(part, i, axis=0)
        part[i, i]
    ruda.take_along_axis(x.T, ruda.broadcast_to(i[:, None], (i.size, 16)).T, axis=1)
    if x.dtype.is_inexact:
        functional.embedding(i, x)


def _written(x: Any, cube: Any, i: Any, v: Any) -> None:
    wide = ruda.broadcast_to(i[:, None], (i.size, 16))
    ruda.index_put(x, i, v)
    ruda.index_put(x, (i, i), 1)
    ruda.index_add(x, i, 1)
    ruda.index_add(x, i, v)
    ruda.index_add(cube, i, 1, axis=1)
    for mode in ("set", "add", "mul", *(["min", "max"] if x.dtype.kind != "complex" else [])):
        ruda.scatter(x, wide, v, axis=0, mode=mode)
    index.index_adjoint(v, i, (300, 16), (0,))
    index.take_along_adjoint(v, wide, (300, 16), (0,))
    if x.dtype.is_inexact:
        OPS["embedding_backward"].call(v, i, 300, 3)


def rows() -> Iterator[Call]:
    """Rows of each way to share them out, forward and backward."""
    both = ("float32", "bfloat16")
    for n, dtypes in (
        (128, FLOATS),
        (4096, FLOATS),
        (8192, both[:1]),
        (20000, both),
        (65536, both),
        (131072, both[1:]),
        # Rows that begin anywhere: kept by a warp, a block, a cluster.
        (1001, both),
        (8191, both[1:]),
        (50257, both),
        (100001, both[1:]),
    ):
        for dtype in dtypes:
            yield partial(_row_functions, n, dtype)
    for classes in (32000, 128256, 152064):
        for dtype in both:
            yield partial(_last_map, classes, dtype)
    for dtype in FLOATS:
        for interleaved in (False, True):
            yield partial(_turned, dtype, interleaved)
    for layout, shape in (("nchw", (32, 64, 56, 56)), ("nhwc", (32, 56, 56, 64))):
        for dtype in ("float32", "bfloat16"):
            yield partial(_channels, layout, shape, dtype)


def _row_functions(n: int, dtype: str) -> None:
    x = empty(4096, n, dtype=dtype).requires_grad_()
    wide = "float64" if dtype == "float64" else "float32"
    weight, bias = (empty(n, dtype=wide).requires_grad_() for _ in range(2))
    target, classes = empty(4096, dtype="int64"), empty(n, dtype=dtype)
    outs = [
        functional.softmax(x, axis=1),
        functional.log_softmax(x, axis=1),
        functional.layer_norm(x, weight, bias),
        functional.rms_norm(x, weight),
        functional.cross_entropy(x, target),
        functional.cross_entropy(x, target, weight=classes, label_smoothing=0.1),
        functional.dropout(x, 0.5),
    ]
    for out in outs:
        out.sum().backward()
    joint, dy = OPS["cross_entropy_joint"].call, empty(4096, dtype=wide)
    for given, smoothing in ((None, 0.0), (None, 0.1), (classes, 0.0), (classes, 0.1)):
        joint(dy, x, target, given, 1, -100, smoothing, 0.0)
        if given is None:
            joint(None, x, target, None, 1, -100, smoothing, 0.0)
    with ruda.no_grad():
        functional.cross_entropy(x, target)


def _last_map(classes: int, dtype: str) -> None:
    x = empty(8192, 2048, dtype=dtype).requires_grad_()
    weight = empty(classes, 2048, dtype=dtype).requires_grad_()
    target = empty(8192, dtype="int64")
    for rounds in (False, True):
        with ruda.precision(half_reduction=rounds):
            loss = functional.linear_cross_entropy(x, weight, target, label_smoothing=0.1)
            (functional.linear_cross_entropy(x, weight, target) + loss).backward()


def attentions() -> Iterator[Call]:
    """Heads that fit into a block, of each class of lengths and depths, and longer ones."""
    for dtype in ("float32", "float16", "bfloat16"):
        for length, depth in ((30, 32), (60, 64), (100, 64), (100, 128), (300, 64), (300, 128)):
            yield partial(_attended, length, depth, dtype)


def _attended(length: int, depth: int, dtype: str) -> None:
    x = empty(2, 4, length, depth, dtype=dtype).requires_grad_()
    out = functional.attention(x, x, x, is_causal=True, strategy="flash_unit")
    out.sum().backward()


def _turned(dtype: str, interleaved: bool) -> None:
    x = empty(2, 128, 8, 64, dtype=dtype).requires_grad_()
    for shape in ((128, 1, 32), (2, 128, 1, 32), (32,)):
        for kind in {dtype, "float32"}:
            angles = empty(*shape, dtype=kind)
            functional.apply_rotary(x, angles, angles, interleaved).sum().backward()


def _channels(layout: str, shape: tuple[int, ...], dtype: str) -> None:
    x = empty(*shape, dtype=dtype).requires_grad_()
    weight, bias = (empty(64).requires_grad_() for _ in range(2))
    mean, var = empty(64), empty(64)
    for axis in (1,) if layout == "nchw" else (-1,):
        moved = x if axis == 1 else ruda.moveaxis(x, -1, 1)
        out = functional.batch_norm(moved, mean, var, weight, bias, training=True)
        out.sum().backward()


def draws() -> Iterator[Call]:
    """Random numbers of each kind, parameters by value and in memory."""
    shape, where = (1000, 41), "cuda:0"
    for dtype in FLOATS:
        real = {"dtype": dtype, "device": where}
        for function in (random.uniform, random.normal, random.exponential):
            yield partial(function, shape, **real)
        for low, high in ((-2.0, 2.0), (3.0, 9.0), (-0.1, 0.1)):
            yield partial(random.truncated_normal, shape, low=low, high=high, **real)
        yield partial(random.gamma, shape, concentration=2.0, **real)
        if dtype != "bfloat16":
            p = empty(*shape, dtype=dtype)
            yield partial(random.gamma, concentration=p)
            yield partial(random.bernoulli, p)
            yield partial(random.categorical, p)
            yield partial(random.categorical, p, 5)
            yield partial(random.categorical, p, 5, replacement=False)
    for dtype in ("int8", "int32", "int64"):
        for high in (100, 1 << 40 if dtype == "int64" else 100):
            yield partial(random.integers, 0, high, shape=shape, dtype=dtype, device=where)
    yield partial(random.bernoulli, 0.3, shape=shape, device=where)
    yield partial(random.permutation, 1 << 16, device=where)


def windows() -> Iterator[Call]:
    """Convolutions and pools of the sizes of real layers, in both layouts."""
    for dtype in FLOATS:
        x, w = empty(8, 64, 56, 56, dtype=dtype), empty(64, 64, 3, 3, dtype=dtype)
        yield partial(functional.conv2d, x, w, padding=1, strategy="implicit_gemm")
        yield partial(functional.conv2d, x, empty(64, 1, 3, 3, dtype=dtype), groups=64)
        yield partial(functional.max_pool2d, x, 3, stride=2)
        yield partial(functional.avg_pool2d, x, 3, stride=2)
        yield partial(functional.interpolate, x, size=(112, 112), mode="bilinear")
        yield partial(functional.interpolate, x, size=(28, 28), mode="bicubic")
        for mode in ("nearest", "bilinear", "bicubic"):
            grid = empty(8, 20, 20, 2, dtype=dtype)
            yield partial(functional.grid_sample, x, grid, mode=mode, align_corners=False)


def products() -> Iterator[Call]:
    """Thin products, integer products, batches of small matrices."""
    for dtype in ("float32", "bfloat16", "float16"):
        for thin in (1, 2, 4, 8, 16):
            for depth, wide in ((4096, 4096), (4096, 14336), (1024, 65536)):
                x, y = empty(thin, depth, dtype=dtype), empty(depth, wide, dtype=dtype)
                yield partial(ruda.matmul, x, y)
                yield partial(ruda.matmul, x, empty(wide, depth, dtype=dtype).T)
                yield partial(ruda.matmul, y.T, empty(depth, thin, dtype=dtype))
                yield partial(ruda.matmul, x, y, out_dtype="float32")
    # Small ones of float32: few and many tiles, clusters, steps that are no multiple of 16 bytes.
    for m, n, k in (
        (2048, 384, 128),
        (2048, 512, 128),
        (128, 256, 784),
        (128, 128, 2048),
        (128, 10, 255),
    ):
        x, y = empty(m, k), empty(k, n)
        yield partial(ruda.matmul, x, y)
        yield partial(ruda.matmul, x, empty(n, k).T)
        yield partial(ruda.matmul, empty(k, m).T, y)
        yield partial(functional.linear, x, empty(n, k), empty(n))
        yield partial(OPS["linear_weight_backward"].call, empty(k, m), empty(k, n))
    for dtype in ("int8", "int32", "int64", "uint8"):
        yield partial(ruda.matmul, empty(100, 70, dtype=dtype), empty(70, 33, dtype=dtype))
    for dtype in ("float32", "float64", "complex64", "complex128"):
        for n in (1, 2, 3, 5):
            yield partial(_matrices, empty(7, n, n, dtype=dtype))


def _matrices(x: ruda.Tensor) -> None:
    linalg.det(x.requires_grad_()).sum().backward()
    linalg.inv(x)
    linalg.eigh(x)


def moves() -> Iterator[Call]:
    """Copies by packs and through tiles, joins, fills, the casts of small floats."""
    for dtype in ("int8", "bfloat16", "float32", "complex128"):
        for shape, axes in (
            ((100, 200), (1, 0)),
            ((9, 20, 30), (0, 2, 1)),
            ((5, 7, 64), (1, 0, 2)),
        ):
            yield lambda d=dtype, s=shape, a=axes: ruda.permute_dims(empty(*s, dtype=d), a).copy()
        x = empty(64, 40, dtype=dtype)
        yield partial(ruda.concat, [x, x[:, ::2]], axis=1)
        yield partial(ruda.pad, x, 3)
        yield partial(ruda.tril, x)
        yield partial(ruda.triu, x.T[:, ::2])
    for dtype in FLOATS:
        x = ruda.permute_dims(empty(5, 6, 7, 8, dtype=dtype), (3, 1, 0, 2))
        y = ruda.permute_dims(empty(7, 5, 6, 8, dtype=dtype), (3, 2, 1, 0))
        for function in (ruda.add, ruda.pow, ruda.where, ruda.hypot):
            condition = (x > y,) if function is ruda.where else ()
            yield partial(function, *condition, x, y)
            yield partial(function, *condition, x, y[:, :1, :, :1])
    small = ("float8_e4m3", "float8_e5m2", "float4_e2m1", "float32", "bfloat16")
    for given in small:
        for wanted in small:
            if given != wanted:
                yield partial(_cast, given, wanted)


def _cast(given: str, wanted: str) -> None:
    empty(64, 64, dtype=given).astype(wanted)


def updates() -> Iterator[Call]:
    """Every optimizer, one launch for a group, with and without scales and masters."""
    kinds = ("SGD", "Adam", "AdamW", "Adan", "Lion", "RMSprop", "Adagrad", "Adadelta", "NAdam")
    for kind in (*kinds, "RAdam"):
        for dtype in ("float32", "bfloat16"):
            yield partial(_steps, getattr(optim, kind), dtype)
    for dtype in FLOATS:
        yield partial(_averages, dtype)


def _steps(make: Any, dtype: str) -> None:
    leaves = [empty(*s, dtype=dtype).requires_grad_() for s in ((64, 40), (40,), (1000, 300))]
    for leaf in leaves:
        leaf.grad = empty(*leaf.shape, dtype=dtype)
    optimizer = make(leaves, lr=1e-3)
    optim.clip_grad_norm_(leaves, 1.0)
    optim.clip_grad_value_(leaves, 1.0)
    optimizer.step()


@ruda.no_grad()
def _averages(dtype: str) -> None:
    wide = "float64" if dtype == "float64" else "float32"
    leaves = [empty(*s, dtype=dtype) for s in ((64, 40), (40,))]
    averages = [empty(*leaf.shape, dtype=wide) for leaf in leaves]
    overwrite_each(OPS["lerp"], averages, (averages, leaves, empty(dtype=wide)))
    overwrite_each(OPS["multiply"], leaves, (leaves, empty(dtype=dtype)))
    joint_finite(leaves)


def steps() -> Iterator[Call]:
    """Regions of compiled steps."""
    for dtype in FLOATS:
        for shape in ((1000,), (7, 1030), (256, 4096)):
            yield partial(_compiled, empty(*shape, dtype=dtype))
        for shape in ((7, 1030), (256, 4096)):
            yield partial(_reading, empty(*shape, dtype=dtype))


def _compiled(x: ruda.Tensor) -> None:
    def smooth(x: Any) -> Any:
        return x * (1 + ruda.tanh(0.8 * (x + 0.04 * x * x * x))) * 0.5

    def normal(x: Any) -> Any:
        shifted = smooth(x) - ruda.mean(x, axis=-1, keepdims=True)
        return ruda.exp(shifted) / ruda.sqrt(ruda.sum(shifted * shifted, axis=-1, keepdims=True))

    for function in (smooth, normal):
        step = ruda.compile(function)
        step(x)
        step(x)


def _reading(x: ruda.Tensor) -> None:
    """What reads at places of its own, or draws, inside of other kernels."""
    places = ruda.arange(x.shape[0], device="cuda")
    low, column = places.astype("int32"), places[:, None]
    functions: list[Any] = [
        lambda x: functional.relu(ruda.concat([x, x[:, :8]], axis=1)) * 2,
        lambda x: ruda.roll(x, 3, axis=0) - x,
        lambda x: ruda.pad(x, ((1, 1), (8, 8))) * 2 + 1,
        lambda x: x[places] + x,
        lambda x: ruda.take_along_axis(x, column, axis=1) * x,
        lambda x: functional.softmax(functional.embedding(low, x) * 2, axis=-1),
        lambda x: functional.layer_norm(x[places] * 2),
        lambda x: functional.dropout(ruda.exp(x), 0.1) + x,
        lambda x: x * random.uniform(x.shape, dtype=x.dtype, device="cuda") + 1,
    ]
    for function in functions:
        step = ruda.compile(function)
        step(x)
        step(x)
