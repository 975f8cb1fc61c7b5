"""What state is called where people read of it: parameters as by their model, moments by theirs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from ruda.tensor.tensor import RudaTensor

_PRIVATE = [
    (re.compile(r"\._(?:modules|parameters|buffers)\['([^']*)'\]"), r".\1"),
    (re.compile(r"\[tensor\(<traced>, [^)]*\)\]"), "[...]"),
]


def readable(path: str) -> str:
    """A path without the containers in which modules keep what they hold.

    >>> readable("model._modules['0']._parameters['weight']")
    'model.0.weight'
    """
    for pattern, text in _PRIVATE:
        path = pattern.sub(text, path)
    return path


def state_names(
    tensors: Iterable[tuple[str, RudaTensor]], objects: Iterable[tuple[str, Any]]
) -> dict[int, str]:
    """The name of each tensor that was reached, by its id, from the paths that lead to it.

    That of a model comes first, then the shortest: an optimizer has a list of the same tensors.
    """
    names: dict[int, str] = {}
    found = [(readable(path), path, tensor) for path, tensor in tensors]
    for name, _, tensor in sorted(found, key=lambda item: (item[0] == item[1], len(item[0]))):
        names.setdefault(id(tensor), name)
    for path, value in objects:
        if isinstance(value, dict) and path.endswith("._state"):
            names.update(_moments(path.removesuffix("._state"), value, names))
    return names


def _moments(owner: str, state: dict[Any, Any], names: dict[int, str]) -> Iterator[tuple[int, str]]:
    """The names of what an optimizer keeps for each parameter."""
    for parameter, pairs in state.items():
        if parameter.__class__ is not RudaTensor or not isinstance(pairs, tuple):
            continue
        for pair in pairs:
            if isinstance(pair, tuple) and len(pair) == 2 and pair[1].__class__ is RudaTensor:
                yield id(pair[1]), f"{owner}.{pair[0]}[{names.get(id(parameter), '...')}]"
