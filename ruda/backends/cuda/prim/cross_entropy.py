"""Cross-entropy of logits, forward in one read and backward in one read and one write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.faults import Form, coordinates
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.row_kernel import Kernel
from ruda.backends.cuda.prim.row_operands import (
    Work,
    column_of,
    given,
    one_of,
    row_of,
    rows_of,
    supported,
)
from ruda.backends.cuda.prim.rows import bind
from ruda.backends.cuda.prim.softmax import ONLINE, ONLINE_BEFORE, ONLINE_THEN
from ruda.backends.cuda.row_programs import Pass, Program
from ruda.core.dtypes import DType, compute_of
from ruda.core.errors import IndexRangeError
from ruda.core.spec import Spec, spec_of

_SCALARS = ("ignore_index", "label_smoothing", "z_loss")
_COUNTED = "const bool counted = target != (i64)at.ignore_index;"
_OWN = "to<T>(weight_data[target * at.weight_inner[0]])"


def _forward_program(weighted: bool, smooth: bool) -> Program:
    """The loss of a row and the log-sum-exp; a target that is no class gives NaN and a fault."""
    each = " * weight[k]" if weighted else ""
    flat = f"\nEACH flat += x[k]{each};" if smooth else ""
    mass = "mass" if weighted and smooth else "T(at.n)"
    spread = f"\n    loss += (lse * {mass} - flat) * (label_smoothing / T(at.n));" if smooth else ""
    then = f"""{ONLINE_THEN}
const T lse = ruda_isinf(top) ? top : top + log(total);
T loss = T(0);
{_COUNTED}
if (counted && (target < 0 || target >= n)) {{
    loss = quiet_nan<T>();
    const int rank = sizeof(at.osize) / sizeof(i64);
    if (active && lane == 0)
        tell(faults, target, place<rank>(row, at.osize, at.target_outer), 0);
}} else if (counted && active && lane == 0) {{
    const T picked = to<T>(logits_data[logits_at + target * at.logits_inner[0]]);
    loss = (lse - picked) * (T(1) - label_smoothing){f" * {_OWN}" if weighted else ""};{spread}
    loss += lse * lse * z_loss;
}}"""
    sweep = Pass(
        ("logits", "weight") if weighted and smooth else ("logits",),
        ONLINE.replace("x[k]", "logits[k]") + flat.replace("x[k]", "logits[k]"),
        (("flat", "Sum", "T(0)"),) if smooth else (),
        then,
    )
    return Program(
        "cross_entropy" + "_w" * weighted + "_s" * smooth,
        (sweep,),
        before=ONLINE_BEFORE,
        row_outs=("loss", "lse"),
        scalars=_SCALARS,
        functions='#include "ruda/faults.cuh"',
        faults=True,
    )


def _backward_program(weighted: bool, smooth: bool) -> Program:
    """The gradient of a row's loss in its logits."""
    mass = "mass" if weighted and smooth else "T(at.n)"
    spread = f" + dy * (label_smoothing / T(at.n)) * {mass}" if smooth else ""
    each = f" - dy * (label_smoothing / T(at.n)){' * weight[k]' * weighted}" if smooth else ""
    own = f" * (counted ? {_OWN} : T(0))" if weighted else ""
    before = f"""{_COUNTED.replace(";", " && target >= 0 && target < n;")}
const T share = dy * (T(1) - label_smoothing){own};
const T slope = share{spread} + dy * lse * (T(2) * z_loss);"""
    pack = f"""EACH {{
    const T v = exp_of(logits[k] - lse) * slope{each} - (i + k == target ? share : T(0));
    dx[k] = counted ? v : T(0);
}}"""
    reads = ("logits", "weight") if weighted and smooth else ("logits",)
    return Program(
        "cross_entropy_backward" + "_w" * weighted + "_s" * smooth,
        (Pass(reads, pack, writes=("dx",)),),
        before=before,
        scalars=_SCALARS,
    )


class _Classes(Form):
    """The targets of a plan."""

    __slots__ = ("ignored",)

    def __init__(self, op: str, target: Spec, axis: int, classes: int, ignored: int) -> None:
        super().__init__(op, target, (axis,), (classes,), False)
        self.ignored = ignored

    def error(self, value: int, offset: int, which: int) -> IndexRangeError:
        """In the words of the CPU."""
        expected = f"0 to {self.lengths[0] - 1}, or ignore_index={self.ignored}"
        got = f"{self.valued(value)} at {coordinates(self.index, offset)}"
        return IndexRangeError(self.op, "no such class", got, expected)


_MASS = Program(
    "row_sum",
    (Pass(("weight",), "EACH mass += weight[k];", (("mass", "Sum", "T(0)"),)),),
    row_outs=("mass",),
)


class _Mass:
    """The sum of the class weights, which smoothing needs, as an operand of one element."""

    def __init__(self, client: Any, weight: Spec, wide: DType) -> None:
        self.client, self.spec = client, spec_of(client, (), wide)
        inputs = (rows_of("weight", weight, weight.shape),)
        self.kernel = Kernel(Work(client, weight.shape, (0,), inputs, (), wide, wide), None, _MASS)

    def __call__(self, weight: Any) -> Any:
        out = allocate(self.client.pool, self.spec)
        launcher, _, _ = self.kernel.made(self.kernel.pick((weight.address,)))
        launcher(out.address, weight.address)
        return out


def _bound(client: Any, plan: Any, backward: bool) -> Callable[..., Any] | None:
    specs, (axis, ignore, smoothing, z_loss) = plan.specs, plan.attrs
    places, args = given(specs, plan.op.args), plan.op.args
    logits = specs[args.index("logits")]
    shape, outs = logits.shape, plan.out if isinstance(plan.out, tuple) else (plan.out,)
    wide = compute_of(logits.dtype)
    inputs = []
    for arg, i in places.items():
        if arg == "logits":
            inputs.append(rows_of(arg, specs[i], shape))
        elif arg == "weight":
            inputs.append(column_of(arg, specs[i], shape, axis))
        else:
            inputs.append(row_of(arg, specs[i], shape, (axis,)))
    weighted, smooth = "weight" in places, smoothing > 0
    mass = _Mass(client, specs[-1], wide) if weighted and smooth else None
    if mass is not None:
        inputs.append(one_of("mass", mass.spec, shape))
    written = (rows_of("dx", outs[0], shape),) if backward else ()
    scalars = (float(ignore), smoothing, z_loss)
    target = specs[args.index("target")]
    form = None if backward else _Classes(plan.op.name, target, axis, shape[axis], ignore)
    work = Work(client, shape, (axis,), tuple(inputs), written, wide, wide, scalars, form)
    if not supported(work):
        return None
    program = (_backward_program if backward else _forward_program)(weighted, smooth)
    order = tuple(places.values())
    if mass is None:
        return bind(plan, work, None, program, order)
    inner = bind(plan, work, None, program, (*order, len(specs)))
    return None if inner is None else lambda *handles: inner(*handles, mass(handles[-1]))


def _forward(client: Any, plan: Any) -> Callable[..., Any] | None:
    return _bound(client, plan, False)


def _backward(client: Any, plan: Any) -> Callable[..., Any] | None:
    return _bound(client, plan, True)


KERNELS = {"cross_entropy": _forward, "cross_entropy_backward": _backward}
