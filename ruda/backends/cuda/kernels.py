"""Which rows have kernels of their own on CUDA: each module lists its own under ``KERNELS``.

An entry binds one plan: from the client and the plan to the function that runs it, or None where
the module has no kernel for these dtypes or this geometry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ruda.backends.cuda.blas import gemm
from ruda.backends.cuda.dnn import attention, conv
from ruda.backends.cuda.fft import rows as fft
from ruda.backends.cuda.prim import (
    categorical,
    class_gradient,
    compact,
    counted,
    create,
    cross_entropy,
    cross_entropy_ahead,
    dropout,
    formulas,
    fused,
    gather,
    grid_sample,
    join,
    joint_norm,
    linear_loss,
    norms,
    pad,
    pool,
    random,
    reduce,
    regions,
    resample,
    rotary,
    scaled,
    scan,
    search,
    select,
    softmax,
    sort,
    triangle,
    updates,
    views,
    windows,
    writes,
)
from ruda.backends.cuda.solver import adjugate, cross
from ruda.backends.cuda.solver import rows as solver

Bind: TypeAlias = Callable[[Any, Any], Callable[..., Any] | None]

MODULES = (
    attention,
    categorical,
    class_gradient,
    compact,
    conv,
    counted,
    create,
    cross,
    cross_entropy,
    cross_entropy_ahead,
    dropout,
    fft,
    formulas,
    fused,
    gather,
    gemm,
    grid_sample,
    join,
    joint_norm,
    linear_loss,
    norms,
    pad,
    pool,
    random,
    reduce,
    regions,
    resample,
    rotary,
    scaled,
    scan,
    search,
    select,
    softmax,
    solver,
    sort,
    triangle,
    updates,
    views,
    windows,
    writes,
    # Takes the place of the solver's row of that name.
    adjugate,
)
KERNELS: Mapping[str, Bind] = {name: bind for m in MODULES for name, bind in m.KERNELS.items()}
# Of the operators with strategies, why one cannot run.
LACKS = {"attention": attention.lack, "conv": conv.lack}
