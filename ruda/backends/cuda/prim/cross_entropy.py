"""Cross-entropy of logits: forward in one read, backward in one read and one write, and both.

Both together read the logits once where a row is kept: what they are multiplied by has to be known
beforehand. They read no element but those that a thread writes itself, so that the gradient may lie
where the logits lie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ruda.backends.cuda.faults import Form, coordinates
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.row_kernel import Kernel
from ruda.backends.cuda.prim.row_operands import (
    Side,
    Work,
    column_of,
    given,
    one_of,
    row_of,
    rows_of,
    supported,
)
from ruda.backends.cuda.prim.row_sharing import held_sharing
from ruda.backends.cuda.prim.rows import Parts, bind, launches
from ruda.backends.cuda.prim.softmax import ONLINE, ONLINE_BEFORE, ONLINE_THEN
from ruda.backends.cuda.row_programs import Pass, Program
from ruda.core.dtypes import DType, compute_of
from ruda.core.errors import IndexRangeError
from ruda.core.shapes import Shape
from ruda.core.spec import Spec, spec_of
from ruda.ops.cross_entropy_rows import NAME

_SCALARS = ("ignore_index", "label_smoothing", "z_loss")
COUNTED = "const bool counted = target != (i64)at.ignore_index;"
_OWN = "to<T>(weight_data[target * at.weight_inner[0]])"
_FETCHED = "\n    const T picked = to<T>(logits_data[logits_at + target * at.logits_inner[0]]);"
LSE = "const T lse = ruda_isinf(top) ? top : top + log(total);"


def _mass(weighted: bool, smooth: bool) -> str:
    return "mass" if weighted and smooth else "T(at.n)"


def _loss(weighted: bool, smooth: bool, picked: str) -> str:
    """The loss of a row, from its log-sum-exp; ``picked`` declares the logit of the target."""
    mass = _mass(weighted, smooth)
    spread = f"\n    loss += (lse * {mass} - flat) * (label_smoothing / T(at.n));" if smooth else ""
    return f"""T loss = T(0);
if (counted && (target < 0 || target >= n)) {{
    loss = quiet_nan<T>();
    const int rank = sizeof(at.osize) / sizeof(i64);
    if (active && lane == 0)
        tell(faults, target, place<rank>(row, at.osize, at.target_outer), 0);
}} else if (counted && active && lane == 0) {{{picked}
    loss = (lse - picked) * (T(1) - label_smoothing){f" * {_OWN}" if weighted else ""};{spread}
    loss += lse * lse * z_loss;
}}"""


def _flat(weighted: bool, smooth: bool) -> str:
    return f"\nEACH flat += logits[k]{' * weight[k]' * weighted};" if smooth else ""


def _forward_program(weighted: bool, smooth: bool) -> Program:
    """The loss of a row and the log-sum-exp; a target that is no class gives NaN and a fault."""
    sweep = Pass(
        ("logits", "weight") if weighted and smooth else ("logits",),
        ONLINE.replace("x[k]", "logits[k]") + _flat(weighted, smooth),
        (("flat", "Sum", "T(0)"),) if smooth else (),
        f"{ONLINE_THEN}\n{LSE}\n{COUNTED}\n{_loss(weighted, smooth, _FETCHED)}",
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


def _slope(weighted: bool, smooth: bool) -> str:
    """What a row's probabilities are multiplied by, and what its target loses."""
    spread = f" + dy * (label_smoothing / T(at.n)) * {_mass(weighted, smooth)}" if smooth else ""
    own = f" * (counted ? {_OWN} : T(0))" if weighted else ""
    return f"""const T share = dy * (T(1) - label_smoothing){own};
const T slope = share{spread} + dy * lse * (T(2) * z_loss);"""


def _each(weighted: bool, smooth: bool) -> str:
    """The gradient of an element but for what the target loses."""
    each = f" - dy * (label_smoothing / T(at.n)){' * weight[k]' * weighted}" if smooth else ""
    return f"exp_of(logits[k] - lse) * slope{each}"


def _pass(weighted: bool, smooth: bool, place: str, valid: str) -> Pass:
    """The gradient of a row; ``place`` is the target's, if it is ``valid``."""
    pack = f"""EACH {{
    const T v = {_each(weighted, smooth)} - (i + k == {place} ? share : T(0));
    dx[k] = {valid} ? v : T(0);
}}"""
    reads = ("logits", "weight") if weighted and smooth else ("logits",)
    return Pass(reads, pack, writes=("dx",))


def _backward_program(weighted: bool, smooth: bool) -> Program:
    """The gradient of a row's loss in its logits."""
    counted = COUNTED.replace(";", " && target >= 0 && target < n;")
    return Program(
        "cross_entropy_backward" + "_w" * weighted + "_s" * smooth,
        (_pass(weighted, smooth, "target", "counted"),),
        before=f"{counted}\n{_slope(weighted, smooth)}",
        scalars=_SCALARS,
    )


# The logit of the target comes from the thread that has it, along with the sum. Where no class is
# meant, ``own`` is before all packs.
_JOINT_BEFORE = f"""{ONLINE_BEFORE}
T picked = T(0);
{COUNTED}
const bool valid = counted && target >= 0 && target < n;
const int own = valid ? int(target) : -1;"""
_PICKED = "\nif (u32(own - i) < u32(VEC)) EACH if (i + k == own) picked = logits[k];"
_JOINT_FUNCTIONS = """#include "ruda/levels.cuh"
struct Exp { static __device__ __forceinline__ T of(T v) { return exp_of(v); } };"""


# Without a gradient a thread keeps less: 8192 rows of 128256 logits in bfloat16 take 0.555 ms, with
# 1024 threads on a multiprocessor 0.601.
_RESIDENT = 1280


def _joint_program(weighted: bool, smooth: bool) -> Program:
    """Loss and gradient of a row; a target that is no class has NaN and no gradient."""
    alone = _parted_program(weighted, smooth)
    (sweep,) = alone.passes
    then = f"{sweep.then}\n{_slope(weighted, smooth).replace('counted', 'valid')}"
    return replace(
        alone,
        name=alone.name.replace("_parted", "_joint"),
        resident=Program.resident,
        passes=(replace(sweep, then=then), _pass(weighted, smooth, "own", "valid")),
    )


def _parted_program(weighted: bool, smooth: bool) -> Program:
    """The loss of a row, in the order in which it is added up beside the gradient."""
    forward = _forward_program(weighted, smooth)
    (sweep,) = forward.passes
    sums = ("top", "total", "picked", "flat")[: 3 + smooth]
    joined = "".join(f"\n    {name} = level[{k}];" for k, name in enumerate(sums))
    then = f"""{{
    T level[{len(sums)}] = {{{", ".join(sums)}}};
    join_levels<LANES, HALF, Exp>(level, scratch, turn);{joined}
}}
{LSE}
{_loss(weighted, smooth, "")}"""
    return replace(
        forward,
        name=forward.name.replace("entropy", "entropy_parted"),
        passes=(replace(sweep, pack=sweep.pack + _PICKED, folds=(), then=then),),
        before=_JOINT_BEFORE + "\nT flat = T(0);" * smooth,
        functions=f"{forward.functions}\n{_JOINT_FUNCTIONS}",
        folded=len(sums),
        resident=_RESIDENT,
    )


class Classes(Form):
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


class _Kind(NamedTuple):
    """A row: its program, whether it keeps rows, tells of targets, and writes the gradient."""

    program: Callable[[bool, bool], Program]
    keeps: bool
    tells: bool
    writes: bool


def _bound(client: Any, plan: Any) -> Callable[..., Any] | None:
    kind, specs, (axis, ignore, smoothing, z_loss) = _KINDS[plan.op.name], plan.specs, plan.attrs
    places, args = given(specs, plan.op.args), plan.op.args
    logits = specs[args.index("logits")]
    shape, outs = logits.shape, plan.out if isinstance(plan.out, tuple) else (plan.out,)
    wide = compute_of(logits.dtype)
    inputs = [_side(arg, specs[i], shape, axis) for arg, i in places.items()]
    weighted, smooth = "weight" in places, smoothing > 0
    mass = _Mass(client, specs[-1], wide) if weighted and smooth else None
    if mass is not None:
        inputs.append(one_of("mass", mass.spec, shape))
    parted = kind.keeps and "dy" not in places
    written = (rows_of("dx", outs[0], shape),) if kind.writes and not parted else ()
    scalars = (float(ignore), smoothing, z_loss)
    target = specs[args.index("target")]
    form = Classes(NAME, target, axis, shape[axis], ignore) if kind.tells else None
    work = Work(client, shape, (axis,), tuple(inputs), written, wide, wide, scalars, form)
    if not supported(work):
        return None
    program = (_parted_program if parted else kind.program)(weighted, smooth)
    held = program if kind.keeps else None
    if not kind.writes:
        held = replace(program, brief=True)
    order = tuple(places.values())
    if mass is not None:
        order = (*order, len(specs))
    bound = _without_gradient if parted else bind
    inner = bound(plan, work, held, program, order)
    assert inner is not None

    def run(*handles: Any) -> Any:
        assert mass is not None
        return inner(*handles, mass(handles[-1]))

    made = inner if mass is None else run
    made.keeps = kind.keeps and _keeps(work, program)  # type: ignore[attr-defined]
    return made


def _side(arg: str, spec: Spec, shape: Shape, axis: int) -> Side:
    if arg == "logits":
        return rows_of(arg, spec, shape)
    if arg == "weight":
        return column_of(arg, spec, shape, axis)
    return row_of(arg, spec, shape, (axis,))


def _without_gradient(
    plan: Any, work: Work, held: Program | None, stream: Program, places: Sequence[int]
) -> Callable[..., Any]:
    """As ``bind``, of a plan whose first output has length 0."""
    none, *outs = plan.out
    launch = launches(Parts(work, held, stream, tuple(places)), tuple(outs))

    def run(*handles: Any) -> Any:
        made = launch([handles[i].address for i in places])
        return allocate(work.client.pool, none), *made

    return run


def quickly(program: Program) -> Program:
    """The same with exponentials that are exact enough for results of half types."""
    functions = f"#define exp_of quick_exp\n{program.functions}"
    return replace(program, name=f"{program.name}_quick", functions=functions)


def _keeps(work: Work, program: Program) -> bool:
    """Whether there are rows, and each is read once."""
    vec = Kernel(work, program, program, skews=True).vec
    return work.rows > 0 and held_sharing(work, program, vec) is not None


class Into:
    """A row without class weights into memory that is there.

    ``specs`` are those of dy if the row has one, logits [N, V] and dense targets, ``attrs`` those
    behind the axis, ``op`` is who speaks of a wrong target. ``dx`` has a dtype and strides of its
    own, and may lie ``over`` the logits where rows are kept: they are read as a whole before. What
    is ``quick`` takes exponentials that are exact enough for results of half types.
    """

    def __init__(
        self,
        client: Any,
        op: str,
        name: str,
        specs: Sequence[Spec],
        dx: Spec | None,
        attrs: Any,
        over: bool = False,
        quick: bool = False,
    ) -> None:
        kind, (ignore, smoothing, z_loss) = _KINDS[name], attrs
        *_, logits, target = specs
        shape, wide = logits.shape, compute_of(logits.dtype)
        dy = [row_of("dy", spec, shape, (1,)) for spec in specs[:-2]]
        inputs = (*dy, rows_of("logits", logits, shape), row_of("target", target, shape, (1,)))
        written = () if dx is None else (rows_of("dx", dx, shape),)
        self.faults, self.form = client.faults, Classes(op, target, 1, shape[1], ignore)
        program = kind.program(False, smoothing > 0)
        if over:
            # What is written may be what is read.
            functions = f"{program.functions}\n#define __restrict__"
            program = replace(program, name=f"{program.name}_over", functions=functions)
        program = quickly(program) if quick else program
        scalars = (float(ignore), smoothing, z_loss)
        work = Work(client, shape, (1,), inputs, written, wide, wide, scalars, self.form)
        self.kernel = Kernel(work, program if kind.keeps else None, program)
        self.written = len(written)

    @property
    def keeps(self) -> bool:
        """Whether a row is read as a whole before any of it is written, from aligned addresses."""
        kernel = self.kernel
        held, _ = kernel.programs
        return held is not None and held_sharing(kernel.work, held, kernel.vec) is not None

    def __call__(self, *addresses: int) -> None:
        """Queue it, with the addresses of outputs and operands."""
        kernel = self.kernel
        launcher, _, _ = kernel.made(kernel.pick((*addresses[: self.written], addresses[-2])))
        launcher(*addresses, *self.faults.parameters(self.form))


_KINDS = {
    NAME: _Kind(_forward_program, False, True, False),
    f"{NAME}_backward": _Kind(_backward_program, False, False, True),
    f"{NAME}_joint": _Kind(_joint_program, True, True, True),
}
KERNELS = dict.fromkeys(_KINDS, _bound)
