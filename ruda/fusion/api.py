"""``ruda.compile``: a function that is traced once per signature and replayed from then on."""

from __future__ import annotations

import functools
import inspect
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from ruda.core.errors import ArgumentError, CaptureError
from ruda.core.mode import MODE
from ruda.fusion.fast_path import FastPath, fast_path_of, given_by
from ruda.fusion.lint import Finding
from ruda.fusion.lint_speed import refused, retraced, slow_parts
from ruda.fusion.memory import Memory, largest, memory_of
from ruda.fusion.program import Program
from ruda.fusion.pytree import Given
from ruda.fusion.report import sources as sources_of
from ruda.fusion.report import uses
from ruda.fusion.shadow import Report, compare
from ruda.fusion.trace import trace


def compile(
    fn: Callable[..., Any] | None = None, *, max_signatures: int = 8, memory: int | None = None
) -> Any:
    """``fn`` as one captured step: forward, ``backward``, clipping, optimizer, random numbers.

    The first call with new arguments traces ``fn``; later ones replay its operators without running
    its Python code. What the trace relied on is checked at each call: shapes, dtypes and strides of
    tensors, int, bool and str arguments, globals and closures that the code mentions, the versions
    of modules and optimizers. Float arguments are values. State is written once, at the end of a
    successful replay. Results equal those of ``fn``, or ``CaptureError`` is raised, with the line
    that cannot be captured; more than ``max_signatures`` traces raise it too and name what keeps
    changing.

    With ``memory``, in bytes, a step whose peak would be higher runs some operators twice in place
    of keeping their results until backward reads them: those that free most for the time they take,
    as many as it takes. The results are the same to the last bit. ``OutOfMemoryError`` names the
    smallest peak that there is, where that is too high. The peak is that of ``memory()``: what all
    in the process have in use, with what others had when the step was traced, and on the CPU
    without scratch memory inside of operators.

    >>> @ruda.compile
    ... def step(x, rate):
    ...     return x * rate
    >>> step(ruda.asarray([1.0, 2.0]), 0.5).tolist()
    [0.5, 1.0]
    """
    if fn is None:
        return functools.partial(compile, max_signatures=max_signatures, memory=memory)
    if not callable(fn):
        raise ArgumentError("compile", "not a function", type(fn).__name__)
    if inspect.isgeneratorfunction(fn) or inspect.iscoroutinefunction(fn):
        hint = "compiling the function that the generator calls"
        raise ArgumentError("compile", "a generator or coroutine has no end to capture", hint=hint)
    if max_signatures < 1:
        raise ArgumentError("compile", "max_signatures is below 1", max_signatures)
    if memory is not None and not isinstance(memory, int):
        expected = "a whole number of bytes"
        raise ArgumentError("compile", "memory is no size", repr(memory), expected, "8 << 30")
    if memory is not None and memory < 1:
        raise ArgumentError("compile", "memory is below 1 byte", memory)
    return Compiled(fn, max_signatures, memory)


class Compiled:
    """What ``ruda.compile`` returns; see there. One lock makes it safe to call from threads."""

    def __init__(self, fn: Callable[..., Any], max_signatures: int, memory: int | None) -> None:
        functools.update_wrapper(self, fn)
        self.budget = memory
        self.fn = fn
        self.max_signatures = max_signatures
        self.programs: dict[Any, list[Program]] = {}
        # Why calls needed a trace; the first reason is that there was none.
        self._reasons: list[str] = []
        # What kept calls from being traced, the last few.
        self._refusals: deque[Finding] = deque(maxlen=max_signatures)
        self._lock = threading.RLock()
        # That of the last call, if it has one.
        self._fast_path: FastPath | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        mode = MODE.get()
        if mode.tracer is not None or mode.recorder is not None:
            # Inside another trace, or where checkpoint has to see each node, the body is inlined.
            return self.fn(*args, **kwargs)
        with self._lock:
            fast = self._fast_path
            if fast is not None and not kwargs and fast.matches(mode, args):
                return fast.program.replayed(fast.whole, given_by(args))
            given = Given(args, kwargs)
            program = self._program(given, args, kwargs)
            out, whole = program.run(given)
            if not kwargs:
                self._fast_path = fast_path_of(program, whole, mode, args)
            return out

    def __get__(self, owner: Any, cls: Any = None) -> Any:
        return self if owner is None else functools.partial(self, owner)

    def __reduce__(self) -> Any:
        # Traces stay behind: they hold on to the memory of this process.
        name = getattr(self.fn, "__qualname__", "")
        scope = getattr(self.fn, "__globals__", {})
        settings = (self.fn, self.max_signatures, self.budget)
        return name if scope.get(name) is self else (Compiled, settings)

    def __repr__(self) -> str:
        name = getattr(self.fn, "__qualname__", repr(self.fn))
        return f"<compiled {name}: {self._count()} signature(s)>"

    def _count(self) -> int:
        return sum(map(len, self.programs.values()))

    def _program(self, given: Given, args: Any, kwargs: dict[str, Any]) -> Program:
        self._fast_path, mode = None, MODE.get()
        key = (given.key, mode.grad, mode.cast, mode.precision)
        known = self.programs.get(key, [])
        for i, program in enumerate(known):
            if program.preconditions.holds(given):
                if i:
                    # The one in use is looked at first.
                    known.insert(0, known.pop(i))
                return program
        reason = self._reason(given, known)
        if self._count() >= self.max_signatures:
            raise self._too_many(reason)
        try:
            program = trace(self.fn, given, args, kwargs, self.budget)
        except CaptureError as error:
            self._refusals.append(refused(error, _place_of(self.fn)))
            raise
        self._reasons.append(reason)
        self.programs.setdefault(key, []).insert(0, program)
        return program

    def _reason(self, given: Given, known: list[Program]) -> str:
        """Why a call needs a trace: the first thing that differs from what is there."""
        if known:
            return known[0].preconditions.failure()
        keys = [key[0] for key, programs in self.programs.items() if programs]
        return given.difference(keys[-1]) if keys else "the first call"

    def _too_many(self, reason: str) -> CaptureError:
        reasons = [*self._reasons[1:], reason]
        changing = max(reasons, key=reasons.count)
        what = f"more than {self.max_signatures} signatures, because {changing} keeps changing"
        hint = "a float argument or a tensor for what changes, or padding shapes to a few sizes"
        return CaptureError("compile", what, hint=f"{hint}; or max_signatures=")

    def _all(self) -> list[Program]:
        return [program for known in self.programs.values() for program in known]

    def explain(self, *, sources: bool = False) -> str:
        """The signatures so far: operators with the user's lines, kernels, state, guards.

        Of a step that is a graph also the kernels of each operator and the bytes of its operands
        and results, with times after ``measure``; with ``sources`` the CUDA C of the kernels.
        """
        parts = [f"{self!r}"]
        for i, program in enumerate(self._all()):
            parts += [f"signature {i}:", *(f"  {line}" for line in program.lines())]
            kernels = [f"    {use}" for use in uses(program)]
            parts += ["  launches:", *kernels] if kernels else []
            for name, text in sources_of(program).items() if sources else ():
                parts += [f"  source of {name}:", text]
        parts += [f"traced again because of: {reason}" for reason in self._reasons[1:]]
        return "\n".join(parts)

    def lint(self) -> list[Finding]:
        """What the traces froze, and what keeps the step from being fast.

        Frozen: clocks, foreign random numbers, ``os.environ``. Slow: values read on the host,
        signatures that keep changing, operators that no graph can hold, float64 by accident,
        results that nobody uses, copies for a layout.
        """
        where = _place_of(self.fn)
        found = [f for program in self._all() for f in (*program.findings, *slow_parts(program))]
        found += [*self._refusals, *retraced(self._reasons[1:], where)]
        return list(dict.fromkeys(found))

    def measure(self) -> None:
        """Time each operator of the steps that are graphs, for ``explain``; state stays as it is.

        The operators run some times on the arguments of the last call, without optimizer steps.
        """
        with self._lock:
            for program in self._all():
                if program.captured is not None and program.captured.graph is not None:
                    program.captured.measure()

    def memory(self, *args: Any, **kwargs: Any) -> Memory:
        """The bytes that a call with these arguments needs, before it is made; nothing runs.

        On CUDA the device's own pool is asked for every block, so that the peak is that of
        ``ruda.cuda.max_memory_allocated()`` afterwards.
        """
        with self._lock:
            given = Given(args, kwargs)
            return memory_of(self._program(given, args, kwargs))

    def largest_batch(self, budget: int, *args: Any, axis: int = 0, **kwargs: Any) -> int:
        """The most rows along ``axis`` with which a call's peak stays within ``budget`` bytes.

        The arguments show the rest of the shapes; those with as many rows as the first tensor get
        more or fewer. Nothing runs, and no memory is taken for other sizes.
        """
        with self._lock:
            return largest(budget, args, kwargs, axis, functools.partial(trace, self.fn))

    def check(self, *args: Any, **kwargs: Any) -> Report:
        """Compare one compiled call with an eager one, and leave all state as it was.

        Outputs, new contents of state, and gradients as they are before the optimizer are compared
        by the ratio of norms. Python side effects of the eager call do happen.
        """
        with self._lock:
            given = Given(args, kwargs)
            program = self._program(given, args, kwargs)
            return compare(program, given, lambda: self.fn(*args, **kwargs))


def _place_of(fn: Any) -> str:
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return (
        repr(fn) if code is None else f"{code.co_filename}:{code.co_firstlineno} in {fn.__name__}"
    )
