"""Modules that hold modules: in a row, in a list, by name."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from ruda.core.errors import DTypeError, IndexRangeError
from ruda.nn.module import Module


def _checked(module: Any, owner: Module) -> Module:
    if not isinstance(module, Module):
        name = type(owner).__name__
        raise DTypeError(name, "holds modules only", type(module).__name__, "a ruda.nn.Module")
    return module


class _Numbered(Module):
    """What ``Sequential`` and ``ModuleList`` share: modules named by their places."""

    def _items(self) -> list[Any]:
        return list(self._modules.values())

    def _place(self, index: Any) -> int:
        place, count = operator.index(index), len(self._modules)
        if not -count <= place < count:
            expected = f"{-count} to {count - 1}"
            raise IndexRangeError(type(self).__name__, "no such module", place, expected)
        return place % count

    def _set_items(self, modules: Iterable[Any]) -> None:
        checked = [_checked(module, self) for module in modules]
        for name in list(self._modules):
            delattr(self, name)
        for place, module in enumerate(checked):
            setattr(self, str(place), module)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(*self._spread(self._items()[index]))
        return self._items()[self._place(index)]

    @staticmethod
    def _spread(modules: list[Any]) -> tuple[Any, ...]:
        """The arguments that make a container of ``modules``."""
        return tuple(modules)

    def __setitem__(self, index: int, module: Module) -> None:
        name = list(self._modules)[self._place(index)]
        setattr(self, name, _checked(module, self))

    def __delitem__(self, index: Any) -> None:
        items = self._items()
        del items[index if isinstance(index, slice) else self._place(index)]
        self._set_items(items)

    def append(self, module: Module) -> Self:
        """Put ``module`` at the end; returns the container."""
        setattr(self, str(len(self)), _checked(module, self))
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Put all ``modules`` at the end; returns the container."""
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Put ``module`` before the place ``index``; returns the container."""
        items = self._items()
        items.insert(index, module)
        self._set_items(items)
        return self


class Sequential(_Numbered):
    """Modules that are called one after the other, each on what the one before gave.

    ``Sequential(a, b)`` names them "0" and "1", ``Sequential({"first": a})`` as given.

    >>> model = ruda.nn.Sequential(ruda.nn.Linear(4, 8), ruda.nn.Linear(8, 2))
    >>> model(ruda.ones((3, 4))).shape, len(model)
    ((3, 2), 2)
    """

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            for name, module in modules[0].items():
                setattr(self, name, _checked(module, self))
        else:
            self._set_items(modules)

    def forward(self, input: Any) -> Any:
        """What the last module gives."""
        for module in self._modules.values():
            input = module(input)  # type: ignore[misc]
        return input


class ModuleList(_Numbered):
    """A list of modules, whose parameters are found; it has no ``forward``.

    >>> layers = ruda.nn.ModuleList(ruda.nn.Linear(2, 2) for _ in range(3))
    >>> len(layers), layers[-1] is layers[2]
    (3, True)
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self._set_items(modules)

    @staticmethod
    def _spread(modules: list[Any]) -> tuple[Any, ...]:
        return (modules,)


class ModuleDict(Module):
    """Modules by name, whose parameters are found; it has no ``forward``.

    >>> heads = ruda.nn.ModuleDict({"label": ruda.nn.Linear(2, 3)})
    >>> "label" in heads, list(heads)
    (True, ['label'])
    """

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def update(self, modules: Mapping[str, Module]) -> None:
        """Add or replace modules."""
        for name, module in modules.items():
            self[name] = module

    def __getitem__(self, name: str) -> Any:
        return self._modules[name]

    def __setitem__(self, name: str, module: Module) -> None:
        setattr(self, name, _checked(module, self))

    def __delitem__(self, name: str) -> None:
        if name not in self._modules:
            raise KeyError(name)
        delattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def values(self) -> Iterable[Any]:
        """The modules."""
        return self._modules.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names with modules."""
        return self._modules.items()
