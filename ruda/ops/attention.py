"""Scaled dot-product attention: a fused row whose backward recomputes the probabilities.

Rules act in this order: scores times scale, softcap, bias, then all that hides keys (mask,
causality, window); dropout acts on the probabilities. Kept for backward are the inputs, the output
and one log-sum-exp per query: Dao et al., "FlashAttention", 2022.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ruda.core.dtypes import BOOL, FLOAT, bool_, compute_of
from ruda.core.errors import (
    ArgumentError,
    AttentionDTypeError,
    AttentionSetupError,
    AttentionShapeError,
    StrategyError,
)
from ruda.core.shapes import Shape, broadcasts_to, index
from ruda.core.spec import Spec, absent_spec, is_absent
from ruda.ops import scores as formula
from ruda.ops.dropout import kept_scale
from ruda.ops.generator import chosen
from ruda.ops.reference import attention as reference
from ruda.ops.reference import sampling
from ruda.ops.rules import Specs
from ruda.ops.strategy import Explanation
from ruda.ops.table import TABLE, fused
from ruda.tensor.given import given_tensors
from ruda.tensor.host import draw_number, seed_number
from ruda.tensor.operands import as_scalar
from ruda.tensor.tensor import RudaTensor

STRATEGIES = ("auto", "composite", "vendor", "flash", "flash_unit")


class AttentionArgumentError(AttentionSetupError, ArgumentError):
    """A scale, softcap, window, dropout rate or strategy that attention does not have."""


def _check_shapes(q: Spec, k: Spec, v: Spec, mask: Spec, bias: Spec) -> Shape:
    """The shape of the scores [B, Hq, Sq, Sk] of operands that fit together."""
    got = f"q {q.shape}, k {k.shape}, v {v.shape}"
    if not q.ndim == k.ndim == v.ndim == 4:
        expected = "q [B, Hq, Sq, D], k [B, Hkv, Sk, D], v [B, Hkv, Sk, Dv]"
        raise AttentionShapeError("attention", "four axes are needed", got, expected)
    if not q.shape[0] == k.shape[0] == v.shape[0]:
        raise AttentionShapeError("attention", "batches differ", got)
    if k.shape[:3] != v.shape[:3]:
        raise AttentionShapeError("attention", "keys and values do not pair up", got)
    if q.shape[3] != k.shape[3] or q.shape[3] == 0:
        expected = "one length above 0 of queries and keys"
        raise AttentionShapeError("attention", "depths do not fit", got, expected)
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        expected = f"query heads divisible by {k.shape[1]} key heads"
        raise AttentionShapeError("attention", "heads do not group", got, expected)
    scores = (*q.shape[:3], k.shape[2])
    for name, spec in (("mask", mask), ("bias", bias)):
        if not is_absent(spec) and not broadcasts_to(spec.shape, scores):
            expected = f"a shape that broadcasts to {scores}"
            raise AttentionShapeError("attention", f"{name} does not fit", spec.shape, expected)
    return scores


def _check_dtypes(name: str, q: Spec, k: Spec, v: Spec, mask: Spec, bias: Spec) -> None:
    if q.dtype not in FLOAT or not q.dtype is k.dtype is v.dtype:
        got = f"{q.dtype}, {k.dtype} and {v.dtype}"
        hint = f"astype({str(q.dtype)!r})" if q.dtype in FLOAT else None
        raise AttentionDTypeError(name, "q, k and v differ", got, "one float dtype", hint)
    if not is_absent(mask) and mask.dtype is not bool_:
        hint = "bias for additive values, or mask != 0"
        raise AttentionDTypeError(name, "the mask is not bool", mask.dtype, bool_, hint)
    if not is_absent(bias) and bias.dtype not in (q.dtype, compute_of(q.dtype)):
        hint = f"bias.astype({str(q.dtype)!r})"
        raise AttentionDTypeError(name, "bias differs", bias.dtype, q.dtype, hint)


def _check_strategy(specs: Specs, attrs: Any) -> None:
    strategy, client = attrs[-1], specs[0].client
    reason = client.lack("attention", strategy, specs, attrs)
    if reason is not None:
        what = f'strategy="{strategy}" cannot run: {reason}'
        raise StrategyError("attention", what, str(client.device), hint='strategy="auto"')


def _shape(op: Any, specs: Specs, *attrs: Any) -> Any:
    scores = _check_shapes(*specs[:5])
    _check_strategy(specs, attrs)
    return (*scores[:3], specs[2].shape[3]), scores[:3]


def _dtype(op: Any, specs: Specs, *_: Any) -> Any:
    _check_dtypes(op.name, *specs[:5])
    return _cast(specs), (specs[0].dtype, compute_of(specs[0].dtype))


def _cast(specs: Specs) -> Any:
    return tuple(None if s.weak or s.dtype not in FLOAT else s.dtype for s in specs)


def _kept(p: Any, seed: Any, draw: Any, q: Any, k: Any) -> Any:
    """What dropout keeps of the probabilities, and its factor; None without dropout."""
    if p is None:
        return None
    shape = (*q.shape[:3], k.shape[2])
    return sampling.dropout_mask(int(seed), int(draw), shape, p), kept_scale(p)


def _forward(
    q: Any, k: Any, v: Any, mask: Any, bias: Any, p: Any, seed: Any, draw: Any, *attrs: Any
) -> Any:
    is_causal, scale, softcap, window, _ = attrs
    dropout = _kept(p, seed, draw, q, k)
    return reference.attention(
        q, k, v, mask, bias, is_causal, scale, softcap, window, dropout=dropout
    )


def _backward(
    dy: Any,
    dlse: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    mask: Any,
    bias: Any,
    p: Any,
    seed: Any,
    draw: Any,
    *attrs: Any,
) -> Any:
    g = np.zeros_like(out) if dy is None else dy
    is_causal, scale, softcap, window, _ = attrs
    dropout = _kept(p, seed, draw, q, k)
    *grads, db = reference.attention_backward(
        q, k, v, out, lse, g, mask, bias, is_causal, scale, softcap, window, dlse, dropout
    )
    return (*grads, np.zeros(0, q.dtype) if db is None else db)


def _backward_shape(op: Any, specs: Specs, *_: Any) -> Any:
    q, k, v, bias = *specs[2:5], specs[8]
    return q.shape, k.shape, v.shape, (0,) if is_absent(bias) else bias.shape


def _backward_dtype(op: Any, specs: Specs, *_: Any) -> Any:
    q = specs[2]
    _check_dtypes(op.name, *specs[2:5], *specs[7:9])
    return _cast(specs), (q.dtype, q.dtype, q.dtype, compute_of(q.dtype))


_ATTRS = "is_causal scale softcap window strategy"
_backward_row = fused(
    "attention_backward",
    "dy dlse q k v out lse mask bias dropout_p seed draw",
    _ATTRS,
    "dq dk dv dbias",
    shape=_backward_shape,
    takes={"q": FLOAT, "k": FLOAT, "v": FLOAT, "mask": BOOL},
    dtype=_backward_dtype,
    numpy=_backward,
    optional=("dy", "dlse", "mask", "bias", "dropout_p", "seed", "draw"),
    cast="low",
    bound="compute",
)(formula.attention_backward)


def _vjp(
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    mask: Any,
    bias: Any,
    dropout_p: Any,
    seed: Any,
    draw: Any,
    is_causal: bool,
    scale: float,
    softcap: Any,
    window: Any,
    strategy: str,
) -> Any:
    random = (dropout_p, seed, draw)
    attrs = (is_causal, scale, softcap, window, strategy)
    dq, dk, dv, db = _backward_row(*g, q, k, v, out, lse, mask, bias, *random, *attrs)
    return dq, dk, dv, None, None if bias is None else db, None, None, None


_attention = fused(
    "attention",
    "q k v mask bias dropout_p seed draw",
    _ATTRS,
    "out lse",
    shape=_shape,
    takes={"q": FLOAT, "k": FLOAT, "v": FLOAT, "mask": BOOL},
    dtype=_dtype,
    numpy=_forward,
    vjp=_vjp,
    optional=("mask", "bias", "dropout_p", "seed", "draw"),
    cast="low",
    bound="compute",
)(formula.attention)


@given_tensors
def attention(
    q: RudaTensor,
    k: RudaTensor,
    v: RudaTensor,
    *,
    mask: RudaTensor | None = None,
    bias: RudaTensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float | None = None,
    window: tuple[int | None, int | None] | None = None,
    dropout_p: float = 0.0,
    strategy: str = "auto",
    return_lse: bool = False,
    generator: Any = None,
) -> Any:
    """``softmax(q kᵀ scale + bias) v`` over the keys that each query may see.

    q ``[B, Hq, Sq, D]``, k ``[B, Hkv, Sk, D]``, v ``[B, Hkv, Sk, Dv]`` in one float dtype; each key
    head serves ``Hq / Hkv`` query heads; the result is ``[B, Hq, Sq, Dv]``, and with ``return_lse``
    also the log-sum-exp of the scores ``[B, Hq, Sq]``, float32 for half types. ``mask`` is bool,
    True where a query may attend; ``bias`` is added to the scores; both broadcast to
    ``[B, Hq, Sq, Sk]``. ``is_causal`` and ``window=(left, right)`` (inclusive, None for unbounded)
    stand the last query at the last key. ``softcap`` c turns scores s into ``c tanh(s / c)``.
    A query that may see no key gives zeros and zero gradients. ``scale`` is ``1 / sqrt(D)`` unless
    given; ``strategy`` one of ``STRATEGIES``.

    Raises ``AttentionShapeError``, ``AttentionDTypeError`` or ``AttentionArgumentError`` (all
    ``AttentionSetupError``), and ``StrategyError`` for a strategy that cannot run.

    >>> x = ruda.ones((1, 1, 2, 4))
    >>> attention(x, x, x, is_causal=True).shape
    (1, 1, 2, 4)
    """
    if strategy not in STRATEGIES:
        expected = f"one of {', '.join(STRATEGIES)}"
        raise AttentionArgumentError("attention", "unknown strategy", repr(strategy), expected)
    rate = _number("dropout_p", dropout_p, 0, math.nextafter(1, 0))
    random: Any = (None, None, None)
    if rate:
        source = chosen(generator, "attention")
        random = (rate, seed_number(source), draw_number(source))
    attrs = (bool(is_causal), *_floats(q, scale, softcap), _pair(window), strategy)
    operands = (q, k, v, mask, bias, *random)
    if strategy == "composite":
        outs = _by_body(operands, attrs)
    else:
        outs = _attention(*operands, *attrs)
    return outs if return_lse else outs[0]


def _by_body(operands: Any, attrs: Any) -> Any:
    """The operators of the body one by one, after the checks of the row."""
    return _checked(operands, attrs).body(*operands, *attrs)


def _checked(operands: Any, attrs: Any) -> Any:
    """The row, after its rules have seen ``operands``."""
    op, client = TABLE["attention"], operands[0].spec.client
    specs = tuple(absent_spec(client) if x is None else x.spec for x in operands[:5])
    _dtype(op, specs)
    _shape(op, specs, *attrs)
    return op


@given_tensors
def explain_attention(
    q: RudaTensor,
    k: RudaTensor,
    v: RudaTensor,
    *,
    mask: RudaTensor | None = None,
    bias: RudaTensor | None = None,
    is_causal: bool = False,
    softcap: float | None = None,
    window: tuple[int | None, int | None] | None = None,
    strategy: str = "auto",
) -> Explanation:
    """Which strategy ``attention`` of these operands runs, and what each other one lacks.

    ``"reference"`` are the blocks of queries that ``auto`` runs on the CPU. Raises as ``attention``
    does.

    >>> x = ruda.ones((1, 1, 2, 4))
    >>> explain_attention(x, x, x).chosen
    'reference'
    """
    attrs = (is_causal, 1.0, softcap, _pair(window))
    operands = (q, k, v, mask, bias)
    _checked(operands, (*attrs, strategy))
    specs = tuple(absent_spec(q.client) if x is None else x.spec for x in operands)
    found: dict[str, bool | str] = {
        name: q.client.lack("attention", name, specs, (*attrs, name)) or True
        for name in STRATEGIES[1:]
    }
    if strategy == "auto":
        best = next(n for n in ("vendor", "flash_unit", "composite") if found[n] is True)
        strategy = "reference" if q.device.kind == "cpu" else best
    return Explanation(strategy, found)


def _floats(q: RudaTensor, scale: Any, softcap: Any) -> tuple[float, float | None]:
    if scale is None:
        depth = q.shape[-1] if q.ndim else 0
        factor = 1 / math.sqrt(depth) if depth else 1.0
    else:
        factor = _number("scale", scale, -math.inf, math.inf)
    return factor, None if softcap is None else _number("softcap", softcap, 0, math.inf, True)


def _number(name: str, value: Any, low: float, high: float, above: bool = False) -> float:
    """``value`` as a finite float from ``low`` (or above it) to ``high``."""
    number = as_scalar(value)
    bad = number is None or isinstance(number, complex) or not math.isfinite(number)
    if bad or not low <= number <= high or (above and number == low):  # type: ignore[operator]
        expected = f"a finite number {'above' if above else 'from'} {low:g} to {high:.17g}"
        raise AttentionArgumentError("attention", f"{name} is not allowed", value, expected)
    return float(number)  # type: ignore[arg-type]


def _pair(window: Any) -> Any:
    if window is None:
        return None
    if not isinstance(window, tuple | list) or len(window) != 2:
        expected = "(left, right), each an integer or None"
        raise AttentionArgumentError("attention", "window is no pair", window, expected)
    return tuple(None if side is None else index(side, "attention", "window") for side in window)
