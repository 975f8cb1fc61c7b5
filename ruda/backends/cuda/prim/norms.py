"""Layer, root-mean-square and general standardisation with their gradients, as row kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim import channel_relu, channels, moving
from ruda.backends.cuda.prim.row_kernel import Kernel
from ruda.backends.cuda.prim.row_operands import (
    Side,
    Work,
    column_of,
    given,
    row_of,
    rows_of,
    supported,
)
from ruda.backends.cuda.prim.rows import bind, bind_sums
from ruda.backends.cuda.row_programs import Pass, Program
from ruda.core.dtypes import compute_of

_ADDED = "EACH x[k] += residual[k];"
_VARIANCE = Pass(
    ("x",),
    "EACH { const T d = x[k] - mean; squares += d * d; }",
    (("squares", "Sum", "T(0)"),),
)
# Where a row is kept: both at once, with a single exchange between its threads.
_NEAR = Pass(
    ("x",),
    "EACH level += x[k];",
    grows=("level",),
    then="const T near = near_mean<LANES, VEC>(level, n, lane, loose);",
)
_APART = Pass(
    ("x",),
    "EACH { const T d = x[k] - near; squares += d * d; }",
    grows=("squares",),
    then="const T mean =\n"
    "    join_moments<LANES, VEC, HALF, GROUPS>(level, squares, n, lane, loose, scratch, turn);",
)
_SQUARES = Pass(("x",), "EACH squares += x[k] * x[k];", (("squares", "Sum", "T(0)"),))
_RSTD = "const T rstd = rsqrt(squares / T(at.n) + eps);"
_VAR = f"const T var = squares / T(at.n);\n{_RSTD}"
_HALVES = (("a", "Sum", "T(0)"), ("b", "Sum", "T(0)"))


def _then(each: Pass, then: str) -> Pass:
    return replace(each, then=then)


def _affine(has: frozenset[str]) -> str:
    return " * weight[k]" * ("weight" in has) + " + bias[k]" * ("bias" in has)


def _held(program: Program) -> Program:
    """The form of a centred program for rows that are kept."""
    statistics = program.passes[1].then
    apart = _then(_APART, f"{_APART.then}\n{statistics}")
    return replace(
        program,
        passes=(_NEAR, apart, *program.passes[2:]),
        before="T level = T(0), squares = T(0);",
        functions='#include "ruda/moments.cuh"',
        folded=2,
    )


def _tag(has: frozenset[str]) -> str:
    return "".join(f"_{name[0]}" for name in sorted(has))


def _forward_program(name: str, has: frozenset[str], half: bool = False) -> Program:
    """``has``: which of weight, bias and residual there are; ``half``: whether rows are halves."""
    centred = not name.endswith("rms_norm")
    value = "(x[k] - mean) * rstd" if centred else "x[k] * rstd"
    if centred and half:
        # Beside the rounding of values as they are read this second one of the mean is nothing.
        value = "(x[k] * rstd + below)"
    total = " total[k] = x[k];" if "residual" in has else ""
    reads = ("x", *sorted(has & {"weight", "bias"}))
    last = Pass(
        reads,
        f"EACH {{ y[k] = {value}{_affine(has)};{total} }}",
        writes=("y", "total") if total else ("y",),
        grows=() if centred else None,
    )
    statistics = _VAR if name == "standard_norm" else _RSTD
    if centred and half:
        statistics += "\nconst T below = -mean * rstd;"
    if centred:
        first = Pass(("x",), "EACH level += x[k];", (("level", "Sum", "T(0)"),))
        first = _then(first, "const T mean = level / T(at.n);")
        passes: tuple[Pass, ...] = (first, _then(_VARIANCE, statistics), last)
    else:
        passes = (_then(_SQUARES, statistics), last)
    second = "var" if name == "standard_norm" else "rstd"
    row_outs = ("mean", second) if centred else (second,)
    each = _ADDED if total else ""
    return Program(name + _tag(has), passes, each=each, row_outs=row_outs, scalars=("eps",))


def _forward(client: Any, plan: Any) -> Callable[..., Any] | None:
    """layer_norm, rms_norm, their forms with a residual, and standard_norm."""
    name, specs, (axes, eps) = plan.op.name, plan.specs, plan.attrs
    along = axes if isinstance(axes, tuple) else (axes,)
    places = given(specs, plan.op.args)
    shape = specs[0].shape
    axis = None if isinstance(axes, tuple) else axes
    inputs = tuple(
        rows_of(arg, specs[i], shape)
        if arg in ("x", "residual")
        else column_of(arg, specs[i], shape, axis)
        for arg, i in places.items()
    )
    has = frozenset(places) - {"x"}
    count = 2 if "residual" in has else 1
    outs = tuple(
        rows_of(out, spec, shape)
        for out, spec in zip(("y", "total"), plan.out[:count], strict=False)
    )
    statistics = plan.out[-1].dtype
    work = Work(client, shape, along, inputs, outs, statistics, statistics, (eps,))
    program = _forward_program(name, has, specs[0].dtype.is_half)
    held = program if name.endswith("rms_norm") else _held(program)
    return bind(plan, work, held, program, tuple(places.values()))


def _backward_program(name: str, weighted: bool) -> Program:
    """Gradient of the input, and of weight (and bias) as sums over rows."""
    centred = name != "rms_norm_backward"
    z = "(x[k] - mean) * rstd" if centred else "x[k] * rstd"
    u = "dy[k] * weight[k]" if weighted else "dy[k]"
    values = f"const T z = {z}, u = {u};"
    reads = ("dy", "x", "weight") if weighted else ("dy", "x")
    folds: tuple[tuple[str, str, str], ...]
    if centred:
        folds, sums = _HALVES, "a += u; b += u * z;"
        end, slope = "a /= T(at.n);\nb /= T(at.n);", "u - a - z * b"
    else:
        folds, sums = _HALVES[1:], "b += u * z;"
        end, slope = "b /= T(at.n);", "u - z * b"
    gather = f"EACH dw[k] += dy[k] * ({z});" + "\nEACH db[k] += dy[k];" * centred
    return Program(
        name + "_w" * weighted,
        (
            Pass(reads, f"EACH {{ {values} {sums} }}", folds, end),
            Pass(reads, f"EACH {{ {values} dx[k] = rstd * ({slope}); }}", writes=("dx",)),
        ),
        sums=("dw", "db") if centred else ("dw",),
        gather=gather,
    )


def _backward(client: Any, plan: Any) -> Callable[..., Any] | None:
    """layer_norm_backward and rms_norm_backward."""
    specs, (axis,), out = plan.specs, plan.attrs, plan.out
    places, shape = given(specs, plan.op.args), plan.out[0].shape
    inputs = tuple(_side(arg, specs[i], shape, axis) for arg, i in places.items())
    outs, wide = (rows_of("dx", out[0], shape),), compute_of(out[0].dtype)
    work = Work(client, shape, (axis,), inputs, outs, out[1].dtype, wide)
    program = _backward_program(plan.op.name, "weight" in places)
    return bind_sums(plan, work, program, tuple(places.values()))


def _side(arg: str, spec: Any, shape: Any, axis: int) -> Side:
    if arg == "weight":
        return column_of(arg, spec, shape, axis)
    return rows_of(arg, spec, shape) if arg in ("dy", "x") else row_of(arg, spec, shape, (axis,))


def _standard_program(weighted: bool, row_sums: bool) -> Program:
    """Gradient of the input of ``standard_norm``; with ``row_sums`` those of weight and bias."""
    z = "(x[k] - mean) * rstd"
    u = "dy[k] * weight[k]" if weighted else "dy[k]"
    values = f"const T z = {z}, u = {u};"
    reads = ("dy", "x", "weight") if weighted else ("dy", "x")
    more = " dw += dy[k] * z; db += dy[k];" if row_sums else ""
    folds = (*_HALVES, ("dw", "Sum", "T(0)"), ("db", "Sum", "T(0)")) if row_sums else _HALVES
    return Program(
        "standard_norm_backward" + "_w" * weighted + "_s" * row_sums,
        (
            Pass(
                reads,
                f"EACH {{ {values} a += u; b += u * z;{more} }}",
                folds,
                "a /= T(at.n);\nb /= T(at.n);",
            ),
            Pass(reads, f"EACH {{ {values} dx[k] = rstd * (u - a - z * b); }}", writes=("dx",)),
        ),
        before="const T rstd = rsqrt(var + eps);",
        row_outs=("dw", "db") if row_sums else (),
        scalars=("eps",),
    )


def _standard(client: Any, plan: Any) -> Callable[..., Any] | None:
    """standard_norm: over channels of many samples by kernels of their own, else over rows."""
    x, weight, bias = plan.specs
    at = channels.fitting(x.shape, plan.attrs[0], weight, bias)
    return _forward(client, plan) if at is None else channels.forward(client, plan, at)


_PARAMETERS = Program(
    "standard_norm_parameters",
    (
        Pass(
            ("dy", "x", "mean", "var"),
            "EACH { dw += dy[k] * ((x[k] - mean[k]) * rsqrt(var[k] + eps)); db += dy[k]; }",
            (("dw", "Sum", "T(0)"), ("db", "Sum", "T(0)")),
        ),
    ),
    row_outs=("dw", "db"),
    scalars=("eps",),
)


def _standard_backward(client: Any, plan: Any) -> Callable[..., Any] | None:
    """One kernel where the rows are those of the parameters, as in batch norm; else two."""
    specs, (axes, eps, affine), out = plan.specs, plan.attrs, plan.out
    shape, wide = out[0].shape, out[1].dtype
    if out[0].size == 0:
        return None
    at = channels.fitting(shape, axes, specs[2])
    if at is not None and channels.sums_of_channels(plan, at):
        return channels.backward(client, plan, at)
    places = given(specs, plan.op.args)
    kept = tuple(1 if i in axes else n for i, n in enumerate(shape))
    row_sums = affine == kept
    inputs = tuple(
        row_of(arg, specs[i], shape, axes)
        if arg in ("mean", "var")
        else (column_of if arg == "weight" else rows_of)(arg, specs[i], shape)
        for arg, i in places.items()
    )
    outs = (rows_of("dx", out[0], shape),)
    work = Work(client, shape, axes, inputs, outs, wide, wide, (eps,))
    if not supported(work):
        return None
    program = _standard_program("weight" in places, row_sums)
    first, order = Kernel(work, program, program), tuple(places.values())
    second = None if row_sums else _parameters(client, plan, shape, affine)
    if second is not None and not supported(second.work):
        return None

    def run(*handles: Any) -> Any:
        found = [allocate(client.pool, spec) for spec in out]
        dx, dw, db = (h.address for h in found)
        values = [handles[i].address for i in order]
        vec = first.pick((dx, *values))
        if second is None:
            first.made(vec)[0](dx, dw, db, *values)
            return tuple(found)
        first.made(vec)[0](dx, *values)
        values = [handles[i].address for i in (0, 1, 3, 4)]
        second.made(second.pick(values))[0](dw, db, *values)
        return tuple(found)

    return run


def _parameters(client: Any, plan: Any, shape: Any, affine: Any) -> Any:
    """The kernel whose rows are the elements of the parameters."""
    sizes = (1,) * (len(shape) - len(affine)) + tuple(affine)
    axes = tuple(i for i, n in enumerate(sizes) if n == 1)
    dy, x, _, mean, var = plan.specs
    wide, eps = plan.out[1].dtype, plan.attrs[1]
    inputs = (
        rows_of("dy", dy, shape),
        rows_of("x", x, shape),
        column_of("mean", mean, shape),
        column_of("var", var, shape),
    )
    work = Work(client, shape, axes, inputs, (), wide, compute_of(wide), (eps,))
    return Kernel(work, None, _PARAMETERS)


KERNELS = {
    **channel_relu.KERNELS,
    **moving.KERNELS,
    "layer_norm": _forward,
    "rms_norm": _forward,
    "add_layer_norm": _forward,
    "add_rms_norm": _forward,
    "standard_norm": _standard,
    "layer_norm_backward": _backward,
    "rms_norm_backward": _backward,
    "standard_norm_backward": _standard_backward,
}
