"""Softmax, its logarithm, their gradients, and log-sum-exp, as row kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.prim.row_operands import Work, rows_of
from ruda.backends.cuda.prim.rows import bind
from ruda.backends.cuda.row_programs import Pass, Program
from ruda.core.dtypes import compute_of

_TOP = Pass(("x",), "EACH top = ruda_max(top, x[k]);", (("top", "Max", "lowest<T>()"),))
_TOTAL = Pass(("x",), "EACH total += exp_of(x[k] - top);", (("total", "Sum", "T(0)"),))

# The maximum so far and the sum of exp(x - maximum) so far, in one pass. While all is -inf nothing
# is added; a NaN stays the maximum.
ONLINE_BEFORE = "T top = lowest<T>(), total = T(0);"
ONLINE = """T high = top;
EACH high = ruda_max(high, x[k]);
if (high != top) total *= exp_of(top - high);
top = high;
if (top != lowest<T>()) EACH total += exp_of(x[k] - top);"""
ONLINE_THEN = """{
    T best[1] = {top};
    fold_group<LANES, HALF, Max>(best, scratch, turn);
    T sum[1] = {top == best[0] ? total : total * exp_of(top - best[0])};
    fold_group<LANES, HALF, Sum>(sum, scratch, turn);
    top = best[0];
    total = sum[0];
}"""

_ENDS = {
    "softmax": ("const T scale = T(1) / total;", "EACH y[k] = exp_of(x[k] - top) * scale;"),
    "log_softmax": ("const T level = log(total);", "EACH y[k] = x[k] - top - level;"),
}


def _programs(name: str) -> tuple[Program, Program]:
    """For rows that are kept, and for rows that are read again."""
    then, pack = _ENDS[name]
    last = Pass(("x",), pack, writes=("y",))
    kept = Program(name, (_TOP, Pass(_TOTAL.reads, _TOTAL.pack, _TOTAL.folds, then), last))
    online = Pass(("x",), ONLINE, then=f"{ONLINE_THEN}\n{then}")
    return kept, Program(f"{name}_online", (online, last), before=ONLINE_BEFORE)


_BACKWARD = {
    "softmax_backward": Program(
        "softmax_backward",
        (
            Pass(("dy", "y"), "EACH dot += dy[k] * y[k];", (("dot", "Sum", "T(0)"),)),
            Pass(("dy", "y"), "EACH dx[k] = y[k] * (dy[k] - dot);", writes=("dx",)),
        ),
    ),
    "log_softmax_backward": Program(
        "log_softmax_backward",
        (
            Pass(("dy",), "EACH total += dy[k];", (("total", "Sum", "T(0)"),)),
            Pass(("dy", "y"), "EACH dx[k] = dy[k] - exp_of(y[k]) * total;", writes=("dx",)),
        ),
    ),
}
_LOGSUMEXP = Program(
    "logsumexp",
    (
        Pass(
            ("x",),
            ONLINE,
            then=f"{ONLINE_THEN}\nconst T level = ruda_isinf(top) ? top : top + log(total);",
        ),
    ),
    before=ONLINE_BEFORE,
    row_outs=("level",),
)


def _forward(client: Any, plan: Any) -> Callable[..., Any] | None:
    (x,), (axis,), out = plan.specs, plan.attrs, plan.out
    work = Work(
        client,
        x.shape,
        (axis,),
        (rows_of("x", x, x.shape),),
        (rows_of("y", out, x.shape),),
        out.dtype,
        compute_of(out.dtype),
    )
    return bind(plan, work, *_programs(plan.op.name), (0,))


def _backward(client: Any, plan: Any) -> Callable[..., Any] | None:
    (dy, y), (axis,), out = plan.specs, plan.attrs, plan.out
    program = _BACKWARD[plan.op.name]
    work = Work(
        client,
        out.shape,
        (axis,),
        (rows_of("dy", dy, out.shape), rows_of("y", y, out.shape)),
        (rows_of("dx", out, out.shape),),
        out.dtype,
        compute_of(out.dtype),
    )
    return bind(plan, work, program, program, (0, 1))


def _logsumexp(client: Any, plan: Any) -> Callable[..., Any] | None:
    (x,), (axes, _), out = plan.specs, plan.attrs, plan.out
    compute = compute_of(out.dtype)
    inputs = (rows_of("x", x, x.shape),)
    work = Work(client, x.shape, axes, inputs, (), out.dtype, compute)
    return bind(plan, work, None, _LOGSUMEXP, (0,))


KERNELS = {
    "softmax": _forward,
    "log_softmax": _forward,
    "softmax_backward": _backward,
    "log_softmax_backward": _backward,
    "logsumexp": _logsumexp,
}
