"""CUDA C of optimizer steps: one formula for a tensor, or for all tensors of a group in one launch.

``once`` makes constants from scalars in double, one thread a block; ``move`` is done to each
element: ``p`` and the state are changed in place, ``g`` is the gradient to go down by. Constants
are rounded to the type of the arithmetic, as the rows do it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import DType, float32

THREADS = 256
# Elements that a block has: of many, so many that what it computes once is nothing beside them.
LEAST, MOST = 1 << 11, 1 << 15
# Blocks of a multiprocessor that a crowded formula names from sm_100 on.
_RESIDENT = 4


@dataclass(frozen=True)
class Formula:
    """An optimizer step in C; ``settings`` are the row's scalars after the learning rate.

    ``crowded``: it has so many constants beside its state that the compiler has to be told how many
    registers there are.
    """

    state: tuple[str, ...]
    settings: tuple[str, ...]
    constants: tuple[tuple[str, str], ...]
    move: str
    once: str = ""
    counted: bool = True
    crowded: bool = False


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


_TEXT = """#include "ruda/earlier.cuh"
#include "ruda/rows.cuh"
{defined}
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
    const T scale_ = scale_at ? T(*scale_at) : T(1);
    __shared__ T once[{constants}];
    if (threadIdx.x == 0) {{
{scalars}
{once}
    }}
    __syncthreads();
    // By the thread that has elements last of all: it waits, the others go on.
    if (arrived && threadIdx.x == {threads} - 1) {{
        __threadfence();
        *last = atomicAdd(arrived, 1u) == gridDim.x - 1;
    }}
{unpacked}
{pointers}
    const bool aligned = (({joined} | (u64)grad) & 15) == 0;
    const i64 packed_end = aligned ? from + (end - from) / VEC * VEC : from;
    for (i64 i = from + threadIdx.x * VEC; i < packed_end; i += {threads} * VEC) {{
        T g_[VEC];
        widened(g_, fetch<VEC>(grad + i));
{loads}
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

extern "C" __global__ void {bounds}
{name}_one(const Words words, const G* grad, const double* scale, const bool* keep, i64 chunk) {{
    wait_for_earlier();
    const i64 n = (i64)words.at[WORDS - 1];
    for (i64 from = (i64)blockIdx.x * chunk; from < n; from += (i64)gridDim.x * chunk) {{
        const i64 end = from + chunk < n ? from + chunk : n;
        step_of(words.at, grad, scale, keep, from, end, nullptr, nullptr);
        __syncthreads();
    }}
}}

// table: [tensors, WORDS]; grads: their addresses; chunks: which tensor, and which part of `chunk`
// elements of it.{arriving}
extern "C" __global__ void {bounds}
{name}_many(const u64* table, const u64* grads, const u32* chunks, const double* scale,
    const bool* keep, {parameters}i64 chunk) {{
    wait_for_earlier();
    const u32 tensor = chunks[2 * blockIdx.x], part = chunks[2 * blockIdx.x + 1];
    const u64* word = table + (u64)tensor * WORDS;
    const i64 n = (i64)word[WORDS - 1], from = (i64)part * chunk;
    const i64 end = from + chunk < n ? from + chunk : n;
{stepping}
}}
{count}
"""

# Left to itself, the compiler of sm_100 and sm_120 aims at one block more than there are registers
# for, and spills a few values for it.
_CROWDED = f"""
#if __CUDA_ARCH__ >= 1000
#define BOUNDS __launch_bounds__({THREADS}, {_RESIDENT})
#else
#define BOUNDS __launch_bounds__({THREADS})
#endif
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
extern "C" __global__ void {bounds}
{name}_count(const u64* table, const bool* keep, u64 tensors) {{
    wait_for_earlier();
    const u64 i = (u64)blockIdx.x * {threads} + threadIdx.x;
    if (i >= tensors || (keep && !*keep)) return;
    const u64* word = table + i * WORDS;
    *({step}*)word[{to}] = *(const {step}*)word[{at}] + 1;
}}
"""


def source(kernel: Update) -> str:
    """The CUDA C of all kernels of a class."""
    count, constants = kernel.tensors, _constants(kernel)
    # Halves and float64 have other packs, and as many registers as they want.
    crowded = kernel.formula.crowded and kernel.own is float32
    bounds = "BOUNDS" if crowded else f"__launch_bounds__({THREADS})"
    step, stepping = "", _STEPPING
    if kernel.step is not None:
        at = count * 2
        places = {"threads": THREADS, "step": stored(kernel.step), "at": at, "to": at + 1}
        step = _COUNT.format(name=kernel.name, bounds=bounds, **places)
        stepping = _COUNTING.format(**places)
    return _TEXT.format(
        defined=_CROWDED * crowded,
        bounds=bounds,
        compute=computed(kernel.own),
        own=stored(kernel.own),
        grad=stored(kernel.grad),
        vec=16 // max(kernel.own.itemsize, kernel.grad.itemsize),
        words=kernel.words,
        step_word="the counts of steps, " * (kernel.step is not None),
        constants=max(1, len(constants)),
        scalars=_scalars(kernel),
        once="\n".join(f"        once[{j}] = T({v});" for j, (_, v) in enumerate(constants)),
        unpacked="\n".join(f"    const T {n} = once[{j}];" for j, (n, _) in enumerate(constants)),
        joined=" | ".join(f"word[{j}]" for j in range(2 * count)),
        threads=THREADS,
        move=_move(kernel),
        name=kernel.name,
        count=step,
        stepping=stepping,
        arriving=" arrived: 0 between launches." * bool(step),
        parameters="u32* arrived, u64 tensors, " * bool(step),
        **_memory(("p", *kernel.formula.state)),
    )


def _memory(names: tuple[str, ...]) -> dict[str, str]:
    """How the parameter and its state are pointed at, read and written: in packs, and singly."""
    count = len(names)
    pointers = [f"    const P* {n}_from = (const P*)word[{j}];" for j, n in enumerate(names)]
    pointers += [f"    P* {n}_to = (P*)word[{count + j}];" for j, n in enumerate(names)]
    each = {
        "loads": "        T {n}_[VEC]; widened({n}_, fetch<VEC>({n}_from + i));",
        "elements": "            T {n} = {n}_[k];",
        "back": "            {n}_[k] = {n};",
        "stores": "        put({n}_to + i, {n}_);",
        "single_loads": "        T {n} = to<T>({n}_from[i]);",
        "single_stores": "        {n}_to[i] = to<P>({n});",
    }
    lines = {part: "\n".join(line.format(n=n) for n in names) for part, line in each.items()}
    return {"pointers": "\n".join(pointers), **lines}


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
    if kernel.formula.once:
        lines += [f"        {line}" for line in kernel.formula.once.splitlines()]
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
