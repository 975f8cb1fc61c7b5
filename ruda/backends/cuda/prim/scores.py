"""What kernels of attention know of scores: the struct ``Scores``, and which options act."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from ruda.backends.cuda.prim.random import limit_of
from ruda.backends.cuda.types import code_of, stored
from ruda.core.spec import Spec, is_absent
from ruda.ops.dropout import kept_scale

_FAR = 1 << 60


class Marks(NamedTuple):
    """The options that are compiled into a kernel."""

    softcap: bool
    mask: bool
    bias: Any
    dropout: bool
    dlse: bool

    @classmethod
    def of(cls, specs: tuple[Spec, ...], attrs: tuple[Any, ...], dlse: bool) -> Marks:
        """Those of q, k, v, mask, bias and dropout's operands."""
        mask, bias, *random = specs[3:]
        dropout = bool(random) and not is_absent(random[0])
        held = None if is_absent(bias) else bias.dtype
        return cls(attrs[2] is not None, not is_absent(mask), held, dropout, dlse)

    @property
    def suffix(self) -> str:
        """What they add to the name of a kernel."""
        on = (self.softcap, self.mask, self.bias is not None, self.dropout, self.dlse)
        marks = "".join(c for c, acts in zip("cmbdl", on, strict=True) if acts)
        bias = "" if self.bias is None else f"_{code_of(self.bias)}"
        return f"{'_' * bool(marks)}{marks}{bias}"

    @property
    def settings(self) -> dict[str, object]:
        """The definitions that they are."""
        kind = "float" if self.bias is None else stored(self.bias)
        on = (self.softcap, self.mask, self.bias is not None, self.dropout, self.dlse)
        names = ("SOFTCAP", "MASK", "BIAS", "DROPOUT", "DLSE")
        return {"BIAS_T": kind, **dict(zip(names, map(int, on), strict=True))}


def _broadcast(spec: Spec, scores: tuple[int, ...]) -> tuple[int, ...]:
    """Strides along the axes of the scores, 0 where ``spec`` repeats or is absent."""
    if is_absent(spec):
        return (0, 0, 0, 0)
    steps = (0 if n == 1 else s for n, s in zip(spec.shape, spec.strides, strict=True))
    return (*(0,) * (4 - spec.ndim), *steps)


def geometry(
    specs: tuple[Spec, ...], dy: Spec, attrs: tuple[Any, ...]
) -> Callable[[tuple[Any, ...]], bytes]:
    """From dropout's operands to the struct ``Scores``."""
    q, k, v, mask, bias = specs[:5]
    is_causal, scale, softcap, window, _ = attrs
    left, right = (_FAR if side is None else side for side in window or (None, None))
    right = min(right, 0) if is_causal else right
    scores = (*q.shape[:3], k.shape[2])
    sizes = (q.shape[2], k.shape[2], q.shape[3], v.shape[3], q.shape[1] // k.shape[1], q.shape[1])
    strides = (*q.strides, *k.strides, *v.strides, *dy.strides)
    strides += _broadcast(mask, scores) + _broadcast(bias, scores)
    head = struct.pack("<32q", *sizes, left, right, *strides)

    def packed(random: tuple[Any, ...]) -> bytes:
        rate, seed, draw = random if random and random[0] is not None else (None, 0, 0)
        factor, limit = (1.0, 0) if rate is None else (kept_scale(rate), limit_of(rate))
        keys = (int(seed) & (2**64 - 1), int(draw), limit)
        return head + struct.pack("<3d3Q", scale, softcap or 0.0, factor, *keys)

    return packed
