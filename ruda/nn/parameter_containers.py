"""Lists and dicts of parameters, for modules that have a number of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from ruda.core.errors import IndexRangeError
from ruda.nn.module import Module
from ruda.nn.parameter import Parameter
from ruda.tensor.marks import is_parameter
from ruda.tensor.tensor import RudaTensor


def _parameter(value: Any) -> RudaTensor:
    """``value`` if it is a parameter, else one over its memory."""
    return value if is_parameter(value) else Parameter(value)


class ParameterList(Module):
    """A list of parameters named by their places; plain tensors become parameters.

    >>> scales = ruda.nn.ParameterList([ruda.ones(2), ruda.ones(3)])
    >>> len(scales), scales[-1].shape, [name for name, _ in scales.named_parameters()]
    (2, (3,), ['0', '1'])
    """

    def __init__(self, values: Iterable[Any] = ()) -> None:
        super().__init__()
        self.extend(values)

    def append(self, value: Any) -> Self:
        """Put ``value`` at the end; returns the list."""
        setattr(self, str(len(self)), _parameter(value))
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Put all ``values`` at the end; returns the list."""
        for value in list(values):
            self.append(value)
        return self

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._parameters.values()))

    def __getitem__(self, place: int) -> Any:
        return self._parameters[self._name(place)]

    def __setitem__(self, place: int, value: Any) -> None:
        setattr(self, self._name(place), _parameter(value))

    def _name(self, place: int) -> str:
        if not -len(self) <= place < len(self):
            expected = f"{-len(self)} to {len(self) - 1}"
            raise IndexRangeError("ParameterList", "no such parameter", place, expected)
        return str(place % len(self))


class ParameterDict(Module):
    """Parameters by name; plain tensors become parameters.

    >>> scales = ruda.nn.ParameterDict({"gain": ruda.ones(2)})
    >>> "gain" in scales, list(scales)
    (True, ['gain'])
    """

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.update(values or {})

    def update(self, values: Mapping[str, Any]) -> None:
        """Add or replace parameters."""
        for name, value in values.items():
            self[name] = value

    def __getitem__(self, name: str) -> Any:
        return self._parameters[name]

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, _parameter(value))

    def __delitem__(self, name: str) -> None:
        if name not in self._parameters:
            raise KeyError(name)
        delattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in self._parameters

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._parameters.keys()

    def values(self) -> Iterable[Any]:
        """The parameters."""
        return self._parameters.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names with parameters."""
        return self._parameters.items()
