"""Reductions over any axes: sums, products, extremes and their places, truth, moments, norms.

One launch, or two where an output is shared by several blocks: the second joins their states in a
fixed order, so that results do not depend on timing. ``reduce_shape`` decides how; what is kept
while reading is a fold of ``ruda/fold.cuh``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ruda.backends.cuda import source
from ruda.backends.cuda.launch import Launcher
from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.reduce_shape import THREADS, Axes, Shaped, axes_of, shape_of
from ruda.backends.cuda.types import code_of, computed, stored
from ruda.core.dtypes import DType, compute_of, real_of, uint8
from ruda.core.errors import StrategyError
from ruda.core.spec import Spec, spec_of

_HERE = Path(__file__)


class Fold(NamedTuple):
    """A fold of ``ruda/fold.cuh``: its name, its type in C with T for elements, its state."""

    name: str
    form: str
    state: Callable[[DType], int]
    value: float = 0.0
    ordered: bool = False


def _same(dtype: DType) -> int:
    return dtype.itemsize


def _real(dtype: DType) -> int:
    return real_of(dtype).itemsize


_FOLDS = {
    "sum": Fold("sum", "Sum<T>", _same),
    "mean": Fold("mean", "Mean<T>", _same),
    "prod": Fold("prod", "Product<T>", _same),
    "max": Fold("max", "Largest<T>", _same),
    "min": Fold("min", "Smallest<T>", _same),
    "any": Fold("any", "Some<T>", lambda _: 4),
    "all": Fold("all", "Every<T>", lambda _: 4),
    "count_nonzero": Fold("count_nonzero", "Nonzero<T>", lambda _: 8),
    "argmax": Fold("argmax", "Where<T, true>", lambda _: 16, ordered=True),
    "argmin": Fold("argmin", "Where<T, false>", lambda _: 16, ordered=True),
    "var": Fold("var", "Spread<T, false>", lambda t: t.itemsize + 2 * _real(t)),
    "std": Fold("std", "Spread<T, true>", lambda t: t.itemsize + 2 * _real(t)),
    "logsumexp": Fold("logsumexp", "LogSumExp<T>", lambda t: 2 * t.itemsize),
}
_NORMS = {
    0.0: Fold("norm_0", "Nonzero<T>", lambda _: 8),
    1.0: Fold("norm_1", "SumOfSizes<T>", _real),
    2.0: Fold("norm_2", "RootOfSquares<T>", _real),
    math.inf: Fold("norm_inf", "LargestSize<T>", _real),
    -math.inf: Fold("norm_low", "SmallestSize<T>", _real),
}


class Typed(NamedTuple):
    """A fold with the types of a plan: elements in memory, while computing, and of the output."""

    fold: Fold
    given: DType
    compute: DType
    out: DType

    @property
    def form(self) -> str:
        """The type of the fold in C."""
        return self.fold.form.replace("<T", f"<{computed(self.compute)}")

    @property
    def state(self) -> int:
        """Bytes of an accumulator."""
        return self.fold.state(self.compute)

    @property
    def name(self) -> str:
        """The beginning of the names of its kernels."""
        codes = "_".join(code_of(t) for t in (self.given, self.compute, self.out))
        return f"{self.fold.name}_{codes}"


def typed_of(plan: Any) -> Typed:
    """The fold of ``plan`` and its types."""
    op, x = plan.op.name, plan.specs[0]
    fold, value = _FOLDS.get(op), 0.0
    if op in ("var", "std"):
        count = math.prod(x.shape[a] for a in plan.attrs[0])
        value = max(count - plan.attrs[2], 0.0)
    elif op == "vector_norm":
        value = plan.attrs[2]
        fold = _NORMS.get(value) or Fold("norm_p", "RootOfPowers<T>", _real)
    if fold is None:
        raise StrategyError(op, "has no CUDA kernel yet", x)
    wanted = plan.op.dtype_of_operands(plan)[0] or plan.out.dtype
    if op in ("any", "all", "count_nonzero"):
        wanted = x.dtype
    return Typed(fold._replace(value=value), x.dtype, compute_of(wanted), plan.out.dtype)


def kernel_of(typed: Typed, shaped: Shaped) -> tuple[str, str]:
    """Name and source of the first launch."""
    parts = shaped.splits > 1
    facts = "_".join(f"{k[0].lower()}{v}" for k, v in shaped.settings.items())
    name = f"{typed.name}_{shaped.kernel}_{facts}{'_parts' * parts}"
    text = source.instance(
        str(_HERE.with_name(f"reduce_{shaped.kernel}.py")),
        NAME=name,
        FOLD=typed.form,
        IN=stored(typed.given),
        OUT=stored(typed.out),
        TARGET="State" if parts else stored(typed.out),
        PARTS=int(parts),
        **shaped.settings,
    )
    return name, text


def parts_kernel_of(typed: Typed) -> tuple[str, str]:
    """Name and source of the launch that joins parts."""
    name = f"{typed.name}_join"
    here = str(_HERE.with_name("reduce_parts.py"))
    return name, source.instance(here, NAME=name, FOLD=typed.form, OUT=stored(typed.out))


def bind(client: Any, plan: Any) -> Callable[[Any], Any]:
    """The function from the operand's handle to the reduced output."""
    typed, x = typed_of(plan), plan.specs[0]
    axes = axes_of(x, plan.attrs[0], typed.fold.ordered)
    count = math.prod(x.shape[a] for a in plan.attrs[0])
    setting = struct.pack("<qd", count, typed.fold.value)
    out, pool = plan.out, client.pool
    if out.size == 0:
        return lambda h: allocate(pool, out)
    shift = axes.offset * x.dtype.itemsize
    shaped = _shaped(client, typed, axes)
    run = _launches(client, typed, shaped, setting, out)
    # Addresses are multiples of the element: only wide reads ask for more.
    loose = shaped.align // x.dtype.itemsize <= 1
    if loose:
        return lambda h: run(h.address + shift)
    mask = shaped.align - 1
    spare: list[Callable[[int], Any]] = []

    def launch(h: Any) -> Any:
        address = h.address + shift
        if address & mask == 0:
            return run(address)
        if not spare:
            other = _shaped(client, typed, axes, scalar=True)
            spare.append(_launches(client, typed, other, setting, out))
        return spare[0](address)

    return launch


def _shaped(client: Any, typed: Typed, axes: Axes, scalar: bool = False) -> Shaped:
    units = client.driver.multiprocessors
    return shape_of(axes, typed.given.itemsize, typed.state, units, scalar)


def _launches(
    client: Any, typed: Typed, shaped: Shaped, setting: bytes, out: Spec
) -> Callable[[int], Any]:
    """The function from an address to the output: one launch or two."""
    name, text = kernel_of(typed, shaped)
    first = Launcher(client, text, name, shaped.grid, THREADS, (1, 1), [shaped.packed(setting)])
    pool = client.pool
    if shaped.splits == 1:

        def once(address: int) -> Any:
            result = allocate(pool, out)
            first(result.address, address)
            return result

        return once
    between = spec_of(client, (shaped.splits * out.size * typed.state,), uint8)
    team = min(THREADS, 1 << (shaped.splits - 1).bit_length())
    fixed = struct.pack("<3q", out.size, shaped.splits, team) + setting
    name, text = parts_kernel_of(typed)
    blocks = -(-out.size // (THREADS // team))
    second = Launcher(client, text, name, blocks, THREADS, (1, 1), [fixed])

    def twice(address: int) -> Any:
        parts = allocate(pool, between)
        result = allocate(pool, out)
        first(parts.address, address)
        second(result.address, parts.address)
        return result

    return twice


KERNELS = dict.fromkeys((*_FOLDS, "vector_norm"), bind)
