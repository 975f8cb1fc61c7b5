"""Kernels of the extra ``cpu``: which rows have one, and from which size on.

Each family is a file with ``bind(plan)``, which gives a ``run`` or None, for NumPy. A file is
imported, and numba with it (0.3 s), by the first plan that is large enough; a kernel compiles when
the first plan binds it (0.2 s, or 10 ms from the user's cache), always on the thread that plans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from ruda.core import config
from ruda.core.errors import ArgumentError


class _Family(NamedTuple):
    """A file of kernels, the rows it has, and the elements from which on a plan is worth it."""

    module: str
    rows: tuple[str, ...]
    least: int
    dtypes: tuple[str, ...] = ("float32",)


_ACTIVATIONS = (
    "tanh sigmoid silu silu_backward swiglu gelu gelu_backward gelu_tanh gelu_tanh_backward"
)
_ROWS = "softmax log_softmax layer_norm rms_norm"
# A program that never meets these sizes never pays for numba. What only training calls comes by the
# thousand, hence lower bounds: 65 k parameters take 0.2 ms in NumPy and 0.04 in the kernel, the
# loss of 128 x 10 logits 0.12 and 0.03, the gradient of 32 k relus 0.05 and 0.02. Convolutions need
# no numba, but hold BLAS to one thread: with a busy second core one of 8 k elements took 28 ms in
# NumPy and 0.3 so. Attention goes head by head in NumPy: queries of [16, 4, 32, 16] took 13 ms
# there and 0.7 in the kernel.
_FAMILIES = (
    _Family("pointwise", tuple(_ACTIVATIONS.split()), 1 << 17),
    _Family("rows", tuple(f"{n}{s}" for n in _ROWS.split() for s in ("", "_backward")), 1 << 16),
    _Family("pointwise", ("relu_backward",), 1 << 15),
    _Family("losses", ("cross_entropy", "cross_entropy_backward"), 1 << 10),
    _Family("attention", ("attention", "attention_backward"), 1 << 13),
    _Family("conv", ("conv", "conv_weight_backward", "conv_data_backward"), 1 << 12),
    _Family("updates", ("adamw_step", "momentum_step"), 1 << 15),
    _Family("casts", ("astype",), 1 << 17, ("float32", "bfloat16")),
)
_BY_ROW = {row: family for family in _FAMILIES for row in family.rows}
# Those that halves may run in float32; parameters in halves have masters to be stepped.
IN_FLOAT32 = frozenset(_BY_ROW) - {"adamw_step", "momentum_step", "astype"}
_NAMES = "auto or off"


def enabled() -> bool:
    """Whether the extra ``cpu`` is installed and not switched off."""
    wanted = config.value("RUDA_CPU_KERNELS")
    if wanted not in ("auto", "off"):
        raise ArgumentError("RUDA_CPU_KERNELS", "unknown value", repr(wanted), _NAMES)
    return wanted == "auto" and _installed()


@cache
def _installed() -> bool:
    return find_spec("numba") is not None and find_spec("threadpoolctl") is not None


def bind(plan: Any) -> Callable[..., Any] | None:
    """The kernel's ``run`` for a plan, or None where NumPy is to run it."""
    family = _family(plan)
    return None if family is None else loaded(family.module, "bind")(plan)


def loop(plan: Any) -> Callable[..., Any] | None:
    """The kernel of an elementwise row, on flat operands and a flat result behind them, or None."""
    family = _family(plan)
    if family is None or family.module != "pointwise":
        return None
    return loaded(family.module, "loop")(plan)


def takes(plan: Any) -> bool:
    """Whether a family has the row of a plan of this size and these dtypes."""
    return _family(plan) is not None


def _family(plan: Any) -> _Family | None:
    """The family that has the kernel for a plan of this size and these dtypes."""
    family = _BY_ROW.get(plan.op.name)
    if family is None or _elements(plan) < family.least:
        return None
    return family if _typed(plan, family.dtypes) and enabled() else None


def loaded(module: str, name: str) -> Callable[..., Any]:
    """A function of a file of kernels, which is imported now."""
    return getattr(import_module(f"{__name__}.{module}"), name)  # type: ignore[no-any-return]


def bind_many(plans: Sequence[Any]) -> Callable[..., None] | None:
    """The kernel of several plans of one row together, whose sizes count together."""
    family = _BY_ROW.get(plans[0].op.name)
    if family is None or family.module != "updates" or not enabled():
        return None
    if sum(map(_elements, plans)) < family.least:
        return None
    if not all(_typed(plan, family.dtypes) for plan in plans):
        return None
    return loaded(family.module, "bind_many")(plans)


def _elements(plan: Any) -> int:
    """The size of the largest operand; a Python scalar is none."""
    return max((spec.size for spec in plan.specs if not spec.weak), default=0)


def _typed(plan: Any, dtypes: tuple[str, ...]) -> bool:
    """Whether every operand of real numbers, and what it is cast to, has one of the dtypes."""
    casts = plan.op.dtype_of_operands(plan)
    pairs = [(s, d) for s, d in zip(plan.specs, casts, strict=True) if s.shape and not s.weak]
    met = [d for s, d in pairs if s.dtype.is_inexact]
    return all(s.dtype.name in dtypes for s, _ in pairs if s.dtype.is_inexact) and all(
        d is None or d.name in dtypes for d in met
    )
