"""Keys and values of tokens that attention has seen, so that decoding does not repeat them."""

from __future__ import annotations

from typing import Any

from ruda.core.dtypes import int64
from ruda.core.errors import ShapeError
from ruda.core.mode import no_grad
from ruda.nn.module import Module
from ruda.ops.compare import greater_equal, less_equal, logical_and
from ruda.ops.create import arange, zeros
from ruda.ops.join import concat
from ruda.ops.movement import expand_dims
from ruda.tensor.tensor import RudaTensor


class KVCache(Module):
    """Room for the keys and values ``[B, H, capacity, D]`` of ``capacity`` tokens.

    The buffers ``key``, ``value`` and ``position`` (0-d: how many tokens are in) are overwritten in
    place, so every step has the same shapes and a compiled step is traced once. Decode under
    ``no_grad``. A token beyond ``capacity`` raises ``IndexRangeError``.

    >>> cache = ruda.nn.KVCache(1, 8, heads=2, head_dim=4)
    >>> keys, values = cache.append(ruda.ones((1, 2, 3, 4)), ruda.ones((1, 2, 3, 4)))
    >>> keys.shape, cache.position.item()
    ((1, 2, 8, 4), 3)
    """

    key: RudaTensor
    value: RudaTensor
    position: RudaTensor

    def __init__(
        self,
        batch: int,
        capacity: int,
        heads: int,
        head_dim: int,
        *,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shape = (batch, heads, capacity, head_dim)
        self.capacity = capacity
        self.register_buffer("key", zeros(shape, device=device, dtype=dtype))
        self.register_buffer("value", zeros(shape, device=device, dtype=dtype))
        self.register_buffer("position", zeros((), device=device, dtype=int64))

    def reset(self) -> None:
        """Forget all tokens."""
        with no_grad():
            self.position.assign(0)

    def positions(self, count: int) -> RudaTensor:
        """The positions ``[count]`` of the tokens that come next."""
        return self.position + arange(count, device=self.position.device)

    def append(self, key: RudaTensor, value: RudaTensor) -> tuple[RudaTensor, RudaTensor]:
        """Write ``key`` and ``value [B, H, T, D]`` behind what is there; returns the buffers."""
        _check(self, key, value, self.key.shape)
        places = self.positions(key.shape[2])
        self.key[:, :, places] = key
        self.value[:, :, places] = value
        self.position.assign(self.position + key.shape[2])
        return self.key, self.value

    def visible(self, positions: RudaTensor, left: int | None = None) -> RudaTensor:
        """Which slots tokens at ``positions [T]`` may see, ``[T, capacity]``.

        None ahead of them, and none more than ``left`` behind.
        """
        slots, own = arange(self.capacity, device=positions.device), expand_dims(positions, 1)
        seen = less_equal(slots, own)
        return seen if left is None else logical_and(seen, greater_equal(slots, own - left))

    def extra_repr(self) -> str:
        """The shape of the keys."""
        return f"{self.key.shape}"


class DynamicKVCache(Module):
    """Keys and values that grow with the tokens, for eager decoding without a known length.

    ``append`` copies all that is there. ``length`` tokens are in.

    >>> cache = ruda.nn.DynamicKVCache()
    >>> _ = cache.append(ruda.ones((1, 2, 3, 4)), ruda.ones((1, 2, 3, 4)))
    >>> cache.length
    3
    """

    key: RudaTensor | None
    value: RudaTensor | None

    def __init__(self, *, device: Any = None) -> None:
        super().__init__()
        self.device = device
        self.register_buffer("key", None)
        self.register_buffer("value", None)

    @property
    def length(self) -> int:
        """How many tokens are in."""
        return 0 if self.key is None else self.key.shape[2]

    def reset(self) -> None:
        """Forget all tokens."""
        self.key = self.value = None

    def positions(self, count: int) -> RudaTensor:
        """The positions ``[count]`` of the tokens that come next."""
        return arange(self.length, self.length + count, device=self.device)

    def append(self, key: RudaTensor, value: RudaTensor) -> tuple[RudaTensor, RudaTensor]:
        """Put ``key`` and ``value [B, H, T, D]`` behind what is there; returns all."""
        if self.key is None or self.value is None:
            self.key, self.value = key, value
        else:
            _check(self, key, value, self.key.shape)
            self.key = concat([self.key, key], axis=2)
            self.value = concat([self.value, value], axis=2)
        return self.key, self.value

    def extra_repr(self) -> str:
        """How many tokens are in."""
        return f"{self.length} tokens"


def _check(cache: Module, key: RudaTensor, value: RudaTensor, shape: Any) -> None:
    expected = f"[{shape[0]}, {shape[1]}, T, {shape[3]}]"
    fits = key.ndim == 4 and (*key.shape[:2], key.shape[3]) == (shape[0], shape[1], shape[3])
    if not fits or value.shape[:3] != key.shape[:3]:
        got = f"{key.shape} and {value.shape}"
        raise ShapeError(type(cache).__name__, "keys or values do not fit", got, expected)
