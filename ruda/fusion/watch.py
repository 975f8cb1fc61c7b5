"""Seeing which user functions run in a trace.

From Python 3.12 on a tool of ``sys.monitoring`` is told when a function begins, beside whatever
other tools there are. Before, it is the interpreter's profile hook, which is also called at each
return and for each function in C; a hook that was there (coverage, a profiler) is called too.
Either is set for the time of the trace only.
"""

from __future__ import annotations

import builtins
import functools
import gc
import sys
import threading
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from ruda.core.errors import CaptureError
from ruda.fusion.lines import is_user_file, is_user_frame

_TOOLS = range(6)
# The names of ``sys.monitoring.events``: a generator goes on, or is made to raise.
_BEGINS = ("PY_START", "PY_RESUME", "PY_THROW")


class Watch:
    """Calls ``enter(frame, functions)`` when a user function begins, until the block ends.

    ``functions`` are those of this code that existed before the block; a function that is made
    inside computes its closure and defaults from what is guarded already.
    """

    def __init__(self, enter: Callable[[Any, list[FunctionType]], None]) -> None:
        self.enter = enter
        # By id: hashing a code object walks all of it.
        self.functions: dict[int, list[FunctionType]] = {}

    def __enter__(self) -> Watch:
        for found in _functions():
            code = found.__code__
            if _may_be_user(code.co_filename):
                self.functions.setdefault(id(code), []).append(found)
        self._install()
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()
        self.functions.clear()

    def _install(self) -> None:
        monitoring = getattr(sys, "monitoring", None)
        if monitoring is None or not self._monitor(monitoring):
            self._hook()

    def _monitor(self, monitoring: Any) -> bool:
        """Be told as a tool, if there is room for one more."""
        tool = _taken(monitoring)
        if tool is None:
            return False
        thread, events = threading.get_ident(), monitoring.events

        def begun(code: CodeType, *_: Any) -> None:
            # Other threads are watched as well, and none of their functions is of the trace.
            if _may_be_user(code.co_filename) and threading.get_ident() == thread:
                self._event(sys._getframe(1), "call", None)

        def restore() -> None:
            monitoring.set_events(tool, 0)
            for name in _BEGINS:
                monitoring.register_callback(tool, getattr(events, name), None)
            monitoring.free_tool_id(tool)

        self._restore = restore
        for name in _BEGINS:
            monitoring.register_callback(tool, getattr(events, name), begun)
        monitoring.set_events(tool, sum(getattr(events, name) for name in _BEGINS))
        return True

    def _hook(self) -> None:
        hooks = ((sys.getprofile, sys.setprofile), (sys.gettrace, sys.settrace))
        for get, put in hooks:
            before = get()
            if before is None:
                self._restore = functools.partial(put, None)
                put(self._event)
                return
        before = sys.getprofile()
        if not callable(before):
            hint = "tracing the step once before profiling or debugging it"
            raise CaptureError("compile", "profile and trace hooks are both taken", hint=hint)
        self._restore = lambda: sys.setprofile(before)

        def both(frame: Any, event: Any, more: Any) -> None:
            self._event(frame, event, more)
            before(frame, event, more)

        sys.setprofile(both)

    def _event(self, frame: Any, event: str, _: Any) -> None:
        if event == "call" and is_user_frame(frame):
            self.enter(frame, self._functions_of(frame))

    def _functions_of(self, frame: Any) -> list[FunctionType]:
        found = self.functions.get(id(frame.f_code), [])
        if not found and frame.f_builtins is not vars(builtins):
            found = [x for x in gc.get_referrers(frame.f_code) if type(x) is FunctionType]
        return found


def _functions() -> list[FunctionType]:
    """All functions with the usual builtins, which each of them refers to.

    A list of all objects would hold tuples that other threads have half made, and Python refuses
    to go on with one that somebody else holds as well.
    """
    # Not __class__, which a proxy among the objects may answer with code of its own.
    return [x for x in gc.get_referrers(vars(builtins)) if type(x) is FunctionType]


def _taken(monitoring: Any) -> int | None:
    """The number of a tool that is ours from now on; None where all are somebody's."""
    for tool in _TOOLS[::-1]:
        try:
            monitoring.use_tool_id(tool, "ruda.compile")
        except ValueError:
            continue
        return tool
    return None


@functools.cache
def _may_be_user(name: str) -> bool:
    """Whether the functions of the file ``name`` can be ones of user code."""
    return name == "<string>" or is_user_file(name)
