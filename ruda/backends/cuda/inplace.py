"""Rows whose outputs overwrite tensors: kernels that write there, one launch for many tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ruda.backends.cuda.memory import Borrowed
from ruda.backends.cuda.prim import each, moving, updates
from ruda.backends.cuda.stream_order import Order, touch
from ruda.core.spec import Spec

Into = Callable[[Sequence[Any], Sequence[Any]], None]


class InPlace:
    """What ``CudaClient`` does to run plans into memory that is there."""

    order: Order
    guarded: bool
    blocking: bool
    synchronize: Callable[[], None]
    write: Callable[..., None]
    overlaps: Callable[[Spec, Any, Spec, Any], bool]
    check_writable: Callable[[Any], None]

    def update_all(self, plan: Any, handles: Sequence[Any], targets: Sequence[Any]) -> None:
        """Run ``plan`` and put its outputs where ``targets`` are: at once, where a kernel can."""
        into = self.into(plan)
        if into is None or self._shifted(plan, handles, targets):
            for target, spec, result in zip(targets, plan.out, plan.run(*handles), strict=True):
                self.write(target.spec, target, spec, result)
            return
        self._mark([plan], [handles], [targets])
        into(handles, targets)
        if self.blocking:
            self.synchronize()

    @functools.lru_cache(maxsize=4096)  # noqa: B019  (a client lives as long as the process)
    def into(self, plan: Any) -> Into | None:
        """The function that runs ``plan`` into memory that is there, or None."""
        if plan.op.name in moving.KERNELS:
            return moving.bind_into(self, plan)
        fits = plan.op.name in updates.KERNELS and updates.supported(plan)
        return updates.bind_into(self, plan) if fits else None

    def _shifted(self, plan: Any, handles: Sequence[Any], targets: Sequence[Any]) -> bool:
        """Whether a target lies over other elements of an operand than those in its own place."""
        pairs = [(s, h) for s, h in zip(plan.specs, handles, strict=True) if not s.weak]
        return any(
            h is not target and self.overlaps(out, target, spec, h)
            for target, out in zip(targets, plan.out, strict=True)
            for spec, h in pairs
        )

    def bind_many(self, plans: Sequence[Any]) -> Callable[..., None] | None:
        """The launches of all ``plans``, which are of one row, or None where there are none.

        They take a handle of a float64 that gradients are multiplied by, and one of a bool that
        says whether anything happens at all, or None for either. ``run.settled(handles, targets,
        place)`` gives the same for good, but for the operands at ``place``, the gradients.
        """
        many = updates.bind_many(self, plans)
        if many is None:
            return None

        def run(
            handles: Sequence[Any], targets: Sequence[Any], scale: Any = None, keep: Any = None
        ) -> None:
            self._mark(plans, handles, targets)
            if self.guarded:
                touch(self.order, [h for h in (scale, keep) if h is not None], ())
            addresses = (0 if h is None else h.address for h in (scale, keep))
            many(handles, targets, *addresses)
            if self.blocking:
                self.synchronize()

        run.settled = functools.partial(self._settled, plans, many)  # type: ignore[attr-defined]
        return run

    def _settled(
        self, plans: Sequence[Any], many: Any, handles: Any, targets: Any, place: int
    ) -> Callable[..., None]:
        again = many.settled(handles, targets)

        def run(given: Sequence[Any], scale: Any = None, keep: Any = None) -> None:
            if self.guarded:
                pairs = zip(handles, given, strict=True)
                whole = [[*ops[:place], h, *ops[place + 1 :]] for ops, h in pairs]
                self._mark(plans, whole, targets)
                touch(self.order, [h for h in (scale, keep) if h is not None], ())
            addresses = (0 if h is None else h.address for h in (scale, keep))
            again([h.address for h in given], *addresses)
            if self.blocking:
                self.synchronize()

        return run

    @functools.lru_cache(maxsize=256)  # noqa: B019  (a client lives as long as the process)
    def bind_each(
        self, op: Any, targets: tuple[Spec, ...], columns: tuple[Any, ...], attrs: tuple[Any, ...]
    ) -> Callable[[Sequence[Any], Sequence[Any]], None] | None:
        """``run(targets, operands)`` of an elementwise row over many tensors, or None.

        An operand is a list of handles where its column is a tuple of specs, else what all share.
        """
        launch = each.bind(self, op, targets, columns, attrs)
        if launch is None:
            return None
        moving = [c.__class__ is tuple for c in columns]
        shared = [c.__class__ is not tuple and not c.weak for c in columns]

        def run(written: Sequence[Any], operands: Sequence[Any]) -> None:
            if Borrowed in {(h.root or h).block.__class__ for h in written}:
                for target in written:
                    self.check_writable(target)
            if self.guarded:
                read = [h for h, one in zip(operands, shared, strict=True) if one]
                for column, moves in zip(operands, moving, strict=True):
                    read += column if moves else ()
                touch(self.order, read, written)
            launch(written, operands)
            if self.blocking:
                self.synchronize()

        return run

    def _mark(self, plans: Any, handles: Sequence[Any], targets: Sequence[Any]) -> None:
        """Keep streams in order, where there are several."""
        if not self.guarded:
            return
        for plan, operands, written in zip(plans, handles, targets, strict=True):
            pairs = zip(plan.specs, operands, strict=True)
            touch(self.order, [h for s, h in pairs if not s.weak], written)
