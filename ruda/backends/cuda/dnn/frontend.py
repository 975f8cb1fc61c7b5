"""cuDNN's frontend without what it imports for others.

Where PyTorch is installed, older frontends import it for a class that takes its tensors: seconds
that every process would pay for its first convolution. It gets a stand-in instead, which imports
PyTorch when something of it is asked for.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any


class _Later(ModuleType):
    """A module that is imported when an attribute of it is read."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


@functools.cache
def frontend() -> Any:
    """The module ``cudnn``; raises ``ImportError`` where it is not installed."""
    if "cudnn" in sys.modules or "torch" in sys.modules:
        return importlib.import_module("cudnn")
    spec = importlib.util.find_spec("torch")
    if spec is None:
        return importlib.import_module("cudnn")
    later = sys.modules["torch"] = _Later("torch")
    later.__spec__ = spec
    try:
        return importlib.import_module("cudnn")
    finally:
        # Whoever imports PyTorch from now on gets PyTorch.
        if sys.modules.get("torch") is later:
            del sys.modules["torch"]
