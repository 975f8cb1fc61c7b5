"""L-BFGS: a quasi-Newton method for losses that can be evaluated again and again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ruda.core.errors import ArgumentError, CaptureError, DTypeError
from ruda.core.mode import enable_grad, no_grad
from ruda.ops.conversion import asarray
from ruda.ops.create import zeros
from ruda.ops.join import concat
from ruda.ops.movement import copy, reshape
from ruda.optim.base import Group, Optimizer, OptimizerStateError, State
from ruda.optim.line_search import Point, strong_wolfe
from ruda.tensor.tensor import RudaTensor

# Below this the curvature along a step says nothing.
_CURVATURE = 1e-10
Closure = Callable[[], RudaTensor]


class LBFGS(Optimizer):
    """``p += t * d`` with d = -H g, H the inverse Hessian as the last steps have shown it.

    ``step(closure)`` makes up to ``max_iter`` iterations and ``max_eval`` evaluations (1.25 times
    ``max_iter`` unless given); the closure clears gradients, computes the loss, runs ``backward``
    and returns the loss. t is ``lr`` (in the first iteration times min(1, 1 / |g|₁)), or found from
    there by a search for the strong Wolfe conditions with ``line_search_fn="strong_wolfe"``. A step
    ends early when no element of g exceeds ``tolerance_grad``, or steps or losses change by less
    than ``tolerance_change``. H comes from the last ``history_size`` pairs of steps and changes of
    g. Nocedal and Wright, "Numerical optimization" (2006), algorithm 7.5.

    Takes one group of float32 or float64 parameters. What it does depends on values at every turn,
    so it raises ``CaptureError`` inside a compiled step; the closure may be compiled.

    >>> weight = ruda.tensor([3.0], requires_grad=True)
    >>> opt = ruda.optim.LBFGS([weight], line_search_fn="strong_wolfe")
    >>> def loss():
    ...     opt.zero_grad()
    ...     value = ruda.sum((weight - 1.0) ** 2)
    ...     value.backward()
    ...     return value
    >>> opt.step(loss).item(), round(weight.item(), 3)
    (4.0, 1.0)
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        self._memory: dict[str, Any] = {}
        super().__init__(params, defaults, False)

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        search = settings["line_search_fn"]
        kinds = (None, "strong_wolfe")
        self._refuse_unless(search in kinds, "line_search_fn", search, str(kinds))
        if self.param_groups:
            raise ArgumentError("LBFGS", "there is one group only", hint="all parameters in one")

    def _initial(self, master: RudaTensor, group: Group) -> State:
        if master.dtype.is_half:
            got, expected = master.spec, "float32 or float64"
            raise DTypeError("LBFGS", "a parameter is too coarse for a line", got, expected)
        return {}

    def step(self, closure: Closure) -> RudaTensor:  # type: ignore[override]
        """Iterate from where the parameters are; returns the loss there."""
        group, rate, memory = self.param_groups[0], self._rate(), self._memory
        with no_grad():
            loss = self._evaluate(closure)
            here = Point(0.0, _number(loss), self._gradient(), 0.0)
            memory["n_iter"] = memory.get("n_iter", 0)
            evaluations, left = 1, group["max_iter"]
            done = _largest(here.gradient) <= group["tolerance_grad"]
            while left and not done:
                left -= 1
                before, slope = here, self._aim(here, rate)
                if slope > -group["tolerance_change"]:
                    break
                if group["line_search_fn"]:
                    start, limit = here._replace(slope=slope), group["max_eval"] - evaluations
                    here, spent = self._search(closure, start, limit)
                else:
                    here, spent = self._advance(closure, here, last=not left)
                evaluations += spent
                done = evaluations >= group["max_eval"] or self._has_settled(before, here)
            memory["func_evals"] = memory.get("func_evals", 0) + evaluations
            return loss

    def _rate(self) -> float:
        try:
            return _number(self.lr)
        except CaptureError as error:
            what = "the step cannot be compiled: its values decide how often it evaluates"
            hint = "opt.step(closure) outside; the closure may be compiled"
            raise CaptureError("LBFGS", what, hint=hint) from error

    def _evaluate(self, closure: Closure) -> RudaTensor:
        with enable_grad():
            return closure().detach()

    def _aim(self, here: Point, rate: float) -> float:
        """Choose the direction and a step length; returns the slope along it."""
        memory = self._memory
        self._learn(here.gradient, self.param_groups[0]["history_size"])
        memory["n_iter"] += 1
        memory["prev_flat_grad"], memory["prev_loss"] = here.gradient, here.loss
        memory["t"] = rate
        if memory["n_iter"] == 1:
            memory["t"] *= min(1.0, 1.0 / abs(here.gradient).sum().item())
        return _dot(here.gradient, memory["d"])

    def _advance(self, closure: Closure, here: Point, last: bool) -> tuple[Point, int]:
        """Make the step; after the ``last`` the loss there is the next call's to evaluate."""
        self._move([copy(p) for p in self._parameters()], self._memory["t"])
        if last:
            return here, 0
        loss = _number(self._evaluate(closure))
        return Point(0.0, loss, self._gradient(), 0.0), 1

    def _search(self, closure: Closure, start: Point, limit: int) -> tuple[Point, int]:
        memory, origin = self._memory, [copy(p) for p in self._parameters()]

        def evaluate(t: float) -> Point:
            self._move(origin, t)
            loss, gradient = _number(self._evaluate(closure)), self._gradient()
            return Point(t, loss, gradient, _dot(gradient, memory["d"]))

        size = _largest(memory["d"])
        found, spent = strong_wolfe(evaluate, start, memory["t"], size, limit)
        memory["t"] = found.t
        self._move(origin, found.t)
        return found._replace(t=0.0), spent

    def _learn(self, gradient: RudaTensor, limit: int) -> None:
        """The next direction: -H g, after the last step has added what it shows of H."""
        memory = self._memory
        if memory["n_iter"] == 0:
            memory.update(d=-gradient, old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return
        turn, moved = gradient - memory["prev_flat_grad"], memory["d"] * memory["t"]
        curvature = _dot(turn, moved)
        if curvature > _CURVATURE:
            pair = (("old_dirs", turn), ("old_stps", moved), ("ro", 1.0 / curvature))
            for name, value in pair:
                memory[name] = [*memory[name], value][-limit:]
            memory["H_diag"] = curvature / _dot(turn, turn)
        pairs = list(zip(memory["old_dirs"], memory["old_stps"], memory["ro"], strict=True))
        q, shares = -gradient, []
        for turn, moved, weight in reversed(pairs):
            shares.append(_dot(moved, q) * weight)
            q = q - turn * shares[-1]
        q = q * memory["H_diag"]
        for (turn, moved, weight), share in zip(pairs, reversed(shares), strict=True):
            q = q + moved * (share - _dot(turn, q) * weight)
        memory["d"] = q

    def _has_settled(self, before: Point, here: Point) -> bool:
        group = self.param_groups[0]
        change = group["tolerance_change"]
        return (
            _largest(here.gradient) <= group["tolerance_grad"]
            or _largest(self._memory["d"]) * self._memory["t"] <= change
            or abs(here.loss - before.loss) < change
        )

    def _gradient(self) -> RudaTensor:
        """All gradients as one vector, zeros where there is none."""
        rows = []
        for p in self._parameters():
            like = {"dtype": p.dtype, "device": p.device}
            rows.append(zeros((p.size,), **like) if p.grad is None else reshape(p.grad, (-1,)))
        return concat(rows)

    def _move(self, origin: list[RudaTensor], t: float) -> None:
        d, start = self._memory["d"], 0
        for p, x in zip(self._parameters(), origin, strict=True):
            p.assign(x + reshape(d[start : start + p.size], p.shape) * t)
            start += p.size

    def state_dict(self) -> dict[str, Any]:
        """Settings, and under parameter 0 what has been learned of the loss, as PyTorch does."""
        saved = super().state_dict()
        memory = {
            name: list(value) if isinstance(value, list) else value
            for name, value in self._memory.items()
        }
        return saved | {"state": {0: memory} if memory else {}}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from ``state_dict`` (or PyTorch's); raises ``OptimizerStateError``."""
        memory = dict(saved["state"].get(0, {}))
        needed = {"d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "n_iter"}
        missing = sorted(needed - set(memory)) if memory.get("n_iter") else []
        if missing:
            got = sorted(memory)
            raise OptimizerStateError("load_state_dict", f"{missing[0]} is missing", got)
        super().load_state_dict({**saved, "state": {}})
        self._memory = {name: self._taken(value) for name, value in memory.items()}

    def _taken(self, value: Any) -> Any:
        """A saved list, vector or number as this optimizer keeps it."""
        if isinstance(value, list):
            return [self._taken(item) for item in value]
        if value is None or isinstance(value, int | float):
            return value
        found = asarray(value, dtype=self._parameters()[0].dtype, device=self.lr.device, copy=True)
        return found if found.ndim else found.item()


def _number(x: RudaTensor) -> float:
    """The value of a real tensor of one element."""
    value = x.item()
    assert not isinstance(value, complex)
    return float(value)


def _dot(a: RudaTensor, b: RudaTensor) -> float:
    return _number((a * b).sum())


def _largest(x: RudaTensor) -> float:
    value = _number(abs(x).max())
    return math.inf if math.isnan(value) else value
