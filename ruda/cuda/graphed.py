"""Functions whose forward and backward are each one graph."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ruda.autodiff.api import gradients
from ruda.core.errors import ArgumentError, DTypeError, GradientError, ShapeError
from ruda.core.mode import MODE, recording
from ruda.cuda.graphs import Graph, graph
from ruda.ops.create import empty_like, zeros_like
from ruda.tensor.dispatch import OPS, Op
from ruda.tensor.launch import slow
from ruda.tensor.tensor import RudaTensor

_numbers = itertools.count()


def make_graphed_callables(functions: Any, sample_args: Sequence[Any], *, warmup: int = 1) -> Any:
    """``functions`` (one, or a sequence) as functions that replay graphs, forward and backward.

    ``sample_args`` are tensors like those of later calls (for several functions a sequence of such
    sequences); those that require grad get gradients, as do the parameters of a module. Shapes and
    dtypes are fixed, values are not. A backward belongs to the latest forward; raises
    ``GradientError`` for an older one, and for gradients of gradients.

    >>> if ruda.cuda.is_available():
    ...     x = ruda.ones(3, device="cuda", requires_grad=True)
    ...     f = ruda.cuda.make_graphed_callables(lambda x: (x * x).sum(), (x,))
    ...     f(x).backward()
    ...     x.grad.tolist()
    """
    if callable(functions):
        return _Graphed(functions, sample_args, warmup)
    if len(functions) != len(sample_args):
        got = f"{len(functions)} functions and {len(sample_args)} sequences of samples"
        raise ArgumentError("make_graphed_callables", "one sequence of samples a function", got)
    return tuple(_Graphed(f, a, warmup) for f, a in zip(functions, sample_args, strict=True))


class _Graphed:
    """One function, its two graphs, and the memory that they read and write."""

    def __init__(self, function: Callable[..., Any], samples: Sequence[Any], warmup: int) -> None:
        for sample in samples:
            if sample.__class__ is not RudaTensor:
                got = type(sample).__name__
                raise DTypeError("make_graphed_callables", "a sample is not a tensor", got)
        self.function = function
        self.inputs = [_static(sample) for sample in samples]
        parameters = getattr(function, "parameters", None)
        leaves = [] if parameters is None else list(parameters())
        self.parameters = [p for p in leaves if p.requires_grad]
        self.wanted = [t for t in (*self.inputs, *self.parameters) if t.requires_grad]
        device = samples[0].device if samples else None
        self.forward_graph, self.backward_graph = Graph(device), Graph(device)
        self.latest: Any = None
        self._warm_up(warmup)
        self._capture()
        self._row = self._make_row()

    def _run(self) -> list[RudaTensor]:
        with recording(True):
            out = self.function(*self.inputs)
        self.several = isinstance(out, tuple | list)
        return list(out) if self.several else [out]

    def _warm_up(self, times: int) -> None:
        """Compile and load what is needed before the captures, which would take it down late."""
        for _ in range(times):
            outs = [o for o in self._run() if o.node is not None]
            if outs and self.wanted:
                gradients(outs, self.wanted, [zeros_like(o) for o in outs])

    def _capture(self) -> None:
        with graph(self.forward_graph):
            self.outputs = self._run()
        self.seeds = [empty_like(o) for o in self.outputs]
        self.found: list[RudaTensor | None] = [None] * len(self.wanted)
        recorded = [i for i, o in enumerate(self.outputs) if o.node is not None]
        if recorded and self.wanted:
            outs, seeds = [[ts[i] for i in recorded] for ts in (self.outputs, self.seeds)]
            with graph(self.backward_graph, pool=self.forward_graph.pool()):
                self.found = gradients(outs, self.wanted, seeds)
        # Values stay, history does not: a replay makes new ones of the former alone.
        self.outputs = [o.detach() for o in self.outputs]

    def _make_row(self) -> Op:
        args = tuple(f"x{i}" for i in range(len(self.inputs) + len(self.parameters)))
        outs = tuple(f"out{i}" for i in range(len(self.outputs))) if self.several else ()
        name = f"graphed_{next(_numbers)}"
        latest = "out0" if outs else "out"
        rule = _naming(self._backward, latest)
        row = Op(
            name,
            "fused",
            args,
            outs=outs,
            grade="custom",
            shape=self._shapes,
            dtype=self._dtypes,
            body=self._forward,
            vjp=rule,
        )
        # It belongs to this object and is no operator that the table should list.
        del OPS[name]
        return row

    def _shapes(self, op: Op, specs: Any) -> Any:
        for i, (spec, static) in enumerate(zip(specs, self.inputs, strict=False)):
            if spec.shape != static.shape or spec.dtype is not static.dtype:
                what = f"argument {i} is not like its sample"
                raise ShapeError("graphed", what, spec, static.spec)
        shapes = tuple(o.shape for o in self.outputs)
        return shapes if self.several else shapes[0]

    def _dtypes(self, op: Op, specs: Any) -> Any:
        dtypes = tuple(o.dtype for o in self.outputs)
        return None, dtypes if self.several else dtypes[0]

    def _forward(self, *values: RudaTensor) -> Any:
        for static, value in zip(self.inputs, values, strict=False):
            static.detach().assign(value)
        self.forward_graph.replay()
        out = [o.copy() for o in self.outputs]
        self.latest = weakref.ref(out[0].handle)
        return tuple(out) if self.several else out[0]

    def _backward(self, g: Any, needs: tuple[bool, ...], out: RudaTensor) -> list[Any]:
        if MODE.get().grad:
            raise GradientError("graphed", "a graph has no gradient of its gradient")
        if self.latest is None or self.latest() is not out.handle:
            what = "another forward has overwritten what this backward needs"
            raise GradientError("graphed", what, hint="backward before the next call")
        for seed, value in zip(self.seeds, g if self.several else (g,), strict=True):
            seed.assign(0 if value is None else value)
        self.backward_graph.replay()
        found = iter(self.found)
        tensors = (*self.inputs, *self.parameters)
        made = [next(found) if t.requires_grad else None for t in tensors]
        return [m.copy() if need and m is not None else None for m, need in zip(made, needs)]

    def __call__(self, *args: RudaTensor) -> Any:
        """As the function, in one replay."""
        if len(args) != len(self.inputs):
            raise ArgumentError("graphed", "not as many as samples", len(args), len(self.inputs))
        return slow(self._row, (*args, *self.parameters))


def _naming(rule: Callable[..., Any], latest: str) -> Callable[..., Any]:
    """``rule`` as a vjp: the row reads from its parameters' names what to keep."""
    if latest == "out":
        return lambda g, needs, out: rule(g, needs, out)
    return lambda g, needs, out0: rule(g, needs, out0)


def _static(sample: RudaTensor) -> RudaTensor:
    return sample.detach().copy().requires_grad_(sample.requires_grad)
