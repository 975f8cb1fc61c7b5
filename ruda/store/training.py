"""The state of a training run as one tree, and putting it back without half of it going wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ruda.core.errors import StoreError
from ruda.ops.generator import default_generator
from ruda.store.loading import compared, load_into
from ruda.store.report import LoadError
from ruda.tensor.tensor import RudaTensor

_SHAPED = (Mapping, list, tuple, RudaTensor)
# A schedule sets the rates of its optimizer, which are then overwritten by those that were saved.
_ORDER = ("loader", "generators", "default_generator", "schedule", "scaler", "optimizer")
# Their states are plain values, cheap to take before and to put back.
_REFUSING = _ORDER[:3]


def collected(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a model and other parts, the default generator, and pending gradients."""
    found = {name: _state(part) for name, part in parts.items() if part is not None}
    found["default_generator"] = default_generator.state_dict()
    if parts["model"] is not None:
        named = parts["model"].named_parameters()
        found["gradients"] = {name: p.grad for name, p in named if p.grad is not None}
    return found


def put_back(found: Mapping[str, Any], parts: Mapping[str, Any], path: str) -> None:
    """Load a state into the parts that are given.

    With an optimizer training goes on: then pending gradients and the default generator come back
    too. All of it is checked before anything is written. Raises ``LoadError`` for a model, and
    ``StoreError`` for other parts, whose state has another form.
    """
    given = {name: part for name, part in parts.items() if part is not None}
    resumes = "optimizer" in given
    if resumes:
        given["default_generator"] = default_generator
    for name, part in given.items():
        if name not in found:
            hint = f"leaving out {name}="
            raise StoreError("restore", f"no {name} was saved", None, None, hint, path)
        if name == "model":
            _check_model(part, found[name], path)
        else:
            _check_part(part, found[name], name, path)
    gradients = found.get("gradients", {}) if resumes and "model" in given else {}
    if resumes and "model" in given:
        _check_gradients(given["model"], gradients, path)
    _load_parts(found, given)
    if "model" in given:
        load_into(given["model"], found["model"], dtype="same")
    if resumes and "model" in given:
        _set_gradients(given["model"], gradients)


def _state(part: Any) -> Any:
    """The state of one part, or of several in a mapping."""
    if hasattr(part, "state_dict"):
        return part.state_dict()
    return {name: _state(each) for name, each in part.items()}


def _leaves(part: Any, state: Any) -> Iterator[tuple[Any, Any]]:
    if hasattr(part, "load_state_dict"):
        yield part, state
        return
    for name, each in part.items():
        yield from _leaves(each, state[name])


def _load_parts(found: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Load all parts but the model, in an order in which what may still refuse comes first."""
    names = [name for name in _ORDER if name in given]
    leaves = [(name, *leaf) for name in names for leaf in _leaves(given[name], found[name])]
    done = []
    try:
        for name, part, state in leaves:
            if name in _REFUSING:
                done.append((part, part.state_dict()))
            part.load_state_dict(state)
    except BaseException:
        for part, state in reversed(done):
            part.load_state_dict(state)
        raise


def _check_model(model: Any, found: Any, path: str) -> None:
    if not isinstance(found, Mapping) or not all(isinstance(v, RudaTensor) for v in found.values()):
        _fail("model", "something else", "tensors by name", path)
    report, _ = compared(model.state_dict(), found, "same")
    if not report.is_complete:
        raise LoadError(report, path)


def _check_part(part: Any, found: Any, at: str, path: str) -> None:
    if hasattr(part, "state_dict"):
        _check_form(part.state_dict(), found, at, path)
        return
    if not isinstance(found, Mapping) or set(found) != set(part):
        _fail(at, "other names", f"{sorted(map(str, part))}", path)
    for name, each in part.items():
        _check_part(each, found[name], f"{at}.{name}", path)


def _check_form(own: Any, found: Any, at: str, path: str) -> None:
    """Raise unless two states differ in nothing but values and how much they have gathered."""
    if isinstance(own, Mapping) and isinstance(found, Mapping):
        # Some optimizers have no state before their first step.
        if own and found and set(own) != set(found):
            _fail(at, f"names {sorted(map(str, found))}", f"{sorted(map(str, own))}", path)
        for key in own if found else ():
            _check_form(own[key], found[key], f"{at}.{key}", path)
    elif isinstance(own, list | tuple) and isinstance(found, list | tuple):
        grows = not any(isinstance(value, Mapping) for value in (*own, *found))
        if len(own) != len(found) and not grows:
            _fail(at, f"{len(found)} items", f"{len(own)}", path)
        for number, (value, other) in enumerate(zip(own, found, strict=False)):
            _check_form(value, other, f"{at}.{number}", path)
    elif isinstance(own, RudaTensor) and isinstance(found, RudaTensor):
        if (own.shape, own.dtype) != (found.shape, found.dtype):
            _fail(at, f"{found.dtype}{list(found.shape)}", f"{own.dtype}{list(own.shape)}", path)
    elif own is not None and (isinstance(own, _SHAPED) or isinstance(found, _SHAPED)):
        _fail(at, type(found).__name__, type(own).__name__, path)


def _check_gradients(model: Any, gradients: Any, path: str) -> None:
    if not isinstance(gradients, Mapping):
        _fail("gradients", type(gradients).__name__, "tensors by name", path)
    own = dict(model.named_parameters())
    for name, grad in gradients.items():
        if name not in own or not own[name].requires_grad:
            _fail(f"gradients.{name}", "a gradient", "none, there is no such parameter", path)
        _check_form(own[name], grad, f"gradients.{name}", path)


def _set_gradients(model: Any, gradients: Mapping[str, Any]) -> None:
    for name, parameter in model.named_parameters():
        grad = gradients.get(name)
        if grad is not None or parameter.requires_grad:
            parameter.grad = None if grad is None else grad.to(parameter.device)


def _fail(at: str, got: str, expected: str, path: str) -> None:
    hint = "making the parts as they were when they were saved"
    raise StoreError("restore", f"{at} does not fit", got, expected, hint, path)
