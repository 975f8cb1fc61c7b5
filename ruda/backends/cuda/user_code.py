"""Where a person's code stands: the innermost line outside of ruda, and the modules around it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

_RUDA = str(Path(__file__).parents[2]) + "/"


def user_line() -> str:
    """``file:line`` of the innermost frame that is not ruda's own; of the outermost otherwise."""
    frame: Any = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_RUDA) and frame.f_back is not None:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def running_modules() -> str:
    """The classes of the modules whose calls are running, outermost first: ``GPT/Block/Linear``."""
    names: list[str] = []
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "__call__" and frame.f_code.co_filename.endswith(_MODULE):
            names.append(type(frame.f_locals.get("self")).__name__)
        frame = frame.f_back
    return "/".join(reversed(names))


_MODULE = "ruda/nn/module.py"
