"""Layers that are a function and its settings, with nothing to train."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ruda.nn.module import Module
from ruda.tensor.tensor import RudaTensor


class FunctionLayer(Module):
    """Calls ``_function`` with the input and the settings of the layer."""

    _function: Callable[..., Any]

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = settings

    def forward(self, input: RudaTensor) -> Any:
        """The function of ``input`` with the settings."""
        return type(self)._function(input, **self.settings)

    def extra_repr(self) -> str:
        """The settings."""
        return ", ".join(f"{name}={value!r}" for name, value in self.settings.items())


class PlainLayer(FunctionLayer):
    """A function without settings."""

    def __init__(self) -> None:
        super().__init__()
