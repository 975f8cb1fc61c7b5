"""From a function and the arguments of a call to a program: traced, checked, within its budget."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from ruda.core.devices import client as client_of
from ruda.core.errors import CaptureError
from ruda.core.mode import MODE, Using
from ruda.fusion.budget import keep_within
from ruda.fusion.guard_builder import GuardBuilder
from ruda.fusion.guards import Guards
from ruda.fusion.lint import Finding, changing, findings, frozen
from ruda.fusion.program import Program
from ruda.fusion.pytree import Given, rebuilt
from ruda.fusion.results import Results
from ruda.fusion.tracer import Tracer
from ruda.fusion.watch import Watch
from ruda.tensor.tensor import RudaTensor


def trace(
    fn: Callable[..., Any],
    given: Given,
    args: Any,
    kwargs: dict[str, Any],
    memory: int | None = None,
) -> Program:
    """Trace ``fn`` on the arguments of a call; all objects are afterwards as they were before.

    The program keeps within ``memory`` bytes.
    """
    tensors = [t for t in given.leaves if t.__class__ is RudaTensor]
    tracer = Tracer(tensors[0].spec.client if tensors else client_of(), given)
    builder = GuardBuilder()
    found: dict[Finding, None] = {}

    def enter(frame: Any, functions: Any) -> None:
        builder.enter(frame, functions)
        found.update(dict.fromkeys(findings(frame.f_code, frame.f_globals)))

    try:
        builder.root(getattr(fn, "__qualname__", "the function"), fn)
        for path, value in given.objects:
            builder.root(path, value)
        inside = _with_scalars(tracer, args, kwargs)
        with Using(MODE.get().but(tracer=tracer)), builder.lookups, Watch(enter):
            results = Results(tracer, fn(*inside[0], **inside[1]))
            results.seal(given)
            tracer.check_history()
        tracer.put_back()
        if hasattr(tracer.client, "capture"):
            # Its constants would be there once that graph has run.
            tracer.client.check_open("a compiled step is traced")
        _check_unchanged(tracer, builder.finish(), given, inside)
        program = Program(tracer, results, builder, given, bounded=memory is not None)
        if memory is not None:
            keep_within(program, memory)
    except BaseException:
        tracer.put_back()
        builder.guards.restore()
        raise
    named = ((changing(value), path) for path, value in builder.objects)
    program.findings = [*found, *(frozen(name, path) for name, path in named if name is not None)]
    return program


def _with_scalars(tracer: Tracer, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The arguments with a traced float for each float, in new containers."""
    places = count()

    def change(leaf: Any) -> Any:
        if leaf.__class__ is RudaTensor or leaf.__class__ is float:
            return tracer.floats.get(next(places), leaf)
        return leaf

    inside = [rebuilt(value, change) for value in args]
    return inside, {name: rebuilt(value, change) for name, value in kwargs.items()}


def _check_unchanged(tracer: Tracer, guards: Guards, given: Given, inside: Any) -> None:
    """Raise if the function has changed a Python object that it got or reached."""
    floats = {id(value): given.leaves[i] for i, value in tracer.floats.items()}
    args, kwargs = rebuilt(inside, lambda leaf: floats.get(id(leaf), leaf))
    again = Given(tuple(args), kwargs)
    leaves = zip(again.leaves, given.leaves, strict=False)
    path = guards.failure()
    if again.key != given.key or any(a is not b for a, b in leaves):
        path = "an argument"
    if path is not None:
        what = f"{path} is changed while tracing, which a replay would not do"
        hint = "a tensor that assign() updates, or returning the new value"
        raise CaptureError("compile", what, hint=hint)
