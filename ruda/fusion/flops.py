"""How many multiplications and additions the operators do that products are all there is to."""

from __future__ import annotations

import math
from typing import Any


def operations(plan: Any) -> int:
    """Multiplications and additions of the products of ``plan``, or of a region's steps; else 0.

    >>> x = ruda.ones((8, 4))
    >>> step = ruda.compile(lambda: x @ x.mT)
    >>> _ = step()
    >>> [operations(i.plan) for i in step._all()[0].graph.instructions if i.op == "matmul"]
    [512]
    """
    if plan.op.kind == "region":
        return sum(operations(step.plan) for step in plan.steps)
    count = _COUNTS.get(plan.op.name)
    return 0 if count is None else 2 * count(plan)


def _first(plan: Any) -> Any:
    return plan.out[0] if plan.out.__class__ is tuple else plan.out


def _matmul(plan: Any) -> int:
    return int(_first(plan).size * math.prod(plan.specs[0].shape[-1:]))


def _weight(plan: Any) -> int:
    """All rows, for each element of the weight."""
    return int(_first(plan).size * math.prod(plan.specs[0].shape[:-1]))


def _conv(plan: Any) -> int:
    """A group's channels and the window, for each element of the result."""
    return int(_first(plan).size * math.prod(plan.specs[1].shape[1:]))


def _conv_data(plan: Any) -> int:
    return int(plan.specs[0].size * math.prod(plan.specs[1].shape[1:]))


def _conv_weight(plan: Any) -> int:
    shape = _shape_of(plan, "w_shape")
    return int(plan.specs[0].size * math.prod(shape[1:]))


def _shape_of(plan: Any, name: str) -> Any:
    return plan.attrs[plan.op.attrs.index(name)]


def _pairs(plan: Any, q: Any, k: Any) -> int:
    """Queries with keys of all heads; a window is not looked at, a causal half of them is."""
    rows = int(math.prod(q.shape[:-1]) * k.shape[-2])
    causal = _shape_of(plan, "is_causal") and q.shape[-2] == k.shape[-2]
    return rows // 2 if causal else rows


def _attention(plan: Any) -> int:
    q, k, v = plan.specs[:3]
    return int(_pairs(plan, q, k) * (q.shape[-1] + v.shape[-1]))


def _attention_backward(plan: Any) -> int:
    """Scores again, and the gradients of probabilities, q, k and v."""
    q, k, v = plan.specs[2:5]
    return int(_pairs(plan, q, k) * (3 * q.shape[-1] + 2 * v.shape[-1]))


def _logits(plan: Any, hidden: int, products: int) -> int:
    x, weight = plan.specs[hidden : hidden + 2]
    return int(products * x.size * weight.shape[0])


def _linear_loss_sum(plan: Any) -> int:
    """The logits, and as many products again for each gradient that is wanted."""
    return _logits(plan, 0, 1 + sum(map(bool, _shape_of(plan, "wanted")[:2])))


_COUNTS: dict[str, Any] = {
    "matmul": _matmul,
    "matmul_as": _matmul,
    "linear": _matmul,
    "linear_weight_backward": _weight,
    "conv": _conv,
    "conv_data_backward": _conv_data,
    "conv_weight_backward": _conv_weight,
    "attention": _attention,
    "attention_backward": _attention_backward,
    "linear_cross_entropy": lambda plan: _logits(plan, 0, 1),
    "linear_cross_entropy_backward": lambda plan: _logits(plan, 2, 3),
    "linear_cross_entropy_sum": _linear_loss_sum,
}
