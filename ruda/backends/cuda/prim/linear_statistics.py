"""What is known of rows of logits from some classes at a time, and what follows from all of them.

Each part of the classes gives the log-sum-exp of its logits, the logit of the target where it is
among them, else 0, and, for smoothing, the sum of its logits. One more kernel joins the parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.backends.cuda.prim.cross_entropy import (
    COUNTED,
    LSE,
    Classes,
    quickly,
)
from ruda.backends.cuda.prim.row_kernel import Kernel
from ruda.backends.cuda.prim.row_operands import Work, row_of, rows_of
from ruda.backends.cuda.prim.softmax import ONLINE, ONLINE_BEFORE, ONLINE_THEN
from ruda.backends.cuda.row_programs import Pass, Program
from ruda.core.dtypes import DType, int64
from ruda.core.spec import Spec, spec_of

_FLAT = (("flat", "Sum", "T(0)"),)


def _part_program(smooth: bool) -> Program:
    """Of the logits of a part of the classes, from class ``low`` on."""
    picked = """const i64 own = target - (i64)at.low;
T picked = T(0);
if (own >= 0 && own < n && active && lane == 0)
    picked = to<T>(logits_data[logits_at + own * at.logits_inner[0]]);"""
    sweep = Pass(
        ("logits",),
        ONLINE.replace("x[k]", "logits[k]") + "\nEACH flat += logits[k];" * smooth,
        _FLAT * smooth,
        f"{ONLINE_THEN}\n{LSE}\n{picked}",
    )
    return Program(
        "class_statistics" + "_s" * smooth,
        (sweep,),
        before=ONLINE_BEFORE,
        row_outs=("lse", "picked", *("flat",) * smooth),
        scalars=("low",),
    )


def _whole_program(smooth: bool) -> Program:
    """The loss, the log-sum-exp and what probabilities are multiplied by, from all parts."""
    spread = ""
    if smooth:
        spread = "\n    loss += (lse * classes - flat) * (label_smoothing / classes);"
    told = f"""T loss = T(0);
if (counted && (target < 0 || target >= (i64)at.classes)) {{
    loss = quiet_nan<T>();
    const int rank = sizeof(at.osize) / sizeof(i64);
    if (active && lane == 0)
        tell(faults, target, place<rank>(row, at.osize, at.target_outer), 0);
}} else if (counted) {{
    loss = (lse - picked) * (T(1) - label_smoothing);{spread}
    loss += lse * lse * z_loss;
}}
const T slope = dy + dy * lse * (T(2) * z_loss);"""
    sweep = Pass(
        ("levels", "picks", *("flats",) * smooth),
        ONLINE.replace("x[k]", "levels[k]")
        + "\nEACH picked += picks[k];"
        + "\nEACH flat += flats[k];" * smooth,
        (("picked", "Sum", "T(0)"), *_FLAT * smooth),
        f"{ONLINE_THEN}\n{LSE}\n{COUNTED}\n{told}",
    )
    return Program(
        "class_statistics_joined" + "_s" * smooth,
        (sweep,),
        before=ONLINE_BEFORE,
        row_outs=("loss", "lse", "slope"),
        scalars=("ignore_index", "label_smoothing", "z_loss", "classes"),
        functions='#include "ruda/faults.cuh"',
        faults=True,
    )


def part(client: Any, logits: Spec, low: int, smooth: bool, quick: bool) -> Callable[..., None]:
    """Queues it: from the addresses of the outputs of each row, logits [N, C] and dense targets."""
    shape, wide = logits.shape, logits.dtype
    target = spec_of(client, shape[:1], int64)
    inputs = rows_of("logits", logits, shape), row_of("target", target, shape, (1,))
    program = _part_program(smooth)
    work = Work(client, shape, (1,), inputs, (), wide, wide, (float(low),))
    kernel = Kernel(work, None, quickly(program) if quick else program)

    def run(*addresses: int) -> None:
        launcher, _, _ = kernel.made(kernel.pick(addresses[-2:-1]))
        launcher(*addresses)

    return run


def whole(
    client: Any,
    op: str,
    shape: tuple[int, int],
    classes: int,
    step: int,
    wide: DType,
    attrs: tuple[Any, ...],
) -> Callable[..., None]:
    """Queues the end: from addresses of loss, lse, slope, what parts have given, target and dy.

    ``shape`` is that of rows and parts; those of a part are dense, and parts are ``step`` apart.
    """
    ignore, smoothing, z_loss = attrs
    smooth = smoothing > 0
    each = spec_of(client, shape, wide, (1, step))
    target, dy = (spec_of(client, shape[:1], kind) for kind in (int64, wide))
    names = "levels", "picks", *("flats",) * smooth
    inputs = (
        *(rows_of(name, each, shape) for name in names),
        row_of("target", target, shape, (1,)),
        row_of("dy", dy, shape, (1,)),
    )
    form = Classes(op, target, 1, classes, ignore)
    scalars = (float(ignore), smoothing, z_loss, float(classes))
    work = Work(client, shape, (1,), inputs, (), wide, wide, scalars, form)
    kernel, faults = Kernel(work, None, _whole_program(smooth)), client.faults

    def run(*addresses: int) -> None:
        launcher, _, _ = kernel.made(1)
        launcher(*addresses, *faults.parameters(form))

    return run
