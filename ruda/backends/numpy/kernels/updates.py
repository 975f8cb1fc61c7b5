"""Optimizer steps in float32, over the operands themselves, each element read and written once.

A kernel with other arrays for its results would stay scalar: telling so many arrays apart takes
more checks than the compiler makes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ruda.backends.numpy.kernels import loaded
from ruda.backends.numpy.kernels.compiler import Kernel, kernel
from ruda.backends.numpy.memory import handle_of
from ruda.backends.numpy.pool import POOL, TILE, tiles


@kernel("void(f4[::1], f4[::1], f4[::1], f4[::1], f4[::1])")
def adamw(p, g, m, v, constants):
    sign, decay, share1, keep2 = constants[0], constants[1], constants[2], constants[3]
    share2, shrink, size, floor = constants[4], constants[5], constants[6], constants[7]
    for i in range(p.size):
        x = p[i]
        grad = sign * g[i]
        if decay != 0:
            grad += decay * x
        mean = m[i] + (grad - m[i]) * share1
        square = v[i] * keep2 + grad * grad * share2
        m[i] = mean
        v[i] = square
        p[i] = x * shrink - mean / (np.sqrt(square) + floor) * size


@kernel("void(f4[::1], f4[::1], f4[::1], f4[::1])")
def momentum(p, g, b, constants):
    sign, decay, keep, share = constants[0], constants[1], constants[2], constants[3]
    ahead, rate = constants[4], constants[5]
    for i in range(p.size):
        x = p[i]
        grad = sign * g[i]
        if decay != 0:
            grad += decay * x
        buffer = b[i] * keep + grad * share
        b[i] = buffer
        descent = buffer
        if ahead != 0:
            descent = buffer * ahead + grad
        p[i] = x - descent * rate


KERNELS: dict[str, Kernel] = {"adamw_step": adamw, "momentum_step": momentum}
Values = Sequence[Any]


def _adamw_constants(step: Any, lr: Any, beta1: Any, beta2: Any, eps: Any, *rest: Any) -> Values:
    weight_decay, decoupled, maximize = rest
    count, rate, b1, b2 = int(step) + 1, float(lr), float(beta1), float(beta2)
    decay = 0.0 if weight_decay is None else float(weight_decay)
    root = math.sqrt(1.0 - b2**count)
    coupled, shrink = (0.0, 1.0 - rate * decay) if decoupled else (decay, 1.0)
    size, floor = rate * root / (1.0 - b1**count), float(eps) * root
    return -1.0 if maximize else 1.0, coupled, 1.0 - b1, b2, 1.0 - b2, shrink, size, floor


def _momentum_constants(step: Any, lr: Any, keep: Any, dampening: Any, *rest: Any) -> Values:
    weight_decay, nesterov, maximize = rest
    decay = 0.0 if weight_decay is None else float(weight_decay)
    keep, first = float(keep), int(step) == 0
    kept, share = (0.0, 1.0) if first else (keep, 1.0 - float(dampening))
    return -1.0 if maximize else 1.0, decay, kept, share, keep if nesterov else 0.0, float(lr)


_CONSTANTS = {"adamw_step": _adamw_constants, "momentum_step": _momentum_constants}


def bind(plan: Any) -> Callable[..., Any] | None:
    """Operands of one row-major shape. A first step of momentum reads a buffer of zeros."""
    many, count = bind_many([plan]), len(plan.out)
    if many is None:
        return None
    shape, whole = plan.out[0].shape, count - 1

    def run(*handles: Any) -> Any:
        outs = [handle_of(np.empty(shape, np.float32)) for _ in range(whole)]
        outs.append(handle_of(np.empty((), plan.out[whole].dtype.numpy)))
        many([handles], [outs])
        return tuple(outs)

    def write(outs: Sequence[Any], *values: Any) -> None:
        weak = [s.weak for s in plan.specs]
        pairs = zip(values, weak, strict=False)
        many([[v if w else handle_of(v) for v, w in pairs]], [[handle_of(x) for x in outs]])

    run.in_place = write  # type: ignore[attr-defined]
    return run


def bind_many(plans: Sequence[Any]) -> Callable[..., None] | None:
    """Calls of one row, each with operands of one row-major shape, in tiles of about one size.

    ``run.settled(handles, targets)`` binds all handles but the gradients' for good: a function of
    these, and of handles of a scale for them and of whether anything happens, or None for either.
    """
    if not all(s.contiguous for plan in plans for s in plan.specs[: len(plan.out)] if s.shape):
        return None
    steps = _Steps(plans)

    def run(handles: Sequence[Any], targets: Sequence[Any]) -> None:
        steps.bound(handles, targets, steps.one_by_one)([h[_GRADIENT] for h in handles])

    run.settled = steps.settled  # type: ignore[attr-defined]
    return run


# The gradient among the operands.
_GRADIENT = 1


class _Steps:
    """Several calls of one row, bound to arrays."""

    def __init__(self, plans: Sequence[Any]) -> None:
        op = plans[0].op
        self.name = op.name
        self.function, self.constants = KERNELS[op.name].ready(), _CONSTANTS[op.name]
        self.count, self.weak = len(plans[0].out), [s.weak for s in plans[0].specs]
        self.attrs = [plan.attrs for plan in plans]
        self.parts = _shares([plan.out[0].size for plan in plans])

    def settled(
        self, handles: Sequence[Sequence[Any]], targets: Sequence[Sequence[Any]]
    ) -> Callable[..., None]:
        """As ``run.settled`` says."""
        return self.bound(handles, targets, self._together)

    def bound(
        self,
        handles: Sequence[Sequence[Any]],
        targets: Sequence[Sequence[Any]],
        run: Callable[[Any], Callable[..., None]],
    ) -> Callable[..., None]:
        """What steps by gradients; ``run`` gives, for arrays of state, what does the work."""
        count, numbers = self.count, [h[self.count].array for h in handles]
        settings = self._settings(handles)
        counters = [outs[count - 1].array for outs in targets]
        copies = [
            (t.array, h.array)
            for operands, outs in zip(handles, targets, strict=True)
            for t, h in zip(outs, (operands[0], *operands[2:count]), strict=False)
            if t.array is not h.array
        ]
        step = run([[h.array.reshape(-1) for h in outs[:-1]] for outs in targets])

        def again(gradients: Sequence[Any], scale: Any = None, keep: Any = None) -> None:
            if keep is not None and not keep.array:
                return
            factor = 1.0 if scale is None else float(scale.array)
            for target, value in copies:
                np.copyto(target, value)
            found, known = [], {}  # type: list[Any], dict[Any, Any]
            for i in range(len(gradients)):
                key = int(numbers[i]), settings[i]
                constants = known.get(key)
                if constants is None:
                    constants = known[key] = self._constants(key[0], handles[i], i, factor)
                counters[i][...] = key[0] + 1
                found.append(constants)
            step([g.array.reshape(-1) for g in gradients], found)

        return again

    def _settings(self, handles: Sequence[Sequence[Any]]) -> list[int]:
        """For each call the first one that has the same scalars: constants are theirs alike."""
        first: dict[Any, int] = {}
        pairs = zip(handles, self.attrs, strict=True)
        keys = [(*operands[self.count + 1 :], *flags) for operands, flags in pairs]
        return [first.setdefault(key, i) for i, key in enumerate(keys)]

    def _constants(self, number: int, operands: Sequence[Any], i: int, factor: float) -> Any:
        start = self.count + 1
        pairs = zip(operands[start:], self.weak[start:], strict=True)
        scalars = [v if w else v.array for v, w in pairs]
        found = np.array(self.constants(number, *scalars, *self.attrs[i]), np.float32)
        # The first is the sign of the gradient.
        found[0] *= factor
        return found

    def _together(self, state: Sequence[Sequence[Any]]) -> Callable[..., None]:
        """One table of tasks for all calls, worth its making where it is run again."""
        return loaded("steps.updates", "All")(self.name, state).run  # type: ignore[no-any-return]

    def one_by_one(self, state: Sequence[Sequence[Any]]) -> Callable[..., None]:
        """A call of the kernel for each array or slice."""

        def step(gradients: Sequence[Any], constants: Sequence[Any]) -> None:
            rows = zip(state, gradients, constants, strict=True)
            self._run([(first, g, *rest, c) for (first, *rest), g, c in rows])

        return step

    def _run(self, work: Sequence[tuple[Any, ...]]) -> None:
        function, parts = self.function, self.parts

        def share(number: int) -> None:
            for i, part in parts[number]:
                if part is None:
                    function(*work[i])
                else:
                    *arrays, settings = work[i]
                    function(*[x[part] for x in arrays], settings)

        POOL.run(share, len(parts))


def _shares(sizes: Sequence[int]) -> list[list[tuple[int, slice | None]]]:
    """Arrays, or slices of them, in shares of about a tile each: (number, slice or None)."""
    shares: list[list[tuple[int, slice | None]]] = []
    room = 0
    for number, size in enumerate(sizes):
        cuts = tiles(size)
        for part in cuts:
            if room <= 0:
                shares.append([])
                room = TILE
            shares[-1].append((number, part if len(cuts) > 1 else None))
            room -= part.stop - part.start
    return shares
