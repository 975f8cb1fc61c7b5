"""Parameters chosen by regular expressions: groups for an optimizer, and freezing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ruda.core.errors import ArgumentError
from ruda.core.mode import state_changed
from ruda.nn.module import Module
from ruda.tensor.tensor import RudaTensor

Pattern = str | re.Pattern[str]


class ParameterGroups(list[dict[str, Any]]):
    """Groups for an optimizer; ``report`` tells the names that each pattern has matched.

    The names that no pattern matches are under the key None.
    """

    def __init__(
        self, groups: Iterable[dict[str, Any]], report: dict[str | None, list[str]]
    ) -> None:
        super().__init__(groups)
        self.report = report

    def __str__(self) -> str:
        lines = []
        for pattern, names in self.report.items():
            head = "all others" if pattern is None else pattern
            lines.append(f"{head}: {', '.join(names) if names else 'none'}")
        return "\n".join(lines)

    # As a list it would print the values of all parameters.
    __repr__ = __str__


def parameter_groups(
    model: Module, patterns: Sequence[tuple[Pattern, Mapping[str, Any]]], *, frozen: bool = False
) -> ParameterGroups:
    """Groups of the parameters of ``model`` with settings by regular expression.

    A parameter goes with the first pattern found in one of its names (``re.search``), those that
    none fits come last, with the optimizer's own settings. A tied parameter has several names and
    is in one group. Frozen parameters are left out unless ``frozen``. Raises ``ArgumentError`` for
    a pattern that matches no parameter of the model.

    >>> model = ruda.nn.Sequential(ruda.nn.Linear(2, 2), ruda.nn.LayerNorm(2))
    >>> groups = parameter_groups(model, [(r"bias|^1[.]", {"weight_decay": 0.0})])
    >>> print(groups)
    bias|^1[.]: 0.bias, 1.weight, 1.bias
    all others: 0.weight
    >>> len(ruda.optim.AdamW(groups, lr=1e-3).param_groups)
    2
    """
    found = _matched("parameter_groups", model, [pattern for pattern, _ in patterns])
    members: list[list[RudaTensor]] = [[] for _ in range(len(patterns) + 1)]
    report: list[list[str]] = [[] for _ in members]
    for named, fits in found:
        if frozen or named.parameter.requires_grad:
            place = fits[0] if fits else -1
            members[place].append(named.parameter)
            report[place].append(named.names[0])
    settings: list[Mapping[str, Any]] = [own for _, own in patterns]
    made = zip(members, [*settings, {}], strict=True)
    groups = ({"params": params, **own} for params, own in made if params)
    keys: list[str | None] = [*(re.compile(pattern).pattern for pattern, _ in patterns), None]
    return ParameterGroups(groups, dict(zip(keys, report, strict=True)))


def freeze(model: Module, *patterns: Pattern, value: bool = True) -> list[str]:
    """Freeze (or with ``value=False`` train again) the parameters whose names fit a pattern.

    Returns the names. A tied parameter is frozen in all its places. Raises ``ArgumentError`` for a
    pattern that matches no parameter.

    >>> model = ruda.nn.Sequential(ruda.nn.Linear(2, 2), ruda.nn.Linear(2, 1))
    >>> freeze(model, r"^0[.]")
    ['0.weight', '0.bias']
    >>> [p.requires_grad for p in model.parameters()]
    [False, False, True, True]
    """
    chosen = [named for named, fits in _matched("freeze", model, patterns) if fits]
    for named in chosen:
        if named.parameter.requires_grad == value:
            for module, name in named.places:
                state_changed(module, name, not value)
            named.parameter.requires_grad_(not value)
    return [named.names[0] for named in chosen]


class _Named(NamedTuple):
    """A parameter with all its names, and where it stands."""

    parameter: RudaTensor
    names: list[str]
    places: list[tuple[Module, str]]


def _named(model: Module) -> list[_Named]:
    found: dict[int, _Named] = {}
    for path, module in model._walk(""):
        for name, parameter in module._parameters.items():
            if parameter is not None:
                named = found.setdefault(id(parameter), _Named(parameter, [], []))
                named.names.append(f"{path}.{name}" if path else name)
                named.places.append((module, name))
    return list(found.values())


def _matched(op: str, model: Module, patterns: Sequence[Pattern]) -> list[tuple[_Named, list[int]]]:
    """All parameters with the numbers of the patterns that fit; raises for one that fits none."""
    compiled = [re.compile(pattern) for pattern in patterns]
    found = [
        (named, [i for i, each in enumerate(compiled) if any(map(each.search, named.names))])
        for named in _named(model)
    ]
    used = {i for _, fits in found for i in fits}
    idle = [each.pattern for i, each in enumerate(compiled) if i not in used]
    if idle:
        hint = "the names of model.named_parameters()"
        raise ArgumentError(op, "a pattern matches no parameter", idle, hint=hint)
    return found
