"""Seeing which user functions run in a trace, through the interpreter's profile hook.

The hook is set for the time of the trace only, and a hook that was there (coverage, a profiler) is
called too.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from ruda.core.errors import CaptureError
from ruda.fusion.lines import is_user_frame


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
        # Not __class__, which a proxy among the objects may answer with code of its own.
        for found in [x for x in gc.get_objects() if type(x) is FunctionType]:
            self.functions.setdefault(id(found.__code__), []).append(found)
        self._install()
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()
        self.functions.clear()

    def _install(self) -> None:
        hooks = ((sys.getprofile, sys.setprofile), (sys.gettrace, sys.settrace))
        for get, put in hooks:
            before = get()
            if before is None:
                self._restore = lambda put=put: put(None)
                put(self._event)
                return
        before = sys.getprofile()
        if not callable(before):
            hint = "tracing the step once before profiling or debugging it"
            raise CaptureError("compile", "profile and trace hooks are both taken", hint=hint)
        self._restore = lambda: sys.setprofile(before)
        sys.setprofile(lambda *event: (self._event(*event), before(*event))[-1])

    def _event(self, frame: Any, event: str, _: Any) -> None:
        if event == "call" and is_user_frame(frame):
            self.enter(frame, self.functions.get(id(frame.f_code), []))
