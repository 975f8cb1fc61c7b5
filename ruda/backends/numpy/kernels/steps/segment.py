"""A run of operators of a compiled step as one table of tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np

from ruda.backends.numpy.buffers import empty
from ruda.backends.numpy.kernels.steps import attention, elements, losses, norms, products
from ruda.backends.numpy.kernels.steps.builder import Builder, Laid
from ruda.backends.numpy.kernels.steps.places import LINE, Block, Place
from ruda.backends.numpy.memory import address, handle_of
from ruda.ops.cross_entropy_rows import check_classes


class Row(NamedTuple):
    """Whether a plan of a row can be taken apart, and what does it."""

    takes: Callable[[Any], bool]
    lower: Callable[..., None]


_ELEMENTS = Row(elements.takes_elements, elements.elements)
_COPY = Row(elements.takes_copy, elements.copy)
ROWS: dict[str, Row] = {
    "matmul": Row(products.takes_matmul, products.matmul),
    "linear": Row(products.takes_linear, products.linear),
    "linear_weight_backward": Row(products.takes_weight, products.weight),
    "layer_norm": Row(norms.takes_norm, norms.norm),
    "layer_norm_backward": Row(norms.takes_norm_backward, norms.norm_backward),
    "cross_entropy": Row(losses.takes_loss, losses.loss),
    "cross_entropy_backward": Row(losses.takes_loss, losses.loss_backward),
    "mean_where_counted": Row(losses.takes_mean, losses.mean),
    "attention": Row(attention.takes_attention, attention.attend),
    "attention_backward": Row(attention.takes_attention, attention.attend_backward),
    "reshape": _COPY,
    "copy": _COPY,
    "concat": Row(elements.takes_concat, elements.concat),
    **dict.fromkeys(elements.TASKS, _ELEMENTS),
}


def takes(plan: Any) -> bool:
    """Whether a plan, which is no view, can be taken apart into tasks."""
    row = ROWS.get(plan.op.name)
    return row is not None and row.takes(plan)


class Segment:
    """A region bound to a table: ``run`` gives the handles of what the region keeps."""

    def __init__(self, region: Any, values: Mapping[int, Any], steady: Set[int]) -> None:
        self.region = region
        given = len(region.specs)
        self.inputs = [i for i in range(given) if i not in values]
        slots = {i: k + 1 for k, i in enumerate(self.inputs)}
        places: list[Any] = [values.get(i) for i in range(given)]
        for i in self.inputs:
            places[i] = Place(Block(0, slots[i]), 0, region.specs[i])
        builder, made = Builder(), 0
        kept = {k: 1 + len(self.inputs) + i for i, k in enumerate(region.kept)}
        for number, step in enumerate(region.steps):
            operands = [places[s] for s in step.sources]
            builder.owner = number
            if step.plan.shares:
                places.append(operands[0].seen(step.plan, operands[1:]))
            else:
                outs = [self._new(builder, s, kept.get(made + i)) for i, s in enumerate(step.outs)]
                ROWS[step.plan.op.name].lower(builder, step.plan, *operands, *outs)
                places += outs
            made += len(step.outs)
        self.outs = [(spec.shape, spec.dtype.numpy) for spec in region.out]
        self.laid = Laid(builder)
        self.bases = np.zeros(1 + len(self.inputs) + len(self.outs), np.int64)
        # Arrays that come again, and whose addresses are known.
        self.known: list[Any] = [None] * len(self.inputs)
        self.steady = [i in steady for i in self.inputs]
        # What the steps were made from, for errors, and the step that failed in the last run.
        self.members: Sequence[Any] = ()
        self.failed: int | None = None

    def _new(self, builder: Builder, spec: Any, slot: int | None) -> Place:
        if slot is not None:
            return Place(Block(0, slot), 0, spec)
        return Place(builder.block(math.prod(spec.shape) * spec.dtype.numpy.itemsize), 0, spec)

    def __call__(self, *handles: Any) -> tuple[Any, ...]:
        bases, known = self.bases, self.known
        for k, i in enumerate(self.inputs):
            array = handles[i].array
            if array is not known[k]:
                if self.steady[k]:
                    known[k] = array
                bases[k + 1] = address(array)
        arena = empty((self.laid.size + LINE,), _BYTE)
        outs = [empty(shape, dtype) for shape, dtype in self.outs]
        start = address(arena)
        bases[0] = start + -start % LINE
        bases[1 + len(known) :] = [address(out) for out in outs]
        failed = self.laid.run(bases)
        self.failed = failed if failed >= 0 else None
        if failed >= 0:
            self._raise(failed, handles)
        return tuple([handle_of(out) for out in outs])

    def _raise(self, failed: int, handles: Sequence[Any]) -> None:
        """Raise what the operator that failed has to say of its operands."""
        step = self.region.steps[failed]
        target = self._array(step.sources[1], handles)
        check_classes(step.plan.op.name, target, step.plan.specs[0].shape[-1], step.plan.attrs[1])

    def _array(self, source: int, handles: Sequence[Any]) -> Any:
        """The array of an operand that is no step's result but for views."""
        given = len(self.region.specs)
        if source < given:
            return handles[source].array
        numbers = [n for n, step in enumerate(self.region.steps) for _ in step.outs]
        step = self.region.steps[numbers[source - given]]
        first, *rest = step.sources
        values = [handles[s] for s in rest]
        return step.plan.op.numpy(self._array(first, handles), *values, *step.plan.attrs)


_BYTE = np.dtype(np.uint8)
