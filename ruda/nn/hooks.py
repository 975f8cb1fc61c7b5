"""Backward hooks of modules: the gradients of all inputs or outputs of a call, at once.

Gradients of several tensors are whole together only at a place that all of them pass: the tensors
are joined into one there and taken apart again, which costs a copy while a hook is registered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ruda.core.errors import DTypeError
from ruda.ops.join import concat, split
from ruda.ops.movement import reshape
from ruda.tensor.tensor import RudaTensor

Values = tuple[Any, ...]


class BackwardTap:
    """Calls ``hook(module, grad_inputs, grad_outputs)`` for one call of a module.

    A hook's result, a tuple or a single gradient, replaces those of the inputs. Values that
    require no gradient show as None.
    """

    def __init__(self, module: Any, hooks: Iterable[Callable[..., Any]]) -> None:
        self.module = module
        self.hooks = list(hooks)
        self._outputs: Values = ()
        self._reached = False

    def inputs(self, args: Values) -> Values:
        """``args`` as the module shall see them."""
        out, self._reached = _tapped(args, self._arrived, type(self.module).__name__)
        return out

    def outputs(self, result: Any) -> Any:
        """What the module computed, as its caller shall see it."""
        single = not isinstance(result, tuple)
        values = (result,) if single else result
        out, _ = _tapped(values, self._left, type(self.module).__name__)
        return out[0] if single else out

    def _left(self, gradients: Values) -> Values | None:
        self._outputs = gradients
        if not self._reached:
            # Backward ends inside the module: there are no gradients of inputs to wait for.
            self._call((None,))
        return None

    def _arrived(self, gradients: Values) -> Values | None:
        return self._call(gradients)

    def _call(self, gradients: Values) -> Values | None:
        changed = None
        for hook in self.hooks:
            found = hook(self.module, gradients, self._outputs)
            if found is not None:
                gradients = changed = found if isinstance(found, tuple) else (found,)
        return changed


def _tapped(
    values: Values, arrived: Callable[[Values], Values | None], name: str
) -> tuple[Values, bool]:
    """``values`` with the tensors that require grad joined and taken apart, hooked in between."""
    places = [i for i, v in enumerate(values) if isinstance(v, RudaTensor) and v.requires_grad]
    if not places:
        return values, False
    tensors = [values[i] for i in places]
    if any(t.dtype is not tensors[0].dtype for t in tensors):
        got = " and ".join(str(t.dtype) for t in tensors)
        what = "backward hooks need one dtype among the tensors of a call"
        raise DTypeError(name, what, got, "one dtype")
    sizes = [t.size for t in tensors]
    flat = concat([reshape(t, (-1,)) for t in tensors])

    def hook(gradient: RudaTensor) -> RudaTensor | None:
        parts: list[Any] = [None] * len(values)
        for i, part, tensor in zip(places, split(gradient, sizes), tensors, strict=True):
            parts[i] = reshape(part, tensor.shape)
        changed = arrived(tuple(parts))
        if changed is None:
            return None
        return concat([reshape(changed[i], (-1,)) for i in places])

    flat.register_hook(hook)
    out = list(values)
    for i, part, tensor in zip(places, split(flat, sizes), tensors, strict=True):
        out[i] = reshape(part, tensor.shape)
    return tuple(out), True
