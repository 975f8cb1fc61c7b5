"""The base class of models: a tree of parameters, buffers and submodules."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

from ruda.core.dtypes import as_dtype
from ruda.core.errors import ArgumentError, DTypeError, RudaError, ShapeError
from ruda.core.mode import no_grad, state_changed
from ruda.nn.hooks import BackwardTap
from ruda.ops.conversion import asarray
from ruda.tensor.marks import is_parameter, mark
from ruda.tensor.node import drop_gradients, gradients
from ruda.tensor.tensor import RudaTensor

Hook = Callable[..., Any]
_DELETED = object()


class StateDictError(RudaError, KeyError):
    """Names of a state dict that do not match the module's."""

    __str__ = RudaError.__str__


class Module:
    """A part of a model: assign parameters, buffers and modules as attributes, write ``forward``.

    >>> class Affine(ruda.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.scale = ruda.nn.Parameter(ruda.ones(3))
    ...     def forward(self, x):
    ...         return x * self.scale
    >>> Affine()(ruda.asarray([1.0, 2.0, 3.0])).tolist()
    [1.0, 2.0, 3.0]
    """

    # Compiled steps compare this number instead of walking the module's attributes.
    _ruda_version = 0
    # Names of buffers whose dtype `to` leaves alone, since they mean little in a lower one.
    exact_buffers: frozenset[str] = frozenset()

    training: bool
    _parameters: dict[str, RudaTensor | None]
    _buffers: dict[str, RudaTensor | None]
    _modules: dict[str, Module | None]

    def __init__(self) -> None:
        for name in ("_parameters", "_buffers", "_modules"):
            vars(self)[name] = {}
        vars(self)["_transient"] = set()
        vars(self)["_before"] = {}
        vars(self)["_after"] = {}
        vars(self)["_backward"] = {}
        self.training = True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What calling the module computes; subclasses write it."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not (self._before or self._after or self._backward):
            return self.forward(*args, **kwargs)
        for hook in list(self._before.values()):
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        tap = BackwardTap(self, self._backward.values()) if self._backward else None
        out = self.forward(*(args if tap is None else tap.inputs(args)), **kwargs)
        for hook in list(self._after.values()):
            changed = hook(self, args, out)
            out = out if changed is None else changed
        return out if tap is None else tap.outputs(out)

    def __setattr__(self, name: str, value: Any) -> None:
        slots = vars(self)
        if "_parameters" not in slots:
            what = "an attribute is set before the base class is ready"
            raise ArgumentError(type(self).__name__, what, name, hint="super().__init__() first")
        state_changed(self, name, value)
        computed = self._computed(name)
        if computed is not None:
            computed.assign(value)
        elif is_parameter(value) or isinstance(value, Module):
            if isinstance(value, Module):
                self._check_below(name, value)
            group: Any = self._modules if isinstance(value, Module) else self._parameters
            self._forget(name, group)
            group[name] = value
        elif name in self._parameters or name in self._buffers:
            self._replace(name, value)
        elif name in self._modules and value is None:
            self._modules[name] = None
        else:
            self._forget(name)
            slots[name] = value

    def _computed(self, name: str) -> Any:
        """The parametrization that computes the attribute ``name``, or None."""
        made: Any = vars(self).get("_modules", {}).get("parametrizations")
        return made[name] if made is not None and name in made else None

    def _check_below(self, name: str, value: Module) -> None:
        """Raise ``ArgumentError`` if this module is ``value``, or somewhere below it."""
        if vars(value).get("_modules") is None:
            return
        found = next((place for place, m in value.named_modules(name) if m is self), None)
        if found is not None:
            what, hint = f"{found} would be the module that it lies in", "a tuple around it"
            raise ArgumentError(type(self).__name__, what, hint=hint)

    def _forget(self, name: str, kept: Any = None) -> None:
        """Drop ``name``, but for its place in ``kept``, which is for what is to replace it."""
        vars(self).pop(name, None)
        for group in (self._parameters, self._buffers, self._modules):
            if group is not kept:
                group.pop(name, None)
        self._transient.discard(name)

    def _replace(self, name: str, value: Any) -> None:
        if value is not None and not isinstance(value, RudaTensor):
            expected = "a tensor or None"
            raise DTypeError(f"{type(self).__name__}.{name}", "not a tensor", value, expected)
        if name in self._buffers:
            self._buffers[name] = value
            return
        if value is not None:
            hint = "ruda.nn.Parameter(value), or assign(value) to keep the parameter"
            raise DTypeError(
                f"{type(self).__name__}.{name}", "not a parameter", value.spec, hint=hint
            )
        self._parameters[name] = None

    def __getattr__(self, name: str) -> Any:
        # Each use of a parameter or submodule comes by here: written out, as loops take longer.
        slots = self.__dict__
        found = slots.get("_parameters")
        if found is not None and name in found:
            return found[name]
        found = slots.get("_modules")
        if found is not None and name in found:
            return found[name]
        found = slots.get("_buffers")
        if found is not None and name in found:
            return found[name]
        computed = self._computed(name)
        if computed is not None:
            return computed()
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        state_changed(self, name, _DELETED)
        self._forget(name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._parameters, *self._buffers, *self._modules})

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for parameter in self._parameters.values():
            if parameter is not None:
                mark(parameter)

    def register_buffer(self, name: str, value: RudaTensor | None, persistent: bool = True) -> None:
        """Keep ``value`` with the module, moved and (if ``persistent``) saved with it."""
        if value is not None and not isinstance(value, RudaTensor):
            raise DTypeError("register_buffer", "not a tensor", type(value).__name__)
        state_changed(self, name, value)
        self._forget(name, self._buffers)
        self._buffers[name] = value
        if not persistent:
            self._transient.add(name)

    def register_parameter(self, name: str, value: RudaTensor | None) -> None:
        """The same as setting the attribute; None keeps the name without a parameter."""
        if value is None:
            state_changed(self, name, _DELETED)
            self._forget(name, self._parameters)
            self._parameters[name] = None
        else:
            setattr(self, name, value)

    def register_forward_pre_hook(self, hook: Hook) -> Callable[[], None]:
        """Call ``hook(module, args)`` before ``forward``; returns its removal."""
        return self._hooked(self._before, hook)

    def register_forward_hook(self, hook: Hook) -> Callable[[], None]:
        """Call ``hook(module, args, out)`` after ``forward``; returns its removal."""
        return self._hooked(self._after, hook)

    def register_full_backward_hook(self, hook: Hook) -> Callable[[], None]:
        """Call ``hook(module, grad_inputs, grad_outputs)`` in backward; returns its removal.

        Both are tuples, one gradient per positional argument and per output, None where none is
        required; what the hook returns replaces those of the arguments.
        """
        return self._hooked(self._backward, hook)

    def _hooked(self, hooks: dict[object, Hook], hook: Hook) -> Callable[[], None]:
        key = object()
        state_changed(self, "hooks", hook)
        hooks[key] = hook

        def remove() -> None:
            state_changed(self, "hooks", _DELETED)
            hooks.pop(key, None)

        return remove

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and all below it with dotted names, each once."""
        seen: set[int] = set()
        for name, module in self._walk(prefix):
            if id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def _walk(self, prefix: str) -> Iterator[tuple[str, Module]]:
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module._walk(f"{prefix}.{name}" if prefix else name)

    def modules(self) -> Iterator[Module]:
        """This module and all below it, each once."""
        return (module for _, module in self.named_modules())

    def children(self) -> Iterator[Module]:
        """The modules directly below this one."""
        return (module for module in self._modules.values() if module is not None)

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, RudaTensor]]:
        """All parameters with dotted names; a tied one once, under its first name."""
        return _once(self._named("_parameters", prefix))

    def parameters(self) -> Iterator[RudaTensor]:
        """All parameters, a tied one once."""
        return (parameter for _, parameter in self.named_parameters())

    def named_buffers(self, prefix: str = "") -> Iterator[tuple[str, RudaTensor]]:
        """All buffers with dotted names, a shared one once."""
        return _once(self._named("_buffers", prefix))

    def buffers(self) -> Iterator[RudaTensor]:
        """All buffers, a shared one once."""
        return (buffer for _, buffer in self.named_buffers())

    def _named(self, group: str, prefix: str = "") -> Iterator[tuple[str, RudaTensor]]:
        for path, module in self._walk(prefix):
            for name, value in vars(module)[group].items():
                if value is not None:
                    yield (f"{path}.{name}" if path else name), value

    def state_dict(self) -> dict[str, RudaTensor]:
        """Parameters and persistent buffers by dotted name, detached, sharing memory."""
        transient = {
            f"{path}.{name}" if path else name
            for path, module in self._walk("")
            for name in module._transient
        }
        named = [*self._named("_parameters"), *self._named("_buffers")]
        return {name: value.detach() for name, value in named if name not in transient}

    def load_state_dict(
        self, state: Mapping[str, Any], strict: bool = True
    ) -> tuple[list[str], list[str]]:
        """Copy ``state`` into parameters and buffers; returns the missing and unexpected names.

        Everything is checked before anything is written. With ``strict`` a missing or unexpected
        name raises ``StateDictError``; a wrong shape raises ``ShapeError`` always.
        """
        own = self.state_dict()
        missing = [name for name in own if name not in state]
        unexpected = [name for name in state if name not in own]
        if strict and (missing or unexpected):
            got = f"missing {missing}, unexpected {unexpected}"
            hint = "strict=False, or ruda.store.load_into, which suggests names"
            raise StateDictError("load_state_dict", "names do not match", got, hint=hint)
        values = {name: asarray(state[name]) for name in own if name in state}
        for name, value in values.items():
            if value.shape != own[name].shape:
                got, expected = f"{name} {value.shape}", own[name].shape
                raise ShapeError("load_state_dict", "a shape does not fit", got, expected)
        with no_grad():
            for name, value in values.items():
                own[name].assign(value.to(own[name].device).astype(own[name].dtype))
        return missing, unexpected

    def train(self, mode: bool = True) -> Self:
        """Put this module and all below it into training mode, or out of it."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Leave training mode: dropout off, running statistics used."""
        return self.train(False)

    def requires_grad_(self, value: bool = True) -> Self:
        """Train all parameters below, or freeze them."""
        for module in self.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None and parameter.requires_grad != value:
                    state_changed(module, name, value)
                    parameter.requires_grad_(value)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or fill them with zeros."""
        clear_grads(self.parameters(), set_to_none)

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Call ``fn`` on every module below, children first, then on this one."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def to(self, target: Any = None, *, dtype: Any = None, device: Any = None) -> Self:
        """Move floating parameters and buffers to a dtype, everything to a device, in place.

        ``target`` is either; tied parameters stay tied. Optimizers made before keep the old ones.
        """
        if target is not None:
            try:
                dtype = as_dtype(target)
            except DTypeError:
                device = target
        converted: dict[int, RudaTensor] = {}
        for module, group, name, value in list(self._held()):
            kind = None if name in module.exact_buffers else dtype
            found = _converted(value, kind, device, converted)
            if found is not value:
                state_changed(module, name, found)
                group[name] = found
        return self

    def _held(self) -> Iterator[tuple[Module, dict[str, Any], str, RudaTensor]]:
        """All parameters and buffers, with their modules, and where they are held under a name."""
        for module in self.modules():
            for group in (module._parameters, module._buffers):
                yield from ((module, group, n, v) for n, v in group.items() if v is not None)

    def extra_repr(self) -> str:
        """Facts shown between the parentheses of this module's line."""
        return ""

    def __repr__(self) -> str:
        own = sum(p.size for p in self._parameters.values() if p is not None)
        facts = [f for f in (self.extra_repr(), f"{own:,} parameters" if own else "") if f]
        lines = [
            f"  ({name}): " + repr(module).replace("\n", "\n  ")
            for name, module in self._modules.items()
        ]
        head = f"{type(self).__name__}({', '.join(facts)}"
        return head + ")" if not lines else "\n".join([head, *lines, ")"])

    def _repr_html_(self) -> str:
        shown: str = importlib.import_module("ruda.display.trees").module_card(self)
        return shown


def _once(pairs: Iterator[tuple[str, RudaTensor]]) -> Iterator[tuple[str, RudaTensor]]:
    seen: set[int] = set()
    for name, value in pairs:
        if id(value) not in seen:
            seen.add(id(value))
            yield name, value


def _converted(value: RudaTensor, dtype: Any, device: Any, done: dict[int, RudaTensor]) -> Any:
    found = done.get(id(value))
    if found is None:
        with no_grad():
            out = value if device is None else value.to(device)
            if dtype is not None and value.dtype.is_floating:
                out = out.astype(dtype, copy=False)
        if out is not value:
            out = out.detach().requires_grad_(value.requires_grad)
            out = mark(out) if is_parameter(value) else out
        # The original is kept in the dict too: its id must not be reused while converting.
        done[id(value)] = found = out
        done[-id(value)] = value
    return found


def clear_grads(parameters: Iterable[RudaTensor], set_to_none: bool) -> None:
    """Drop the gradients of ``parameters``, or fill them with zeros."""
    if set_to_none:
        drop_gradients(parameters)
        return
    for grad in gradients(list(parameters)):
        if grad is not None:
            grad.assign(0)
