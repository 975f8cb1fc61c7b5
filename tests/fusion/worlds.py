"""Random lives of a small world: steps that share state, and what happens to it between calls.

Steps train, change state and arguments in place, draw and read; their arguments are fresh, or
state, or views of it, or what earlier steps have returned. In between parameters are frozen,
tensors bound anew, generators reseeded, settings changed. A life with compiled steps has to be that
of eager ones.
"""

from __future__ import annotations

import copy
import gc
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import numpy as np

import ruda
import ruda.nn.functional as F
from ruda import cuda, optim
from ruda.ops.generator import default_generator


def plain(fn: Any) -> Any:
    """``fn`` as it is: the eager life."""
    return fn


def compiled(fn: Any) -> Any:
    """``fn`` compiled, with as many signatures as it takes."""
    return ruda.compile(fn, max_signatures=10_000)


class World:
    """State on ``device``, and the steps over it as ``make`` makes them."""

    def __init__(self, device: str, make: Callable[[Any], Any], seed: int) -> None:
        self.device, self.seed = device, seed
        self.draw = random.Random(seed)
        self.base = self.values(6, 4)
        # The last one is a part of the base.
        self.state = [self.values(4), self.values(4, 4), self.base[1:5]]
        self.weights = [self.values(4, 4).requires_grad_(), self.values(4).requires_grad_()]
        kind = (optim.SGD, optim.Adam)[seed % 2]
        self.opt = kind(self.weights, lr=0.05)
        self.outputs = [self.values(4, 4)]
        self.scale, self.sharp = 1.5, 1
        self.steps = [make(fn) for fn in _steps(self)]
        self.side: Any = None

    def values(self, *shape: int) -> ruda.Tensor:
        """Fresh values."""
        rng = np.random.default_rng(self.draw.randrange(1 << 30))
        return ruda.asarray(rng.standard_normal(shape).astype("f4"), device=self.device)

    def argument(self) -> ruda.Tensor:
        """A matrix for a step."""
        kind, start = self.draw.randrange(12), self.draw.randrange(3)
        if kind < 4:
            return self.values(4, 4)
        if kind < 8:
            state = self.state
            return (state[1], state[2], state[1].T, self.base[:4])[kind - 4]
        if kind == 8:
            return self.base[start:][:4]
        output = self.draw.choice(self.outputs)
        return output if kind < 11 else output.T

    def call(self) -> list[Any]:
        """One step; its results as arrays."""
        draw, which = self.draw, self.draw.randrange(7)
        x = self.argument()
        y: Any = x if draw.random() < 0.1 else self.argument()
        if which in (4, 5):
            more: list[Any] = []
        elif which == 6:
            places = np.array([draw.randrange(4) for _ in range(3)])
            more = [ruda.asarray(places, device=self.device)]
        else:
            more = [y] if which != 1 else [draw.choice((0.5, 2.0, -1.0))]
        with ExitStack() as scopes:
            for scope in self._scopes():
                scopes.enter_context(scope)
            found = self.steps[which](x, *more)
        flat = [t.detach() for t in (found if isinstance(found, tuple) else (found,))]
        # A compiled step returns copies of what shows state: here as well.
        self.outputs += [t.copy() for t in flat if t.shape == (4, 4) and t.dtype is ruda.float32]
        del self.outputs[:-5]
        return [ruda.astype(t, "float32").numpy().copy() for t in flat]

    def _scopes(self) -> list[AbstractContextManager[Any]]:
        share = self.draw.random()
        if share < 0.07:
            return [ruda.no_grad()]
        if share < 0.12:
            return [ruda.autocast("bfloat16")]
        if share < 0.25 and self.side is not None:
            return [cuda.stream(self.side)]
        return []

    def happen(self) -> None:
        """Something between two calls."""
        draw, state, weights = self.draw, self.state, self.weights
        event = draw.choice(_EVENTS)
        if event == "settings":
            self.scale, self.sharp = draw.choice((1.5, 2.5)), draw.choice((1, 2))
        elif event == "freeze":
            draw.choice(weights).requires_grad_(draw.random() < 0.5)
        elif event == "thaw":
            for weight in weights:
                weight.requires_grad_()
        elif event == "rate":
            self.opt.param_groups[0]["lr"] = draw.choice((0.05, 0.01))
        elif event == "gradient":
            given = [w for w in weights if w.grad is not None]
            for weight in given[:1]:
                weight.grad = weight.grad * 2.0
        elif event == "bind":
            state[0], state[2] = self.values(4), self.base[draw.randrange(3) :][:4]
        elif event == "turn":
            state[1] = state[1].T
        else:
            self._change(event)

    def _change(self, event: str) -> None:
        draw = self.draw
        if event == "reseed":
            ruda.random.manual_seed(draw.randrange(99))
        elif event == "drawn":
            ruda.random.normal((3,), device=self.device)
        elif event == "write":
            self.base += 0.25
            self.state[1][:, 0] = 1.0
        elif event == "output":
            draw.choice(self.outputs).assign(self.values(4, 4))
        elif event == "weights":
            with ruda.no_grad():
                self.weights[0].assign(self.weights[0] * 0.9)
        elif event == "load":
            self.opt.load_state_dict(copy.deepcopy(self.opt.state_dict()))
        elif event == "forget":
            self.opt.zero_grad()
            gc.collect()
        elif event == "cache" and self.device != "cpu":
            cuda.empty_cache()

    def look(self) -> list[Any]:
        """All that there is."""
        tensors = (self.base, *self.state, *self.weights, *self.outputs)
        grads = [w.grad for w in self.weights]
        return [
            *(t.detach().numpy().copy() for t in tensors),
            *(None if g is None else g.numpy().copy() for g in grads),
            default_generator.draw,
        ]


_EVENTS = (
    *("settings", "freeze", "thaw", "rate", "gradient", "bind", "turn", "reseed", "drawn"),
    *("write", "output", "weights", "load", "forget", "cache"),
)


def _steps(world: World) -> list[Callable[..., Any]]:
    state, weights, opt = world.state, world.weights, world.opt

    def train(x: Any, y: Any) -> Any:
        loss = ((ruda.tanh(x @ weights[0]) + weights[1] - y) ** 2).mean()
        if loss.requires_grad:
            loss.backward()
            opt.step()
            opt.zero_grad()
        return loss.detach()

    def gradients(x: Any, rate: float) -> Any:
        loss = (x @ weights[0] * rate).sum() + (weights[1] ** 2).sum()
        if loss.requires_grad:
            loss.backward()
        return loss.detach(), x * rate

    def change(x: Any, y: Any) -> Any:
        with ruda.no_grad():
            state[0].assign(state[0] * 0.5 + x.sum(axis=0))
            state[1][1:] = state[1][:-1] + y[1:]
            state[2] *= 0.9
        return state[0] + 0.0, (state[2] + state[1] * world.scale).sum()

    def in_place(x: Any, y: Any) -> Any:
        x += y * 0.5
        y[0] = x[1]
        return x + y, x

    def drawn(x: Any) -> Any:
        noise = ruda.random.uniform((4, 4), device=world.device)
        return F.dropout(x, 0.3) + noise, x.T, x[1:]

    def forward(x: Any) -> Any:
        return x @ weights[0] + weights[1]

    def read(x: Any, places: Any) -> Any:
        return ruda.cumulative_sum(x, axis=0), x[places], F.softmax(x * world.sharp)

    return [train, gradients, change, in_place, drawn, forward, read]


def life(seed: int, device: str, make: Callable[[Any], Any], calls: int, streams: bool) -> Any:
    """Results and state after each call, or the class of the error that it raised."""
    ruda.random.manual_seed(seed)
    world = World(device, make, seed)
    if streams:
        world.side = cuda.Stream(device)
    for _ in range(calls):
        while world.draw.random() < 0.35:
            world.happen()
        try:
            results: Any = world.call()
        except ruda.RudaError as error:
            results = [type(error).__name__]
        yield results + world.look()


def differences(seed: int, device: str, calls: int = 50, streams: bool = False) -> list[str]:
    """What differs between the eager and the compiled life of a seed, by the number of the call."""
    # One after the other: both use the default generator.
    eager, found = (list(life(seed, device, m, calls, streams)) for m in (plain, compiled))
    out = []
    for i, (wanted, got) in enumerate(zip(eager, found, strict=True)):
        if len(wanted) != len(got):
            out.append(f"call {i}: {len(got)} things instead of {len(wanted)}")
            continue
        out += [f"call {i}, thing {k}" for k in range(len(got)) if not _alike(got[k], wanted[k])]
    return out


def _alike(got: Any, want: Any) -> bool:
    if not isinstance(want, np.ndarray):
        return bool(got == want) if want is not None else got is None
    if not isinstance(got, np.ndarray) or got.dtype != want.dtype or got.shape != want.shape:
        return False
    # Values feed back through fifty calls, some of them in bfloat16.
    return bool(np.allclose(got, want, rtol=2e-3, atol=2e-3, equal_nan=True))
