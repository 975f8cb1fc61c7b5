"""The tensor class and the dispatcher.

The package is a callable module, so that ``ruda.tensor(data)`` makes a tensor while
``ruda.tensor.dispatch`` stays importable; ``ruda.ops.create`` installs the call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

factory: Callable[..., Any]


class _CallableModule(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.factory(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
