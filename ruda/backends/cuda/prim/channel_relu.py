"""The gradient of relu behind batch norm: what was above 0 follows from the input of the norm.

So the result of relu is not read again, and its gradient is never written.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ruda.backends.cuda.memory import allocate
from ruda.backends.cuda.prim.channels import GRADIENT, SUMS, Around, Backward, fitting
from ruda.backends.cuda.types import stored
from ruda.core.spec import Spec, is_absent


def backward(client: Any, plan: Any) -> Callable[..., Any] | None:
    """``standard_norm_relu_backward`` of channels, which sees in x what was above 0."""
    dy, x, weight, bias, mean, var = plan.specs
    axes, _, affine = plan.attrs
    at = fitting(x.shape, axes, weight, bias)
    kinds = dy.dtype is x.dtype and mean.dtype is var.dtype is plan.out[1].dtype
    if at is None or not kinds or math.prod(affine) != at.count or not x.size:
        return None
    inner = _without_bias(plan)
    around = _masked(SUMS, plan), _masked(GRADIENT, plan)
    kernel = Backward(client, inner, at, around)

    def run(dy: Any, x: Any, weight: Any, bias: Any, mean: Any, var: Any) -> Any:
        outs = tuple([allocate(client.pool, spec) for spec in plan.out])
        dy, var = kernel.settle[0](dy), kernel.settle[3](var)
        w, b = (0 if h is None else h.address for h in (weight, bias))
        given = (x, weight, mean, var)
        kernel.run([h.address for h in outs], dy.address, given, (var.address, w, b), (b,))
        return outs

    return run


class _Inner(NamedTuple):
    """The part of a plan that ``Backward`` looks at."""

    specs: tuple[Spec, ...]
    attrs: tuple[Any, ...]
    out: tuple[Spec, ...]


def _without_bias(plan: Any) -> _Inner:
    """The plan of the gradient without relu."""
    return _Inner((*plan.specs[:3], *plan.specs[4:]), plan.attrs, plan.out)


def _masked(op: int, plan: Any) -> Around:
    """What zeroes dy where the result of the norm, in its own dtype, is not above 0."""
    _, x, weight, bias, _, var = plan.specs
    w, b = (stored(x.dtype if is_absent(s) else s.dtype) for s in (weight, bias))
    base = "base[k] = offset && present ? to<T>(offset[channel + k]) : T(0);"
    if op == SUMS:
        operands = f", const {stored(var.dtype)}* spread, const {w}* factor, const {b}* offset"
        gain = (
            "const T rstd = present ? rsqrt(spread[channel + k] + T(g.eps)) : T(0); "
            "gain[k] = factor && present ? rstd * to<T>(factor[channel + k]) : rstd; "
        )
        setup = "T gain[OWN], base[OWN];"
    else:
        operands, gain = f", const {b}* offset", "gain[k] = scale[k]; "
        setup = "const bool present = true; T gain[OWN], base[OWN];"
    loop = '_Pragma("unroll") for (int k = 0; k < OWN; ++k) { '
    beside = (
        "read_chunk(beside, dy, w, i, g); "
        '_Pragma("unroll") for (int j = 0; j < STEPS; ++j) '
        '_Pragma("unroll") for (int k = 0; k < VEC; ++k) { '
        "const T above = (to<T>(read[j].at[k]) - mean[OF(k)]) * gain[OF(k)] + base[OF(k)]; "
        "if (!(to<T>(to<STORED>(above)) > T(0))) beside[j].at[k] = to<STORED>(T(0)); }"
    )
    settings = {"OPERANDS": operands, "SETUP": f"{setup} {loop}{gain}{base} }}", "BESIDE": beside}
    name = f"relu_{w}_{b}"
    return Around(name, 3 if op == SUMS else 1, "", tuple(settings.items()))


KERNELS = {"standard_norm_relu_backward": backward}
