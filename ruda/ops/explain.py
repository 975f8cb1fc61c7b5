"""``ruda.explain``: which strategy an operator runs with given operands, and why not the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.core.errors import ArgumentError
from ruda.ops.attention import explain_attention
from ruda.ops.conv import explain_conv
from ruda.ops.strategy import Explanation

_EXPLAINERS: dict[str, Callable[..., Explanation]] = {
    "attention": explain_attention,
    "conv": explain_conv,
}


def explain(operator: str, /, *operands: Any, **options: Any) -> Explanation:
    """Which strategy an operator runs with ``operands``, and what each other one lacks.

    ``operator`` is ``"attention"`` (see ``nn.functional.explain_attention``) or ``"conv"`` (see
    ``nn.functional.explain_conv``). Nothing is computed. Raises what a call would raise, and
    ``ArgumentError`` for an operator that has no strategies.

    >>> x = ruda.ones((1, 1, 2, 4))
    >>> print(explain("attention", x, x, x))
    chosen: reference
    composite: can run
    vendor: cuDNN runs on CUDA devices alone
    flash: tensor cores are what CUDA devices have
    flash_unit: it is a kernel of CUDA devices
    """
    found = _EXPLAINERS.get(operator)
    if found is None:
        expected = f"one of {', '.join(_EXPLAINERS)}"
        raise ArgumentError("explain", "no operator with strategies", repr(operator), expected)
    return found(*operands, **options)
