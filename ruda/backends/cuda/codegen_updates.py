"""CUDA C of optimizer steps: one formula for a tensor, or for all tensors of a group in one launch.

``once`` makes constants from scalars in double, one thread a block; ``move`` is done to each
element: ``p`` and the state are changed in place, ``g`` is the gradient to go down by. Constants
are rounded to the type of the arithmetic, as the rows do it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import DType

THREADS = 256
# Elements that a block has: of many, so many that what it computes once is nothing beside them.
LEAST, MOST = 1 << 11, 1 << 15


@dataclass(frozen=True)
class Formula:
    """An optimizer step in C; ``settings`` are the row's scalars after the learning rate."""

    state: tuple[str, ...]
    settings: tuple[str, ...]
    constants: tuple[tuple[str, str], ...]
    move: str
    once: str = ""
    counted: bool = True


@dataclass(frozen=True)
class Update:
    """A class of kernels: ``scalars`` are lr, settings and weight decay, with the dtype in memory.

    None for one by value; ``decay`` is "none", "coupled" (in the gradient) or "decoupled".
    """

    op: str
    formula: Formula
    own: DType
    grad: DType
    step: DType | None
    scalars: tuple[tuple[str, DType | None], ...]
    decay: str
    flags: tuple[bool, ...]
    maximize: bool

    @property
    def name(self) -> str:
        """The name of the kernels, which end in one and many."""
        forms = "".join("v" if dtype is None else code_of(dtype) for _, dtype in self.scalars)
        flags = "".join(str(int(flag)) for flag in (*self.flags, self.maximize))
        kinds = f"{code_of(self.own)}_{code_of(self.grad)}"
        count = "" if self.step is None else "_" + code_of(self.step)
        return f"{self.op}_{kinds}{count}_{forms}_{self.decay}_{flags}"

    @property
    def tensors(self) -> int:
        """The parameter and its state."""
        return 1 + len(self.formula.state)

    @property
    def words(self) -> int:
        """Eight-byte words that a tensor takes in a table."""
        return 2 * self.tensors + 2 * (self.step is not None) + len(self.scalars) + 1


_TEXT = """#include "ruda/rows.cuh"

typedef {compute} T;
typedef {own} P;
typedef {grad} G;
static const int VEC = {vec}, WORDS = {words};
struct Words {{ u64 at[WORDS]; }};

// The words of a tensor: where parameter and state are, where they go, {step_word}the scalars, and
// the number of elements. Results may lie where operands are. A block has a part of one tensor.
// Gradients are taken times *scale_at; where *whether is false, nothing happens. Both may be null.
// Where blocks are counted in *arrived, a block counts itself once it has read how many steps there
// were, and *last says that no other will read that.
__device__ __forceinline__ void step_of(const u64* word, const G* grad, const double* scale_at,
                                        const bool* whether, i64 from, i64 end, u32* arrived,
                                        bool* last) {{
    if (whether && !*whether) return;
{pointers}
    const bool aligned = (({joined} | (u64)grad) & 15) == 0;
    const i64 packed_end = aligned ? from + (end - from) / VEC * VEC : from;
    // Elements are on their way while constants are made, and the next ones while these change.
    const i64 first = from + threadIdx.x * VEC;
    Pack<G, VEC> g_next;
{packs}
    if (first < packed_end) {{
        g_next = fetch<VEC>(grad + first);
{first_packs}
    }}
    const T scale_ = scale_at ? T(*scale_at) : T(1);
    __shared__ T once[{constants}];
    if (threadIdx.x < {makers}) {{
{scalars}
        if (threadIdx.x == 0) {{
{once}
        }}
    }}
    __syncthreads();
    // By the thread that has elements last of all: it waits, the others go on.
    if (arrived && threadIdx.x == {threads} - 1) {{
        __threadfence();
        *last = atomicAdd(arrived, 1u) == gridDim.x - 1;
    }}
{unpacked}
    for (i64 i = first; i < packed_end; i += {threads} * VEC) {{
        T g_[VEC];
        widened(g_, g_next);
{loads}
        const i64 next = i + {threads} * VEC;
        if (next < packed_end) {{
            g_next = fetch<VEC>(grad + next);
{next_packs}
        }}
        EACH {{
            T g = g_[k] * scale_;
{elements}
{move}
{back}
        }}
{stores}
    }}
    for (i64 i = packed_end + threadIdx.x; i < end; i += {threads}) {{
        T g = to<T>(grad[i]) * scale_;
{single_loads}
{move}
{single_stores}
    }}
}}

extern "C" __global__ void __launch_bounds__({threads})
{name}_one(const Words words, const G* grad, const double* scale, const bool* keep, i64 chunk) {{
    const i64 n = (i64)words.at[WORDS - 1];
    for (i64 from = (i64)blockIdx.x * chunk; from < n; from += (i64)gridDim.x * chunk) {{
        const i64 end = from + chunk < n ? from + chunk : n;
        step_of(words.at, grad, scale, keep, from, end, nullptr, nullptr);
        __syncthreads();
    }}
}}

// table: [tensors, WORDS]; grads: their addresses; chunks: which tensor, and which part of `chunk`
// elements of it.{arriving}
extern "C" __global__ void __launch_bounds__({threads})
{name}_many(const u64* table, const u64* grads, const u32* chunks, const double* scale,
    const bool* keep, {parameters}i64 chunk) {{
    const u32 tensor = chunks[2 * blockIdx.x], part = chunks[2 * blockIdx.x + 1];
    const u64* word = table + (u64)tensor * WORDS;
    const i64 n = (i64)word[WORDS - 1], from = (i64)part * chunk;
    const i64 end = from + chunk < n ? from + chunk : n;
{stepping}
}}
{count}
"""

_STEPPING = "    step_of(word, (const G*)grads[tensor], scale, keep, from, end, nullptr, nullptr);"

# Steps are counted by the block that is the last to have read them.
_COUNTING = """    __shared__ bool last;
    if (keep && !*keep) return;
    step_of(word, (const G*)grads[tensor], scale, keep, from, end, arrived, &last);
    __syncthreads();
    if (!last) return;
    for (u64 i = threadIdx.x; i < tensors; i += {threads}) {{
        const u64* of = table + i * WORDS;
        *({step}*)of[{to}] = *(const {step}*)of[{at}] + 1;
    }}
    if (threadIdx.x == 0) *arrived = 0;"""

_COUNT = """
// Steps of tensors that are all empty.
extern "C" __global__ void __launch_bounds__({threads})
{name}_count(const u64* table, const bool* keep, u64 tensors) {{
    const u64 i = (u64)blockIdx.x * {threads} + threadIdx.x;
    if (i >= tensors || (keep && !*keep)) return;
    const u64* word = table + i * WORDS;
    *({step}*)word[{to}] = *(const {step}*)word[{at}] + 1;
}}
"""


def source(kernel: Update) -> str:
    """The CUDA C of all kernels of a class."""
    names, compute = ("p", *kernel.formula.state), computed(kernel.own)
    own, count = stored(kernel.own), kernel.tensors
    at = count * 2
    step, stepping = "", _STEPPING
    if kernel.step is not None:
        places = {"threads": THREADS, "step": stored(kernel.step), "at": at, "to": at + 1}
        step = _COUNT.format(name=kernel.name, **places)
        stepping = _COUNTING.format(**places)
    pointers = [f"    const P* {n}_from = (const P*)word[{j}];" for j, n in enumerate(names)]
    pointers += [f"    P* {n}_to = (P*)word[{count + j}];" for j, n in enumerate(names)]
    constants = _constants(kernel)
    return _TEXT.format(
        compute=compute,
        own=own,
        grad=stored(kernel.grad),
        vec=16 // max(kernel.own.itemsize, kernel.grad.itemsize),
        words=kernel.words,
        step_word="the counts of steps, " * (kernel.step is not None),
        constants=max(1, len(constants)),
        scalars=_scalars(kernel),
        makers=32 if _powers(kernel) else 1,
        once="\n".join(
            f"            once[{j}] = T({_by_name(kernel, v)});"
            for j, (_, v) in enumerate(constants)
        ),
        unpacked="\n".join(f"    const T {n} = once[{j}];" for j, (n, _) in enumerate(constants)),
        pointers="\n".join(pointers),
        joined=" | ".join(f"word[{j}]" for j in range(2 * count)),
        threads=THREADS,
        move=_move(kernel),
        **_moved(names),
        name=kernel.name,
        count=step,
        stepping=stepping,
        arriving=" arrived: 0 between launches." * bool(step),
        parameters="u32* arrived, u64 tensors, " * bool(step),
    )


def _moved(names: tuple[str, ...]) -> dict[str, str]:
    """How the parameter and its state come and go, by elements and by packs of them."""
    lines = {
        "packs": "    Pack<P, VEC> {0}_next;",
        "first_packs": "        {0}_next = fetch<VEC>({0}_from + first);",
        "next_packs": "            {0}_next = fetch<VEC>({0}_from + next);",
        "loads": "        T {0}_[VEC]; widened({0}_, {0}_next);",
        "elements": "            T {0} = {0}_[k];",
        "back": "            {0}_[k] = {0};",
        "stores": "        put({0}_to + i, {0}_);",
        "single_loads": "        T {0} = to<T>({0}_from[i]);",
        "single_stores": "        {0}_to[i] = to<P>({0});",
    }
    return {place: "\n".join(map(line.format, names)) for place, line in lines.items()}


_POWER = re.compile(r"pow\((\w+), t\)")


def _powers(kernel: Update) -> list[str]:
    """What is taken to the power of the step, if that is several things: each takes long."""
    texts = [kernel.formula.once, *(value for _, value in _constants(kernel))]
    bases = list(dict.fromkeys(base for text in texts for base in _POWER.findall(text)))
    return bases if len(bases) > 1 else []


def _by_name(kernel: Update, text: str) -> str:
    """``text`` with the powers that lanes have taken side by side."""
    return _POWER.sub(r"power_\1", text) if _powers(kernel) else text


def _side_by_side(bases: list[str]) -> list[str]:
    """Each lane of a warp takes one power, all of them at once."""
    chosen = bases[-1]
    for lane, base in reversed([*enumerate(bases[:-1])]):
        chosen = f"threadIdx.x == {lane} ? {base} : {chosen}"
    lines = [f"const double power_ = pow({chosen}, t);"]
    for lane, base in enumerate(bases):
        lines.append(f"const double power_{base} = __shfl_sync(~0u, power_, {lane});")
    return [f"        {line}" for line in lines]


def _scalars(kernel: Update) -> str:
    """The scalars as doubles, by value or from memory, and the number of the step from 1."""
    lines = []
    at = 2 * kernel.tensors
    if kernel.step is not None:
        lines.append(
            f"        const double t = to<double>(*(const {stored(kernel.step)}*)word[{at}]) + 1.0;"
        )
        at += 2
    for j, (name, dtype) in enumerate(kernel.scalars):
        value = (
            f"__longlong_as_double((i64)word[{at + j}])"
            if dtype is None
            else f"to<double>(*(const {stored(dtype)}*)word[{at + j}])"
        )
        lines.append(f"        const double {name} = {value};")
    if powers := _powers(kernel):
        lines += _side_by_side(powers)
    lines += [f"        {line}" for line in _by_name(kernel, kernel.formula.once).splitlines()]
    return "\n".join(lines)


def _constants(kernel: Update) -> tuple[tuple[str, str], ...]:
    constants = kernel.formula.constants
    if kernel.decay == "coupled":
        return (*constants, ("decay_", "weight_decay"))
    if kernel.decay == "decoupled":
        return (*constants, ("shrink_", "1.0 - lr * weight_decay"))
    return constants


def _move(kernel: Update) -> str:
    """What happens to one element, weight decay included."""
    lines = ["g = -g;"] * kernel.maximize
    lines += ["g += p * decay_;"] * (kernel.decay == "coupled")
    lines += ["p *= shrink_;"] * (kernel.decay == "decoupled")
    lines += kernel.formula.move.splitlines()
    return "\n".join(f"            {line}" for line in lines)
