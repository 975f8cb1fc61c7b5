"""What optimizers share: parameter groups, state tensors, masters of half parameters, saving.

Everything that a step changes is a tensor made in the constructor and overwritten with ``assign``,
so a step can be captured by ``ruda.compile`` and repeated with new values.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ruda.core.dtypes import float32, float64, int64
from ruda.core.errors import ArgumentError, DeviceError, DTypeError, RudaError, ShapeError
from ruda.core.mode import no_grad, state_changed
from ruda.nn.module import Module, clear_grads
from ruda.ops.cast import astype
from ruda.ops.conversion import asarray
from ruda.ops.create import zeros
from ruda.ops.movement import copy
from ruda.ops.select import where as select
from ruda.optim.ready import Ready
from ruda.tensor.batches import Overwrite
from ruda.tensor.node import gradients
from ruda.tensor.tensor import RudaTensor

State = dict[str, RudaTensor]


class OptimizerStateError(RudaError, ValueError):
    """A saved state that does not belong to the optimizer it is loaded into."""


class Group(dict[str, Any]):
    """The settings of a parameter group; ``lr`` is a 0-d tensor, and setting it assigns to it."""

    _ruda_version = 0

    def __setitem__(self, name: str, value: Any) -> None:
        rate = self.get("lr")
        if name == "lr" and rate is not None:
            with no_grad():
                rate.assign(value)
            return
        if self.get(name, self) is not value:
            state_changed(self, name, value)
        super().__setitem__(name, value)

    def update(self, *others: Any, **settings: Any) -> None:
        """Set several settings."""
        for name, value in dict(*others, **settings).items():
            self[name] = value


class Optimizer:
    """The base of optimizers; a subclass has ``_initial``, and ``_call`` or ``_updated``.

    ``params`` are leaf tensors, or mappings with ``params`` and settings of their own. Parameters
    without a gradient are left alone. With ``master=True`` a half parameter has a float32 copy
    that is updated in its place and rounded to it; ``sync_masters`` copies the other way.
    """

    _ruda_version = 0

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any], master: bool) -> None:
        self.defaults = defaults
        self.master = master
        # In tuples, because compiled steps compare lists and dicts item by item at each call.
        self._state: dict[RudaTensor, tuple[tuple[str, RudaTensor], ...]] = {}
        self._ready = Ready()
        self.param_groups: list[Group] = []
        if isinstance(params, Module | RudaTensor):
            got, expected = type(params).__name__, "tensors, or groups of them"
            hint = "module.parameters(), or [tensor]"
            raise DTypeError(type(self).__name__, "parameters expected", got, expected, hint)
        groups = list(params)
        if not groups:
            what = "there are no parameters"
            raise ArgumentError(type(self).__name__, what, hint="module.parameters()")
        if not isinstance(groups[0], Mapping):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _initial(self, master: RudaTensor, group: Group) -> State:
        """The state of a parameter before the first step."""
        raise NotImplementedError

    def _updated(self, p: RudaTensor, grad: RudaTensor, state: State, group: Group) -> None:
        """Overwrite ``p`` and ``state``, where that is more than one call of a row."""
        raise NotImplementedError

    def _call(
        self, p: RudaTensor, grad: RudaTensor, state: State, group: Group
    ) -> Overwrite | None:
        """The call of a row that is the whole step of ``p``, or None where ``_updated`` makes it.

        The gradient is the second operand, and all else follows from ``state`` and ``group``.
        """
        return None

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "lr":
            for group in self.param_groups:
                group["lr"] = value
            return
        state_changed(self, name, value)
        super().__setattr__(name, value)

    @property
    def lr(self) -> RudaTensor:
        """The learning rate of the first group, a 0-d tensor; setting it sets that of all."""
        return self.param_groups[0]["lr"]

    @property
    def state(self) -> dict[RudaTensor, State]:
        """The state tensors of each parameter, by name."""
        return {p: dict(pairs) for p, pairs in self._state.items()}

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Optimize more parameters: ``group["params"]`` with the other settings of ``group``."""
        name = type(self).__name__
        unknown = set(group) - {"params", *self.defaults}
        if "params" not in group or unknown:
            got = f"unknown {sorted(unknown)}" if unknown else "no params"
            raise ArgumentError(name, "not a parameter group", got, sorted(self.defaults))
        given = group["params"]
        params = (given,) if isinstance(given, RudaTensor) else tuple(given)
        self._check(params)
        settings = self.defaults | {k: v for k, v in group.items() if k != "params"}
        if not isinstance(settings["lr"], RudaTensor):
            self._refuse_unless(settings["lr"] >= 0, "lr", settings["lr"], "0 or more")
        self._check_settings(settings)
        where = params[0].device if params else None
        rate = asarray(settings["lr"], dtype=float64, device=where, copy=True)
        made = Group(settings | {"params": params, "lr": rate})
        with no_grad():
            for p in params:
                self._state[p] = tuple(self._state_of(p, made).items())
        self.param_groups = [*self.param_groups, made]

    def _check(self, params: Sequence[Any]) -> None:
        name, seen = type(self).__name__, set(self._state)
        for p in params:
            if not isinstance(p, RudaTensor):
                hint = "module.parameters()"
                raise DTypeError(name, "a parameter is not a tensor", type(p).__name__, hint=hint)
            if not p.is_leaf:
                hint = "p.detach().requires_grad_()"
                raise ArgumentError(name, "a parameter is not a leaf", p.spec, hint=hint)
            if not p.dtype.is_floating:
                raise DTypeError(name, "not a parameter", p.spec, "a real floating dtype")
            if p in seen:
                raise ArgumentError(name, "a parameter is given twice", p.spec)
            if p.device != params[0].device:
                got, hint = f"{params[0].device} and {p.device}", "one group for each device"
                raise DeviceError(name, "a group lives on several devices", got, hint=hint)
            seen.add(p)

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        """Raise ``ArgumentError`` for settings out of range."""

    def _refuse_unless(self, fits: bool, setting: str, value: Any, expected: str) -> None:
        if not fits:
            raise ArgumentError(type(self).__name__, f"{setting} out of range", value, expected)

    def _refuse_below_zero(self, settings: Mapping[str, Any], *names: str) -> None:
        for name in names:
            self._refuse_unless(settings[name] >= 0, name, settings[name], "0 or more")

    def _check_betas(self, settings: Mapping[str, Any], count: int = 2) -> None:
        betas = settings["betas"]
        fits = len(betas) == count and all(0 <= beta < 1 for beta in betas)
        self._refuse_unless(fits, "betas", betas, f"{count} of 0 <= beta < 1")

    def _state_of(self, p: RudaTensor, group: Group) -> State:
        if not (self.master and p.dtype.is_half):
            return self._initial(p, group)
        master = p.detach().astype(float32)
        return {"master": master, **self._initial(master, group)}

    def step(self, *, where: RudaTensor | None = None, scale: Any = None) -> None:
        """Update all parameters that have a gradient.

        Where ``where``, a 0-d bool tensor, is False, nothing changes, state and step counts
        included; it is not read, so the step stays on the device. Gradients are taken times
        ``scale``, a number or 0-d tensor, in float32 for parameters that have a master.
        """
        with no_grad():
            for number, group in enumerate(self.param_groups):
                grads = gradients(group["params"])
                if self._step_alike(number, group, grads, where, scale):
                    continue
                pairs = zip(group["params"], grads, strict=True)
                for p, grad in [(p, grad) for p, grad in pairs if grad is not None]:
                    self._step_one(p, grad, group, where, scale)

    def _step_alike(
        self, number: int, group: Group, grads: list[Any], keep: RudaTensor | None, scale: Any
    ) -> bool:
        """Make the steps of a whole group as one batch; False where they are made one by one."""
        made = self._ready.find(number, group, grads)
        if made is None:
            calls = [
                (p, dict(self._state[p]), grad)
                for p, grad in zip(group["params"], grads, strict=True)
                if grad is not None
            ]
            rows = [self._call(s.get("master", p), grad, s, group) for p, s, grad in calls]
            masters = [(p, s["master"]) for p, s, _ in calls if "master" in s]
            made = self._ready.make(number, group, grads, rows, masters)
        if made is None or (not (keep is None and scale is None) and not made.batch.scales):
            return False
        where = group["lr"].device
        if scale is not None:
            scale = asarray(scale, device=where) if not isinstance(scale, RudaTensor) else scale
            scale = astype(scale.to(where), float64, copy=False)
        return made.run(grads, scale, None if keep is None else keep.to(where))

    def _step_one(
        self, p: RudaTensor, grad: RudaTensor, group: Group, keep: RudaTensor | None, scale: Any
    ) -> None:
        state = dict(self._state[p])
        targets = (p, *state.values())
        before = [] if keep is None else [copy(target) for target in targets]
        master = state.get("master")
        own = p if master is None else master
        if scale is not None:
            grad = astype(grad, own.dtype, copy=False) * _factor(scale, own)
        call = self._call(own, grad, state, group)
        if call is None:
            self._updated(own, grad, state, group)
        else:
            call.run()
        if master is not None:
            p.assign(master)
        if keep is not None:
            kept = keep.to(p.device)
            for target, old in zip(targets, before, strict=True):
                target.assign(select(kept, target, old))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or fill them with zeros."""
        for group in self.param_groups:
            clear_grads(group["params"], set_to_none)

    def sync_masters(self) -> None:
        """Take the float32 copies anew from the parameters, after these were loaded or set."""
        with no_grad():
            for p, state in self.state.items():
                if "master" in state:
                    state["master"].assign(p.astype(float32))

    def state_dict(self) -> dict[str, Any]:
        """State and settings by the number of the parameter, as PyTorch does; tensors shared."""
        numbers = {id(p): i for i, p in enumerate(self._parameters())}
        groups = [
            {
                **group,
                "lr": group["lr"].detach(),
                "params": [numbers[id(p)] for p in group["params"]],
            }
            for group in self.param_groups
        ]
        state = {
            numbers[id(p)]: {name: value.detach() for name, value in self._state[p]}
            for p in self._parameters()
        }
        return {"state": state, "param_groups": groups}

    def _parameters(self) -> list[RudaTensor]:
        return [p for p, _ in self._members()]

    def _members(self) -> list[tuple[RudaTensor, Group]]:
        return [(p, group) for group in self.param_groups for p in group["params"]]

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Copy the state and settings of ``state_dict`` (or PyTorch's) into this optimizer.

        Everything is checked before anything is written. Settings that this optimizer has not are
        ignored; a missing step count means that steps were made, a missing master is taken from the
        parameter. Raises ``OptimizerStateError`` or ``ShapeError``.
        """
        groups = saved["param_groups"]
        params = self._members()
        own, given = ([len(g["params"]) for g in gs] for gs in (self.param_groups, groups))
        if own != given:
            what = "the groups do not match"
            raise OptimizerStateError("load_state_dict", what, f"parameters {given}", own)
        order = [number for group in groups for number in group["params"]]
        changes = [
            change
            for (p, group), number in zip(params, order, strict=True)
            for change in self._changes(p, group, number, saved["state"].get(number, {}))
        ]
        with no_grad():
            for target, value in changes:
                target.assign(value)
        for group, settings in zip(self.param_groups, groups, strict=True):
            known = {k: v for k, v in settings.items() if k in self.defaults and k != "lr"}
            group.update(known)
            group["lr"] = asarray(settings["lr"], dtype=float64, device=group["lr"].device)

    def _changes(
        self, p: RudaTensor, group: Group, number: Any, given: Mapping[str, Any]
    ) -> list[tuple[RudaTensor, Any]]:
        """What to assign to the state of ``p``, numbered ``number``, so that it is ``given``."""
        with no_grad():
            initial = {"step": 1, "master": p} if given else self._state_of(p, group)
        changes: list[tuple[RudaTensor, Any]] = []
        for name, target in self._state[p]:
            found = given.get(name, initial.get(name))
            if found is None:
                got = f"parameter {number} with {sorted(given)}"
                raise OptimizerStateError("load_state_dict", f"{name} is missing", got)
            value = asarray(found, device=target.device)
            if value.shape not in (target.shape, ()):
                what = f"{name} of parameter {number} does not fit"
                raise ShapeError("load_state_dict", what, value.shape, target.shape)
            changes.append((target, value.astype(target.dtype)))
        return changes

    def __repr__(self) -> str:
        lines = []
        for group in self.param_groups:
            count = sum(p.size for p in group["params"])
            settings = ", ".join(f"{k}={_shown(v)}" for k, v in group.items() if k != "params")
            lines.append(f"  {count:,} parameters: {settings}")
        return "\n".join([f"{type(self).__name__}(", *lines, ")"])

    def _repr_html_(self) -> str:
        shown: str = importlib.import_module("ruda.display.trees").optimizer_card(self)
        return shown


def _shown(value: Any) -> Any:
    return value.item() if isinstance(value, RudaTensor) else value


def _factor(scale: Any, p: RudaTensor) -> Any:
    """``scale`` in the dtype and place of ``p``; a number, which gives way to it, as it is."""
    return scale.to(p.device).astype(p.dtype) if isinstance(scale, RudaTensor) else scale


def zeros_beside(p: RudaTensor) -> RudaTensor:
    """State of zeros in the shape, dtype and place of ``p``."""
    return zeros(p.shape, dtype=p.dtype, device=p.device)


def counter(p: RudaTensor) -> RudaTensor:
    """A step counter of zero beside ``p``; int64, which counts exactly however long it runs."""
    return zeros((), dtype=int64, device=p.device)
