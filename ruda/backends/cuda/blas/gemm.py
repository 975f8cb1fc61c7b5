"""Products of matrices, as the rows of the table want them.

cuBLASLt where nvmath-python is installed, else cuBLAS; thin products of few rows, small ones of
float32 and products of integers have kernels of their own. Views go in as they lie; what no library
takes is copied densely first (``layout.geometry`` says which), and so are operands of another dtype
than is multiplied. ``dispatch.py`` says who multiplies, ``composing.py`` what is around it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.blas import cublas, cublaslt, integer, layout, skinny, small, tune
from ruda.backends.cuda.blas.composing import composed
from ruda.backends.cuda.blas.dispatch import (
    IN_FLOAT,
    IN_INT,
    Multiply,
    Task,
    arithmetic,
    by_library,
    small_choice,
    small_or_library,
    thin_or,
    tuned,
)
from ruda.backends.cuda.memory import allocate
from ruda.core import dtypes
from ruda.core.errors import StrategyError
from ruda.core.mode import IEEE, Precision
from ruda.core.shapes import contiguous_strides
from ruda.core.spec import Spec, is_absent, spec_of
from ruda.tensor.dispatch import OPS

# Operands and results that the libraries know; others are cast before or after.
_NATIVE = {
    *((d, d) for d in ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")),
    ("float16", "float32"),
    ("bfloat16", "float32"),
}


def bind(client: Any, plan: Any) -> Callable[..., Any]:
    """``matmul`` and ``matmul_as``."""
    return bound(_task_of(client, plan))


# ``linear``: the weight is a transposed view, the bias is added in the same call.
bind_linear = bind


def _task_of(client: Any, plan: Any) -> Task:
    if len(plan.specs) == 2:
        x, y = plan.specs
        return _task(client, plan, x, y, None)
    x, w, b = plan.specs
    y = spec_of(client, w.shape[::-1], w.dtype, w.strides[::-1])
    return _task(client, plan, x, y, None if is_absent(b) else b)


def own_of(client: Any, plan: Any) -> tuple[layout.Geometry, small.Choice] | None:
    """How our kernel for small products runs ``plan``; None where another one does."""
    if not plan.out.size or not plan.specs[0].size:
        return None
    task = _task_of(client, plan)
    kinds = (
        (task.x, task.y, task.out) if task.bias is None else (task.x, task.y, task.out, task.bias)
    )
    if any(spec.dtype is not dtypes.float32 for spec in kinds):
        return None
    shape = layout.geometry((task.x.shape, task.x.strides), (task.y.shape, task.y.strides))
    how = arithmetic(dtypes.float32, dtypes.float32, task.precision)
    as_they_lie = not any(shape.copies) and (task.bias is None or task.bias.contiguous)
    if not as_they_lie or how.compute != IN_FLOAT or not small.fits(client, shape):
        return None
    has_lt = cublaslt.library(client) is not None
    if skinny.bind(client, dtypes.float32, dtypes.float32, shape, True, has_lt) is not None:
        return None
    if tune.mode() == "on" and not tune.is_known(client, tuned(client), repr(shape)):
        return None
    own = small_choice(client, how, shape)
    return None if own is None else (shape, own)


def bind_linear_relu(client: Any, plan: Any) -> Callable[..., Any] | None:
    """``relu`` of a ``linear`` in one call, to the bit that of both; None where none does that."""
    x, w, b = plan.specs
    dtype = plan.out.dtype
    # In float32 every algorithm offered was seen to keep NaN.
    if is_absent(b) or not plan.out.size or not x.size or dtype is not dtypes.float32:
        return None
    if not x.dtype is w.dtype is b.dtype is dtype:
        return None
    y = spec_of(client, w.shape[::-1], w.dtype, w.strides[::-1])
    task = _task(client, plan, x, y, b)
    shape = layout.geometry((x.shape, x.strides), (y.shape, y.strides))
    how = arithmetic(dtype, dtype, task.precision)
    # A kernel of its own for few rows is quicker than what this saves.
    has_lt = cublaslt.library(client) is not None
    if skinny.bind(client, dtype, dtype, shape, how.compute == IN_FLOAT, has_lt) is not None:
        return None
    own = small_choice(client, how, shape)
    if own is not None:
        return composed(task, shape, small.product(client, shape, own, relu=True), dtype, dtype)
    if not has_lt:
        return None
    return composed(
        task, shape, cublaslt.product(client, how, shape, True, relu=True), dtype, dtype
    )


def bind_weight(client: Any, plan: Any) -> Callable[..., Any] | None:
    """``linear_weight_backward``: a product of the rows as they lie, and a sum down them."""
    (g, x), (dw, db) = plan.specs, plan.out
    if not (g.contiguous and x.contiguous and g.size and x.size) or g.dtype.kind == "complex":
        return None
    rows, high = g.size // g.shape[-1], g.shape[-1]
    turned = spec_of(client, (high, rows), g.dtype, (1, high))
    down = spec_of(client, (rows, x.shape[-1]), x.dtype)
    together = _weight_and_bias(client, plan, turned, down)
    if together is not None:
        return together
    flat = spec_of(client, (rows, high), g.dtype)
    total = OPS["sum"].lookup((flat,), ((0,), False, None))
    if total.out is not db:
        return None
    wanted = plan.op.dtype_of_operands(plan)[0] or x.dtype
    how = plan.precision or IEEE
    product = bound(Task(client, plan.op.name, turned, down, None, dw, wanted, how))
    add_up = total.run

    def run(hg: Any, hx: Any) -> Any:
        return product(hg, hx), add_up(hg)

    # A compiled step rather has the two apart: each is joined with others.
    run.by_body = True  # type: ignore[attr-defined]
    return run


def into(
    client: Any,
    op: str,
    x: Spec,
    y: Spec,
    out: Spec,
    precision: Precision | None,
    bias: Spec | None = None,
    adds: bool = False,
    kernels: cublaslt.Kernels = (),
) -> Multiply:
    """The function that queues ``out = x @ y`` in dense memory that is there, given by addresses.

    The libraries must take both matrices as they lie; ``adds`` keeps what ``out`` holds and adds.
    ``kernels`` of cuBLASLt are preferred to its own first choice.
    """
    allowed = precision or IEEE
    shape = layout.geometry((x.shape, x.strides), (y.shape, y.strides))
    assert not any(shape.copies), "the operands are to be made ready first"
    how = arithmetic(x.dtype, out.dtype, allowed)
    if kernels and cublaslt.library(client) is not None:
        return cublaslt.product(client, how, shape, bias is not None, adds, kernels=kernels)
    if adds:
        library = cublaslt if cublaslt.library(client) is not None else cublas
        return library.product(client, how, shape, adds=True)
    return by_library(Task(client, op, x, y, bias, out, x.dtype, allowed), how, shape)


def _weight_and_bias(client: Any, plan: Any, turned: Spec, down: Spec) -> Callable[..., Any] | None:
    """Both gradients of a small layer in one kernel, which reads the rows once."""
    kinds = (turned.dtype, down.dtype, *(spec.dtype for spec in plan.out))
    if any(kind is not dtypes.float32 for kind in kinds):
        return None
    shape = layout.geometry((turned.shape, turned.strides), (down.shape, down.strides))
    how = arithmetic(dtypes.float32, dtypes.float32, plan.precision or IEEE)
    own = small.best(client, shape) if how.compute == IN_FLOAT else None
    if own is None:
        return None
    multiply, pool = small.product_and_sums(client, shape, own), client.pool

    def run(hg: Any, hx: Any) -> Any:
        dw, db = (allocate(pool, spec) for spec in plan.out)
        multiply(hg.address, hx.address, dw.address, db.address)
        return dw, db

    return run


def _task(client: Any, plan: Any, x: Spec, y: Spec, bias: Spec | None) -> Task:
    wanted = plan.op.dtype_of_operands(plan)[0] or x.dtype
    return Task(client, plan.op.name, x, y, bias, plan.out, wanted, plan.precision or IEEE)


def bound(task: Task) -> Callable[..., Any]:
    pool, out = task.client.pool, task.out
    if out.size == 0:
        return lambda *_: allocate(pool, out)
    if task.x.size == 0:
        return _of_nothing(task)
    if task.wanted.is_integer:
        return _of_integers(task)
    try:
        return _of_floats(task)
    except StrategyError as error:
        return functools.partial(_raise, error)


def _raise(error: StrategyError, *_: Any) -> Any:
    """What a plan does when run that could not be made: a node may need the plan alone."""
    raise error


def _of_nothing(task: Task) -> Callable[..., Any]:
    """A sum of no products: zeros, or the bias."""
    client, out, bias = task.client, task.out, task.bias
    start = None if bias is None else client.writer(out, bias)

    def run(hx: Any, hy: Any, hb: Any = None) -> Any:
        result = allocate(client.pool, out)
        if start is None:
            client.fill_zero(result.address, out.nbytes)
        else:
            start(result.address, hb)
        return result

    return run


def _of_integers(task: Task) -> Callable[..., Any]:
    """By cuBLASLt for int8 that is summed in int32 and lies as it wants, else by an own kernel."""
    client, x, y = task.client, task.x, task.y
    small = x.dtype is y.dtype is dtypes.int8 and task.out.dtype is dtypes.int32
    if small and task.bias is None and cublaslt.library(client) is not None:
        # Its kernels take rows on the left and columns on the right.
        shape = layout.geometry((x.shape, x.strides), (y.shape, y.strides))
        if _suits_int8(shape):
            how = cublaslt.Arithmetic("int8", "int32", IN_INT, "int32", True)
            return composed(
                task, shape, cublaslt.product(client, how, shape), dtypes.int8, dtypes.int32
            )
    return integer.bind(client, x, y, task.bias, task.out)


def _suits_int8(shape: layout.Geometry) -> bool:
    sizes = (shape.m, shape.n, shape.k, shape.x.leading, shape.y.leading)
    even = not any(n % 16 for n in sizes) and not any(s % 16 for s in shape.steps)
    return even and shape.y.transposed and not shape.x.transposed


def _of_floats(task: Task) -> Callable[..., Any]:
    x, y, out, wanted = task.x, task.y, task.out, task.wanted
    operand, result = wanted, wanted
    if x.dtype is y.dtype and (x.dtype.name, out.dtype.name) in _NATIVE:
        operand, result = x.dtype, out.dtype
    elif (wanted.name, out.dtype.name) in _NATIVE:
        result = out.dtype
    left, right = ((s.shape, s.strides) if s.dtype is operand else _dense(s.shape) for s in (x, y))
    shape = layout.geometry(left, right)
    how = arithmetic(operand, result, task.precision)
    plain, has_lt = how.compute == IN_FLOAT, cublaslt.library(task.client) is not None
    thin = skinny.bind(task.client, operand, result, shape, plain, has_lt)
    if thin is None:
        multiply = small_or_library(task, how, shape)
    else:
        multiply = thin_or(thin, functools.cache(lambda: by_library(task, how, shape)))
    return composed(task, shape, multiply, operand, result)


def _dense(shape: Any) -> Any:
    return shape, contiguous_strides(shape)


KERNELS = {
    "matmul": bind,
    "matmul_as": bind,
    "linear": bind_linear,
    "linear_weight_backward": bind_weight,
}
