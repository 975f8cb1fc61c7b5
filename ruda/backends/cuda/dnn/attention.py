"""Attention by cuDNN: half types, any head grouping, causal and windowed; the fused kernels of
the strategy ``vendor``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ruda.backends.cuda.dnn.graph import Graph, Unsupported, is_ordered, kept, missing
from ruda.backends.cuda.prim import attention as own
from ruda.core.dtypes import float32
from ruda.core.errors import StrategyError
from ruda.core.spec import Spec, is_absent
from ruda.tensor.determinism import is_deterministic

_DEEPEST = 256


class _Later(NamedTuple):
    """A plan whose graph is made later, and whether sums had to be in order when it was bound."""

    op: Any
    specs: tuple[Spec, ...]
    attrs: tuple[Any, ...]
    out: tuple[Spec, ...]
    ordered: bool


def lack(client: Any, strategy: str, specs: tuple[Spec, ...], attrs: tuple[Any, ...]) -> str | None:
    """Why ``strategy`` cannot compute attention of q, k, v, mask and bias here, or None."""
    if strategy == "flash":
        return "there is no tensor-core kernel yet"
    if strategy == "flash_unit":
        return own.lack(client, specs, attrs)
    return missing() or _refused(specs, attrs) if strategy == "vendor" else None


def _refused(specs: tuple[Spec, ...], attrs: tuple[Any, ...]) -> str | None:
    q, k, v, mask, bias, *random = specs
    is_causal, _, softcap, window, _ = attrs
    depths = (q.shape[-1], v.shape[-1])
    reasons = {
        "cuDNN takes float16 and bfloat16": q.dtype.is_half,
        "cuDNN takes depths that 8 divides, up to 256": all(
            d % 8 == 0 and 0 < d <= _DEEPEST for d in depths
        ),
        "its masks are causal or windows": is_absent(mask),
        "no bias is bound to it": is_absent(bias),
        "no softcap is bound to it": softcap is None,
        "its dropout draws other numbers than ruda": not random or is_absent(random[0]),
        "every query must see a key": not is_causal or q.shape[2] <= k.shape[2],
        "its windows look back alone": window is None or _looks_back(is_causal, window),
        "there is nothing to attend to": min(q.size, k.size, v.size) > 0,
        "the last axis must be dense": all(_dense_rows(s) for s in (q, k, v)),
    }
    return next((reason for reason, holds in reasons.items() if not holds), None)


def _looks_back(is_causal: bool, window: Any) -> bool:
    left, right = window
    return left is not None and left >= 0 and (right == 0 or (right is None and is_causal))


def _dense_rows(spec: Spec) -> bool:
    """Whether rows are dense and start on 16 bytes, which cuDNN's kernels load."""
    step = 16 // spec.dtype.itemsize
    outer = zip(spec.shape[:-1], spec.strides[:-1], strict=True)
    return spec.strides[-1] == 1 and all(n == 1 or (s > 0 and s % step == 0) for n, s in outer)


def _masking(library: Any, q: Spec, k: Spec, attrs: tuple[Any, ...]) -> dict[str, Any]:
    is_causal, scale, _, window, _ = attrs
    settings: dict[str, Any] = {"attn_scale": scale}
    if not is_causal and window is None:
        return settings
    aligned = library.diagonal_alignment
    same = q.shape[2] == k.shape[2]
    settings["diagonal_alignment"] = aligned.TOP_LEFT if same else aligned.BOTTOM_RIGHT
    settings["diagonal_band_right_bound"] = 0
    if window is not None:
        # cuDNN counts the query's own place.
        settings["diagonal_band_left_bound"] = window[0] + 1
    return settings


def is_wanted(client: Any, plan: Any) -> bool:
    """Whether cuDNN shall run: it was asked for and can, or ``auto`` finds that it can."""
    specs = plan.specs
    if plan.op.name == "attention_backward":
        dy, dlse, q, k, v, out, _, *rest = specs
        if is_absent(dy) or not is_absent(dlse) or not (_dense_rows(dy) and _dense_rows(out)):
            return False
        specs = (q, k, v, *rest)
    if plan.attrs[-1] not in ("auto", "vendor"):
        return False
    return lack(client, "vendor", specs, plan.attrs) is None


@kept
def forward_into(client: Any, plan: Any) -> Callable[..., None] | None:
    """What writes out and the log-sum-exp of the scores to addresses, from handles.

    ``plan.out`` may have any strides whose last is 1.
    """
    if not is_wanted(client, plan):
        return None
    (q, k, v), (out, lse) = plan.specs[:3], plan.out
    g = Graph(client, q.dtype)
    operands = [g.operand(s.shape, s.strides, s.dtype) for s in (q, k, v)]
    masking = _masking(g.cudnn, q, k, plan.attrs)
    result, stats = g.graph.sdpa(*operands, is_inference=False, **masking)
    g.result(result, out.shape, out.strides, out.dtype)
    g.result(stats, (*lse.shape, 1), (*lse.strides, 1), float32)
    run = _built(g, plan)
    if run is None:
        return None
    return lambda results, handles: run(*[h.address for h in handles[:3]], *results)


@kept
def backward_into(client: Any, plan: Any) -> Callable[..., None] | None:
    """What writes dq, dk and dv to addresses, from the handles of all operands."""
    if not is_wanted(client, plan):
        return None
    dy, _, q, k, v, out, lse = plan.specs[:7]
    g = Graph(client, q.dtype)
    operands = [g.operand(s.shape, s.strides, s.dtype) for s in (q, k, v, out, dy)]
    stats = g.operand((*lse.shape, 1), (*lse.strides, 1), float32)
    masking = _masking(g.cudnn, q, k, plan.attrs)
    ordered = {"use_deterministic_algorithm": is_ordered(plan)}
    grads = g.graph.sdpa_backward(*operands, stats, **masking, **ordered)
    for grad, spec in zip(grads, plan.out[:3], strict=True):
        g.result(grad, spec.shape, spec.strides, spec.dtype)
    run = _built(g, plan)
    if run is None:
        return None

    def write(results: Sequence[int], handles: tuple[Any, ...]) -> None:
        read = (*handles[2:6], handles[0], handles[6])
        run(*[h.address for h in read], *results[:3])

    return write


def forward(client: Any, plan: Any) -> Callable[..., Any] | None:
    """The function from q, k, v to the result and the log-sum-exp of the scores."""
    return _bound(client, plan, forward_into, own.forward)


def backward(client: Any, plan: Any) -> Callable[..., Any] | None:
    """The function from the gradient and the forward's operands to dq, dk, dv."""
    return _bound(client, plan, backward_into, own.backward)


def _bound(
    client: Any, plan: Any, into: Callable[..., Any], bind: Callable[..., Any]
) -> Callable[..., Any] | None:
    """cuDNN's graph, or our own kernel: for ``flash_unit``, and for ``auto`` where cuDNN cannot."""
    strategy = plan.attrs[-1]
    if strategy == "auto" and is_wanted(client, plan):
        return _once_run(client, plan, into, bind)
    write = into(client, plan)
    if write is not None:
        return own.made(client, plan.out, write)
    return bind(client, plan) if strategy in ("auto", "flash_unit", "vendor") else None


def _once_run(
    client: Any, plan: Any, into: Callable[..., Any], bind: Callable[..., Any]
) -> Callable[..., Any]:
    """cuDNN's graph, made when it is first run or ``settle`` is called.

    A compiled step may never run the plan itself.
    """
    later = _Later(plan.op, plan.specs, plan.attrs, plan.out, is_deterministic())

    @functools.cache
    def chosen() -> Callable[..., Any]:
        write = into(client, later)
        if write is not None:
            return own.made(client, plan.out, write)
        return bind(client, plan) or client.by_body(plan)

    def run(*handles: Any) -> Any:
        return chosen()(*handles)

    run.settle = chosen  # type: ignore[attr-defined]
    return run


def _built(g: Graph, plan: Any) -> Callable[..., None] | None:
    """The graph ready to run; None where ``auto`` may go on to another strategy."""
    try:
        return g.ready()
    except Unsupported as error:
        if plan.attrs[-1] == "auto":
            return None
        raise StrategyError(plan.op.name, f"cuDNN refuses: {error}", plan.specs[0]) from error


KERNELS = {"attention": forward, "attention_backward": backward}
