"""Which kernel or library multiplies two matrices of floats that lie ready, and how it does.

cuBLASLt where nvmath-python is installed, else cuBLAS; small products of float32 have kernels of
their own, which were measured against the library or follow a rule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from ruda.backends.cuda.blas import cublas, cublaslt, layout, small, tune
from ruda.backends.cuda.memory import Place
from ruda.core import dtypes
from ruda.core.dtypes import DType
from ruda.core.mode import Precision
from ruda.core.spec import Spec, spec_of

# cublasComputeType_t.
_IN_HALF, IN_FLOAT, _IN_DOUBLE, IN_INT, _IN_TF32 = 64, 68, 70, 72, 77
# The results to which cuBLASLt adds a row by itself.
_WITH_BIAS = ("float16", "bfloat16", "float32")

# Of the addresses of operands, of the result, and of a bias.
Multiply = Callable[..., None]


class Task(NamedTuple):
    """A product to bind: operands, a bias or None, the result, and the dtype to multiply in."""

    client: Any
    op: str
    x: Spec
    y: Spec
    bias: Spec | None
    out: Spec
    wanted: DType
    precision: Precision


def arithmetic(operand: DType, result: DType, allowed: Precision) -> cublaslt.Arithmetic:
    """How a library multiplies ``operand`` to ``result`` within a precision."""
    compute, scale = IN_FLOAT, "float32"
    if operand.kind == "complex":
        scale = operand.name
    if operand.name in ("float64", "complex128"):
        compute, scale = _IN_DOUBLE, operand.name
    if operand is dtypes.float32 and allowed.matmul == "tf32":
        compute = _IN_TF32
    if operand is result is dtypes.float16 and allowed.fp16_accumulate:
        compute, scale = _IN_HALF, "float16"
    rounds = not result.is_half or allowed.half_reduction
    return cublaslt.Arithmetic(operand.name, result.name, compute, scale, rounds)


def small_choice(
    client: Any, how: cublaslt.Arithmetic, shape: layout.Geometry
) -> small.Choice | None:
    """The tile of a small product of float32; None where a library multiplies.

    What was measured before decides, if that is to be looked at, else a rule.
    """
    if not how.operand == how.result == "float32" or how.compute != IN_FLOAT:
        return None
    if not small.fits(client, shape):
        return None
    found = small.candidates(client, shape)
    number = tune.known(client, tuned(client), repr(shape), len(found) + 1)
    return None if number == len(found) else found[number]


def tuned(client: Any) -> str:
    """The name of the file with the times of small products."""
    library = cublaslt.library(client)
    return f"small-{0 if library is None else library.version}"


def small_or_library(task: Task, how: cublaslt.Arithmetic, shape: layout.Geometry) -> Multiply:
    """A kernel of our own for small products of float32, unless a library was measured quicker."""
    client = task.client
    own = small_choice(client, how, shape)
    if tune.mode() == "on" and how.operand == "float32" and small.fits(client, shape):
        return _measured(task, how, shape)
    if own is None:
        return by_library(task, how, shape)
    return small.product(client, shape, own)


def _measured(task: Task, how: cublaslt.Arithmetic, shape: layout.Geometry) -> Multiply:
    """The quickest of the tiles and the library, timed at the first call."""
    client = task.client
    found = small.candidates(client, shape)
    runs = [small.product(client, shape, choice) for choice in found]
    library = functools.cache(lambda: by_library(task, how, shape))
    runs.append(lambda *addresses: library()(*addresses))
    chosen: list[Multiply] = []

    def run(*addresses: int) -> None:
        if not chosen:
            trials = [functools.partial(each, *addresses) for each in runs]
            chosen.append(runs[tune.best(client, tuned(client), repr(shape), trials)])
        chosen[0](*addresses)

    return run


def by_library(task: Task, how: cublaslt.Arithmetic, shape: layout.Geometry) -> Multiply:
    """cuBLASLt, else cuBLAS; a bias that it cannot add is written first."""
    client, with_bias = task.client, task.bias is not None
    has_lt = cublaslt.library(client) is not None
    if not with_bias:
        return (cublaslt if has_lt else cublas).product(client, how, shape)
    if has_lt and how.result in _WITH_BIAS and how.compute != _IN_HALF:
        return cublaslt.product(client, how, shape, bias=True)
    add = (cublaslt if has_lt else cublas).product(client, how, shape, adds=True)
    result = dtypes.as_dtype(how.result, task.op)
    start = client.writer(
        spec_of(client, task.out.shape, result), spec_of(client, task.out.shape[-1:], result)
    )

    def run(x: int, y: int, out: int, bias: int) -> None:
        start(out, Place(bias))
        add(x, y, out)

    return run


def thin_or(thin: Multiply, otherwise: Callable[[], Multiply]) -> Multiply:
    """The kernel for thin products reads 16 bytes at a time; the library takes any addresses."""

    def run(x: int, y: int, out: int, *bias: int) -> None:
        (otherwise() if (x | y) & 15 else thin)(x, y, out, *bias)

    return run
