"""Layers that tell a model where tokens stand: added tables and rotations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ruda.core.dtypes import float32
from ruda.core.errors import ArgumentError, ShapeError
from ruda.nn import init
from ruda.nn.module import Module
from ruda.nn.parameter import Parameter
from ruda.ops.cast import astype
from ruda.ops.conversion import asarray
from ruda.ops.create import arange, empty
from ruda.ops.embed import embedding
from ruda.ops.movement import expand_dims
from ruda.ops.positions import apply_rotary, rotary_frequencies, sinusoidal_positions
from ruda.ops.trig import cos, sin
from ruda.tensor.tensor import RudaTensor


class _AddedPositions(Module):
    """A table ``[max_len, embed_dim]`` whose rows are added to what stands at their position."""

    def __init__(self, max_len: int, embed_dim: int) -> None:
        super().__init__()
        self.max_len = max_len
        self.embed_dim = embed_dim

    def _added(self, input: RudaTensor, table: RudaTensor, positions: RudaTensor | None) -> Any:
        name, length = type(self).__name__, input.shape[-2] if input.ndim > 1 else 0
        if input.ndim < 2 or input.shape[-1] != self.embed_dim:
            expected = f"[..., T, {self.embed_dim}]"
            raise ShapeError(name, "the input does not fit", input.shape, expected)
        if positions is not None:
            return input + embedding(positions, table)
        if length > self.max_len:
            raise ShapeError(name, "the input is too long", input.shape, f"{self.max_len} at most")
        return input + table[:length]

    def extra_repr(self) -> str:
        """The sizes."""
        return f"{self.max_len}, {self.embed_dim}"


class SinusoidalPositions(_AddedPositions):
    """Adds waves to ``[..., T, embed_dim]``: ``sinusoidal_positions`` of 0, 1, ... or of others.

    The table is a buffer that is not saved. Vaswani et al., "Attention is all you need" (2017).

    >>> layer = ruda.nn.SinusoidalPositions(100, 4)
    >>> layer(ruda.zeros((1, 2, 4)))[0, 0].tolist()
    [0.0, 1.0, 0.0, 1.0]
    """

    table: RudaTensor

    def __init__(
        self,
        max_len: int,
        embed_dim: int,
        base: float = 10_000.0,
        *,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(max_len, embed_dim)
        waves = sinusoidal_positions(arange(max_len, device=device), embed_dim, base, dtype=dtype)
        self.register_buffer("table", waves, persistent=False)

    def forward(self, input: RudaTensor, positions: RudaTensor | None = None) -> RudaTensor:
        """``input [..., T, embed_dim]`` plus the waves of its ``positions [..., T]``."""
        return self._added(input, self.table, positions)


class LearnedPositions(_AddedPositions):
    """Adds rows of ``weight [max_len, embed_dim]``, which are learned, to ``[..., T, embed_dim]``.

    ``weight`` starts normal with std 0.02.

    >>> ruda.nn.LearnedPositions(100, 4)(ruda.zeros((1, 2, 4))).shape
    (1, 2, 4)
    """

    weight: RudaTensor

    def __init__(
        self, max_len: int, embed_dim: int, *, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(max_len, embed_dim)
        self.weight = Parameter(empty((max_len, embed_dim), device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: Any = None) -> None:
        """Draw the table anew."""
        init.normal_(self.weight, std=0.02, generator=generator)

    def forward(self, input: RudaTensor, positions: RudaTensor | None = None) -> RudaTensor:
        """``input [..., T, embed_dim]`` plus the rows of its ``positions [..., T]``."""
        return self._added(input, self.weight, positions)


class RotaryEmbedding(Module):
    """Turns queries and keys ``[B, H, T, head_dim]`` by angles that grow with their position.

    Pairs of features turn; scores then depend on distances alone. ``rotary_dim`` of the features
    turn (all unless given), in pairs (i, i + rotary_dim / 2), or (2 i, 2 i + 1) with
    ``interleaved``. ``base`` and ``scaling`` are those of ``functional.rotary_frequencies``. The
    angles are computed in float32 whatever the dtype of the input or of the model. Su et al.,
    "RoFormer" (2021).

    >>> turn = ruda.nn.RotaryEmbedding(4)
    >>> turn(ruda.ones((1, 1, 3, 4)))[0, 0, 0].tolist()
    [1.0, 1.0, 1.0, 1.0]
    """

    # In half precision positions beyond a few hundred could not be told apart.
    exact_buffers = frozenset({"frequencies"})
    frequencies: RudaTensor

    def __init__(
        self,
        head_dim: int,
        base: float = 10_000.0,
        scaling: Mapping[str, Any] | None = None,
        interleaved: bool = False,
        rotary_dim: int | None = None,
        *,
        device: Any = None,
    ) -> None:
        super().__init__()
        width = head_dim if rotary_dim is None else rotary_dim
        if width > head_dim:
            got = f"rotary_dim {width} of head_dim {head_dim}"
            raise ArgumentError("RotaryEmbedding", "more features turn than there are", got)
        self.head_dim = head_dim
        self.base = base
        self.scaling = None if scaling is None else dict(scaling)
        self.interleaved = interleaved
        rates = rotary_frequencies(width, base, scaling)
        buffer = asarray(rates, dtype=float32, device=device)
        self.register_buffer("frequencies", buffer, persistent=False)

    def angles(self, positions: RudaTensor) -> tuple[RudaTensor, RudaTensor]:
        """Cosines and sines ``[T, R / 2]`` of positions ``[T]``.

        Of positions ``[B, T]`` they are ``[B, 1, T, R / 2]``.
        """
        if positions.ndim not in (1, 2):
            got = positions.shape
            raise ShapeError("RotaryEmbedding", "positions do not fit", got, "[T] or [B, T]")
        shown = positions if positions.ndim == 1 else expand_dims(positions, 1)
        angle = expand_dims(astype(shown, self.frequencies.dtype), -1) * self.frequencies
        return cos(angle), sin(angle)

    def forward(self, input: RudaTensor, positions: RudaTensor | None = None) -> RudaTensor:
        """``input [B, H, T, head_dim]`` turned by its ``positions``, 0, 1, ... unless given."""
        if input.ndim < 2 or input.shape[-1] != self.head_dim:
            expected = f"[..., T, {self.head_dim}]"
            raise ShapeError("RotaryEmbedding", "the input does not fit", input.shape, expected)
        if positions is None:
            positions = arange(input.shape[-2], device=input.device)
        return self.turned(input, self.angles(positions))

    def turned(self, input: RudaTensor, angles: tuple[RudaTensor, RudaTensor]) -> RudaTensor:
        """``input [B, H, T, head_dim]`` turned by what ``angles`` gave, once for several inputs."""
        return apply_rotary(input, *angles, self.interleaved)

    def extra_repr(self) -> str:
        """Sizes, and what differs from the defaults."""
        facts = [f"{self.head_dim}, base={self.base:g}"]
        facts += [f"scaling={self.scaling}"] * bool(self.scaling)
        return ", ".join(facts + ["interleaved"] * self.interleaved)
