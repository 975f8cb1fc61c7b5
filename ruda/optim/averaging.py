"""Averages of a model's weights over its training: exponential, and equal (SWA)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ruda.core.dtypes import compute_of, float64, int64
from ruda.core.errors import ArgumentError, DTypeError, ShapeError
from ruda.core.mode import no_grad
from ruda.nn.module import Module, StateDictError
from ruda.ops.arith import minimum
from ruda.ops.cast import astype
from ruda.ops.conversion import asarray
from ruda.ops.create import zeros
from ruda.ops.movement import copy
from ruda.tensor.batches import overwrite_each
from ruda.tensor.dispatch import OPS
from ruda.tensor.tensor import RudaTensor


class _Average:
    """Averages beside the parameters of ``model``; a subclass says how far each update moves."""

    def __init__(self, model: Module, buffers: bool) -> None:
        self.model = model
        self.buffers = buffers
        with no_grad():
            self._average = {
                name: copy(astype(value, compute_of(value.dtype), copy=False)).detach()
                for name, value in self._sources()
            }
            first = next(iter(self._average.values()), None)
            if first is None:
                raise ArgumentError(type(self).__name__, "the model has no parameters")
            self._count = zeros((), dtype=int64, device=first.device)
        self._within = False

    def _share(self, count: RudaTensor) -> Any:
        """The weight of the model in the next average, after ``count`` updates, in float64."""
        raise NotImplementedError

    def _sources(self) -> Iterator[tuple[str, RudaTensor]]:
        yield from self.model.named_parameters()
        if self.buffers:
            yield from ((n, b) for n, b in self.model.named_buffers() if b.dtype.is_floating)

    @property
    def count(self) -> RudaTensor:
        """How many updates were made, a 0-d tensor."""
        return self._count.detach()

    def update(self) -> None:
        """Move the averages towards the model as it is now; works in a compiled step."""
        self._refuse_within("update")
        with no_grad():
            share = self._share(astype(self._count, float64))
            alike: dict[Any, list[tuple[RudaTensor, RudaTensor]]] = {}
            for name, value in self._sources():
                average = self._average[name]
                place = average.spec.client, average.spec.dtype
                alike.setdefault(place, []).append((average, value))
            for (client, dtype), pairs in alike.items():
                part = astype(share.to(client.device), dtype, copy=False)
                averages, values = ([pair[i] for pair in pairs] for i in (0, 1))
                overwrite_each(OPS["lerp"], averages, (averages, values, part))
            self._count.assign(self._count + 1)

    @contextmanager
    def swapped(self) -> Iterator[Module]:
        """The model with the averages in it, for the time of the block."""
        self._refuse_within("swapped")
        with no_grad():
            trained = [(value, copy(value)) for _, value in self._sources()]
        self._within = True
        try:
            self._write()
            yield self.model
        finally:
            self._within = False
            with no_grad():
                for value, before in trained:
                    value.assign(before)

    def _write(self) -> None:
        with no_grad():
            for name, value in self._sources():
                value.assign(astype(self._average[name], value.dtype, copy=False))

    def apply(self) -> None:
        """Put the averages into the model for good."""
        self._refuse_within("apply")
        self._write()

    def _refuse_within(self, name: str) -> None:
        if self._within:
            what = "the model holds the averages at present"
            raise ArgumentError(name, what, hint="leaving the block of swapped() first")

    def state_dict(self) -> dict[str, Any]:
        """The averages by name and the count of updates, as tensors that share memory."""
        average = {name: value.detach() for name, value in self._average.items()}
        return {"count": self._count.detach(), "average": average}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from a ``state_dict``; raises ``StateDictError`` or ``ShapeError``."""
        given, own = saved["average"], self._average
        if given.keys() != own.keys():
            differing = sorted(given.keys() ^ own.keys())
            raise StateDictError("load_state_dict", "names do not match", differing)
        for name, value in own.items():
            if tuple(given[name].shape) != value.shape:
                got = f"{name} {tuple(given[name].shape)}"
                raise ShapeError("load_state_dict", "a shape does not fit", got, value.shape)
        with no_grad():
            for name, value in own.items():
                value.assign(asarray(given[name], dtype=value.dtype, device=value.device))
            self._count.assign(asarray(saved["count"], device=self._count.device))


class EMA(_Average):
    """``average = decay * average + (1 - decay) * model``, beginning with the model as it is.

    ``update()`` after each step; half parameters have float32 averages. With ``warmup`` the decay
    is min(decay, (1 + t) / (10 + t)) after t updates, so that early weights are forgotten.
    ``buffers=True`` averages floating buffers (running statistics) as well. Polyak and Juditsky,
    "Acceleration of stochastic approximation by averaging" (1992).

    >>> layer = ruda.nn.Linear(1, 1, bias=False)
    >>> ruda.nn.init.zeros_(layer.weight).shape
    (1, 1)
    >>> ema = ruda.optim.EMA(layer, decay=0.75)
    >>> ruda.nn.init.ones_(layer.weight).shape
    (1, 1)
    >>> ema.update()
    >>> with ema.swapped():
    ...     layer.weight.item()
    0.25
    """

    def __init__(
        self, model: Module, decay: float = 0.999, warmup: bool = False, *, buffers: bool = False
    ) -> None:
        if not 0 <= decay <= 1:
            raise ArgumentError("EMA", "decay out of range", decay, "0 <= decay <= 1")
        self.decay = decay
        self.warmup = warmup
        super().__init__(model, buffers)

    def __repr__(self) -> str:
        return f"EMA({type(self.model).__name__}, decay={self.decay}, warmup={self.warmup})"

    def _share(self, count: RudaTensor) -> Any:
        if not self.warmup:
            return asarray(1.0 - self.decay, dtype=float64, device=count.device)
        return 1.0 - minimum((1.0 + count) / (10.0 + count), self.decay)


class SWA(_Average):
    """The mean of the model over all updates, each counting the same.

    ``update()`` at the end of each epoch or cycle, with a rate that stays high; then ``apply()`` or
    ``swapped()``, and ``update_batch_norm`` for the running statistics of the averaged weights.
    Izmailov et al., "Averaging weights leads to wider optima and better generalization" (2018).

    >>> layer = ruda.nn.Linear(1, 1, bias=False)
    >>> swa = ruda.optim.SWA(layer)
    >>> for value in (1.0, 3.0):
    ...     with ruda.no_grad():
    ...         _ = layer.weight.assign(value)
    ...     swa.update()
    >>> with swa.swapped():
    ...     layer.weight.item()
    2.0
    """

    def __init__(self, model: Module, *, buffers: bool = False) -> None:
        super().__init__(model, buffers)

    def __repr__(self) -> str:
        return f"SWA({type(self.model).__name__})"

    def _share(self, count: RudaTensor) -> Any:
        return 1.0 / (count + 1.0)


def update_batch_norm(model: Module, batches: Iterable[Any]) -> None:
    """Take the running statistics of all batch norms anew: their mean over ``batches``.

    A batch is the model's input, or a tuple or list whose first item is. Modes and momenta are put
    back afterwards.
    """
    if not isinstance(model, Module):
        got = type(model).__name__
        raise DTypeError("update_batch_norm", "not a module", got, "a ruda.nn.Module")
    norms = [m for m in model.modules() if getattr(m, "running_mean", None) is not None]
    if not norms:
        return
    modes = [(module, module.training) for module in model.modules()]
    momenta = [norm.momentum for norm in norms]
    try:
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None
        model.train()
        with no_grad():
            for batch in batches:
                model(batch[0] if isinstance(batch, tuple | list) else batch)
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        for module, training in modes:
            module.training = training
