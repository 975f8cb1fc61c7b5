"""Tables of vectors that are looked up by integers."""

from __future__ import annotations

from typing import Any

from ruda.core.errors import ArgumentError
from ruda.core.mode import no_grad
from ruda.nn import init
from ruda.nn.module import Module
from ruda.nn.parameter import Parameter
from ruda.ops.create import empty
from ruda.ops.embed import embedding
from ruda.ops.embed_bag import embedding_bag
from ruda.tensor.tensor import RudaTensor


class Embedding(Module):
    """The rows of ``weight [num_embeddings, embedding_dim]`` at integers ``[*]``: ``[*, dim]``.

    ``weight`` starts normal with std 1; the row ``padding_idx`` starts at zero and gets no
    gradient.

    >>> ruda.nn.Embedding(10, 4)(ruda.asarray([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    weight: RudaTensor

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            expected = f"{-num_embeddings} to {num_embeddings - 1}"
            raise ArgumentError("Embedding", "padding_idx is no row", padding_idx, expected)
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self.weight = Parameter(empty((num_embeddings, embedding_dim), device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: Any = None) -> None:
        """Draw the table anew."""
        init.normal_(self.weight, generator=generator)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].assign(0)

    def forward(self, input: RudaTensor) -> RudaTensor:
        """``input [*]`` of integers to ``[*, embedding_dim]``."""
        return embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        """The sizes."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


class EmbeddingBag(Embedding):
    """The ``sum``, ``mean`` or ``max`` of the rows of ``weight`` for each bag of integers.

    Bags are the rows of ``[B, n]``, or parts of ``[n]`` that begin at ``offsets``; see
    ``F.embedding_bag``.

    >>> layer = ruda.nn.EmbeddingBag(10, 4)
    >>> layer(ruda.asarray([1, 2, 3]), ruda.asarray([0, 2])).shape
    (2, 4)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        mode: str = "mean",
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if mode not in ("sum", "mean", "max"):
            expected = "'sum', 'mean' or 'max'"
            raise ArgumentError("EmbeddingBag", "unknown mode", repr(mode), expected)
        super().__init__(num_embeddings, embedding_dim, padding_idx, device, dtype)
        self.mode = mode
        self.include_last_offset = include_last_offset

    def forward(
        self,
        input: RudaTensor,
        offsets: RudaTensor | None = None,
        per_sample_weights: RudaTensor | None = None,
    ) -> RudaTensor:
        """``input [B, n]``, or ``[n]`` with ``offsets [B]``, to ``[B, embedding_dim]``."""
        return embedding_bag(
            input,
            self.weight,
            offsets,
            self.mode,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        """The sizes and the mode."""
        return f"{super().extra_repr()}, mode={self.mode!r}"
