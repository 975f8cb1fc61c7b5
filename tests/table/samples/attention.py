"""Samples of attention: q, k, v, mask, bias, then dropout rate, seed and draw number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import ruda
from ruda.core.errors import (
    AttentionDTypeError,
    AttentionSetupError,
    AttentionShapeError,
    StrategyError,
)
from ruda.ops.attention import AttentionArgumentError, attention
from ruda.ops.attention_forms import attention_varlen, scaled_dot_product_attention
from tests.table.sample import Bad, Composed, Sample

# A query that sees nothing has a log-sum-exp of -inf, next to which there are no differences.
MASK = np.random.default_rng(3).random((2, 1, 3, 4)) < 0.6
MASK[..., 1] = True
HIDDEN = MASK.copy()
HIDDEN[:, :, 0] = False
NONE = (None, None, None)

# Causal, scale, softcap, window, strategy.
PLAIN = (False, 0.5, None, None, "auto")
CAUSAL = (True, 0.5, 1.5, (2, None), "auto")


def operands(heads: int = 2, keys: int = 4) -> tuple[tuple[int, ...], ...]:
    """Shapes of q, k and v with two key heads."""
    return (2, heads, 3, 5), (2, 2, keys, 5), (2, 2, keys, 3)


def results(heads: int = 2) -> tuple[tuple[int, ...], ...]:
    """Shapes of the output and of the log-sum-exp."""
    return (2, heads, 3, 3), (2, heads, 3)


SAMPLES = {
    "attention": [
        Sample((*operands(), None, None, *NONE), PLAIN),
        Sample((*operands(4), MASK, (4, 1, 4), *NONE), CAUSAL),
        Sample((*operands(), None, None, 0.4, 7, 2), PLAIN),
        Sample((*operands(), HIDDEN, None, *NONE), PLAIN, grad=False),
        Sample((*operands(keys=0), None, None, *NONE), CAUSAL, grad=False),
    ],
    "attention_backward": [
        Sample(
            (results()[0], None, *operands(), *results(), None, None, *NONE),
            PLAIN,
        ),
        Sample(
            (*results(4), *operands(4), *results(4), MASK, (4, 1, 4), *NONE),
            CAUSAL,
        ),
        Sample(
            (None, results()[1], *operands(), *results(), None, None, 0.4, 7, 2),
            PLAIN,
        ),
    ],
}

Q = ruda.ones((1, 4, 3, 5))
K = ruda.ones((1, 2, 4, 5))
ENDS = ruda.asarray([0, 1, 3])


def bad(error: type[Exception], match: str, *tensors: Any, **options: Any) -> Bad:
    """A call of attention that must raise."""
    q, k, v = tensors or (Q, K, K)
    return Bad(lambda: attention(q, k, v, **options), error, match)


BAD = [
    bad(AttentionShapeError, "four axes", Q[0], K, K),
    bad(AttentionShapeError, "batches differ", Q, ruda.ones((2, 2, 4, 5)), K),
    bad(AttentionShapeError, "do not pair up", Q, K, ruda.ones((1, 2, 3, 5))),
    bad(AttentionShapeError, "depths do not fit", Q, ruda.ones((1, 2, 4, 6)), K),
    bad(AttentionShapeError, "heads do not group", ruda.ones((1, 3, 3, 5)), K, K),
    bad(AttentionShapeError, "mask does not fit", mask=ruda.ones((3, 3), dtype="bool")),
    bad(AttentionShapeError, "bias does not fit", bias=ruda.ones((3, 3))),
    bad(AttentionDTypeError, "the mask is not bool", mask=ruda.ones((3, 4))),
    bad(AttentionDTypeError, "bias differs", bias=ruda.ones((3, 4), dtype="float64")),
    bad(AttentionDTypeError, "q, k and v differ", Q.astype("float16"), K, K),
    bad(AttentionSetupError, "scale is not allowed", scale=math.inf),
    bad(AttentionArgumentError, "softcap is not allowed", softcap=0.0),
    bad(AttentionArgumentError, "dropout_p is not allowed", dropout_p=1.5),
    bad(AttentionArgumentError, "window is no pair", window=3),
    bad(AttentionArgumentError, "unknown strategy", strategy="fast"),
    bad(StrategyError, "cuDNN runs on CUDA devices", strategy="vendor"),
    bad(StrategyError, "what CUDA devices have", strategy="flash"),
    bad(StrategyError, "a kernel of CUDA devices", strategy="flash_unit"),
    Bad(lambda: scaled_dot_product_attention(Q, K, K), AttentionShapeError, "enable_gqa"),
    Bad(lambda: attention_varlen(Q, K, K, ENDS, ENDS), AttentionShapeError, "three axes"),
    Bad(
        lambda: attention_varlen(Q[0], K[0], K[0], ENDS, ENDS[:2]),
        AttentionShapeError,
        "cu_seqlens do not fit",
    ),
]

COMPOSED = [
    Composed(
        "attention-composite",
        lambda q, k, v: attention(q, k, v, is_causal=True, strategy="composite"),
        operands(4),
    ),
    Composed("attention-lse", lambda q, k, v: attention(q, k, v, return_lse=True), operands()),
    Composed(
        "scaled_dot_product_attention",
        lambda q, k, v, bias: scaled_dot_product_attention(q, k, v, bias, is_causal=True),
        (*operands(), (3, 4)),
    ),
    Composed(
        "attention-hidden",
        lambda q, k, v: attention(q, k, v, mask=ruda.asarray(HIDDEN)),
        operands(),
    ),
    Composed(
        "attention_varlen",
        lambda q, k, v: attention_varlen(q, k, v, ENDS, ENDS, is_causal=True),
        ((3, 4, 5), (3, 2, 5), (3, 2, 2)),
    ),
]
